"""State of a repository's place on disk: there, missing, or blocked by an obstacle."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from hgfleet.registry import owned_files

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.core.owner import Owner


class Obstacle(str):
    """The reason why a repository can be neither used nor created, with the way out."""

    __slots__ = ()


def state(root: Path, owner: Owner, path: str) -> str:
    """Return "there", "missing", or the obstacle in the way of a repository."""
    place = f"{root}/{path}"
    above = ""
    for segment in path.split("/"):
        above = f"{above}/{segment}" if above else segment
        try:
            with owned_files.open_below(root, above) as descriptor:
                if above != path and owned_files.exists(".hg", descriptor):
                    return Obstacle(
                        f"{place}: {root}/{above} is a repository on disk, and no "
                        "repository may lie inside another; move it away"
                    )
                if above == path:
                    return _content(place, descriptor, owner)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return "missing"
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                return Obstacle(
                    f"{place}: got a file or a symbolic link at {root}/{above}, "
                    "expected a directory or nothing; move it away"
                )
            return Obstacle(f"{place}: {error.strerror}; chown -R hg:hg {place}")
    return "missing"


def _content(place: str, descriptor: int, owner: Owner) -> str:
    for name in (".", ".hg", ".hg/store"):
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            if name == ".hg" and not os.listdir(descriptor):
                return "missing"
            return Obstacle(
                f"{place}: the directory is neither empty nor a repository (no {name}); "
                "move it away"
            )
        if not stat.S_ISDIR(status.st_mode):
            return Obstacle(f"{place}/{name}: expected a directory; move it away")
        if status.st_uid != owner.uid:
            return Obstacle(
                f"{place}/{name} belongs to user {status.st_uid}, expected "
                f"{owner.uid}; chown -R hg:hg {place}"
            )
    return "there"
