"""User repositories, the dynamic part of the registry: repositories that people create over SSH.

`registry.yml` in the inventory says in which namespaces people may create repositories. These
repositories are in a JSON file of the host, which belongs to the user `hg`:

    {"format": 1, "repositories": {"people/bob/x": {"owner": "bob", "description": "",
      "created": "2026-11-21T00:00:00Z", "read": null, "push": null, "forked_from": null,
      "archived": null, "publishing": null, "identity": "5f...", "owner_id": "b862b310-..."}},
     "generation": {"number": 7, "term": 1}, "identities": {"team/tool": "7d..."},
     "purged": {"9a...": "2026-11-21T00:00:00Z"}}

`read`, `push` and `publishing` are as in a registry, null for an inherited value; `"read": []` is
"only its owner". `owner_id` is the person id of the owner (the entryUUID of the directory): a later
person of the same name owns nothing of the former person. `archived` is the time since when the
repository is out of service.
`identities` has the identities of the repositories that the inventory declares, because the primary
decides about them and mirrors copy the file. `purged` has the identities of repositories that were
deleted for good, with the time: a repository that is missing without it is not deleted.
`generation` is the version of the file (`core/generation.py`).

Sessions, web workers and bundle jobs read the file and the compiled registry (`load_effective`) as
a single registry. The inventory wins: an entry at, above or below a path that it declares is left
out. Damage stays local: a wrong entry is left out by itself, a wrong file leaves all of its entries
out, and the repositories of the inventory are served in either case.

`dynamic_update` changes the file. Each SSH session imports this module, so it imports nothing slow,
and makes entries on demand: a session needs only one of thousands.
"""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import names
from hgfleet.core.errors import RegistryError
from hgfleet.core.paths import DYNAMIC
from hgfleet.registry.dynamic.entry import BAD, Entry, entry_of, problem_of
from hgfleet.registry.dynamic.on_demand import OnDemand
from hgfleet.registry.dynamic.renames import Rename, rename_of
from hgfleet.registry.model import registry
from hgfleet.registry.model.compiled import load_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hgfleet.core.principal import Principal
    from hgfleet.registry.model.registry import Registry, Repository

FORMAT: Final = 1
MAX_SIZE: Final = 32 * 1024 * 1024
"""Bytes; an entry has some 200, so this is a hundred times the need of a large site."""

UNREGISTERED: Final = "hgfleet-unregistered"
"""In .hg: the repository was made, and is not in the registry yet."""

SEEN: Final = ".registry-seen"
"""A file in the same folder: the registry existed, so a lost file is not taken for an empty one."""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """All entries by path, including archived ones; `raw` has each as it is in the file."""

    repositories: Mapping[str, Entry]
    raw: Mapping[str, Any]
    renamed: Mapping[str, Rename] = field(default_factory=dict)
    renamed_raw: Mapping[str, Any] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    """Identities of the repositories that the inventory declares, by path."""
    purged: Mapping[str, str] = field(default_factory=dict)
    """Identity to time, of repositories that were deleted for good."""
    generation: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """As it is in the file."""
    text: bytes = field(default=b"", repr=False, compare=False)

    def owned_by(self, person: Principal) -> list[str]:
        """Return the paths of a person's entries; entries of other owners are not checked."""
        return [
            path
            for path, value in self.raw.items()
            if isinstance(value, dict)
            and value.get("owner") == person.name
            and path in self.repositories
            and person.owns(self.repositories[path])
        ]

    def problems(self) -> list[str]:
        """Return a sentence for each wrong entry, which is therefore left out."""
        return [
            f"{path!a}: {problem_of(path, value)}; nothing serves it"
            for path, value in sorted(self.raw.items())
            if path not in self.repositories
        ]


def dynamic_of(
    raw: Mapping[str, Any],
    renamed: Mapping[str, Any] = MappingProxyType({}),
    identities: Mapping[str, str] = MappingProxyType({}),
    purged: Mapping[str, str] = MappingProxyType({}),
) -> Dynamic:
    """Return a dynamic registry that makes its entries and notes on demand."""
    notes = OnDemand(renamed, rename_of)
    return Dynamic(OnDemand(raw, entry_of), raw, notes, renamed, identities, purged)


NOTHING: Final = dynamic_of(MappingProxyType({}))

_parsed: tuple[str, bytes, Dynamic] = ("", b"", NOTHING)
"""The file that was parsed last: its name, its content, and the result.

A session reads the file up to three times, the last time under the lock. Content that has not
changed is not parsed again.
"""


def now() -> str:
    """The time as the file has it, in UTC."""
    return ago(0)


