"""Files of the repositories' owner, read and entered by root without trusting them.

The owner's sessions run for people, so a link or a pipe may lie anywhere in the owner's folders. No
function here follows a link, and `as_owner` drops the rights of root for its block.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HostError
from hgfleet.core.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UMASK: Final = 0o027

OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def owner(user: str, group: str) -> Owner:
    """Look up the user and group; raises HostError if this host has no such names."""
    try:
        return Owner(pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid)
    except KeyError as error:
        raise HostError(f"{error.args[0]}; the role `mercurial` creates user and group") from error


def become(user: str) -> None:
    """Take the rights of the repositories' owner from now on, for good, if this is root.

    Raises HostError.
    """
    if os.geteuid() == 0:
        own = owner(user, user)
        os.setgroups([own.gid])
        os.setgid(own.gid)
        os.setuid(own.uid)
    os.umask(UMASK)


@contextlib.contextmanager
def as_owner(own: Owner) -> Iterator[None]:
    """Work with the effective rights of the owner in the block."""
    if os.geteuid() != 0:
        mask = os.umask(UMASK)
        try:
            yield
        finally:
            os.umask(mask)
        return
    groups, mask = os.getgroups(), os.umask(UMASK)
    os.setgroups([own.gid])
    os.setegid(own.gid)
    os.seteuid(own.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        os.umask(mask)


def make_folder(name: str, directory: int, mode: int) -> None:
    """Make a folder of this mode in another folder, whose setgid bit it inherits.

    A unit with RestrictSUIDSGID= cannot set that bit, and need not if it is inherited.
    """
    os.mkdir(name, mode & 0o777, dir_fd=directory)
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_IMODE(status.st_mode) != mode:
        os.chmod(name, mode, dir_fd=directory)


def exists(name: str, directory: int) -> bool:
    """Whether a folder has an entry of this name, a dangling link included."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def read_text(directory: int, name: str, uid: int, mode: int) -> str | None:
    """Read a small file; None if it is missing, a link, or has another owner or mode."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
            return None
        raise
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_uid != uid or stat.S_IMODE(status.st_mode) != mode:
            return None
        return file.read()


def read_link(directory: int, name: str) -> str | None:
    """Read a link; None if nothing is there, "" if it is something else."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        if error.errno == errno.EINVAL:
            return ""
        raise


@contextlib.contextmanager
def open_below(root: Path, path: str) -> Iterator[int]:
    """Open a folder below the root, no segment of the path being a link."""
    # The root itself may be a link: it is configuration, made by root.
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for segment in path.split("/") if path else []:
            below = os.open(segment, OPEN_FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)
