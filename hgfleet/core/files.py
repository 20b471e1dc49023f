"""Files that are replaced atomically, and names of files for repositories.

SSH sessions import this module, so it does without pathlib.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def replace(
    path: Path | str,
    content: str | bytes,
    *,
    mode: int = 0o644,
    durable: bool = True,
    temporary: str | None = None,
) -> None:
    """Replace a file by rename(2): a reader, or a crash, finds the old content or the new one.

    The folder must exist. See `replace_at` for the parameters.
    """
    above, slash, name = os.fspath(path).rpartition("/")
    with open_folder(f"{above}{slash}" or ".") as folder:
        replace_at(folder, name, content, mode=mode, durable=durable, temporary=temporary)


def replace_at(
    folder: int,
    name: str,
    content: str | bytes,
    *,
    mode: int = 0o644,
    durable: bool = True,
    temporary: str | None = None,
    group: int = -1,
) -> None:
    """Replace a file in the folder that the descriptor `folder` has open; see `replace`.

    `mode` is set as given, past the umask; the group with the id `group` owns the file. With
    `durable`, content and rename are on the disk at the return; files under /run and files that the
    next run writes again need no such thing. `temporary` is the name of the new file until the
    rename. The caller keeps two writers apart, by a lock or by its unit. A killed writer leaves the
    temporary file, and the next writer removes it. O_EXCL keeps the content out of a file that
    another program put there under that name.
    """
    temporary = temporary or f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        if group >= 0:
            os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)
        if durable:
            os.fsync(descriptor)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    if durable:
        os.fsync(folder)


def replace_link_at(folder: int, name: str, target: str) -> None:
    """Replace a symbolic link, or create it, in the folder that a descriptor has open."""
    temporary = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    os.symlink(target, temporary, dir_fd=folder)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def sync(path: Path, mode: int | None = None) -> None:
    """Sync a file's content, or a folder's entries, to the disk; set the mode first, if given."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_folder(path: Path | str) -> Iterator[int]:
    """Open a folder; its descriptor is for functions that take `dir_fd`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def file_name(repository: str) -> str:
    """Encode the path of a repository as one file name; no repository's path has a `+`."""
    return repository.replace("/", "+")


def repository_of(name: str) -> str:
    """Decode `file_name`."""
    return name.replace("+", "/")


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file if it is free; return whether it was."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
