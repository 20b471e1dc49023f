"""Budgets of requests that compute: processor time, memory, and what a client can do above them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.web.http.settings import Settings


class Kind(StrEnum):
    """Class of a request that a renderer answers."""

    PAGE = "page"
    DEAR = "dear"
    ARCHIVE = "archive"
    WIRE = "wire"
    STREAM = "stream"


DEAR_COMMANDS: Final = frozenset(
    {"annotate", "changeset", "comparison", "diff", "file", "filediff", "graph", "rawfile", "rev"}
)
"""Pages of hgweb whose cost grows with the size of a file, a changeset or the history."""


LARGEST_PAGE: Final = 8 * 1024 * 1024
"""Bytes of a page. It is collected before its first byte is sent, so that a request that passes its
budget gets a sentence with the way out, and not a page that breaks off."""


class Budget(NamedTuple):
    """Limits of a request: processor time (seconds), memory beyond an idle renderer's (bytes).

    `seconds` bounds the time from begin to end; 0: only the processor time counts.
    """

    cpu_seconds: float
    memory_bytes: int
    seconds: float = 0.0


def kind(command: str, *, is_wire: bool, is_archive: bool, is_search: bool) -> Kind:
    """Return the class of a request; `command` is hgweb's, with or without a style."""
    if is_wire:
        return Kind.WIRE
    if is_archive:
        return Kind.ARCHIVE
    plain = command.rpartition("-")[2]
    return Kind.DEAR if is_search or plain in DEAR_COMMANDS else Kind.PAGE


def budget(settings: Settings, of: Kind) -> Budget:
    """Return the limits of a class."""
    if of is Kind.STREAM:
        return Budget(
            settings.stream_cpu_seconds, settings.stream_memory_bytes, settings.stream_seconds
        )
    seconds = settings.archive_cpu_seconds if of is Kind.ARCHIVE else settings.request_cpu_seconds
    return Budget(seconds, settings.request_memory_bytes)


_RAW: Final[Mapping[str, str]] = {
    "annotate": "raw-file",
    "changeset": "raw-rev",
    "comparison": "raw-diff",
    "diff": "raw-diff",
    "file": "raw-file",
    "filediff": "raw-diff",
    "rev": "raw-rev",
}


def way_out(repository_url: str, rest: str) -> str:
    """Return the sentence that names a cheaper address than `rest` ("/rev/tip")."""
    clone = f"hg clone {repository_url}"
    command, slash, arguments = rest.strip("/").partition("/")
    raw = _RAW.get(command)
    if raw and slash:
        return f"The raw form is at {repository_url}/{raw}/{arguments}; all of it: {clone}"
    return f"Ask for less at a time, or clone the repository: {clone}"


def stream_exceeded(limits: Budget) -> str:
    """Return the sentence for a client whose clone or pull passed its budget."""
    return (
        f"this answer takes more than {limits.cpu_seconds:g} s of processor time, "
        f"{limits.memory_bytes // 2**20} MiB of memory or {limits.seconds:g} s, the most that this "
        "server gives to one clone or pull; nothing is lost: take fewer changesets at a time "
        "(hg pull --rev)"
    )


def exceeded(limits: Budget, repository_url: str, rest: str) -> str:
    """Return the sentence for a client whose request passed its budget."""
    return (
        f"This answer takes more than {limits.cpu_seconds:g} s of processor time, "
        f"{limits.memory_bytes // 2**20} MiB of memory or {LARGEST_PAGE // 2**20} MiB of HTML, "
        f"the most that this server gives to one request. {way_out(repository_url, rest)}"
    )
