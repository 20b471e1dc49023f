"""Generations of the documents that mirrors have copies of: the registry and the tokens.

A generation is a term and a number. The primary's writer makes one for each change, under the lock
of the document: the number is one more than ever before, the term begins anew with each epoch of a
primary. It is in the document (`"generation": {"number": 7, "past": {"6": "9f..."}, "term": 1}`),
with its epoch where that is not its term, so it travels with it, and outlives brokers. A document
without one is of a release before, and older than any other. `past` has the digests of the versions
before it, since a number says nothing without its content: a restored primary that writes on gives
a number a second time.

Each host remembers the newest that it has made or taken in a file beside the document, which is
written first: a number is never used again, also after a kill, and a document that went back is
recognized, on the primary by the next writer, on a mirror before it is taken.

Sessions that change a document import this module, so it imports nothing slow.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.core import files
from hgfleet.core.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY: Final = "generation"
"""In a document."""

HIGHEST: Final = 10**15
MOST_PAST: Final = 32
"""Versions before it that a document names; a mirror that was away for longer compares numbers."""

MODE: Final = 0o640
_MOST: Final = 64 * 1024
_DIGITS: Final = 16


class Generation(NamedTuple):
    """Which version of a document it is; a later one compares as greater."""

    term: int
    number: int

    def __str__(self) -> str:
        return f"{self.term}.{self.number}"

    def to_json(
        self, past: Mapping[str, str] = MappingProxyType({}), epoch: int = 0
    ) -> dict[str, Any]:
        """Return it as a document has it, its keys in order; with an epoch of another number."""
        of_epoch = {"epoch": epoch} if epoch not in (0, self.term) else {}
        of_past = {"past": dict(past)} if past else {}
        return {**of_epoch, "number": self.number, **of_past, "term": self.term}


def of(value: object) -> Generation | None:
    """Return the generation that a document names; None for one that makes no sense."""
    if not isinstance(value, dict):
        return None
    term, number = _number(value.get("term")), _number(value.get("number"))
    return Generation(term, number) if term and number else None


def _number(value: object) -> int:
    return value if type(value) is int and 1 <= value <= HIGHEST else 0


def epoch_of(value: object) -> int:
    """Return the epoch in which a version was made: its term, or what it names; 0 for unknown."""
    made = of(value)
    if made is None or not isinstance(value, dict):
        return 0
    return _number(value.get("epoch")) or made.term


def past_of(value: object) -> dict[str, str]:
    """Return the digests of versions that a document names, by their numbers."""
    past = value.get("past") if isinstance(value, dict) else None
    if not isinstance(past, dict):
        return {}
    return {
        number: one
        for number, one in past.items()
        if number.isdecimal() and len(number) < _DIGITS and isinstance(one, str)
    }


def digest(content: bytes) -> str:
    """Return the sha256 of a document."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a host: the newest version of a document that it has made or taken."""

    generation: Generation | None = None
    sha256: str = ""
    before: str = ""
    """The sha256 of the version that it replaces, which a kill may have left in its place; "" as
    soon as the version of this memory is in its place."""
    epoch: int = 0
    """Of the primary that made it here; 0 where it was taken from a primary."""
    refused: str = ""
    """Why a mirror keeps its version, "" while it has the primary's."""
    refused_sha256: str = ""
    past: Mapping[str, str] = field(default_factory=dict)
    """Digests of the versions before it, by their numbers."""
    went_back: bool = False
    """The primary has shown an older version: within this term, nothing later is believed."""


def parse(text: bytes) -> Memory:
    """Read the file of a memory; a damaged file is no memory."""
    try:
        data: dict[str, Any] = json.loads(text)
        past = past_of({"past": data.get("past")})
        made = Memory(**data | {"generation": of(data["generation"]), "past": past})
        texts = (made.sha256, made.before, made.refused, made.refused_sha256)
        right = all(isinstance(one, str) for one in texts) and type(made.epoch) is int
    except (ValueError, KeyError, TypeError, RecursionError):
        return Memory()
    return made if right and isinstance(made.went_back, bool) else Memory()


def text(memory: Memory) -> str:
    """Return the content of the file of a memory."""
    made = memory.generation
    # `asdict` copies no read-only mapping.
    named = asdict(replace(memory, past=dict(memory.past)))
    data = named | {"generation": made.to_json() if made else None}
    return json.dumps(data) + "\n"


