"""Generations of the documents that mirrors have copies of: the registry and the tokens.

A generation is a term and a number. The primary makes a generation for each change of a document,
under the document's lock. The number grows by 1 with each change and never starts over; a new term
begins with each epoch of a primary. The generation is part of the document (`"generation":
{"number": 7, "past": {"6": "9f..."}, "term": 1}`), so mirrors receive both together, and it
survives the loss of a broker. Its epoch is stated where it differs from the term. A document
without a generation was written by a release before, and is older than any other. `past` has the
digests of the versions before, since a number does not identify a version by itself: a restored
primary that goes on writing uses numbers a second time.

Each host remembers the newest generation that it has made or taken, in a file next to the document.
The memory is written before the document, so a number is not used twice even if the writer is
killed in between. A host can therefore recognize a document that went back to an older version: the
primary at the next change, a mirror before it takes the document.

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
"""The key of the generation in a document."""

HIGHEST: Final = 10**15
MOST_PAST: Final = 32
"""How many earlier versions a document names; a mirror that missed more of them compares numbers
only."""

MODE: Final = 0o640
_MOST: Final = 64 * 1024
_DIGITS: Final = 16


class Generation(NamedTuple):
    """The version of a document, ordered: a later generation compares as greater."""

    term: int
    number: int

    def __str__(self) -> str:
        return f"{self.term}.{self.number}"

    def to_json(
        self, past: Mapping[str, str] = MappingProxyType({}), epoch: int = 0
    ) -> dict[str, Any]:
        """Return the JSON of a document, keys sorted; an epoch equal to the term is left out."""
        of_epoch = {"epoch": epoch} if epoch not in (0, self.term) else {}
        of_past = {"past": dict(past)} if past else {}
        return {**of_epoch, "number": self.number, **of_past, "term": self.term}


def of(value: object) -> Generation | None:
    """Return the generation that a document names, or None if it is missing or malformed."""
    if not isinstance(value, dict):
        return None
    term, number = _number(value.get("term")), _number(value.get("number"))
    return Generation(term, number) if term and number else None


def _number(value: object) -> int:
    return value if type(value) is int and 1 <= value <= HIGHEST else 0


def epoch_of(value: object) -> int:
    """Return the epoch of a version: its term, unless it names another epoch; 0 if unknown."""
    made = of(value)
    if made is None or not isinstance(value, dict):
        return 0
    return _number(value.get("epoch")) or made.term


def past_of(value: object) -> dict[str, str]:
    """Return the digests of earlier versions that a document names, by their numbers."""
    past = value.get("past") if isinstance(value, dict) else None
    if not isinstance(past, dict):
        return {}
    return {
        number: sha256
        for number, sha256 in past.items()
        if number.isdecimal() and len(number) < _DIGITS and isinstance(sha256, str)
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
    """The sha256 of the version that this version replaces. A writer killed in between leaves the
    replaced version in place. "" as soon as this version is in place."""
    epoch: int = 0
    """The primary's epoch if this host made the version; 0 if it was taken from a primary."""
    refused: str = ""
    """Why a mirror keeps its own version; "" while it has the version of the primary."""
    refused_sha256: str = ""
    past: Mapping[str, str] = field(default_factory=dict)
    """Digests of earlier versions, by their numbers."""
    went_back: bool = False
    """The primary has shown an older version, so later versions of this term are not trusted."""


def parse(text: bytes) -> Memory:
    """Parse the file of a memory; a damaged file gives an empty memory."""
    try:
        data: dict[str, Any] = json.loads(text)
        past = past_of({"past": data.get("past")})
        made = Memory(**data | {"generation": of(data["generation"]), "past": past})
        texts = (made.sha256, made.before, made.refused, made.refused_sha256)
        right = all(isinstance(value, str) for value in texts) and type(made.epoch) is int
    except (ValueError, KeyError, TypeError, RecursionError):
        return Memory()
    return made if right and isinstance(made.went_back, bool) else Memory()


def text(memory: Memory) -> str:
    """Return the content of the file of a memory."""
    made = memory.generation
    # `asdict` cannot copy a read-only mapping.
    named = asdict(replace(memory, past=dict(memory.past)))
    data = named | {"generation": made.to_json() if made else None}
    return json.dumps(data) + "\n"


class Version(NamedTuple):
    """A document on a host: its generation, if it names any, and the sha256 of its content."""

    generation: Generation | None
    sha256: str
    past: Mapping[str, str] = MappingProxyType({})
    epoch: int = 0
    """The epoch of the primary that made it. A term begun by an operator is greater than its
    epoch."""

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
    """Return the memory of a host that has this document, where the memory may be missing.

    A document that is newer than the memory came from another host, which has its memory there.
    """
    if here is None or here.generation is None:
        return memory
    if memory.generation is not None and memory.generation >= here.generation:
        return memory
    return Memory(here.generation, here.sha256, epoch=here.epoch, past=here.past)


def has_gone_back(memory: Memory, here: Version) -> bool:
    """Whether a document is older than the newest version that this host remembers.

    The document of a killed writer is not: the version that was to be replaced is still in place.
    """
    if here.generation is None or memory.generation is None:
        return False
    is_older = here.generation < memory.generation
    return is_older and here.sha256 not in (memory.sha256, memory.before)


def may_be_older(memory: Memory, here: Version) -> bool:
    """Whether a document's generation does not prove it current, so that its content has to.

    Such a document was written by another program than this release, and no operator accepted it.
    """
    if here.sha256 in (memory.sha256, memory.before):
        return False
    if here.generation is None:
        return True
    return memory.generation is not None and here.generation <= memory.generation


