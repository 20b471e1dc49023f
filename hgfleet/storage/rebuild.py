"""A new store for one repository, in the process that does it (`hgfleet.storage.worker`).

Written against Mercurial 7.2: `revlog.clone`, `store.walk` and the index of a revlog, as its own
upgrade uses them (`mercurial/upgrade_utils/engine.py`). Revisions keep their numbers, so caches and
readers that know a changeset by its number stay right.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mercurial import bookmarks, error, obsolete, revlog, verify
from mercurial import ui as ui_module
from mercurial.repo import creation, factory
from mercurial.revlogutils import constants

from hgfleet.core import files
from hgfleet.core.errors import HgfleetError, HostError, TemporaryError
from hgfleet.storage import formats, place
from hgfleet.storage.measure import Times, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[..., None]

TRIES: Final = 3
"""Copies that are begun because somebody removed history meanwhile."""

ROUNDS: Final = 5
"""Looks for what was pushed before the lock is taken for the last one."""

PROGRESS_S: Final = 2.0
LOCK_WAIT_S: Final = 600
"""How long a push may keep the lock that the upgrade waits for."""

_TRANSIENT: Final = ("undo", "journal")
_DERIVED: Final = ("lock", "lock.break", "fncache", "requires")
"""Files of a store that are not copied: the new store has its own."""

_SNAPSHOT: Final = constants.REVIDX_DELTA_IS_SNAPSHOT
_NODE: Final = 7

Signature = list[list[int] | None]


class DamagedError(HgfleetError):
    """The repository, or the copy of it, is not what it should be; nothing was exchanged."""

    exit_code = 65


class _RewrittenError(Exception):
    """History went away while it was copied."""


@dataclass(frozen=True, slots=True)
class Options:
    """`keep` is how long (seconds) an old store stays; None: until nobody reads it."""

    measure: bool = True
    keep: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """What a repository is to its users; equal pictures mean that nothing was lost."""

    changesets: int
    tip: str
    nodes: str
    phases: str
    bookmarks: tuple[tuple[str, str], ...]
    visible: int
    markers: int


def wanted() -> frozenset[str]:
    """Requirements of a repository that is created now with the configuration of HGRCPATH."""
    ui = _ui()
    found = creation.new_repo_requirements(ui, creation.default_create_opts(ui))
    return frozenset(name.decode("ascii") for name in found)


def upgrade(repository: Path, options: Options, say: Say) -> dict[str, Any]:
    """Bring one repository to today's format; return the figures of before and after.

    Raises HgfleetError, and then the repository is as it was. May be killed at any point.
    """
    control = repository / ".hg"
    with place.claimed(control):
        place.remove(control / place.AWAY)
        goal = wanted()
        if wrong := formats.problem(goal):
            raise HostError(wrong)
        decision = formats.decide(place.requirements(control), goal)
        if decision.action is formats.Action.REFUSE:
            raise HostError("; ".join(decision.reasons))
        if decision.action is formats.Action.CURRENT:
            return {"changed": False, "removed": place.remove_old(control, options.keep)}
        place.check_exchange(control)
        try:
            work = _Work(repository, goal, decision, options, say)
            return work.run() | {"removed": place.remove_old(control, options.keep)}
        except error.LockError as problem:
            raise TemporaryError(f"somebody keeps it locked: {_text(problem)}") from problem
        except (error.Error, error.StorageError) as problem:
            raise DamagedError(f"Mercurial says: {_text(problem)}") from problem


def _ui() -> Any:
    ui = ui_module.ui.load()
    for section, name, value in (
        (b"ui", b"interactive", b"no"),
        (b"ui", b"quiet", b"yes"),
        (b"ui", b"timeout", b"%d" % LOCK_WAIT_S),
        # Paths have to lead to what is there now.
        (b"extensions", b"pinned_store", b"!"),
    ):
        ui.setconfig(section, name, value, b"hgfleet.storage")
    return ui


def _open(repository: Path) -> Any:
    return factory.repository(_ui(), os.fsencode(repository)).unfiltered()


def _text(problem: BaseException) -> str:
    return bytes(str(problem), "utf-8", "replace").decode("utf-8", "replace")


class _Work:
    """The upgrade of one repository."""

    def __init__(
        self,
        repository: Path,
        goal: frozenset[str],
        decision: formats.Decision,
        options: Options,
        say: Say,
    ) -> None:
        self.repository, self.goal, self.options, self.say = repository, goal, options, say
        self.control = repository / ".hg"
        self.folder = self.control / place.WORK
        self.recompress = "revlog-compression-zstd" in decision.missing
        # A delta against another revision than a parent is what these two formats improve.
        redelta = {"generaldelta", "sparserevlog"} & set(decision.missing)
        self.reuse = revlog.revlog.DELTAREUSESAMEREVS if redelta else revlog.revlog.DELTAREUSEALWAYS
        self.signatures: dict[str, Signature] = {}
        self.locked: list[float] = []
        self.measured: list[float] = []
        self._said = 0.0

    def run(self) -> dict[str, Any]:
        started = time.monotonic()
        before = place.measure(self.control / "store")[0]
        times = self._measure(self.repository, "measure-before")
        for left in reversed(range(TRIES)):
            try:
                resumed = self._load()
                if not resumed:
                    self._build()
                after_times = self._measure(self.folder, "measure-after")
                self._swap()
                break
            except _RewrittenError:
                place.remove(self.folder)
                if not left:
                    raise TemporaryError(
                        "history was removed from it again and again while it was copied"
                    ) from None
                self.say("again", text="history was removed meanwhile; begins again")
        after = place.measure(self.control / "store")[0]
        return {
            "changed": True,
            "resumed": resumed,
            "size_before": before,
            "size_after": after,
            "before": times,
            "after": after_times,
            "seconds": time.monotonic() - started,
            "measured_seconds": self.measured,
            "locked_seconds": max(self.locked),
        }

    def _measure(self, repository: Path, phase: str) -> dict[str, float] | None:
        if not self.options.measure:
            return None
        self.say("phase", phase=phase)
        began = time.monotonic()
        times: Times = measure(_open(repository))
        self.measured.append(time.monotonic() - began)
        return times._asdict()

    # -- copying -----------------------------------------------------------------------------------

    def _load(self) -> bool:
        """Take up a new store that a killed run has completed."""
        try:
            found = json.loads((self.folder / place.COMPLETE).read_text("utf-8"))
            if found["goal"] == sorted(self.goal):
                self.signatures = found["signatures"]
                return True
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        place.remove(self.folder)
        return False

    def _build(self) -> None:
        """Copy everything, look once at a moment when nobody writes, and compare."""
        self.say("phase", phase="copy")
        self.signatures = {}
        source = _open(self.repository)
        self.folder.mkdir(mode=stat.S_IMODE(self.control.stat().st_mode))
        target = factory.repository(_ui(), os.fsencode(self.folder), create=True).unfiltered()
        self._catch_up(source, target, may_tear=True)
        self._with_lock(lambda source: self._catch_up(source, _open(self.folder)))
        self.say("phase", phase="verify")
        self._verify()
        done = {"goal": sorted(self.goal), "signatures": self.signatures}
        place.sync(self.folder)
        files.replace(self.folder / place.COMPLETE, json.dumps(done))

    def _with_lock(self, work: Callable[[Any], object]) -> None:
        """Do something while nobody else writes to the repository."""
        source = _open(self.repository)
        with source.wlock(), source.lock():
            began = time.monotonic()
            if (self.control / "store/journal").exists():
                raise HostError(
                    f"a transaction was interrupted; run `hg recover -R {self.repository}` first"
                )
            work(source)
            self.locked.append(time.monotonic() - began)

    def _catch_up(self, source: Any, target: Any, *, may_tear: bool = False) -> list[Any]:
        """Copy each revlog that changed since it was last looked at; return those entries.

        `may_tear`: nobody keeps others from writing, so what cannot be read may be read later.
        """
        changed, total, done = [], 0, 0
        known = dict(self.signatures)
        for entry in source.store.walk():
            if not entry.is_revlog:
                continue
            name = entry.main_file_path().decode("latin-1")
            found = _signature(source, entry)
            if known.pop(name, None) != found:
                changed.append((entry, name, found))
                total += sum(one[1] for one in found if one)
        if known:
            # Files of removed history.
            raise _RewrittenError
        if not changed:
            return []
        with target.wlock(), target.lock(), target.transaction(b"storage-upgrade") as group:
            for entry, name, found in changed:
                try:
                    self._copy(source, target, entry, group)
                except (error.StorageError, OSError, ValueError, IndexError, EOFError):
                    if not may_tear or _signature(source, entry) == found:
                        raise
                    found = [None]
                self.signatures[name] = found
                done += sum(one[1] for one in found if one)
                self._progress(done, total)
        return [entry for entry, _, _ in changed]

    def _copy(self, source: Any, target: Any, entry: Any, group: Any) -> None:
        """Have the target's revlog say what the source's says."""
        old = _revlog(entry.get_revlog_instance(source))
        new = entry.get_revlog_instance(target, writable=True)
        inner = _revlog(new)
        if len(inner) and _is_prefix(inner, old):
            self._append(old, inner, group)
            return
        if len(inner):
            # A push was rolled back and another one came; rare, and the file is small as a rule.
            _forget(target, inner)
            new = _fresh(entry, target)
        old.clone(
            group,
            _revlog(new),
            deltareuse=self.reuse,
            reuse_compression=False if self.recompress else None,
            addrevisioncb=lambda *_: self._tick(),
        )

    def _append(self, old: Any, new: Any, group: Any) -> None:
        for number in range(len(new), len(old)):
            entry = old.index[number]
            new.addrawrevision(
                _content(old, number),
                group,
                entry[4],
                old.index[entry[5]][_NODE],
                old.index[entry[6]][_NODE],
                entry[_NODE],
                entry[0] & 0xFFFF & ~_SNAPSHOT,
            )

    def _progress(self, done: int, total: int) -> None:
        self._share = done / total if total else 1.0
        self._tick()

    _share = 0.0

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._said > PROGRESS_S:
            self._said = now
            self.say("progress", share=round(self._share, 3))

    # -- comparing ---------------------------------------------------------------------------------

    def _verify(self) -> None:
        """Check every revision of the new store against its hash, and what names what."""
        target = _open(self.folder)
        for entry in list(target.store.walk()):
            if entry.is_revlog:
                self._check_contents(_revlog(entry.get_revlog_instance(target)))
        target.ui.pushbuffer(error=True)
        failed = verify.verify(target)
        said = target.ui.popbuffer().decode("utf-8", "replace")
        if failed:
            raise DamagedError(
                f"hg verify finds the repository damaged, so it was left as it is: {said[-800:]}"
            )

    def _check_contents(self, new: Any, first: int = 0) -> None:
        for number in range(first, len(new)):
            _content(new, number)
            self._tick()

    def _compare(self, source: Any, target: Any, entries: list[Any]) -> None:
        """What came since it was verified: the same revisions, and contents that fit their hash."""
        for entry in entries:
            old = _revlog(entry.get_revlog_instance(source))
            new = _revlog(entry.get_revlog_instance(target))
            if len(old) != len(new) or not _is_prefix(new, old):
                raise DamagedError(f"{entry.main_file_path()!r} was not copied right")
            self._check_contents(new)

    # -- exchanging --------------------------------------------------------------------------------

    def _swap(self) -> None:
        self.say("phase", phase="swap")
        for _ in range(ROUNDS):
            # Most of what was pushed meanwhile comes while others can still push.
            if not self._catch_up(_open(self.repository), _open(self.folder), may_tear=True):
                break
        self._with_lock(self._swap_locked)

    def _swap_locked(self, source: Any) -> None:
        target = _open(self.folder)
        last = self._catch_up(source, target)
        target = _open(self.folder)
        self._compare(source, target, last)
        store, new = self.control / "store", self.folder / ".hg/store"
        self._copy_others(store, new)
        before = picture(source)
        # Bookmarks are not in the store.
        if _without_bookmarks(picture(_open(self.folder))) != _without_bookmarks(before):
            raise DamagedError("the copy has other changesets, phases or markers than the original")
        self._make_share_safe(source)
        # What `hg rollback` would use is about files that are going.
        for transient in (*new.glob("undo*"), *self.control.glob("undo*")):
            transient.unlink()
        # Whoever waits for the lock waits on, wherever it is that it looks.
        held = store / "lock"
        (new / "lock").unlink(missing_ok=True)
        (new / "lock").symlink_to(held.readlink())
        new.chmod(stat.S_IMODE(store.stat().st_mode))
        place.sync(new)
        try:
            place.rename_exchange(store, new)
        except OSError as problem:
            (new / "lock").unlink()
            raise HostError(f"{store}: cannot be exchanged ({problem.strerror})") from problem
        after = picture(_open(self.repository))
        if after != before:
            place.rename_exchange(store, new)
            (new / "lock").unlink()
            raise DamagedError(f"put back: it was {before}, and with the new store it is {after}")
        (self.folder / place.COMPLETE).unlink(missing_ok=True)
        (self.folder / place.SINCE).touch()
        # The lock of the old store: those who waited for it look for the new one.
        (new / "lock").unlink()

    def _copy_others(self, store: Path, new: Path) -> None:
        """Copy what is no revlog: phases, markers, push log, and files that nobody here knows."""
        for entry in sorted(os.scandir(store), key=lambda one: one.name):
            name = entry.name
            if name.startswith(_TRANSIENT) or name in _DERIVED or _is_of_revlogs(name):
                continue
            to = new / name
            if entry.is_dir(follow_symlinks=False):
                if name in ("data", "meta", "dh"):
                    continue
                shutil.rmtree(to, ignore_errors=True)
                shutil.copytree(entry.path, to, symlinks=True)
            elif entry.is_symlink():
                to.unlink(missing_ok=True)
                to.symlink_to(Path(entry.path).readlink())
            elif entry.is_file():
                shutil.copy2(entry.path, to)
        for name in ("phaseroots", "obsstore"):
            if not (store / name).exists():
                (new / name).unlink(missing_ok=True)

    def _make_share_safe(self, source: Any) -> None:
        """Have the store keep its requirements, so that they are exchanged together with it.

        First the store's file, which nobody reads yet, then in one step the other one.
        """
        current = {name.decode("ascii") for name in source.requirements}
        if formats.SHARE_SAFE in current:
            return
        ours = sorted((current & formats.WORKING_COPY) | {formats.SHARE_SAFE})
        mode = stat.S_IMODE((self.control / "requires").stat().st_mode)
        for file, names in (
            (self.control / "store/requires", sorted(current - formats.WORKING_COPY)),
            (self.control / "requires", ours),
        ):
            files.replace(file, "".join(f"{name}\n" for name in names), mode=mode)


def picture(repository: Any) -> Picture:
    """Look at a whole repository; for one of 100,000 changesets some tenths of a second."""
    whole = repository.unfiltered()
    changelog = whole.changelog
    nodes, phases = hashlib.sha256(), hashlib.sha256()
    cache = whole._phasecache  # noqa: SLF001  (all else in core is slower)
    for number in changelog:
        nodes.update(changelog.node(number))
        phases.update(b"%d" % cache.phase(whole, number))
    marks = bookmarks.bmstore(whole)
    return Picture(
        len(changelog),
        changelog.tip().hex(),
        nodes.hexdigest(),
        phases.hexdigest(),
        tuple(sorted((name.decode("latin-1"), node.hex()) for name, node in marks.items())),
        len(whole.filtered(b"visible")),
        len(obsolete.makestore(whole.ui, whole)),
    )


def _without_bookmarks(one: Picture) -> Picture:
    return Picture(one.changesets, one.tip, one.nodes, one.phases, (), one.visible, one.markers)


def _revlog(of: Any) -> Any:
    return getattr(of, "_revlog", of)


def _content(one: Any, number: int) -> bytes:
    """The stored text of a revision, checked against its hash; of a censored one what remains."""
    try:
        return bytes(one.rawdata(number))
    except error.CensoredNodeError as censored:
        return bytes(censored.tombstone)


def _is_prefix(new: Any, old: Any) -> bool:
    """Whether the old revlog begins with exactly the revisions of the new one."""
    if len(new) > len(old):
        return False
    return all(_facts(new.index[n]) == _facts(old.index[n]) for n in range(len(new)))


def _facts(entry: Any) -> tuple[Any, ...]:
    """What a revision is, apart from how it is stored."""
    return (entry[0] & 0xFFFF & ~_SNAPSHOT, entry[2], *entry[4:8])


def _files(of: Any) -> Iterator[Path]:
    for name in of.files():
        yield Path(os.fsdecode(of.opener.join(name)))


def _forget(target: Any, inner: Any) -> None:
    for file in _files(inner):
        file.unlink(missing_ok=True)
    target.invalidate(clearfilecache=True)


def _fresh(entry: Any, target: Any) -> Any:
    return entry.get_revlog_instance(target, writable=True)


def _signature(source: Any, entry: Any) -> Signature:
    """Stat of a revlog's files; what is there unchanged has the same."""
    store, main = source.store, entry.main_file_path()
    found: Signature = []
    for name in (main, main[:-1] + b"d"):
        try:
            status = store.rawvfs.stat(store.encode(name))
        except FileNotFoundError:
            found.append(None)
        else:
            found.append([status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return found


def _is_of_revlogs(name: str) -> bool:
    return name.startswith(("00changelog", "00manifest"))
