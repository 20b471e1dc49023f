"""Manifest of a repository: the clone bundles that its clients learn about.

An entry on each line, `URL KEY=value ...`, the preferred entry first: a client takes the first
entry that it supports and no other (hg help -e clonebundles). Keys in capitals are Mercurial's;
`made`, `size`, `changesets`, `private` and `identity` are ours, and clients skip them.

The file lies in the folder of manifests, owned by the bundle jobs, and is named by the identity of
the repository, whose `.hg/clonebundles.manifest` is a link to it. Files that the release before
wrote are named by the path of the repository (`hgfleet.bundles.steps.adoption`).
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from hgfleet.bundles.decide.kinds import KINDS
from hgfleet.bundles.decide.names import Key, parse_key
from hgfleet.core import files
from hgfleet.core.identity import is_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

SUFFIX: Final = ".manifest"
HISTORY: Final = ".history"
"""Folder of replaced manifests, among the manifests; no repository's path begins with a dot."""

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a manifest.

    `bundlespec` is as hg prints it (`hg debugbundle --spec` quotes the requirements of a stream
    bundle already). `size` is in bytes, and so is `required_ram`, the memory that a client needs (0
    for no limit). The URL of a `private` entry works only when it is presigned
    (`hgfleet.objectstore.presign`), again for each client (hgext/signedbundles.py). Clients of
    repositories with another `identity` do not get the line (`hgfleet.bundles.decide.advertised`);
    it is empty in a line that the release before wrote.
    """

    url: str
    bundlespec: str
    sha256: str
    size: int
    changesets: int
    made: datetime
    private: bool = False
    required_ram: int = 0
    identity: str = ""

    def line(self) -> str:
        """Render the entry as clients read it, without the newline."""
        return (
            f"{self.url} BUNDLESPEC={self.bundlespec} DIGEST=sha256:{self.sha256}"
            + (f" REQUIREDRAM={self.required_ram}" if self.required_ram else "")
            + f" size={self.size} changesets={self.changesets} made={self.made.strftime(_TIME)}"
            + (" private=yes" if self.private else "")
            + (f" identity={self.identity}" if self.identity else "")
        )

    @property
    def kind(self) -> str:
        """The kind of bundle, from the bundlespec; "other" for an unknown bundlespec."""
        return next(
            (kind.name for kind in KINDS.values() if self.bundlespec.startswith(kind.hg_type)),
            "other",
        )

    def key(self, public_url: str) -> Key | None:
        """Return the key of the object behind the URL; None if the URL is not below public_url."""
        prefix = public_url.rstrip("/") + "/"
        if not self.url.startswith(prefix):
            return None
        return parse_key(unquote(self.url[len(prefix) :]))


def object_url(public_url: str, key: Key | str) -> str:
    """Return the public URL of an object."""
    return f"{public_url.rstrip('/')}/{quote(str(key), safe='/')}"


def locate(entry: Entry, public_urls: Mapping[str, str]) -> tuple[str, Key] | None:
    """Return the store and the key of an entry; None if it is in none of these stores."""
    for store, public_url in public_urls.items():
        if key := entry.key(public_url):
            return store, key
    return None


def render(entries: Iterable[Entry]) -> str:
    """Render a manifest; without entries it is empty, and clients find no bundle."""
    return "".join(entry.line() + "\n" for entry in entries)


def parse(text: str) -> tuple[Entry, ...]:
    """Read a manifest. Lines that this package did not write are left out: a plan replaces them."""
    entries = (_entry(line) for line in text.splitlines())
    return tuple(entry for entry in entries if entry is not None)


def _entry(line: str) -> Entry | None:
    url, *attributes = line.split()[:20] or [""]
    values = dict(attribute.partition("=")[::2] for attribute in attributes)
    digest = _SHA256.fullmatch(values.get("DIGEST", ""))
    try:
        if digest is None:
            return None
        return Entry(
            url=url,
            bundlespec=values["BUNDLESPEC"],
            sha256=digest[1],
            size=int(values["size"]),
            changesets=int(values["changesets"]),
            made=datetime.strptime(values["made"], _TIME).replace(tzinfo=UTC),
            private=values.get("private") == "yes",
            required_ram=int(values.get("REQUIREDRAM", 0)),
            identity=_identity(values.get("identity", "")),
        )
    except (KeyError, ValueError):
        return None


def _identity(text: str) -> str:
    if text and not is_identity(text):
        raise ValueError(f"identity: got {text!r}, expected 32 hexadecimal digits")
    return text


_MODE: Final = 0o640
"""Names of private repositories: hg, the web workers and the prober read them through the group."""

_HAD_USER_REPOSITORIES: Final = ".user-repositories"
"""A run found a dynamic registry: if it is missing now, it is lost."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests of all repositories, by their names (`hgfleet.bundles.decide.names`)."""

    root: Path

    def path(self, name: str) -> Path:
        """Return the path of a repository's manifest."""
        return self.root / f"{name}{SUFFIX}"

    def _history(self, name: str) -> Path:
        return self.root / HISTORY / name

    def exists(self, name: str) -> bool:
        """Whether there is a manifest, or a replaced manifest, of this name."""
        return self.path(name).exists() or bool(self._replaced(name))

    def read(self, name: str) -> tuple[Entry, ...]:
        """Return the published entries; none if there never was a manifest."""
        return parse(self.read_text(name))

    def read_text(self, name: str) -> str:
        """Return the manifest as it is on disk."""
        try:
            return self.path(name).read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other changes of manifests, of this run and of others; each takes a moment."""
        self.root.mkdir(parents=True, exist_ok=True)
        with files.open_folder(self.root) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield

    def publish(self, name: str, entries: Sequence[Entry], now: datetime) -> bool:
        """Replace the manifest atomically and keep the old manifest; return whether it changed.

        The copy in the history shows `prune` until when clients were sent to an object. It is
        written first, so a run killed in between leaves a superfluous copy and no damage.
        """
        path = self.path(name)
        old, new = self.read_text(name), render(entries)
        if old == new:
            return False
        if old:
            kept = self._history(name) / f"{now.strftime(_STAMP)}{SUFFIX}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            # The same name for all, so that the next run replaces the file that a killed run left.
            files.replace(kept, old, mode=_MODE, temporary=".new")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, new, mode=_MODE)
        return True

    def take_over(self, former: str, name: str, now: datetime) -> None:
        """Rename the replaced manifests of the release before, and replace its last manifest."""
        self.publish(former, (), now)
        for path, _ in self._replaced(former):
            self._history(name).mkdir(parents=True, exist_ok=True)
            path.rename(self._history(name) / path.name)
        self.delete(former)

    def delete(self, name: str) -> None:
        """Delete a manifest, its former versions, and folders that are empty then."""
        self.path(name).unlink(missing_ok=True)
        for path, _ in self._replaced(name):
            path.unlink(missing_ok=True)
        for folder in (self._history(name), *self._history(name).parents, *self.path(name).parents):
            if self.root in folder.parents:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def had_user_repositories(self) -> bool:
        """Whether an earlier run found a dynamic registry."""
        return (self.root / _HAD_USER_REPOSITORIES).exists()

    def note_user_repositories(self) -> None:
        """Record that there is a dynamic registry."""
        if self.root.is_dir():
            (self.root / _HAD_USER_REPOSITORIES).touch(mode=0o640)

    def all(self) -> set[str]:
        """Return the names of all repositories that have, or lately had, published bundles."""
        names = set()
        for path in self.root.rglob(f"*{SUFFIX}"):
            relative = path.relative_to(self.root)
            if relative.parts[0] == HISTORY:
                names.add(relative.relative_to(HISTORY).parent.as_posix())
            elif not path.name.startswith(".") and path.stat().st_size:
                names.add(relative.as_posix().removesuffix(SUFFIX))
        return names

    def recent(self, name: str, since: datetime | None = None) -> tuple[Entry, ...]:
        """Return the entries of all manifests that were replaced at `since` or later, or ever."""
        entries: list[Entry] = []
        for path, replaced in self._replaced(name):
            if since is None or replaced >= since:
                entries += parse(path.read_text("utf-8", "replace"))
        return tuple(entries)

    def forget(self, name: str, before: datetime) -> None:
        """Delete the copies of manifests that were replaced before this time."""
        for path, replaced in self._replaced(name):
            if replaced < before:
                path.unlink(missing_ok=True)

    def _replaced(self, name: str) -> list[tuple[Path, datetime]]:
        replaced = []
        for path in sorted(self._history(name).glob(f"*{SUFFIX}")):
            # A repository whose name lies below this name has a folder here, not a file.
            with contextlib.suppress(ValueError):
                stamp = path.name.removesuffix(SUFFIX)
                replaced.append((path, datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)))
        return replaced
