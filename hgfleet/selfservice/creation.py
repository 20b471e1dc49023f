"""Creation of repositories by their owner: empty repositories and forks.

A new repository is made next to its place, in `.NAME.making`, with its identity and configuration;
moved there; and registered last. The process may be killed after any step:

==================  ============================  =========================================
killed              remains                       the next `repo create` of the path
==================  ============================  =========================================
during the making   `.NAME.making`                empties the folder and starts over
after the move      the repository, with a mark   removes it (its owner has not seen it), and
                                                  starts over
after registration  the repository, maybe marked  finds that the name is not available
==================  ============================  =========================================

The mark distinguishes such remains from a repository that the inventory once declared. A declared
repository is kept, and creating its name again does not give it to a new owner. The mark also has
the state of the repository before its registration. A repository that was written to since was
registered, so its history is kept, marked or not; `hgfleet registry apply` removes a mark that is
left over.

All this runs as the user hg, who owns the files. A session that makes a repository holds a lock
on `.NAME.making`; moving and registering happen under the lock of the dynamic registry, which
`hgfleet registry apply` takes too, and after a second check of both parts of the registry.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hgfleet.core import durable, identity, names
from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.core.files import sync
from hgfleet.hg import opened_identity
from hgfleet.pushlog import log_file
from hgfleet.registry.dynamic import dynamic_update, repository_sizes, user_repositories
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.selfservice import repositories, rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.registry.model.registry import Repository
    from hgfleet.selfservice.context import Context
    from hgfleet.selfservice.fork_size import ForkSize

MARK: Final = user_repositories.UNREGISTERED

_STATE: Final = (
    *("store/00changelog.i", "store/00changelog.d", "store/00manifest.i", "store/phaseroots"),
    *("store/obsstore", "bookmarks"),
)
"""Files of .hg; every push changes at least one of them."""

PROGRESS_S: Final = 2.0
"""How often a long copy reports its progress."""


@dataclass(frozen=True, slots=True)
class Source:
    """The repository that a fork is a copy of, and the bytes reserved for the copy."""

    repository: Repository
    size: ForkSize


def create(context: Context, path: str, entry: Entry, source: Source | None = None) -> None:
    """Make a repository and register it, for a person who was found to be allowed to.

    Raises AccessDeniedError if the person is no longer allowed to, TemporaryError if another
    session makes the same path at this moment.
    """
    entry = replace(entry, identity=identity.made())
    place = context.place(path)
    new = place.with_name(f".{place.name}.making")
    refuse_inside_a_repository(context, path)
    new.parent.mkdir(parents=True, exist_ok=True)
    # It is open before the writes: otherwise another session may be told of their loss.
    with durable.Disk(new.parent) as disk, _claimed(new, path) as claim:
        if source is None:
            _hg(context, claim, "init", "--", str(new))
            # The first push to a fork adopts the changesets of its source.
            (new / ".hg" / log_file.FROM_START).touch(0o640)
        else:
            _copy(context, claim, source, new)
        (new / ".hg" / MARK).write_text(state(new), "ascii")
        if durable.is_wanted(context.configuration):
            disk.sync()
        with dynamic_update.update(context.dynamic) as entries:
            # Another session may have taken the name, or the last of the quota, since the first
            # check.
            static = load_compiled(context.registry)
            rules.check_creation(path, context.principal, static, entries.dynamic, context.url)
            repositories.configure_at(
                context, user_repositories.effective(path, entry, static), new
            )
            clear(place, path)
            new.rename(place)
            sync(place.parent)
            entries[path] = entry
        # `registry apply` may have removed it already.
        (place / ".hg" / MARK).unlink(missing_ok=True)
    repositories.notify_bundle_jobs(context, path)


def refuse_inside_a_repository(context: Context, path: str) -> None:
    """Refuse a path inside a repository on disk, even if the registry does not have that one."""
    for above in names.parents(path):
        if (context.place(above) / ".hg").exists():
            raise rules.not_available(path)


@contextlib.contextmanager
def _claimed(new: Path, path: str) -> Iterator[int]:
    """Lock the folder `new`, empty it, and remove it at the end unless it was moved away."""
    with contextlib.suppress(FileExistsError):
        new.mkdir(mode=0o750)
    try:
        claim = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _busy(path) from None
    try:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The session that held the lock has moved or removed the folder since it was opened
            # here.
            if new.lstat().st_ino != os.fstat(claim).st_ino:
                raise _busy(path)
        except (BlockingIOError, FileNotFoundError):
            raise _busy(path) from None
        for remains in new.iterdir():
            shutil.rmtree(remains)
        try:
            yield claim
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    finally:
        os.close(claim)


def _busy(path: str) -> TemporaryError:
    return TemporaryError(f"Another session creates {path} at this moment: try again in a minute.")


def state(repository: Path) -> str:
    """Return the sizes and modification times of the files that define the history."""
    stats = []
    for name in _STATE:
        try:
            status = (repository / ".hg" / name).stat()
        except FileNotFoundError:
            stats.append("-")
        else:
            stats.append(f"{status.st_size}:{status.st_mtime_ns}")
    return " ".join(stats) + "\n"


def _is_remains(place: Path) -> bool:
    """Whether this is a marked repository to which nothing was written since its creation."""
    try:
        return (place / ".hg" / MARK).read_text("ascii") == state(place)
    except (OSError, UnicodeError):
        return False


def clear(place: Path, path: str) -> None:
    """Remove the remains of an unregistered repository; refuse a place with anything else."""
    if _is_remains(place):
        remains = place.with_name(f".{place.name}.remains")
        shutil.rmtree(remains, ignore_errors=True)
        place.rename(remains)
        shutil.rmtree(remains)
    # The rename replaces an empty folder.
    elif place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise rules.not_available(path)


def _start(context: Context, claim: int, *argv: str, source: str = "") -> subprocess.Popen[str]:
    """Start hg. It holds the claim, slot and reservation too, so none is free while hg runs.

    `source` is the identity of the repository that hg copies.
    """
    return subprocess.Popen(
        [repositories.program(), "--noninteractive", *argv],
        env=repositories.environment(context) | {opened_identity.SOURCE: source},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[claim, *context.inherited],
    )


def _hg(context: Context, claim: int, *argv: str) -> None:
    process = _start(context, claim, *argv)
    said, _ = process.communicate()
    if process.returncode:
        raise HostError(f"hg {argv[0]} failed: {said.strip()[-1000:]}")


def _copy(context: Context, claim: int, source: Source, new: Path) -> None:
    """Copy the changesets that a reader of the source sees, as a pull does.

    Hard links would take along content that no reader gets (secret and hidden changesets, the
    files that extensions keep in the store), lock the source against pushes during the copy, and
    tie the two repositories together on disk.
    """
    place = context.place(source.repository.path)
    argv = ("clone", "--quiet", "--pull", "--noupdate", "--", str(place), str(new))
    # Another repository may get this path before hg opens it, or before hg has read all of it.
    expected = source.repository.identity
    process = _start(context, claim, *argv, source=expected)
    try:
        while True:
            try:
                said, _ = process.communicate(timeout=PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                whole = source.size.expected
                share = min(99, 100 * source.size.check(new) // max(whole, 1))
                context.progress(f"copying: about {share} % of {whole / 1e6:,.1f} MB")
    except BaseException:
        # There is no room for more, the client disconnected, or the service stops: the fork is
        # given up.
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        if identity.problem(place, expected):
            raise TemporaryError(
                f"{source.repository.path} was renamed or replaced during the copy; nothing was "
                "copied, try again."
            )
        raise HostError(f"hg clone of {place} failed: {said.strip()[-1000:]}")
    repository_sizes.remember(new, source.size.check(new))
