"""Makes the repositories of a host follow the registry: `hgfleet registry apply`.

It runs as root, in directories that belong to the user `hg`, whose sessions run for people. So it
trusts nothing it finds there: every step into a directory refuses symbolic links, files are made
anew under a name nobody else uses and then renamed, and all of that happens with the effective
rights of `hg`, so that even a race that is won gives nothing that `hg` did not have.

A new repository appears complete or not at all: it is made beside its place, with its
configuration, and renamed. What a killed run left is removed by the next.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HostError, RegistryError
from hgfleet.registry import user_repositories
from hgfleet.registry.compiled import dump_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.registry.model import Registry, Repository

DIRECTORY_MODE: Final = 0o2750
"""The group comes along (setgid), so that web workers and bundle jobs can read what is pushed."""
FILE_MODE: Final = 0o640
COMPILED_MODE: Final = 0o644
UMASK: Final = 0o027

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and group that repositories belong to."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where things are on this host."""

    root: Path
    compiled: Path
    manifests: Path
    hgrc: Path
    owner: Owner
    pull_bundles: Path = Path("/var/lib/hgfleet/pullbundles")
    dynamic: Path | None = None
    """The file with the repositories that people created; None is none."""
    hg: str = ""
    """The program; by default the one of this release, beside the Python that runs this."""

    def manifest(self, repository: Repository) -> str:
        """Where the bundles part keeps the clone bundle manifest of a repository."""
        return str(self.manifests / f"{repository.path}.manifest")

    def pulls(self, repository: Repository) -> str:
        """Where the bundles part keeps the pull bundles of a repository."""
        return str(self.pull_bundles / repository.path.replace("/", "+"))


def owner(user: str, group: str) -> Owner:
    """Look up the user and group; raises HostError if this host has no such names."""
    try:
        return Owner(pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid)
    except KeyError as error:
        raise HostError(f"{error.args[0]}; the role `mercurial` creates user and group") from error


def become(user: str) -> None:
    """Work with the rights of the repositories' owner from now on, for good; only root has others.

    Everything there is the owner's, and nothing needs root. Raises HostError.
    """
    if os.geteuid() == 0:
        own = owner(user, user)
        os.setgroups([own.gid])
        os.setgid(own.gid)
        os.setuid(own.uid)
    os.umask(UMASK)


def hgrc(repository: Repository) -> str:
    """Render the .hg/hgrc of a repository, of the inventory or of a person.

    Paths, groups, reasons and descriptions were checked to be single-line printable text, so
    nothing in them can begin a line, a section or an include.
    """
    protection = ""
    if repository.owner is not None:
        protection += f"owner = {repository.owner}\n"
    if repository.read_only is not None:
        protection += f"read-only = {repository.read_only}\n"
    if repository.policies:
        protection += f"policies = {_json(dict(repository.policies))}\n"
    if repository.rules:
        protection += f"rules = {_json([rule.to_json() for rule in repository.rules])}\n"
    read = "public" if repository.read == "public" else " ".join(repository.read)
    return f"""\
# Written by hgfleet from the entry of this repository in the registry. Whatever is changed here is
# overwritten; change registry.yml of the inventory and run the play.

[phases]
publish = {"true" if repository.publishing else "false"}

[web]
name = {repository.path}
description = {repository.description}
contact = {", ".join(repository.push) or "nobody"}

[hgfleet]
path = {repository.path}
read = {read}
push = {" ".join(repository.push)}
{protection}""".replace(" \n", "\n")


def _json(value: object) -> str:
    """One line, the same for the same value; ASCII, so that no reader can split it elsewhere."""
    return json.dumps(value, sort_keys=True)


