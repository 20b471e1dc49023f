"""The dynamic part of the registry: repositories that people create for themselves over SSH.

`registry.yml` in the inventory says in which namespaces people may create repositories; what they
created is in one JSON file of the host, which belongs to the user `hg`:

    {"format": 1, "repositories": {"people/bob/x": {"owner": "bob", "description": "",
      "created": "2026-11-21T00:00:00Z", "read": null, "push": null, "forked_from": null,
      "archived": null}}}

`read` and `push` are those of a registry, null for what is inherited; `"read": []` is "its owner
alone". `archived` is the time since when it is out of service.

Sessions, web workers and bundle jobs read it beside the compiled registry (`load_effective`), as
one registry. The inventory wins: an entry at, above or below a path that it declares is left out.
What is wrong in this file harms nothing but what it describes: an entry that makes no sense is left
out alone, a file that makes no sense leaves all of its entries out, and the repositories of the
inventory are served in either case.

Whoever changes it does so under a lock and replaces the file as a whole (`update`). Like
`registry`, this is imported by each SSH session, so it imports nothing that is slow to import, and
makes entries when they are asked for: a session needs one of thousands.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hgfleet.core import names
from hgfleet.core.errors import HostError, RegistryError, TemporaryError
from hgfleet.registry import model
from hgfleet.registry.compiled import load_compiled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.registry.model import Read, Registry, Repository

__all__ = [
    "PATH",
    "Dynamic",
    "Entry",
    "Update",
    "load",
    "load_effective",
    "locked",
    "merged",
    "now",
    "shadowed",
    "update",
    "withdrawn",
]

PATH: Final = "/var/lib/hgfleet/dynamic/registry.json"

FORMAT: Final = 1
MODE: Final = 0o644
MAX_SIZE: Final = 32 * 1024 * 1024
"""Bytes; an entry has some 200, so this is a hundred times what a large site needs."""

MAX_DESCRIPTION: Final = 200
"""Characters, as in registry.yml."""

PURGED: Final = "purged"
"""Beside it: what was deleted for good, a line each with the time and the path."""

PURGED_S: Final = 90 * 86_400
"""How long such a line stays (seconds): longer than bundle jobs can be out of order unseen."""

LOCK_WAIT_S: Final = 30.0
"""Longer than anybody keeps the lock: `registry apply` makes a repository in 0.2 s."""

PERSON: Final = re.compile(r"[a-z][a-z0-9._-]{0,31}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entry:
    """What the dynamic registry says of one repository; None is "inherited"."""

    owner: str
    description: str = ""
    created: str = ""
    read: Read | None = None
    push: tuple[str, ...] | None = None
    forked_from: str | None = None
    archived: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what the file has of it."""
        return {
            "owner": self.owner,
            "description": self.description,
            "created": self.created,
            "read": list(self.read) if isinstance(self.read, tuple) else self.read,
            "push": None if self.push is None else list(self.push),
            "forked_from": self.forked_from,
            "archived": self.archived,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        """Check every value; raises ValueError, TypeError or KeyError that says which is wrong."""
        if not isinstance(value, Mapping):
            raise TypeError(f"got {value!r}, expected a mapping")
        read, push = value["read"], value["push"]
        entry = cls(
            owner=_text("owner", value["owner"], PERSON),
            description=value["description"],
            created=_text("created", value["created"], _TIME),
            read=read if read in (None, "public") else _groups("read", read),
            push=None if push is None else _groups("push", push),
            forked_from=value["forked_from"],
            archived=None
            if value["archived"] is None
            else _text("archived", value["archived"], _TIME),
        )
        if problem := description_problem(entry.description):
            raise ValueError(f"description: expected {problem}")
        source = entry.forked_from
        if source is not None and (not isinstance(source, str) or names.path_problem(source)):
            raise ValueError(f"forked_from: got {source!r}, expected the path of a repository")
        return entry


def description_problem(text: object) -> str | None:
    """Say what a description should look like, or None if it is one ("" is one here).

    It goes into an hgrc, into pages and onto terminals: no line ends, no control characters, none
    that change the direction of text.
    """
    # isprintable() is true of the empty text.
    is_line = isinstance(text, str) and text == text.strip() and text.isprintable()
    if is_line and len(str(text)) <= MAX_DESCRIPTION:
        return None
    return f"one line of printable text, at most {MAX_DESCRIPTION} characters"


def _text(name: str, value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{name}: got {value!r}")
    return value


def _groups(name: str, value: object) -> tuple[str, ...]:
    # A string here would be taken for a list of one-letter groups.
    if not isinstance(value, list) or len(value) > 100:
        raise TypeError(f"{name}: got {value!r}, expected a list of groups")
    for group in value:
        if not isinstance(group, str) or names.group_problem(group):
            raise ValueError(f"{name}: got {group!r}, expected the name of a group")
    return tuple(value)


_BAD: Final = (ValueError, TypeError, KeyError, RecursionError)


class _OnDemand(Mapping[str, _T]):
    """A mapping whose values are made when they are asked for; those that cannot be are left out.

    In the order of the keys.
    """

    def __init__(self, data: Mapping[str, Any], make: Callable[[str, Any], _T | None]) -> None:
        self._data = data
        self._make = make
        self._made: dict[str, _T | None] = {}
        self._keys: list[str] | None = None

    def __getitem__(self, key: str) -> _T:
        if key not in self._made:
            self._made[key] = self._make(key, self._data[key])
        value = self._made[key]
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._data and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        if self._keys is None:
            self._keys = sorted(key for key in self._data if self.get(key) is not None)
        return iter(self._keys)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """All entries by path, archived ones included; what the file says of each is in `raw`."""

    repositories: Mapping[str, Entry]
    raw: Mapping[str, Any]

    def problems(self) -> list[str]:
        """What is wrong with entries that are therefore left out, a sentence each."""
        return [
            f"{path!a}: {_problem(path, value)}; nothing serves it"
            for path, value in sorted(self.raw.items())
            if path not in self.repositories
        ]


def _problem(path: str, value: Any) -> str:
    if problem := names.path_problem(path):
        return f"expected {problem}"
    try:
        Entry.from_json(value)
    except KeyError as error:
        return f"no {error.args[0]}"
    except _BAD as error:
        return str(error)
    return "fine"


def _entry(path: str, value: Any) -> Entry | None:
    if names.path_problem(path):
        return None
    try:
        return Entry.from_json(value)
    except _BAD:
        return None


def _dynamic(raw: Mapping[str, Any]) -> Dynamic:
    return Dynamic(_OnDemand(raw, _entry), raw)


NOTHING: Final = _dynamic(MappingProxyType({}))


def now() -> str:
    """The time as the file has it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# --- reading --------------------------------------------------------------------------------


def load(path: Path | str = PATH) -> Dynamic:
    """Read the file; no file is no entries.

    It lies in a folder that sessions may write to, and root reads it too: a link, a pipe or a file
    without end is not followed, waited for or read. Raises RegistryError.
    """
    content = _content(path)
    return parse(content, str(path)) if content is not None else NOTHING


def _content(path: Path | str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegistryError(f"{path}: cannot be read ({error.strerror})") from error
    with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RegistryError(f"{path}: got something else than a file")
        content = file.read(MAX_SIZE + 1)
    if len(content) > MAX_SIZE:
        raise RegistryError(f"{path}: got more than {MAX_SIZE} bytes")
    return content


def parse(content: bytes, name: str) -> Dynamic:
    """Make sense of the file as a whole; entries are looked at when they are asked for."""
    try:
        data = json.loads(content.decode("utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"got format {data['format']!r}, expected {FORMAT}")
        raw = data["repositories"]
        if not isinstance(raw, dict):
            raise TypeError("expected a mapping of repositories")
    except (*_BAD, AttributeError) as error:
        raise RegistryError(f"{name}: not a dynamic registry ({error})") from error
    return _dynamic(raw)


def load_effective(
    compiled: Path | str, path: Path | str, complain: Callable[[str], None] = lambda _: None
) -> Registry:
    """Read both parts of the registry as one.

    Raises RegistryError if the compiled one is missing or damaged. If the dynamic one is damaged,
    says so to `complain` and returns the compiled one alone.
    """
    static = load_compiled(compiled)
    try:
        return merged(static, load(path))
    except RegistryError as error:
        complain(str(error))
        return static


def merged(static: Registry, dynamic: Dynamic) -> Registry:
    """Add what is in service of the dynamic registry to the static one; that one wins.

    Raises nothing for the sake of an entry.
    """
    if not dynamic.raw:
        return static

    def repository(path: str, _value: Any) -> Repository | None:
        if path in static.repositories:
            return static.repositories[path]
        entry = dynamic.repositories.get(path)
        if entry is None or entry.archived is not None or _obstacle(path, static) is not None:
            return None
        return effective(path, entry, static)

    return model.Registry(
        repositories=_OnDemand({**dynamic.raw, **dict.fromkeys(static.repositories)}, repository),
        namespaces=static.namespaces,
        defaults=static.defaults,
        read_only=static.read_only,
    )


def effective(path: str, entry: Entry, static: Registry) -> Repository:
    """Work out what an entry inherits."""
    return model.effective(
        path,
        model.Settings(read=entry.read, push=entry.push),
        static,
        description=entry.description,
        owner=entry.owner,
    )


def _obstacle(path: str, static: Registry) -> str | None:
    """The path of the inventory that an entry at this path stands against."""
    for above in (path, *names.parents(path)):
        if above in static.repositories:
            return above
    return None


def shadowed(static: Registry, dynamic: Dynamic) -> dict[str, str]:
    """Return the entries that the inventory keeps from being served, with the path in question."""
    found = {path: _obstacle(path, static) for path in dynamic.repositories}
    return {path: obstacle for path, obstacle in found.items() if obstacle is not None}


def withdrawn(static: Registry, dynamic: Dynamic) -> list[Repository]:
    """Return the archived repositories as ones that nobody may read: their bundles have to go."""
    return [
        model.Repository(path, entry.description, (), (), publishing=True, bundles=())
        for path, entry in dynamic.repositories.items()
        if entry.archived is not None and _obstacle(path, static) is None
    ]


def purged(path: Path | str = PATH) -> frozenset[str]:
    """Return what was deleted for good lately: whatever was published of it has to go at once.

    Raises RegistryError if there is something else than a file.
    """
    return frozenset(name for _, name in _purged(path))


def _purged(path: Path | str) -> list[tuple[str, str]]:
    words = (
        line.split(" ")
        for line in (_content(_beside(path)) or b"").decode("utf-8", "replace").splitlines()
    )
    return [
        (pair[0], pair[1])
        for pair in words
        if len(pair) == 2 and _TIME.fullmatch(pair[0]) and not names.path_problem(pair[1])
    ]


def _beside(path: Path | str) -> str:
    return f"{os.path.dirname(path)}/{PURGED}"  # noqa: PTH120  (pathlib is slow to import)


def note_purged(path: Path | str, repository: str) -> None:
    """Note that a repository is deleted for good; to be called in an update.

    Bundle jobs know nothing of it any more when they run next.
    """
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - PURGED_S))
    lines = [pair for pair in _purged(path) if pair[0] >= since and pair[1] != repository]
    text = "".join(f"{when} {name}\n" for when, name in [*lines, (now(), repository)])
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120
    try:
        _replace(folder, PURGED, text.encode("utf-8"))
    finally:
        os.close(folder)


# --- writing --------------------------------------------------------------------------------


class Update(MutableMapping[str, Entry]):
    """The entries while they are changed; what cannot be understood stays as it is in the file."""

    def __init__(self, dynamic: Dynamic) -> None:
        self._raw = dict(dynamic.raw)
        self._before = dict(dynamic.raw)

    @property
    def dynamic(self) -> Dynamic:
        """The entries as they are now, in the midst of the change."""
        return _dynamic(MappingProxyType(self._raw))

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return self._raw != self._before

    def render(self) -> bytes:
        """Return the file."""
        data = {"format": FORMAT, "repositories": dict(sorted(self._raw.items()))}
        return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode("utf-8")

    def __getitem__(self, path: str) -> Entry:
        entry = _entry(path, self._raw[path])
        if entry is None:
            raise KeyError(path)
        return entry

    def __setitem__(self, path: str, entry: Entry) -> None:
        value = entry.to_json()
        # What would be left out by every reader is refused here.
        if names.path_problem(path) or Entry.from_json(value) != entry:
            raise ValueError(f"{path}: {_problem(path, value)}")
        # What a later release keeps beside these values stays.
        before = self._raw.get(path)
        self._raw[path] = {**(before if isinstance(before, dict) else {}), **value}

    def __delitem__(self, path: str) -> None:
        del self._raw[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.dynamic.repositories)

    def __len__(self) -> int:
        return len(self.dynamic.repositories)


@contextlib.contextmanager
def locked(path: Path | str = PATH, wait: float = LOCK_WAIT_S) -> Iterator[int]:
    """Keep everybody else from changing the file; yields its folder, open.

    The lock is on the folder, so no file is left behind, and the kernel frees the lock of who was
    killed. Raises TemporaryError after `wait` seconds, HostError if there is no such folder.
    """
    import fcntl

    folder = os.path.dirname(path)  # noqa: PTH120  (pathlib is slow to import)
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


@contextlib.contextmanager
def update(path: Path | str = PATH, *, wait: float = LOCK_WAIT_S) -> Iterator[Update]:
    """Change the file: read it under the lock, and replace it when the block ends without an error.

    Killed at any point, it leaves the old file or the new one. Raises RegistryError if the file is
    damaged (it is not overwritten: an operator repairs it), TemporaryError if it stays locked.
    """
    with locked(path, wait) as folder:
        change = Update(load(path))
        yield change
        if change.is_changed:
            _replace(folder, os.path.basename(path), change.render())  # noqa: PTH119


def _replace(folder: int, name: str, content: bytes) -> None:
    temporary = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor)
        file.write(content)
        file.flush()
        os.fchmod(descriptor, MODE)
        os.fsync(descriptor)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