def ago(seconds: float) -> str:
    """The time so many seconds before, as the file has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


def load(path: Path | str = DYNAMIC) -> Dynamic:
    """Read the file; a missing file has no entries, unless it existed before.

    Sessions may write to its folder, and root reads it too: so a link is not followed, a pipe not
    waited for, and a file of more than MAX_SIZE not read. Raises RegistryError.
    """
    content = read_content(path)
    if content is None and os.path.lexists(seen(path)):
        # The first change may have written both files since then.
        content = read_content(path)
        if content is None:
            raise lost(path)
    return NOTHING if content is None else _parse_once(content, str(path))


def _parse_once(content: bytes, name: str) -> Dynamic:
    global _parsed
    # Read and replaced as a whole: other threads do the same.
    *known, dynamic = _parsed
    if known != [name, content]:
        dynamic = parse(content, name)
        _parsed = (name, content, dynamic)
    return dynamic


def seen(path: Path | str) -> str:
    """Return the path of the note that the file existed."""
    return f"{os.fspath(path).rpartition('/')[0]}/{SEEN}"


def lost(path: Path | str) -> RegistryError:
    """Return the error for a file that existed and is missing."""
    return RegistryError(
        f"{path}: missing, and it existed before; restore it from a backup, or, if no user "
        f'repository is left, write {{"format": {FORMAT}, "repositories": {{}}}} to it'
    )


def read_content(path: Path | str) -> bytes | None:
    """Read a file in the folder of the dynamic registry; None if it does not exist."""
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
    """Parse the file as a whole; each entry is checked on demand."""
    try:
        data = json.loads(content.decode("utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"got format {data['format']!r}, expected {FORMAT}")
        raw = data["repositories"]
        if not isinstance(raw, dict):
            raise TypeError("expected a mapping of repositories")
    except (*BAD, AttributeError) as error:
        raise RegistryError(f"{name}: not a dynamic registry ({error})") from error
    # Malformed notes about former paths count as none.
    renamed = data.get("renamed")
    notes = renamed if isinstance(renamed, dict) else {}
    dynamic = dynamic_of(raw, notes, _texts(data, "identities"), _texts(data, "purged"))
    version = data.get("generation")
    return replace(dynamic, generation=version if isinstance(version, dict) else {}, text=content)


def _texts(data: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """Return a mapping of texts; malformed entries count as none."""
    values = data.get(name)
    if not isinstance(values, dict):
        return MappingProxyType({})
    return {key: value for key, value in values.items() if isinstance(value, str)}


def load_effective(
    compiled: Path | str, path: Path | str, complain: Callable[[str], None] = lambda _: None
) -> Registry:
    """Read both parts of the registry as a single registry.

    Raises RegistryError if the compiled registry is missing or damaged. If the dynamic registry is
    damaged, `complain` gets the error, and the result is the compiled registry.
    """
    static = load_compiled(compiled)
    try:
        return merged(static, load(path))
    except RegistryError as error:
        complain(str(error))
        return static


def merged(
    static: Registry, dynamic: Dynamic, before: tuple[Dynamic, Registry] | None = None
) -> Registry:
    """Add the entries in service to the static registry, which wins; no entry raises an error.

    `before` is an earlier dynamic registry, and its result with the same static registry: entries
    that have not changed since then are not made again.
    """
    if not (dynamic.raw or dynamic.renamed_raw or dynamic.identities):
        return static

    def repository(path: str, _value: Any) -> Repository | None:
        if path in static.repositories:
            declared = static.repositories[path]
            return replace(declared, identity=dynamic.identities.get(path, ""))
        entry = dynamic.repositories.get(path)
        if entry is None or entry.archived is not None or _obstacle(path, static) is not None:
            return None
        return effective(path, entry, static)

    # Nothing is computed yet: a value is made when its path is asked for. With an earlier result,
    # values that were made there are taken over. Excepted are paths whose entry is new, gone or
    # different, and all paths of the inventory if the recorded identities have changed.
    repositories = OnDemand({**dynamic.raw, **dict.fromkeys(static.repositories)}, repository)
    if before is not None and isinstance(before[1].repositories, OnDemand):
        former = before[0].raw
        changed = {
            path
            for path in dynamic.raw.keys() | former.keys()
            if path not in static.repositories and dynamic.raw.get(path) != former.get(path)
        }
        if dynamic.identities != before[0].identities:
            changed |= set(static.repositories)
        repositories.take_over(before[1].repositories, changed)
    return registry.Registry(
        repositories=repositories,
        namespaces=static.namespaces,
        defaults=static.defaults,
        read_only=static.read_only,
        renamed=OnDemand(dynamic.renamed_raw, lambda old, _: _new_path(dynamic, old)),
    )


def _new_path(dynamic: Dynamic, old: str) -> str | None:
    note = dynamic.renamed.get(old)
    return note.to if note else None


def effective(path: str, entry: Entry, static: Registry) -> Repository:
    """Compute the settings in effect of an entry."""
    return registry.effective(
        path,
        registry.Settings(read=entry.read, push=entry.push, publishing=entry.publishing),
        static,
        description=entry.description,
        owner=entry.owner,
        identity=entry.identity,
        owner_id=entry.owner_id,
        created=entry.created,
    )


def _obstacle(path: str, static: Registry) -> str | None:
    """Return the path of the inventory that hides an entry at this path."""
    for above in (path, *names.parents(path)):
        if above in static.repositories:
            return above
    return None


def shadowed(static: Registry, dynamic: Dynamic) -> dict[str, str]:
    """Return the entries that the inventory keeps from being served, with the path in question."""
    obstacles = {path: _obstacle(path, static) for path in dynamic.repositories}
    return {path: obstacle for path, obstacle in obstacles.items() if obstacle is not None}


def withdrawn(static: Registry, dynamic: Dynamic) -> list[Repository]:
    """Return the archived repositories as readable for no group, so that their bundles go."""
    return [
        registry.Repository(
            *(path, entry.description, (), ()),
            publishing=True,
            bundles=(),
            identity=entry.identity,
        )
        for path, entry in dynamic.repositories.items()
        if entry.archived is not None and _obstacle(path, static) is None
    ]
