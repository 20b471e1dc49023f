"""Files of the documents on this host: listed with their digests, opened, replaced and deleted.

The folders belong to the user `hg` or are open to its group. No step follows a symbolic link.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from typing import IO, TYPE_CHECKING, Final

from hgfleet.bundles.decide import pullbundle_chain
from hgfleet.core.errors import UnavailableError
from hgfleet.hg import fingerprint
from hgfleet.registry import owned_files
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.provision import provisioning
from hgfleet.replication.documents import documents
from hgfleet.replication.documents.documents import Document, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings

MODE: Final = 0o640
"""Only owner and group read documents: all of them name or contain private repositories."""

TOKENS_FOLDER: Final = "tokens"
TOKENS_FILE: Final = "tokens.json"

_PIECE: Final = 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Stamp = tuple[int, ...]


class Documents:
    """The documents of this host. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._digests: dict[str, tuple[Stamp, str]] = {}

    def all(self) -> list[Document]:
        """List the documents. Raises RegistryError if the dynamic registry is lost or damaged.

        Mirrors of a primary without a registry keep their own registry.
        """
        user_repositories.load(self._settings.dynamic)
        listed = []
        for name in self._names():
            if documents.kind_of(name) is Kind.FORMER:
                # It stays until the bundle jobs of this release take it over.
                continue
            with contextlib.suppress(FileNotFoundError):
                if (opened := self.open(name)) is not None:
                    with opened:
                        listed.append(self._document(name, opened))
        return listed

    def stamp(self) -> str:
        """Return a digest of the folders' times; "" if a change is too recent to be certain.

        Every document is replaced by a rename, which changes the time of its folder.
        """
        now = time.time_ns()
        hashed = hashlib.sha256()
        for folder in self._folders():
            try:
                status = os.stat(folder)  # noqa: PTH116  (for thousands of folders)
            except FileNotFoundError:
                hashed.update(f"{folder}\n".encode())
                continue
            if now - status.st_ctime_ns < fingerprint.SETTLED_NS:
                return ""
            hashed.update(f"{folder}\0{status.st_ino}\0{status.st_ctime_ns}\n".encode())
        return hashed.hexdigest()

    def _folders(self) -> Iterator[str]:
        """Yield the folders that hold documents."""
        settings = self._settings
        yield str(settings.dynamic.parent)
        yield str(settings.dynamic.parent / TOKENS_FOLDER)
        for folder, below, _ in os.walk(settings.manifests):
            # The history of manifests belongs to the bundle jobs.
            below[:] = sorted(name for name in below if name[0] != ".")
            yield folder
        yield str(settings.pull_bundles)
        with contextlib.suppress(FileNotFoundError), os.scandir(settings.pull_bundles) as entries:
            yield from sorted(entry.path for entry in entries if entry.is_dir())

    def have(self) -> dict[str, str]:
        """Return the sha256 of each document by its name; a damaged registry is no obstacle."""
        digests = {}
        for name in self._names(every_link=True):
            if (opened := self.open(name)) is not None:
                with opened:
                    digests[name] = self._document(name, opened).sha256
        return digests

    def open(self, name: str) -> IO[bytes] | None:
        """Open a document; None if no document has this name."""
        place = self._place(name)
        if place is None:
            return None
        root, folder, file = place
        try:
            with owned_files.open_below(root, folder) as descriptor:
                opened = os.open(file, _READ, dir_fd=descriptor)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
                return None
            raise
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            return None
        return os.fdopen(opened, "rb")

    def replace(self, wanted: Document, fetch: Callable[[IO[bytes]], None]) -> None:
        """Replace a document by the bytes that `fetch` writes, if their digest is as wanted.

        Otherwise the old file stays, and UnavailableError is raised.
        """
        place = self._place(wanted.name)
        if place is None:
            raise ValueError(f"{wanted.name!r} is no document")
        root, folder, file = place
        make_folders(root, folder)
        with owned_files.open_below(root, folder) as descriptor:
            temporary = f".{file}.new"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=descriptor)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=descriptor), "w+b") as new:
                fetch(new)
                new.flush()
                if (got := digest(new)) != wanted.sha256:
                    os.unlink(temporary, dir_fd=descriptor)
                    raise UnavailableError(
                        f"{wanted.name}: got content with sha256 {got[:12]}, expected "
                        f"{wanted.sha256[:12]}; it has changed since, and is fetched again"
                    )
                os.fchmod(new.fileno(), MODE)
                os.fsync(new.fileno())
            os.rename(temporary, file, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            os.fsync(descriptor)

    def delete(self, name: str) -> None:
        """Delete a document, if it is there, and its folder if that is empty now."""
        place = self._place(name)
        if place is None:
            return
        root, folder, file = place
        try:
            with owned_files.open_below(root, folder) as descriptor:
                os.unlink(file, dir_fd=descriptor)
                os.fsync(descriptor)
        except FileNotFoundError:
            return
        if documents.kind_of(name) is not Kind.TOKENS:
            _remove_empty(root, folder)

    def _place(self, name: str) -> tuple[Path, str, str] | None:
        """Return the configured root, the folder below it, and the name of the file."""
        settings = self._settings
        kind = documents.kind_of(name)
        if kind is Kind.REGISTRY:
            return settings.dynamic.parent, "", settings.dynamic.name
        if kind is Kind.TOKENS:
            return settings.dynamic.parent, TOKENS_FOLDER, TOKENS_FILE
        if kind is not None and name.startswith(documents.MANIFESTS):
            folder, _, file = name.removeprefix(documents.MANIFESTS).rpartition("/")
            return settings.manifests, folder, file
        if kind is not None:
            folder, _, file = name.removeprefix(documents.PULL_BUNDLES).partition("/")
            return settings.pull_bundles, folder, file
        return None

    def _names(self, *, every_link: bool = False) -> Iterator[str]:
        """Yield the names of files that may be documents; of pull bundles, only files in use."""
        yield documents.REGISTRY
        yield documents.TOKENS
        for file in sorted(self._settings.manifests.rglob(f"*{documents.SUFFIX}")):
            yield f"{documents.MANIFESTS}{file.relative_to(self._settings.manifests).as_posix()}"
        if not self._settings.pull_bundles.is_dir():
            return
        for folder in sorted(self._settings.pull_bundles.iterdir()):
            chain = f"{documents.PULL_BUNDLES}{folder.name}/{documents.CHAIN}"
            files = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
            used = files if every_link else self._used(chain)
            yield from (
                f"{documents.PULL_BUNDLES}{folder.name}/{file}" for file in sorted(files & used)
            )
            if not every_link:
                yield chain

    def _used(self, chain: str) -> set[str]:
        opened = self.open(chain)
        if opened is None:
            return set()
        with opened:
            text = opened.read(documents.SMALL).decode("ascii", "replace")
        return {link.name for link in pullbundle_chain.parse(text) if link.on_disk}

    def _document(self, name: str, opened: IO[bytes]) -> Document:
        status = os.fstat(opened.fileno())
        if known := documents.digest_in(name):
            return Document(name, known, status.st_size)
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        with self._lock:
            before = self._digests.get(name)
        if before is None or before[0] != stamp:
            before = (stamp, digest(opened))
            with self._lock:
                self._digests[name] = before
        return Document(name, before[1], status.st_size)


def digest(file: IO[bytes]) -> str:
    """Return the sha256 of a file, read from its beginning."""
    file.seek(0)
    hashed = hashlib.sha256()
    while piece := file.read(_PIECE):
        hashed.update(piece)
    return hashed.hexdigest()


def make_folders(root: Path, folder: str) -> None:
    """Make a folder below a root, with its parents."""
    above = ""
    for segment in folder.split("/") if folder else []:
        with owned_files.open_below(root, above) as descriptor:
            if not owned_files.exists(segment, descriptor):
                owned_files.make_folder(segment, descriptor, provisioning.DIRECTORY_MODE)
        above = f"{above}/{segment}" if above else segment


def _remove_empty(root: Path, folder: str) -> None:
    """Remove a folder and its parents as far as they are empty; rmdir removes no others."""
    while folder:
        above, _, name = folder.rpartition("/")
        try:
            with owned_files.open_below(root, above) as descriptor:
                os.rmdir(name, dir_fd=descriptor)
        except OSError:
            return
        folder = above