def apply(
    registry: Registry,
    target: Target,
    *,
    write: bool,
    diff: bool,
    say: Callable[[str], None],
) -> int:
    """Bring the host in line and return how many things changed (or would, without `write`).

    Raises HostError, before anything is written, if something is in the way. A failure later leaves
    each repository either as it was or complete; the next run goes on from there.
    """
    if os.geteuid() not in (0, target.owner.uid):
        raise HostError("registry apply creates files that belong to hg: run it as root")
    run = _Run(target, write=write, diff=diff, say=say)
    try:
        run.everything(registry)
    except OSError as error:
        # `strerror` and the name: a full disk, a missing program, a directory that vanished.
        raise HostError(f"{error.filename or target.root}: {error.strerror}") from error
    return run.changed


def configure(repository: Repository, target: Target, place: Path) -> None:
    """Give one repository, wherever it lies at the moment, the configuration of its entry."""
    run = _Run(target, write=True, diff=False, say=lambda _: None)
    with _as_owner(target.owner):
        descriptor = os.open(place, _OPEN_DIRECTORY)
        try:
            run.configure(repository, descriptor, is_new=True)
        finally:
            os.close(descriptor)


class _Obstacle(str):
    """Why a repository can be neither used nor created."""

    __slots__ = ()


class _Run:
    def __init__(
        self, target: Target, *, write: bool, diff: bool, say: Callable[[str], None]
    ) -> None:
        self.target = target
        self.write = write
        self.diff = diff
        self.say = say
        self.changed = 0

    def everything(self, registry: Registry) -> None:
        target = self.target
        with self.locked():
            with _as_owner(target.owner):
                states = {path: self.state(path) for path in registry.repositories}
            obstacles = [str(state) for state in states.values() if isinstance(state, _Obstacle)]
            obstacles += self.archived_in_the_way(registry)
            if obstacles:
                raise HostError("\n".join(obstacles))
            for path, repository in registry.repositories.items():
                if states[path] == "there":
                    with _as_owner(target.owner), self.directory(path) as descriptor:
                        self.configure(repository, descriptor)
                else:
                    self.create(repository)
            # Last: a session or worker finds in it only repositories that exist and are configured.
            self.compile(registry)
            known = set(registry.repositories) | self.dynamic(registry)
            with _as_owner(target.owner):
                self.name_unregistered(known)

    def change(self, what: str) -> None:
        self.changed += 1
        self.say(what)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time, and nobody creates or archives a repository over SSH meanwhile.

        The locks are on directories, so no file is left behind.
        """
        for place in (self.target.root, self.target.compiled.parent):
            if not place.is_dir():
                raise HostError(f"{place} is no directory; the role `mercurial` creates it")
        descriptor = os.open(
            self.target.compiled.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        )
        try:
            with contextlib.ExitStack() as stack:
                if self.write:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    if self.target.dynamic is not None and self.target.dynamic.parent.is_dir():
                        stack.enter_context(user_repositories.locked(self.target.dynamic))
                yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Open a directory below the root, each step of the way without following a link."""
        # The root itself may be a link: it is configuration, made by root.
        descriptor = os.open(self.target.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for segment in path.split("/") if path else []:
                below = os.open(segment, _OPEN_DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def state(self, path: str) -> str:
        """Whether the repository is "there", is "missing", or what is in its way."""
        place = f"{self.target.root}/{path}"
        above = ""
        for segment in path.split("/"):
            above = f"{above}/{segment}" if above else segment
            try:
                with self.directory(above) as descriptor:
                    if above != path and _exists(".hg", descriptor):
                        return _Obstacle(
                            f"{place}: {self.target.root}/{above} is a repository on disk, and no "
                            "repository may lie inside another; move it away"
                        )
                    if above == path:
                        return self.content(place, descriptor)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return "missing"
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    return _Obstacle(
                        f"{place}: got a file or a symbolic link at {self.target.root}/{above}, "
                        "expected a directory or nothing; move it away"
                    )
                return _Obstacle(f"{place}: {error.strerror}; chown -R hg:hg {place}")
        return "missing"

    def content(self, place: str, descriptor: int) -> str:
        for name in (".", ".hg", ".hg/store"):
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                if name == ".hg" and not os.listdir(descriptor):
                    return "missing"
                return _Obstacle(
                    f"{place}: the directory is neither empty nor a repository (no {name}); "
                    "move it away"
                )
            if not stat.S_ISDIR(status.st_mode):
                return _Obstacle(f"{place}/{name}: expected a directory; move it away")
            if status.st_uid != self.target.owner.uid:
                return _Obstacle(
                    f"{place}/{name} belongs to user {status.st_uid}, expected "
                    f"{self.target.owner.uid}; chown -R hg:hg {place}"
                )
        return "there"

    def create(self, repository: Repository) -> None:
        """Make a repository beside its place, complete, and rename it there."""
        self.change(f"{repository.path}: repository created")
        if not self.write:
            return
        parent, _, name = repository.path.rpartition("/")
        new = f".{name}.new"  # no registered path can have a segment like this
        with _as_owner(self.target.owner):
            self.make_parents(parent)
            with self.directory(parent) as descriptor:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(new, dir_fd=descriptor)
                os.mkdir(new, dir_fd=descriptor)
                os.chmod(new, DIRECTORY_MODE, dir_fd=descriptor)
        self.hg_init(self.target.root / parent / new)
        with _as_owner(self.target.owner), self.directory(parent) as descriptor:
            created = os.open(new, _OPEN_DIRECTORY, dir_fd=descriptor)
            try:
                self.configure(repository, created, is_new=True)
            finally:
                os.close(created)
            os.rename(new, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            os.fsync(descriptor)

    def make_parents(self, path: str) -> None:
        above = ""
        for segment in path.split("/") if path else []:
            with self.directory(above) as descriptor:
                if not _exists(segment, descriptor):
                    os.mkdir(segment, dir_fd=descriptor)
                    os.chmod(segment, DIRECTORY_MODE, dir_fd=descriptor)
            above = f"{above}/{segment}" if above else segment

    def hg_init(self, place: Path) -> None:
        own = self.target.owner
        program = self.target.hg or str(Path(sys.executable).with_name("hg"))
        is_root = os.geteuid() == 0
        result = subprocess.run(
            [program, "init", "--", str(place)],
            env={
                "HGRCPATH": str(self.target.hgrc),
                "HGPLAIN": "1",
                "HGENCODING": "utf-8",
                "HGFLEET_USER": "operator:registry-apply",
                "LANG": "C.UTF-8",
                "PATH": os.environ.get("PATH", os.defpath),
            },
            cwd="/",
            umask=UMASK,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            user=own.uid if is_root else None,
            group=own.gid if is_root else None,
            extra_groups=[] if is_root else None,
        )
        if result.returncode:
            raise HostError(f"hg init {place} failed: {result.stdout.strip()}")

    def configure(self, repository: Repository, descriptor: int, *, is_new: bool = False) -> None:
        """Write .hg/hgrc and the link to the manifest, where they are not as they should be."""
        control = os.open(".hg", _OPEN_DIRECTORY, dir_fd=descriptor)
        try:
            text = hgrc(repository)
            before = _file(control, "hgrc", self.target.owner.uid, FILE_MODE)
            if before != text:
                if not is_new:
                    self.change(f"{repository.path}: .hg/hgrc written")
                    self.show(f"{repository.path}/.hg/hgrc", before or "", text)
                if self.write:
                    _replace(control, "hgrc", text, FILE_MODE)
            # Without bundles there is no link: what was uploaded when there were some must not be
            # advertised.
            link = self.target.manifest(repository) if repository.bundles else None
            # Pull bundles are sent only to who may read the repository.
            links = {
                "clonebundles.manifest": link,
                "pullbundles": self.target.pulls(repository),
            }
            for name, link in links.items():
                if _link(control, name) != link:
                    if not is_new:
                        what = f"links to {link}" if link else "removed"
                        self.change(f"{repository.path}: .hg/{name} {what}")
                    if self.write:
                        _replace_link(control, name, link)
        finally:
            os.close(control)

    def compile(self, registry: Registry) -> None:
        text = dump_compiled(registry)
        place = self.target.compiled
        descriptor = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            before = _file(descriptor, place.name, os.geteuid(), COMPILED_MODE)
            if before != text:
                self.change(f"{place} written")
                self.show(str(place), before or "", text)
                if self.write:
                    _replace(descriptor, place.name, text, COMPILED_MODE)
        finally:
            os.close(descriptor)

    def dynamic(self, registry: Registry) -> set[str]:
        """Have the repositories that people created follow their namespaces; return all paths.

        Nothing that is wrong with one of them keeps the inventory's from being applied: it is
        named and left as it is.
        """
        file = self.target.dynamic
        if file is None:
            return set()
        try:
            found = user_repositories.load(file)
        except RegistryError as error:
            self.say(f"{error}; what people created keeps the settings that it has")
            return set()
        for problem in found.problems():
            self.say(problem)
        for path, above in user_repositories.shadowed(registry, found).items():
            self.say(f"{path}: created by a person, and {above} of the inventory hides it")
        served = user_repositories.merged(registry, found)
        for path in sorted(set(found.raw) - set(registry.repositories)):
            if (repository := served.repositories.get(path)) is not None:
                self.configure_dynamic(repository)
        return set(found.raw)

    def archived_in_the_way(self, registry: Registry) -> list[str]:
        """An archived repository is not given to others by declaring its path."""
        found = user_repositories.NOTHING
        if self.target.dynamic is not None:
            # What is wrong with the file is told when its entries are configured.
            with contextlib.suppress(RegistryError):
                found = user_repositories.load(self.target.dynamic)
        return [
            f"{self.target.root}/{path}: {entry.owner} has archived a repository there; "
            f"`hgfleet repo purge --now {path} {path}` deletes it for good"
            for path, entry in found.repositories.items()
            if path in registry.repositories and entry.archived is not None
        ]

    def configure_dynamic(self, repository: Repository) -> None:
        path = repository.path
        with _as_owner(self.target.owner):
            state = self.state(path)
            if state == "there":
                with self.directory(path) as descriptor:
                    self.configure(repository, descriptor)
                return
        if isinstance(state, _Obstacle):
            self.say(str(state))
        else:
            # Its session was killed before the repository was there, or a disk was replaced.
            self.create(repository)

    def show(self, name: str, before: str, after: str) -> None:
        if self.diff:
            lines = difflib.unified_diff(
                before.splitlines(),
                after.splitlines(),
                f"{name} (now)",
                f"{name} (new)",
                lineterm="",
            )
            for line in lines:
                self.say(line)

    def name_unregistered(self, known: set[str]) -> None:
        """Say which repositories on disk nothing serves; that is information, not a change."""
        found = []
        for place, directories, _ in os.walk(self.target.root):
            if ".hg" in directories:
                directories.clear()
                found.append(os.path.relpath(place, self.target.root))
            else:
                directories.sort()
        for path in sorted(set(found) - known):
            self.say(f"{path}: on disk but not in the registry; kept, and served by nothing")


@contextlib.contextmanager
def _as_owner(own: Owner) -> Iterator[None]:
    """Have the rights of the owner, no more, for what touches files that are theirs."""
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


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _file(directory: int, name: str, uid: int, mode: int) -> str | None:
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


def _link(directory: int, name: str) -> str | None:
    """Read a link; None if nothing is there, "" if it is something else."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        if error.errno == errno.EINVAL:
            return ""
        raise


def _replace(directory: int, name: str, text: str, mode: int) -> None:
    """Write a file that is either the old or the new one, whatever happens in between."""
    temporary = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    descriptor = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
        dir_fd=directory,
    )
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def _replace_link(directory: int, name: str, to: str | None) -> None:
    if to is None:
        os.unlink(name, dir_fd=directory)
        return
    temporary = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    os.symlink(to, temporary, dir_fd=directory)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
