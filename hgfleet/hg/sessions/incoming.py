"""Bounds of a client's requests over SSH: lines, arguments, pushed data. Only decisions, no I/O.

Core (mercurial.wireprotoserver.sshv1protocolhandler, 7.2) reads lines and arguments of any length
into memory, and fails with an exception of Python if a number is malformed.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

MIB: Final = 2**20

MAX_LINE: Final = 1024
"""Bytes of a line: a command, or the name and the length of an argument."""

MAX_STARS: Final = 64
"""Arguments that a command takes in addition to its named ones; `getbundle` has about 20."""

MAX_ARGUMENTS: Final = 8 * MIB
"""Bytes of all arguments of a request: the names of some 200,000 changesets."""

MAX_ARGUMENT: Final = {
    # The name of a changeset, bookmark, tag or branch; a key of `pushkey`.
    b"key": 1024,
    b"namespace": 256,
    # Obsolescence markers come in pieces of some 5 KiB.
    b"old": 65536,
    b"new": 65536,
    b"caps": 65536,
}
"""Bytes of all other arguments, which are shorter in every request of an hg client."""

_NODE_LISTS: Final = frozenset({b"nodes", b"heads", b"common"})
_NODE: Final = rb"[0-9a-fA-F]{40}"
# `heads` of a push may be the words "force" or "hashed", in hex like the names.
_NODES: Final = re.compile(rb"(?:(?:%s|666f726365|686173686564)(?: (?!\Z)|\Z))*" % _NODE)
_PUSHED: Final = {
    b"phases": ("a phase", re.compile(_NODE), re.compile(rb"[0-9]{1,3}")),
    b"bookmarks": ("a bookmark", re.compile(rb".*", re.DOTALL), re.compile(rb"(%s)?" % _NODE)),
}
"""Of a namespace of `pushkey`: its name for people, and the form of keys and of values."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a disk that takes no data; systems mount a disk with errors read-only."""

_MAX_DIGITS: Final = 12
_SHOWN: Final = 40


class SessionEndError(Exception):
    """The end of a session, with a sentence for the client and a reason for the log."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class DisconnectedError(SessionEndError):
    """The client disconnected in the middle of a request."""

    def __init__(self) -> None:
        super().__init__("disconnected", "the client disconnected before its request was complete")


def malformed(what: str) -> SessionEndError:
    """Return the end of a session whose client does not keep to the wire protocol."""
    return SessionEndError(
        "malformed",
        f"this request cannot be read: {what}; if your client is Mercurial, tell the operators",
    )


def shown(data: bytes) -> str:
    """Return the beginning of a client's data, safe to print on a terminal."""
    text = "".join(chr(c) if 32 <= c < 127 else "?" for c in data[:_SHOWN])
    return f"'{text}'{'...' if len(data) > _SHOWN else ''}"


def number(text: bytes, what: str) -> int:
    """Read a length or a count; raise SessionEndError."""
    if not (text.isdigit() and len(text) <= _MAX_DIGITS):
        raise malformed(f"got {shown(text)} for {what}, expected a number")
    return int(text)


def read_arguments(
    keys: Collection[bytes], line: Callable[[], bytes], take: Callable[[int], bytes]
) -> dict[bytes, bytes | dict[bytes, bytes]]:
    """Read the arguments that a command declares; `*` stands for a mapping of further arguments.

    `line` returns the next line, `take` that many bytes. Raises SessionEndError before it reads an
    argument that is too long.
    """
    room = MAX_ARGUMENTS

    def header() -> tuple[bytes, int]:
        words = line().split()
        if len(words) != 2:
            raise malformed(f"expected the name and the length of an argument of {_names(keys)}")
        return words[0], number(words[1], f"the length of the argument {shown(words[0])}")

    def value(name: bytes, size: int) -> bytes:
        nonlocal room
        most = min(MAX_ARGUMENT.get(name, MAX_ARGUMENTS), room)
        if size > most:
            raise SessionEndError(
                "too-long",
                f"the argument {shown(name)} has {size} bytes, and {most} are allowed here; "
                "ask for less at a time, such as with --rev",
            )
        room -= size
        data = take(size)
        if name in _NODE_LISTS and not _NODES.fullmatch(data):
            raise malformed(
                f"got {shown(data)} for the argument {shown(name)}, expected the full names of "
                "changesets"
            )
        return data

    arguments: dict[bytes, bytes | dict[bytes, bytes]] = {}
    for _ in keys:
        name, size = header()
        if name not in keys or name in arguments:
            raise malformed(f"got the argument {shown(name)}, expected {_names(keys)}, each once")
        if name != b"*":
            arguments[name] = value(name, size)
            continue
        if size > MAX_STARS:
            raise malformed(f"got {size} further arguments, at most {MAX_STARS} are allowed")
        stars: dict[bytes, bytes] = {}
        for _star in range(size):
            star, length = header()
            if star in stars:
                raise malformed(f"got the argument {shown(star)} twice")
            stars[star] = value(star, length)
        arguments[name] = stars
    _check_pushed(arguments)
    return arguments


