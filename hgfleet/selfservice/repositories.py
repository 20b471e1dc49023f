"""Creating, forking, archiving: what changes the disk and the dynamic registry.

A new repository is made beside its place, in `.NAME.making`, with its configuration; moved there;
and registered last. Every step may be the last one of a killed process:

==================  ============================  =========================================
killed              what is there                 what the next `repo create` of it does
==================  ============================  =========================================
while it is made    `.NAME.making`                empties it and begins again
after it was moved  the repository, with a mark   removes it (nobody was told of it) and
                                                  begins again
after registration  the repository, maybe marked  finds that the name is not available
==================  ============================  =========================================

The mark is what tells such remains from a repository that the inventory once declared: that one is
kept, and nobody gets it by creating its name again.

All this runs as the user hg, whose files they are. Whoever makes a path holds a lock on
`.NAME.making`; moving and registering happen under the lock of the dynamic registry, which `hgfleet
registry apply` takes too, and after a second look at both parts of the registry.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import names
from hgfleet.core.errors import AccessDeniedError, HostError, TemporaryError
from hgfleet.hg import push_spool
from hgfleet.registry import dynamic_update, permissions, user_repositories
from hgfleet.registry.compiled import load_compiled
from hgfleet.selfservice import rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.registry.model import Repository
    from hgfleet.registry.user_repositories import Entry
    from hgfleet.selfservice.context import Context

MARK: Final = "hgfleet-unregistered"
"""In .hg: this repository is not in the registry yet."""

PROGRESS_S: Final = 2.0
"""How often a long copy says how far it is."""


def find(context: Context, path: str) -> Repository:
    """Return a repository that the person may read; the same refusal for all others."""
    path = plain(path)
    repository = context.known.repositories.get(path)
    if repository is None or not permissions.may_read(repository, context.principal):
        raise missing(context, path)
    return repository


def plain(path: str) -> str:
    """Take off the slashes that URLs and completion leave at a path."""
    return path.removeprefix("/").removesuffix("/")


def missing(context: Context, path: str) -> AccessDeniedError:
    """The one answer for what does not exist and for what is hidden."""
    from hgfleet.selfservice.argv import shown

    return AccessDeniedError(
        f"There is no repository {shown(path)} here for {context.principal.name}. "
        'See "ssh hg@HOST repo list".'
    )


# --- create and fork ------------------------------------------------------------------------


def create(context: Context, path: str, entry: Entry, source: Repository | None = None) -> None:
    """Make a repository and register it. The person was already found to be allowed to.

    Raises AccessDeniedError if that has changed meanwhile, TemporaryError if somebody else makes
    the same path at this moment.
    """
    place = context.place(path)
    new = place.with_name(f".{place.name}.making")
    refuse_inside_a_repository(context, path)
    new.parent.mkdir(parents=True, exist_ok=True)
    with _claimed(new, path) as claim:
        if source is None:
            _hg(context, claim, "init", "--", str(new))
        else:
            _copy(context, claim, context.place(source.path), new)
        (new / ".hg" / MARK).touch()
        with dynamic_update.update(context.dynamic) as entries:
            # Somebody may have taken the name, or the last of the quota, while this one was made.
            static = load_compiled(context.registry)
            rules.check_creation(path, context.principal, static, entries.dynamic)
            _configure(context, user_repositories.effective(path, entry, static), new)
            _clear(place, path)
            new.rename(place)
            _sync(place.parent)
            entries[path] = entry
        (place / ".hg" / MARK).unlink()
    _tell_bundle_jobs(context, path)


def refuse_inside_a_repository(context: Context, path: str) -> None:
    """Nothing may lie inside a repository on disk, also if the registry no longer has that one."""
    for above in names.parents(path):
        if (context.place(above) / ".hg").exists():
            raise rules.not_available(path)


@contextlib.contextmanager
def _claimed(new: Path, path: str) -> Iterator[int]:
    """Have the folder `new` for oneself, empty; it is removed unless it was moved away."""
    with contextlib.suppress(FileExistsError):
        new.mkdir(mode=0o750)
    try:
        claim = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _busy(path) from None
    try:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had the lock has moved or removed it since it was opened.
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
    return TemporaryError(f"Somebody creates {path} at this moment: try again in a minute.")


def _clear(place: Path, path: str) -> None:
    """Make sure that nothing is in the way at the place of a repository that nobody registered."""
    if (place / ".hg" / MARK).exists():
        remains = place.with_name(f".{place.name}.remains")
        shutil.rmtree(remains, ignore_errors=True)
        place.rename(remains)
        shutil.rmtree(remains)
    # An empty folder is replaced by the rename.
    elif place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise rules.not_available(path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _configure(context: Context, repository: Repository, place: Path) -> None:
    from hgfleet.registry import provision
    from hgfleet.registry.owned_files import Owner

    target = provision.Target(
        root=Path(context.root),
        compiled=Path(context.registry),
        manifests=Path(context.manifests),
        hgrc=Path(context.hgrc),
        owner=Owner(os.geteuid(), os.getegid()),
    )
    provision.configure(repository, target, place)


def configure(context: Context, path: str, entry: Entry) -> None:
    """Bring the configuration of a repository in its place in line with its entry."""
    place = context.place(path)
    if (place / ".hg").is_dir():
        _configure(context, user_repositories.effective(path, entry, context.static), place)


def environment(context: Context) -> dict[str, str]:
    """Everything that an hg which is started here gets to see."""
    return {
        "HGRCPATH": context.hgrc,
        "HGPLAIN": "1",
        "HGENCODING": "utf-8",
        # A repository in the making has no groups yet; hgext/access.py lets operators alone in.
        "HGFLEET_USER": "operator:self-service",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }


def program() -> str:
    """The hg of this release."""
    return str(Path(sys.executable).with_name("hg"))


def _start(context: Context, claim: int, *words: str) -> subprocess.Popen[str]:
    """Start hg. It holds the claim too, so nobody begins anew while it survives this process."""
    return subprocess.Popen(
        [program(), "--noninteractive", *words],
        env=environment(context),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[claim],
    )


def _hg(context: Context, claim: int, *words: str) -> None:
    process = _start(context, claim, *words)
    said, _ = process.communicate()
    if process.returncode:
        raise HostError(f"hg {words[0]} failed: {said.strip()[-1000:]}")


def _copy(context: Context, claim: int, source: Path, new: Path) -> None:
    """Copy what a reader of the source sees, as a pull does.

    Not by hard links: those would take along what a reader does not get (secret and hidden
    changesets, the files that extensions keep in the store), lock the source against pushes
    meanwhile, and tie the two together on disk.
    """
    words = ("clone", "--quiet", "--pull", "--noupdate", "--", str(source), str(new))
    process = _start(context, claim, *words)
    try:
        whole = 0
        while True:
            try:
                said, _ = process.communicate(timeout=PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                whole = whole or size(source)
                share = min(99, 100 * size(new) // max(whole, 1))
                context.progress(f"copying: about {share} % of {whole / 1e6:,.1f} MB")
    except BaseException:
        # The client has gone, or the service stops: nobody waits for this fork any more.
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise HostError(f"hg clone of {source} failed: {said.strip()[-1000:]}")


def size(place: Path) -> int:
    """Bytes of the repository's store."""
    total = 0
    for folder, _, files in os.walk(place / ".hg/store"):
        for name in files:
            # A transaction of this moment may remove what was listed.
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total