class Version(NamedTuple):
    """A document that is there: its generation, if it has one, and the sha256 of its content."""

    generation: Generation | None
    sha256: str
    past: Mapping[str, str] = MappingProxyType({})
    epoch: int = 0
    """Of the primary that made it; a term that an operator has begun is later than its epoch."""

    @classmethod
    def of(cls, value: object, content: bytes) -> Version:
        """Return the version of a document, given the generation that it names."""
        return cls(of(value), digest(content), past_of(value), epoch_of(value))


def version(content: bytes) -> Version:
    """Return the version of a document in JSON."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        data = None
    return Version.of(data.get(KEY) if isinstance(data, dict) else None, content)


def known(memory: Memory, here: Version | None) -> Memory:
    """Return the memory of a host that has this document, also one that has none but the document.

    A document that is newer than the memory was written by a host that remembered it elsewhere.
    """
    if here is None or here.generation is None:
        return memory
    if memory.generation is not None and memory.generation >= here.generation:
        return memory
    return Memory(here.generation, here.sha256, epoch=here.epoch, past=here.past)


def has_gone_back(memory: Memory, here: Version) -> bool:
    """Whether a document has an older generation than its host remembers to have written.

    A killed writer has not: the version before its own is still there.
    """
    if here.generation is None or memory.generation is None:
        return False
    is_older = here.generation < memory.generation
    return is_older and here.sha256 not in (memory.sha256, memory.before)


def may_be_older(memory: Memory, here: Version) -> bool:
    """Whether only its content tells how old a document is: its generation is not a later one.

    Another program than a writer of this release wrote it, and no operator lets it count.
    """
    if here.sha256 in (memory.sha256, memory.before):
        return False
    if here.generation is None:
        return True
    return memory.generation is not None and here.generation <= memory.generation


def settled(memory: Memory) -> Memory:
    """Return the memory of a version that is in its place: no kill has left the one before it."""
    return replace(memory, before="")


def following(memory: Memory, epoch: int, *, begins: bool = False) -> Memory:
    """Return the memory of the next version, without its digests.

    A new term begins where this host has made none in this epoch of a primary, and on request.
    """
    last = memory.generation or Generation(0, 0)
    is_new = begins or epoch > memory.epoch or not last.term
    term = max(epoch, last.term + 1) if is_new else last.term
    past = dict(memory.past)
    if memory.sha256:
        past[str(last.number)] = memory.sha256[:_DIGITS]
    newest = dict(sorted(past.items(), key=lambda one: int(one[0]))[-MOST_PAST:])
    return Memory(Generation(term, last.number + 1), epoch=max(epoch, memory.epoch), past=newest)


def is_due(memory: Memory, here: Version, epoch: int) -> bool:
    """Whether a document needs another generation without a change.

    Another program than a writer of this release wrote it, or the epoch of this primary is newer.
    """
    is_mine = here.generation == memory.generation and here.sha256 == memory.sha256
    return not is_mine or memory.epoch < epoch


class Decision(NamedTuple):
    """What a mirror does with the primary's version: take it, or keep its own because of this."""

    refused: str = ""
    went_back: bool = False


def decide(memory: Memory, there: Version) -> Decision:
    """Decide about the version of the primary, given the newest that this mirror has had."""
    have, its = memory.generation, there.generation
    if have is None:
        return Decision()
    keeps = f"this mirror keeps generation {have}"
    if its is None:
        return Decision(
            f"the primary's has no generation, as of a release before; {keeps}", memory.went_back
        )
    if its == have and there.sha256 == memory.sha256:
        return Decision()
    if its == have:
        return Decision(
            f"the primary has another content under generation {its}; {keeps}", memory.went_back
        )
    if its < have:
        return Decision(f"generation {its} of the primary is older; {keeps}", went_back=True)
    mine = memory.sha256[:_DIGITS]
    named = there.past.get(str(have.number), "") if mine else ""
    # All that were written are named: in a gap, the version of this mirror never was there.
    is_gap = not named and any(int(one) < have.number for one in there.past)
    if its.term == have.term and mine and (is_gap or named not in ("", mine)):
        return Decision(
            f"generation {its} of the primary follows another version {have}; {keeps}",
            went_back=True,
        )
    # It has come back where it follows this mirror's version: the digest says that it has had it.
    if memory.went_back and its.term <= have.term and not (named and named == mine):
        return Decision(
            f"generation {its} of the primary is of a term in which it went back; {keeps}",
            went_back=True,
        )
    return Decision()