def settled(memory: Memory) -> Memory:
    """Return the memory once its version is in place, and no kill can leave the old version."""
    return replace(memory, before="")


def following(memory: Memory, epoch: int, *, begins: bool = False) -> Memory:
    """Return the memory of the next version, without its digests.

    A new term begins at the first version of this host in an epoch, and on request.
    """
    last = memory.generation or Generation(0, 0)
    is_new = begins or epoch > memory.epoch or not last.term
    term = max(epoch, last.term + 1) if is_new else last.term
    past = dict(memory.past)
    if memory.sha256:
        past[str(last.number)] = memory.sha256[:_DIGITS]
    newest = dict(sorted(past.items(), key=lambda item: int(item[0]))[-MOST_PAST:])
    return Memory(Generation(term, last.number + 1), epoch=max(epoch, memory.epoch), past=newest)


def is_due(memory: Memory, here: Version, epoch: int) -> bool:
    """Whether a document needs a new generation even if its content stays.

    It does if another program wrote it, or if this primary's epoch is newer.
    """
    is_mine = here.generation == memory.generation and here.sha256 == memory.sha256
    return not is_mine or memory.epoch < epoch


class Decision(NamedTuple):
    """A mirror's decision about the primary's version: take it, or keep its own for a reason."""

    refused: str = ""
    went_back: bool = False


def decide(memory: Memory, there: Version) -> Decision:
    """Decide about the primary's version, given the newest version that this mirror has had."""
    # The questions come in this order: does the mirror have any version yet, does the primary's
    # version have a generation, is it the same version, is it older, does it descend from the
    # version of this mirror. A later number proves no descent, because a primary that was restored
    # from a backup continues to count and reaches the same numbers with other content. The digests
    # in `past` decide: the primary's version must name the digest of this mirror's version. Once
    # the primary has gone back, the whole term is in doubt, and only such a proof ends that.
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
    # A document names all versions before it, so if this mirror's number is missing between named
    # numbers, the primary never had this mirror's version.
    is_gap = not named and any(int(number) < have.number for number in there.past)
    if its.term == have.term and mine and (is_gap or named not in ("", mine)):
        return Decision(
            f"generation {its} of the primary follows another version {have}; {keeps}",
            went_back=True,
        )
    # The primary is trusted again once it names the digest of this mirror's version.
    if memory.went_back and its.term <= have.term and not (named and named == mine):
        return Decision(
            f"generation {its} of the primary is of a term in which it went back; {keeps}",
            went_back=True,
        )
    return Decision()


# -- files -----------------------------------------------------------------------------------------


def name_of(document: str) -> str:
    """Return the name of the file with the memory of a document, in the document's folder."""
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
    """Remember a version before it is written; the memory is on the disk at the return."""
    files.replace_at(folder, name_of(document), text(memory), mode=MODE)


def settle(folder: int, document: str) -> None:
    """Record that the remembered version is in place and on the disk."""
    memory = read(folder, document)
    if memory.before:
        # Not durable: after a crash the older memory, or a missing memory, leads to the same answer
        # with the document in place.
        content = text(settled(memory))
        files.replace_at(folder, name_of(document), content, mode=MODE, durable=False)


class Writer:
    """The next version of a document, for the holder of its lock on the primary."""

    def __init__(self, folder: int, name: str, here: Version | None, epoch: int) -> None:
        """Start from the document as it is; raises RegistryError if it has gone back."""
        self._folder, self._name, self._epoch = folder, name, epoch
        self._before = here.sha256 if here is not None else ""
        memory = read(folder, name)
        if here is not None and has_gone_back(memory, here):
            raise went_back(name, f"generation {here.generation}", memory.generation)
        if here is not None and here.sha256 == memory.sha256:
            # The last writer was killed after it wrote the document.
            settle(folder, name)
        self._memory = known(memory, here)
        mine = (memory.sha256, memory.before) if memory.sha256 else ()
        self.is_mine = here is not None and here.sha256 in mine
        """A writer of this release wrote the document, and nothing has changed it since.

        Not so for a document that an operator accepted: entries missing in it are recorded."""
        self.may_be_older = here is not None and may_be_older(memory, here)
        """Another program wrote the document, and only its content tells how old it is."""
        self.is_due = here is not None and is_due(self._memory, here, epoch)
        """The document needs a new generation even if its content stays."""

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
        """Return the error for a document that may be older, and whose content shows that it is."""
        return went_back(self._name, got, self._memory.generation)

    def done(self) -> None:
        """Record that the next version is written and has replaced the version before it."""
        settle(self._folder, self._name)


def begin_term(folder: int, name: str, here: Version | None, epoch: int) -> None:
    """Begin a term with the next version of a document, even if the document has gone back.

    The caller holds the lock, and writes the next version.
    """
    begun = following(known(read(folder, name), here), epoch, begins=True)
    # No version has this memory's number: the next version gets the number after it.
    write(folder, name, replace(begun, before=here.sha256 if here is not None else ""))


def went_back(name: str, got: str, newest: Generation | None) -> RegistryError:
    """Return the error for a document of the primary that has gone back."""
    return RegistryError(
        f"{name}: got {got}, expected {newest or 'the newest version'}, which this host wrote: an "
        "older version is in its place, as after a restore by hand; nothing is changed. Operators: "
        "put the newest one back, or let this one count by `hgfleet replication begin-term`"
    )
