"""State of a repository after a record of its push log: heads, phases, bookmarks and markers.

Equal states of two hosts have equal digests. Hidden and secret changesets count: a mirror is a
whole copy. The state belongs to exactly one record, because it is read while no process writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import TemporaryError
from hgfleet.hg import fingerprint
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import FIRST, PHASES, Heads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

TRIES: Final = 60
PAUSE_S: Final = 0.1
"""Seconds between tries: all tries take longer than pushes usually follow without a pause."""

DRAFT: Final = "draft"
"""Phase of all changesets that are in no other phase."""

_NODE: Final = re.compile(r"[0-9a-f]{40}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_IDENTITY: Final = re.compile(r"(?:[0-9a-f]{32})?")
_MARKER: Final = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Digests:
    """Digests of a state, and the last record before it."""

    repository: str
    id: int
    hash: str
    heads: str
    phases: str
    bookmarks: str
    markers: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `digests_from_json` reads."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class State:
    """The state itself.

    `phases` has the heads of the public changesets, and all changesets of phases above draft.
    `markers` are hexadecimal, each as in a record.
    """

    repository: str = ""
    id: int = 0
    hash: str = FIRST
    heads: tuple[str, ...] = ()
    phases: Mapping[str, tuple[str, ...]] | None = None
    bookmarks: tuple[tuple[str, str], ...] = ()
    markers: tuple[str, ...] = ()

    def digests(self) -> Digests:
        """Return the digests."""
        return Digests(
            self.repository,
            self.id,
            self.hash,
            Heads.digest_of(self.heads),
            _digest(sorted((name, sorted(nodes)) for name, nodes in (self.phases or {}).items())),
            _digest(sorted(self.bookmarks)),
            _digest(sorted(set(self.markers))),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads."""
        return asdict(self)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode("ascii")).hexdigest()


def differences(here: Digests, there: Digests) -> list[str]:
    """Return the names of the parts that differ, for a sentence; the record is named `push log`."""
    names = {"repository": "push log", "id": "push log", "hash": "push log"}
    differing = [
        names.get(field.name, field.name)
        for field in fields(Digests)
        if getattr(here, field.name) != getattr(there, field.name)
    ]
    return list(dict.fromkeys(differing))


def digests_from_json(data: Any) -> Digests:
    """Read digests; raises ValueError, KeyError or TypeError."""
    return Digests(
        *_position(data),
        *(_match(_HASH, data[name]) for name in ("heads", "phases", "bookmarks", "markers")),
    )


def from_json(data: Any) -> State:
    """Read a state; raises ValueError, KeyError or TypeError."""
    if data.keys() != {field.name for field in fields(State)}:
        raise ValueError("not the fields of a state")
    return State(
        *_position(data),
        heads=_all(_NODE, data["heads"]),
        phases={_phase(name): _all(_NODE, nodes) for name, nodes in data["phases"].items()},
        bookmarks=tuple((_text(name), _match(_NODE, node)) for name, node in data["bookmarks"]),
        markers=_all(_MARKER, data["markers"]),
    )


def _position(data: Any) -> tuple[str, int, str]:
    number = data["id"]
    if type(number) is not int or number < 0:
        raise ValueError(f"id: got {number!r:.40}")
    return _match(_IDENTITY, data["repository"]), number, _match(_HASH, data["hash"])


def _phase(name: object) -> str:
    if name not in PHASES or name == DRAFT:
        raise ValueError(f"got the phase {name!r:.40}")
    return str(name)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {value!r:.40}, expected a text")
    return value


def _match(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"got {value!r:.80}")
    return value


def _all(pattern: re.Pattern[str], values: Iterable[object]) -> tuple[str, ...]:
    return tuple(_match(pattern, value) for value in values)


def read(repository: Path, opened: Callable[[], Any], tries: int = TRIES) -> State:
    """Read the state of a repository at a moment without a writer; `opened` opens it.

    Raises TemporaryError if pushes leave no such moment.
    """
    control = repository / ".hg"
    watched = fingerprint.paths(control)
    for _ in range(tries):
        before = fingerprint.read_repository(watched)
        # A lock that a killed process left also means a state in the middle of a push.
        is_written = os.path.lexists(control / "store/lock") or os.path.lexists(
            control / "store/journal"
        )
        if not before.is_settled():
            # Times in the future, from a wrong clock, never settle: then equal stats suffice.
            time.sleep(PAUSE_S)
            is_written = is_written or fingerprint.read_repository(watched) != before
        if not is_written:
            state = of(opened(), repository)
            if fingerprint.read_repository(watched) == before:
                return state
        time.sleep(PAUSE_S)
    raise TemporaryError(f"{repository}: pushes leave no moment to read its state; try again")


def of(whole: Any, repository: Path) -> State:
    """Return the state of an open repository, while no process writes to it."""
    from mercurial import bookmarks, encoding, obsolete, phases

    changes = whole.changelog
    node = changes.node
    cache = whole._phasecache  # noqa: SLF001  (Mercurial has no other way to whole sets)
    by_phase: dict[str, tuple[str, ...]] = {}
    for number, name in phases.phasenames.items():
        if number > phases.draft and (members := cache.getrevset(whole, [number])):
            by_phase[name.decode("ascii")] = tuple(sorted(node(rev).hex() for rev in members))
    public = cache.getrevset(whole, [phases.public])
    if heads := changes.headrevs(public) if public else ():
        by_phase["public"] = tuple(sorted(node(rev).hex() for rev in heads))
    marks = bookmarks.bmstore(whole)
    tip = log_file.tip(repository / ".hg/store" / log_file.NAME)
    return State(
        tip.repository,
        tip.id,
        tip.hash,
        tuple(sorted(node(rev).hex() for rev in changes.headrevs() if rev >= 0)),
        by_phase,
        tuple(
            sorted(
                (encoding.fromlocal(name).decode("utf-8", "surrogateescape"), target.hex())
                for name, target in marks.items()
            )
        ),
        tuple(
            sorted(
                {
                    marker.hex()
                    for marker in obsolete.encodemarkers(
                        whole.obsstore,
                        addheader=False,
                        version=obsolete._fm1version,  # noqa: SLF001
                    )
                }
            )
        ),
    )