# -- files -----------------------------------------------------------------------------------------


def name_of(document: str) -> str:
    """Return the name of the file with the memory of a document, which lies beside it."""
    return f".{document.rpartition('/')[2].removesuffix('.json')}-generation"


def read(folder: int, document: str) -> Memory:
    """Read the memory of a document, in the folder that a descriptor has open."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name_of(document), flags, dir_fd=folder)
    except FileNotFoundError:
        return Memory()
    with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor)
        return parse(file.read(_MOST))


def read_beside(document: Path) -> Memory:
    """Read the memory of a document, by its path."""
    try:
        with files.open_folder(document.parent) as folder:
            return read(folder, document.name)
    except FileNotFoundError:
        return Memory()


def write(folder: int, document: str, memory: Memory) -> None:
    """Remember a version, before it is written: it is on the disk at the return."""
    files.replace_at(folder, name_of(document), text(memory), mode=MODE)


def settle(folder: int, document: str) -> None:
    """Note that the version which is remembered is in its place, on the disk."""
    memory = read(folder, document)
    if memory.before:
        # Not durable: a crash leaves the memory from before, or none, and the document that is
        # there says the same as this one.
        content = text(settled(memory))
        files.replace_at(folder, name_of(document), content, mode=MODE, durable=False)


class Writer:
    """The next version of a document, for who holds its lock on the primary."""

    def __init__(self, folder: int, name: str, here: Version | None, epoch: int) -> None:
        """Take the document as it is; raises RegistryError where it has gone back."""
        self._folder, self._name, self._epoch = folder, name, epoch
        self._before = here.sha256 if here is not None else ""
        memory = read(folder, name)
        if here is not None and has_gone_back(memory, here):
            raise went_back(name, f"generation {here.generation}", memory.generation)
        if here is not None and here.sha256 == memory.sha256:
            # Its writer was killed after it wrote it.
            settle(folder, name)
        self._memory = known(memory, here)
        mine = (memory.sha256, memory.before) if memory.sha256 else ()
        self.is_mine = here is not None and here.sha256 in mine
        """A writer of this release wrote the document, and nothing has changed it since.

        A document that an operator lets count is not: what is missing in it is noted."""
        self.may_be_older = here is not None and may_be_older(memory, here)
        """Another program wrote it, and nothing but its content tells how old it is."""
        self.is_due = here is not None and is_due(self._memory, here, epoch)
        """It needs another generation, also without a change."""

    def next(self) -> Mapping[str, Any]:
        """Return the generation of the next version, as the document has it."""
        made = following(self._memory, self._epoch)
        assert made.generation is not None
        return made.generation.to_json(made.past, made.epoch)

    def remember(self, content: bytes) -> None:
        """Remember the next version, before it is written."""
        made = following(self._memory, self._epoch)
        made = replace(made, sha256=digest(content), before=self._before)
        write(self._folder, self._name, made)

    def has_gone_back(self, got: str) -> RegistryError:
        """Return the error for a document that may be older, and is so by its content."""
        return went_back(self._name, got, self._memory.generation)

    def done(self) -> None:
        """Note that the next version is written: the one before it is no killed writer's now."""
        settle(self._folder, self._name)


def begin_term(folder: int, name: str, here: Version | None, epoch: int) -> None:
    """Have the next version of a document begin a term, also of one that has gone back.

    The caller holds the lock, and writes the next version.
    """
    begun = following(known(read(folder, name), here), epoch, begins=True)
    # It stands for no version: the next one gets a later number of this term.
    write(folder, name, replace(begun, before=here.sha256 if here is not None else ""))


def went_back(name: str, got: str, newest: Generation | None) -> RegistryError:
    """Return the error for a document of the primary that has gone back."""
    return RegistryError(
        f"{name}: got {got}, expected {newest or 'the newest version'}, which this host wrote: an "
        "older version is in its place, as after a restore by hand; nothing is changed. Operators: "
        "put the newest one back, or let this one count by `hgfleet replication begin-term`"
    )
