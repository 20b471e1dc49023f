"""Resync: a fresh copy of a mirror's repository is built, compared, and exchanged in one step.

A kill at any point leaves either the old repository in its place, or the new repository after the
comparison. The old repository stays for a day below `.replication`, for readers that have it open,
unless it is empty.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import durable, files, paths
from hgfleet.core.errors import HgfleetError, PushlogError, TemporaryError
from hgfleet.core.owner import Owner
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.registry import owned_files
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.provision import provisioning
from hgfleet.replication.documents.document_files import make_folders
from hgfleet.replication.mirror import places
from hgfleet.replication.mirror.follow_plan import AWAY
from hgfleet.replication.mirror.fresh_copy import Rebuild
from hgfleet.replication.repositories.errors import MissingError
from hgfleet.replication.repositories.readers_gate import Gate
from hgfleet.replication.repositories.registry_paths import RegistryPaths
from hgfleet.storage import replacing, work_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.protocol.snapshot import State
    from hgfleet.replication.source.client import SourceClient

KEPT_S: Final = 86_400.0
"""Seconds that the old repository stays for its readers."""

CONTENT: Final = ("00changelog.i", log_file.NAME)
"""Files of a store; a store that was never written to has none of them."""

TRIES: Final = 5
"""Rounds of updating the new repository while the old repository still gets pushes."""


def resync(
    settings: Settings,
    source: SourceClient,
    repository: str,
    say: Callable[[str], None] = lambda _: None,
    certificates: Path = Path(paths.CA_CERTIFICATES),
    known: RegistryPaths | None = None,
) -> State:
    """Replace a repository of this mirror, named by its identity, by a copy from the source.

    Returns its state. Raises UnavailableError, GoneError, MissingError, TemporaryError and
    PushlogError; then the old repository stays.
    """
    with owned_files.as_owner(Owner(os.geteuid(), os.getegid())):
        root, known = settings.repositories, known or RegistryPaths(settings)
        away = root / AWAY
        away.mkdir(mode=0o700, exist_ok=True)
        new = away / f"new-{repository}"
        # Raises MissingError before anything is made.
        known.read().path(repository)
        with _alone(away, repository):
            remove_old(root)
            build = Rebuild(settings, source, new, repository, say, certificates)
            gate = Gate(settings, source, known)
            try:
                # Open it before the first write: else only another process may learn of its loss.
                with durable.Disk(away) as disk:
                    state = _exchange(settings, build, gate, known, repository, new, disk)
            except HgfleetError:
                # The next try starts again, and a deleted repository leaves nothing here.
                shutil.rmtree(new, ignore_errors=True)
                raise
            if any((new / ".hg/store" / name).exists() for name in CONTENT):
                # From here on this folder is the old repository.
                new.touch()
                new.rename(away / f"old-{repository}-{time.time_ns()}")
            else:
                # Otherwise thousands of them would stay when a new mirror fills its repositories.
                shutil.rmtree(new, ignore_errors=True)
        return state


@contextlib.contextmanager
def _alone(away: Path, name: str) -> Iterator[None]:
    """Exclude another resync of the same repository; the kernel frees the lock after a kill."""
    file = away / f"lock-{name}"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not files.try_lock(descriptor) or not _is_at(descriptor, file):
            raise TemporaryError("another resync of this repository is running; wait for its end")
        try:
            yield
        finally:
            # Otherwise a new mirror would leave such a file for each of its repositories.
            file.unlink()
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, file: Path) -> bool:
    """Whether the open file is still at its path: another resync may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _exchange(
    settings: Settings,
    build: Rebuild,
    gate: Gate,
    known: RegistryPaths,
    repository: str,
    new: Path,
    disk: durable.Disk,
) -> State:
    """Put the new repository in its place; readers never see an older state than before.

    The copy is made while the old repository is served and gets pushes. Before the exchange, the
    readers of the repository must be as new here as on the primary (`gate`), the copy gets its
    identity, and its files go to the disk. Then the path is read again, because the repository may
    have been renamed by now. If no repository is there, the copy moves there. Otherwise the two are
    exchanged under the lock of the old repository. If the old repository has more records than the
    copy, and the source has more, too, the copy is brought up to the source for another round. If
    only the old repository has more, it is replaced: the source does not have these records.
    """
    target = places.target(settings)
    state = build.make()
    for _ in range(TRIES):
        gate.check(known.read().path(repository))
        places.identify(new, repository)
        work_folder.sync(disk)
        path = known.read().path(repository)
        old, entry = settings.repositories / path, known.entry(path)
        if not (old / ".hg").is_dir():
            _put(settings, known, repository, new)
            return state
        # Without the lock of the registry: the sync of documents holds it while it makes all
        # folders of a new mirror.
        provisioning.configure(entry, target, new)
        if replacing.replace(old, new, path, partial(_may_replace, build, state, old)):
            # The sync of documents may have written a changed entry to the old folder. If an entry
            # changes after this moment, it writes the entry to the new folder.
            with contextlib.suppress(MissingError):
                if (changed := known.entry(path)) != entry:
                    provisioning.configure(changed, target, old)
            return state
        state = build.bring_up()
    raise TemporaryError(f"{repository}: pushes come faster than it can be copied; try again")


def _put(settings: Settings, known: RegistryPaths, repository: str, new: Path) -> None:
    """Put a repository where no folder is, while the registry is locked."""
    with dynamic_update.locked(settings.dynamic):
        path = known.read().path(repository)
        provisioning.configure(known.entry(path), places.target(settings), new)
        make_folders(settings.repositories, path.rpartition("/")[0])
        try:
            new.rename(settings.repositories / path)
        except OSError as error:
            raise TemporaryError(f"{path}: another folder is there by now ({error})") from error


def _may_replace(build: Rebuild, state: State, old: Path) -> bool:
    return not goes_back(state, _tip(old)) or build.is_current(state)


def goes_back(state: State, tip: Tip) -> bool:
    """Whether the new repository has fewer records than the old repository.

    Either a push was applied in the meantime, or the old repository has records that the source
    does not have.
    """
    return tip.repository == state.repository and tip.id > state.id


def _tip(place: Path) -> Tip:
    """Return the end of a push log; a damaged log counts as empty."""
    try:
        return log_file.tip(place / ".hg/store" / log_file.NAME)
    except (PushlogError, OSError):
        return Tip()


def remove_old(root: Path, kept: float = KEPT_S) -> None:
    """Delete repositories that were exchanged long ago, and remainders of killed runs."""
    before = time.time() - kept
    with os.scandir(root / AWAY) as entries:
        for folder in entries:
            if folder.name.startswith(("old-", "new-", "bundle-")):
                with contextlib.suppress(FileNotFoundError):
                    if folder.stat().st_mtime < before:
                        shutil.rmtree(folder, ignore_errors=True)
