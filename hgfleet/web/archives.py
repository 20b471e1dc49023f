"""Check of the paths of an archive before its first byte is sent. Pure.

A manifest may hold any path, and an archive that fails in its middle has status 200 already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mercurial import error, pathutil

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROL: Final = frozenset(range(32)) | {127}
_SHOWN: Final = 60
"""Bytes of a path in a refusal."""


def problem(paths: Iterable[bytes], kind: str) -> str | None:
    """Return the reason that there is no archive of these paths, and the way out, or None.

    `kind` is core's name of the format: `zip`, `tgz`.
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