def _check_pushed(arguments: Mapping[bytes, bytes | Mapping[bytes, bytes]]) -> None:
    """Raise SessionEndError for arguments of `pushkey` that core fails on."""
    namespace, key, old, new = (arguments.get(n) for n in (b"namespace", b"key", b"old", b"new"))
    if not (isinstance(namespace, bytes) and namespace in _PUSHED):
        return
    what, keys, values = _PUSHED[namespace]
    for value, form in ((key, keys), (old, values), (new, values)):
        if isinstance(value, bytes) and not form.fullmatch(value):
            raise malformed(
                f"got {shown(value)} for {what}, expected the full name of a changeset, and for a "
                "phase its number"
            )


def _names(keys: Collection[bytes]) -> str:
    return ", ".join(key.decode("ascii") for key in keys) or "none"


def chunks(line: Callable[[], bytes]) -> Iterator[int]:
    """Read the sizes of the pieces of a pushed bundle, to its end; raise SessionEndError.

    The caller reads each piece before it takes the next size.
    """
    while size := number(line(), "the size of a piece of the pushed bundle"):
        yield size


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Bytes of pushed bundles on disk: of a push, of all pushes of a person, and left free."""

    push: int
    person: int
    free: int


def spool_refusal(sent: int, person: int, free: int, limits: SpoolLimits) -> str | None:
    """Return the reason why a push may not go on, or None.

    `sent` are the bytes of this push, `person` the bytes of all pushes of the person that are under
    way (including this push), `free` the bytes free on the disk.
    """
    if sent > limits.push:
        return (
            f"this push has more than the {size_text(limits.push)} that a single push may have "
            f"({size_text(sent)} were sent); push fewer changesets at a time with "
            '"hg push --rev REV", or ask the operators to bring the history in'
        )
    if person > limits.person:
        return (
            f"your pushes that are under way have more than the {size_text(limits.person)} that "
            f"they may have together ({size_text(sent)} of this push were sent); push again when "
            "the others are done"
        )
    if free < limits.free:
        return (
            f"the disk of this service has {size_text(free)} left, less than the "
            f"{size_text(limits.free)} that stay free ({size_text(sent)} of this push were sent); "
            "nothing was changed; tell the operators"
        )
    return None


def size_text(size: int) -> str:
    """Return a number of bytes for a person."""
    if size < MIB:
        return f"{size} bytes"
    return f"{size / MIB:.0f} MiB" if size < 10 * 1024 * MIB else f"{size / MIB / 1024:.0f} GiB"


def full_disk(problem: BaseException) -> str:
    """Return the sentence for an error of a disk that takes no data; "" for any other error."""
    if not isinstance(problem, OSError) or problem.errno not in _FULL:
        return ""
    return (
        "the disk of this service takes no more data, so nothing was changed; the operators know. "
        "Try again later"
    )


def unexpected(command: str) -> str:
    """Return the sentence for a request that ended in an exception of Python."""
    return (
        f"the request '{command}' cannot be carried out: it is malformed, or this service has a "
        "defect. Changes that you have not seen confirmed were not made, and the operators can see "
        "the reason in their log"
    )
