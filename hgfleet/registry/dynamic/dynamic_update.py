"""Changes of the dynamic registry, made under a lock and written as a whole file.

Only sessions that create or change a repository import this module.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files, generation, names, paths
from hgfleet.core.errors import HostError, PushlogError, RegistryError, TemporaryError
from hgfleet.core.paths import DYNAMIC
from hgfleet.pushlog import term
from hgfleet.registry.dynamic import missing, registry_text, user_repositories
from hgfleet.registry.dynamic.entry import Entry, entry_of, problem_of
from hgfleet.registry.dynamic.renames import Rename, with_rename, without
from hgfleet.registry.dynamic.user_repositories import (
    SEEN,
    Dynamic,
    dynamic_of,
    load,
    read_content,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

MODE: Final = 0o640
"""The file names private repositories; all its readers are root or in the group hg."""

PURGED_S: Final = 90 * 86_400
"""Seconds that a deletion stays recorded: longer than a host can be down unnoticed."""

MOST_PURGED: Final = 20_000
"""Deletions that are recorded at a time: some 60 bytes each, in a file that every session reads."""

LARGEST: Final = user_repositories.MAX_SIZE - 2 * 1024 * 1024
"""Bytes to which the file may grow. The bytes above are for changes that make it smaller."""

LAST: Final = ".registry-last.json"
"""A file in the same folder: the text as a writer of this release wrote it last."""

LOCK_WAIT_S: Final = 30.0
"""Seconds; longer than any holder keeps it: `registry apply` makes a repository in 0.2 s."""


class Update(MutableMapping[str, Entry]):
    """The entries while they are changed; wrong entries stay in the file as they are.

    `last` is the registry as a writer of this release wrote it, if another program has changed it.
    """

    def __init__(self, dynamic: Dynamic, last: Dynamic | None = None) -> None:
        self._raw = dict(dynamic.raw)
        self._before = dict(dynamic.raw)
        self._renamed: Mapping[str, Any] = dynamic.renamed_raw
        self._identities: Mapping[str, str] = dynamic.identities
        self._purged: Mapping[str, str] = dynamic.purged
        self._notes_before = self._notes
        self._generation = dynamic.generation
        if last is not None:
            self._identities, self._purged = missing.recovered(last, dynamic)
        self._text = dynamic.text
        self._changed: set[str] = set()

    @property
    def dynamic(self) -> Dynamic:
        """The entries as they are now, in the middle of the change."""
        return dynamic_of(
            MappingProxyType(self._raw), self._renamed, self._identities, self._purged
        )

    @property
    def _notes(self) -> dict[str, Mapping[str, Any]]:
        return {
            "renamed": self._renamed,
            "identities": self._identities,
            "purged": self._purged,
        }

    @property
    def is_changed(self) -> bool:
        """Whether the file has to be written."""
        return self._raw != self._before or self._notes != self._notes_before

    def note_rename(self, old: str, rename: Rename) -> None:
        """Note the new path of a repository."""
        self._renamed = with_rename(self._renamed, old, rename)

    def note_owner(self, old: str, owner_id: str) -> None:
        """Note which person of the name renamed the repository that was at a former path."""
        self._renamed = {**self._renamed, old: {**self._renamed[old], "owner_id": owner_id}}

    def note_identity(self, path: str, identity: str) -> None:
        """Note the identity of a repository that the inventory declares."""
        self._identities = {**self._identities, path: identity}
        self._is_back(identity)

    def keep_identities(self, paths: Collection[str]) -> None:
        """Forget identities of the inventory's former repositories: each store keeps its own."""
        self._identities = {
            path: identity for path, identity in self._identities.items() if path in paths
        }

    def _is_back(self, identity: str) -> None:
        """Remove the note of a deletion: the repository was restored."""
        if identity in self._purged:
            self._purged = {
                purged: when for purged, when in self._purged.items() if purged != identity
            }

    def note_purged(self, identity: str) -> None:
        """Note that a repository is deleted for good; its entry goes in the same change.

        Bundle jobs and mirrors delete their data of it, and no data of otherwise missing
        repositories.
        """
        now = user_repositories.now()
        kept = self._noted_since(user_repositories.ago(PURGED_S), now)
        if len(kept) >= MOST_PURGED and identity not in kept:
            raise TemporaryError(
                f"{len(kept)} repositories of this service were deleted within "
                f"{PURGED_S // 86_400} days, and no more than {MOST_PURGED} are recorded: nothing "
                "was deleted; ask an operator for `hgfleet registry forget-deletions`, and try "
                "again."
            )
        self._purged = {**kept, identity: now}

    def forget_purged(self, before: str) -> int:
        """Forget the deletions before a time; return how many.

        A host that was away since then sets its copies of them aside, and deletes nothing.
        """
        kept = self._noted_since(before, user_repositories.now())
        count = len(self._purged) - len(kept)
        self._purged = kept
        return count

    def _noted_since(self, since: str, now: str) -> dict[str, str]:
        """Return the deletions since a time; a time in the future becomes now."""
        return {
            identity: min(when, now) for identity, when in self._purged.items() if when >= since
        }

    def render(self, noted: str = "", version: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """Return the file; `noted` is the note about the text that was written last."""
        after = self._raw, {**self._notes, generation.KEY: version}
        if noted and noted == registry_text.note(self._text):
            before = self._before, {**self._notes_before, generation.KEY: self._generation}
            text = registry_text.change(self._text, before, after, self._changed)
            if text is not None:
                return text
        return registry_text.encode(*after)

    def __getitem__(self, path: str) -> Entry:
        entry = entry_of(path, self._raw[path])
        if entry is None:
            raise KeyError(path)
        return entry

    def __setitem__(self, path: str, entry: Entry) -> None:
        value = entry.to_json()
        # An entry that every reader would leave out is refused here.
        if names.path_problem(path) or Entry.from_json(value) != entry:
            raise ValueError(f"{path}: {problem_of(path, value)}")
        # Values that only a later release knows stay.
        before = self._raw.get(path)
        self._raw[path] = {**(before if isinstance(before, dict) else {}), **value}
        self._changed.add(path)
        self._is_back(entry.identity)
        if path in self._renamed:
            self._renamed = {k: v for k, v in self._renamed.items() if k != path}

    def __delitem__(self, path: str) -> None:
        del self._raw[path]
        self._changed.add(path)
        self._renamed = without(self._renamed, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.dynamic.repositories)

    def __len__(self) -> int:
        return len(self.dynamic.repositories)


@contextlib.contextmanager
def locked(path: Path | str = DYNAMIC, wait: float = LOCK_WAIT_S) -> Iterator[int]:
    """Exclude other changes of the file; yields its folder, open.

    The lock is on the folder, so no lock file stays, and the kernel frees the lock of a killed
    process. Raises TemporaryError after `wait` seconds, HostError if there is no such folder.
    """
    folder = os.fspath(path).rpartition("/")[0]
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"{folder}: {error.strerror}; the role `mercurial` creates it") from error
    try:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TemporaryError(
                        "Another change of the repositories of this service is under way for "
                        f"more than {wait:.0f} s: try again in a minute."
                    ) from None
                time.sleep(0.01)
        yield descriptor
    finally:
        os.close(descriptor)