# --- what an owner changes ------------------------------------------------------------------


def describe(context: Context, path: str, text: str) -> None:
    """Change the description."""
    path = plain(path)
    with _mine(context, path) as (entries, entry):
        entries[path] = described = replace(entry, description=text)
        configure(context, path, described)


def archive(context: Context, path: str) -> None:
    """Take a repository out of service: a session or request that begins now does not find it.

    A push that is under way goes on to its end; what it brings is archived with the rest.
    """
    path = plain(path)
    with _mine(context, path) as (entries, entry):
        entries[path] = replace(entry, archived=user_repositories.now())
    _tell_bundle_jobs(context, path)


def restore(context: Context, path: str) -> None:
    """Bring an archived repository back."""
    path = plain(path)
    with dynamic_update.update(context.dynamic) as entries:
        entry = entries.get(path)
        if entry is None or entry.owner != context.principal.name:
            raise missing(context, path)
        bring_back(context, path, entries)
    _tell_bundle_jobs(context, path)


def bring_back(context: Context, path: str, entries: dynamic_update.Update) -> None:
    """Put an archived repository in service again."""
    entry = entries[path]
    if entry.archived is None:
        raise AccessDeniedError(f"{path} is not archived.")
    static = load_compiled(context.registry)
    place = context.place(path)
    if path in user_repositories.shadowed(static, entries.dynamic):
        raise AccessDeniedError(
            f"{path} cannot come back: the operators have given its place to another repository. "
            "Ask them."
        )
    if not (place / ".hg").is_dir():
        raise AccessDeniedError(f"{path} cannot come back: it has been deleted.")
    # What its namespace says may have changed while it was away.
    restored = replace(entry, archived=None)
    _configure(context, user_repositories.effective(path, restored, static), place)
    entries[path] = restored


def _tell_bundle_jobs(context: Context, path: str) -> None:
    """Let bundles come or go soon; where that cannot be told, the timer of the jobs finds out."""
    with contextlib.suppress(OSError):
        push_spool.mark(str(Path(context.dynamic).parent.parent / push_spool.SPOOL.name), path)


@contextlib.contextmanager
def _mine(context: Context, path: str) -> Iterator[tuple[dynamic_update.Update, Entry]]:
    """Change the entry of a repository that the person owns and that is in service."""
    repository = find(context, path)
    with dynamic_update.update(context.dynamic) as entries:
        entry = entries.get(path)
        if repository.owner is None:
            raise AccessDeniedError(
                f"{path} is declared in the inventory of this service: ask an operator."
            )
        if entry is None or entry.owner != context.principal.name:
            raise AccessDeniedError(
                f"{path} belongs to {repository.owner}, who alone may do this; an operator can "
                "give it to somebody else."
            )
        if entry.archived is not None:
            raise missing(context, path)
        yield entries, entry
