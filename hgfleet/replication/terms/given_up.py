"""Pushes that operators gave up: the brokers have them, but this primary's logs will not.

`given-up.json` in the folder of the term names each push by identity, number and hash. If a push of
the brokers is missing in a log, the relay publishes the log only if the push is in this file;
otherwise the repository is fenced. A push that was given up is never acknowledged as visible again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import HostError
from hgfleet.core.identity import is_identity
from hgfleet.pushlog import term
from hgfleet.pushlog.log_file import Tip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from hgfleet.replication.terms.losses import Known

FILE: Final = "given-up.json"

NONE: Final = 0
"""Epoch of a host without the file."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Pushes by identity, as (number, hash), and the epoch whose beginning wrote the file.

    A term that an earlier release began has no file: pushes of earlier terms that brokers have
    beyond a log were given up then. `former` is the last epoch of such a release, until the relay
    has named those pushes (`former_terms.py`). If a later epoch gives up a single push, the rule
    still holds for the others.
    """

    epoch: int = NONE
    pushes: Mapping[str, frozenset[tuple[int, str]]] = field(default_factory=dict)
    former: int = NONE

    def has(self, identity: str, number: int, hash_: str, epoch: int, *, current: int) -> bool:
        """Whether a push of an epoch was given up; `current` is the epoch of this host's term."""
        if self.names(identity, number, hash_):
            return True
        return epoch < self._former(current)

    def _former(self, current: int) -> int:
        """Return the last epoch that an earlier release began; `current` is the host's epoch."""
        return current if self.epoch < current else self.former

    def is_settled(self, current: int) -> bool:
        """Whether each push that was given up is named, as no earlier release began a term."""
        return self._former(current) <= term.FIRST

    def begun(self, epoch: int, current: int) -> GivenUp:
        """Return the same pushes at the beginning of the epoch after the current epoch."""
        return GivenUp(max(epoch, self.epoch), self.pushes, self._former(current))

    def names(self, identity: str, number: int, hash_: str) -> bool:
        """Whether an operator named a push; if either hash is unknown, the hashes agree."""
        known = self.pushes.get(identity, frozenset())
        return any(n == number and (h == hash_ or "" in (h, hash_)) for n, h in known)

    def adding(self, epoch: int, pushes: Iterable[tuple[str, int, str]]) -> GivenUp:
        """Return the pushes with further pushes, at the beginning of an epoch."""
        merged = {identity: set(known) for identity, known in self.pushes.items()}
        for identity, number, hash_ in pushes:
            merged.setdefault(identity, set()).add((number, hash_))
        made = {identity: frozenset(known) for identity, known in merged.items()}
        return GivenUp(max(epoch, self.epoch), made, self.former)

    def text(self) -> str:
        """Return the content of the file."""
        pushes = {identity: sorted(known) for identity, known in sorted(self.pushes.items())}
        data = {"epoch": self.epoch, "former": self.former, "pushes": pushes}
        return json.dumps(data, indent=1) + "\n"


def parse(text: bytes) -> GivenUp:
    """Read the content of the file; raises ValueError."""
    try:
        data = json.loads(text)
        # A file of the previous release has no `former`.
        epoch, former = data["epoch"], data.get("former", NONE)
        pushes = {
            identity: frozenset((number, hash_) for number, hash_ in known)
            for identity, known in data["pushes"].items()
        }
    except (RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"expected an epoch and pushes ({error!r})") from error
    are_epochs = all(type(n) is int and 0 <= n <= term.HIGHEST for n in (epoch, former))
    is_right = are_epochs and all(map(is_identity, pushes))
    named = [push for known in pushes.values() for push in known]
    if not is_right or not all(type(n) is int and isinstance(h, str) for n, h in named):
        raise ValueError(f"got {text!r:.80}, expected an epoch and pushes by identity")
    return GivenUp(epoch, pushes, former)


def load(folder: Path) -> GivenUp:
    """Read the file of a folder of terms; raises HostError (I/O)."""
    try:
        return parse((folder / FILE).read_bytes())
    except FileNotFoundError:
        return GivenUp()
    except (OSError, ValueError) as error:
        raise HostError(
            f"{folder / FILE} cannot be read ({error}); without it the relay cannot tell which "
            "pushes operators gave up: restore it from a backup, or replace its content by "
            f"{_empty(folder)}, and lift the fences that follow (`hgfleet replication lift`); do "
            "not remove it: without the file, pushes of earlier epochs count as given up"
        ) from error


def begin(folder: Path, epoch: int, current: int) -> None:
    """Record that an epoch begins after the current epoch, and gives up no push yet (I/O).

    Raises HostError and OSError.
    """
    files.replace(folder / FILE, load(folder).begun(epoch, current).text())


def _empty(folder: Path) -> str:
    """Return the content that names no push, at the epoch of this host (I/O)."""
    try:
        epoch: object = term.parse((folder / "epoch.json").read_bytes()[: term.MOST])[0]
    except (OSError, ValueError):
        epoch = "EPOCH (of the last term, `hgfleet replication status`)"
    return f'{{"epoch": {epoch}, "pushes": {{}}}}'


def note(folder: Path, epoch: int, pushes: Iterable[tuple[str, int, str]]) -> None:
    """Add pushes to the file, at the beginning of an epoch (I/O). Raises HostError and OSError."""
    files.replace(folder / FILE, load(folder).adding(epoch, pushes).text())


def beyond(
    tips: Mapping[str, Tip], known: Iterable[Known], hash_at: Callable[[str, int], str]
) -> list[tuple[str, int, str]]:
    """Return the pushes that another place has, but not the logs, by their ends.

    `hash_at` returns the hash of a record of a log, "" if there is none. A push of an earlier epoch
    may be in the log, if the place is behind the log. A push in the log was never given up.
    """
    pushes = []
    for push in known:
        tip = tips.get(push.repository, Tip())
        differs = push.id == tip.id and push.hash not in ("", tip.hash)
        is_earlier = push.epoch < tip.epoch and push.id < tip.id
        if is_earlier and push.hash and push.hash == hash_at(push.repository, push.id):
            continue
        if push.id > tip.id or differs or push.epoch < tip.epoch:
            pushes.append((push.repository, push.id, push.hash))
    return pushes
