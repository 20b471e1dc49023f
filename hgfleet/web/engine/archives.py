"""Paths and times of an archive, checked before its first byte is sent. Pure.

A manifest may hold any path, and an archive that fails in its middle has status 200 already. A
changeset may hold any time. The time of a file in an archive is no content of the changeset, so a
time that a format cannot hold becomes the nearest time that it can:

| format | names | times |
| --- | --- | --- |
| zip | UTF-8, 65,535 bytes | from 1980-01-01 to 2038-01-19 03:14:07 UTC: 32 bits with a sign |
| tar.gz | all | of files: all; of the whole, in the header of gzip: 32 bits without a sign |

Core raises an exception for a later time in a zip and for a time before 1970 in a tar.gz, after the
first bytes. Both hold files of every size, zip as Zip64; the memory of a renderer bounds them.

For an archive that is larger than the renderer holds back, the index of each file is read before
the first byte: for removed contents, missing revisions, and files above the memory. Only a text
that does not have its hash is found later; the answer breaks off then, without the end of its
chunks and of the archive, so no client takes it for whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mercurial import error, pathutil

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROL: Final = frozenset(range(32)) | {127}
_SHOWN: Final = 60
"""Bytes of a path in a refusal."""

ZIP_NAME: Final = 65535
"""Bytes of the longest name in a zip archive."""

MARGIN: Final = 1.5
"""An estimate of less than this times the budget refuses nothing: files compress differently."""

ZIP_TIMES: Final = (315_532_800.0, 2.0**31 - 1)
GZIP_TIMES: Final = (0.0, 2.0**32 - 1)
"""Earliest and latest time that a format holds, in seconds since 1970."""
UNKNOWN_TIME: Final = ZIP_TIMES[0]
"""The time of files of a changeset without a readable time: the earliest that each format holds."""


class RefusedError(Exception):
    """There is no archive of this changeset; the message is for the client."""


class FailedError(Exception):
    """An archive failed after hgweb had begun it; the message is for the operators."""


class BudgetError(Exception):
    """An archive would pass the processor time of its request."""


@dataclass(slots=True)
class Progress:
    """How much of an archive is made: its files, with the file under way, and their bytes."""

    files: int = 0
    size: int = 0

    def exceeds(self, whole: Progress, seconds: float, cpu_seconds: float) -> bool:
        """Whether the whole would pass its budget, if `seconds` were spent on this part.

        A file costs time, and so does a byte; the larger share of the two gives the least estimate.
        """
        share = max(self.files / max(whole.files, 1), self.size / max(whole.size, 1))
        return seconds > share * cpu_seconds * MARGIN


def time_within(seconds: float, times: tuple[float, float]) -> float:
    """Return the time nearest to `seconds` that lies within `times`."""
    earliest, latest = times
    return UNKNOWN_TIME if math.isnan(seconds) else min(max(seconds, earliest), latest)


def censored(path: bytes) -> str:
    """Return the refusal of an archive with a file whose content was removed."""
    return (
        f"The content of {_shown(path)} was removed from this changeset, so there is no archive of "
        "it; request an archive of a folder without that file, or of another changeset."
    )


def too_large(path: bytes, size: int) -> str:
    """Return the refusal of an archive with a file that no renderer has the memory for."""
    return (
        f"The file {_shown(path)} has {size} bytes, more than the memory of a request here, so "
        "there is no archive of this changeset; request an archive of a folder without that file, "
        "or clone the repository."
    )


def problem(paths: Iterable[bytes], kind: str, prefix: int = 0) -> str | None:
    """Return the reason that there is no archive of these paths, and the way out, or None.

    `kind` is core's name of the format: `zip`, `tgz`. `prefix` is the number of bytes that the
    archive puts before each path.
    """
    # Core's audit of each path that it writes to a working copy, without the disk.
    audit = pathutil.pathauditor(b"/", realfs=False)
    for path in paths:
        if not _is_safe(audit, path):
            return (
                f"This changeset has the unsafe path {_shown(path)}, so there is no archive of it; "
                "request an archive of a folder without that path, or clone the repository."
            )
        if kind == "zip" and not _is_utf_8(path):
            return (
                f"This changeset has the path {_shown(path)}, which is not UTF-8, and a zip "
                "archive holds no such name; request it as tar.gz instead."
            )
        if kind == "zip" and prefix + len(path) > ZIP_NAME:
            return (
                f"This changeset has the path {_shown(path)} of {len(path)} bytes, and a zip "
                f"archive holds no name of more than {ZIP_NAME}; request it as tar.gz instead."
            )
    return None


def _is_safe(audit: pathutil.pathauditor, path: bytes) -> bool:
    if path.startswith(b"/") or not _CONTROL.isdisjoint(path) or b"" in path.split(b"/"):
        return False
    try:
        audit(path)
    except error.Abort:
        return False
    return True


def _is_utf_8(path: bytes) -> bool:
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shown(path: bytes) -> str:
    shown = path if len(path) <= _SHOWN else path[:_SHOWN] + b"..."
    return ascii(shown.decode("utf-8", "backslashreplace")).replace("\\\\", "\\")