def _noted(path: Path | str) -> str:
    """Return the note about the text that was written last, "" if there is none."""
    content = read_content(seen(path)) or b""
    return content.decode("ascii", "replace")


@contextlib.contextmanager
def update(
    path: Path | str = DYNAMIC, *, wait: float = LOCK_WAIT_S, epoch: Path | str = paths.EPOCH
) -> Iterator[Update]:
    """Change the file: read it under the lock, and replace it when the block ends without an error.

    Killed at any point, it leaves the old file or the new file. `epoch` is the file with the epoch
    of this primary. Raises RegistryError if the file is damaged, lost or older than before (it is
    not overwritten: an operator repairs it), and TemporaryError if it stays locked, or would get
    too large.
    """
    with locked(path, wait) as folder, change(path, folder, epoch=epoch) as entries:
        yield entries


@contextlib.contextmanager
def change(
    path: Path | str, folder: int, *, epoch: Path | str = paths.EPOCH, renews: bool = False
) -> Iterator[Update]:
    """Change the file as `update` does, whose `folder` the caller has locked.

    `renews` gives it another generation, if that is due, even without a change.
    """
    dynamic, name = load(path), os.fspath(path).rpartition("/")[2]
    writer = generation.Writer(folder, name, _version(dynamic), _epoch(epoch))
    last = None if writer.is_mine else _last(path)
    entries = Update(dynamic, last)
    yield entries
    if not (entries.is_changed or (renews and writer.is_due)):
        return
    text = entries.render(_noted(path), writer.next())
    if len(text) > max(LARGEST, len(dynamic.text)):
        raise TemporaryError(
            f"The registry of this service would have {len(text)} bytes, and may have {LARGEST}: "
            "nothing was changed; delete a repository that you do not need any more (`repo "
            "delete`), and try again."
        )
    if last is not None or missing.has_notes(folder):
        # Entries that this writer takes out are not missing.
        missing.note(path, folder, last or entries.dynamic, entries.dynamic)
    writer.remember(text)
    files.replace_at(folder, name, text, mode=MODE)
    # The note that the file exists. If a kill comes in between, nothing is lost.
    files.replace_at(folder, SEEN, registry_text.note(text), mode=MODE, durable=False)
    files.replace_at(folder, LAST, text, mode=MODE, durable=False)
    writer.done()


def _epoch(file: Path | str) -> int:
    try:
        return term.epoch(os.fspath(file))
    except PushlogError as error:
        raise RegistryError(str(error)) from error


def _version(dynamic: Dynamic) -> generation.Version | None:
    """Return the version of the file; None where there is none."""
    if not dynamic.text:
        return None
    return generation.Version.of(dict(dynamic.generation), dynamic.text)


def _last(path: Path | str) -> Dynamic | None:
    """Return the registry as a writer of this release wrote it last, or None."""
    name = f"{os.fspath(path).rpartition('/')[0]}/{LAST}"
    try:
        content = read_content(name)
        return user_repositories.parse(content, name) if content else None
    except RegistryError:
        # Written without a sync: after a crash it may hold anything.
        return None


def renew(path: Path | str, epoch: Path | str = paths.EPOCH) -> None:
    """Give the registry of a primary the generation that is due, if there is a registry.

    A generation is due after a change by another program, and in a new epoch.
    """
    if os.path.lexists(path):
        with locked(path) as folder, change(path, folder, epoch=epoch, renews=True):
            pass


def begin_term(path: Path | str = DYNAMIC, epoch: Path | str = paths.EPOCH) -> None:
    """Have the registry begin a term: it counts as the newest, whichever registry mirrors have.

    Entries that are missing in an older registry are noted; deleted repositories stay deleted.
    """
    if not os.path.lexists(path):
        return
    with locked(path) as folder:
        dynamic, name = load(path), os.fspath(path).rpartition("/")[2]
        generation.begin_term(folder, name, _version(dynamic), _epoch(epoch))
        with change(path, folder, epoch=epoch, renews=True):
            pass
