"""Kills hg at each file operation of a transaction in turn; run by test_killed.py.

    python killed.py FOLDER BASE BUNDLE KIND

BASE is a repository. Each round copies it, and makes a push of the kind, or strips the changeset 1,
in a process that is killed before its n-th file operation or entry of its journal. Then it opens
the repository as a session does, makes the change again, and compares. The rounds end when nothing
kills the process. A process forks for each step, because hg takes longer to start than to push.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from mercurial import bundle2, exchange, extensions, hg, phases, repair
from mercurial import transaction as transaction_module
from mercurial import ui as ui_module
from mercurial.repo import factory

from hgfleet.pushlog import chain, log_file
from hgfleet.pushlog.facts import digest

EVENTS = ("open", "os.remove", "os.rename", "os.link", "os.truncate", "shutil.copyfile")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def forked(step, *arguments) -> int:
    """Call a function in a process of its own; return how that ended, 0 or minus a signal."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            step(*arguments)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def opened(place: Path):
    """Open the repository as a session does."""
    ui = ui_module.ui.load()
    extensions.loadall(ui)
    return factory.repository(ui, os.fsencode(place)).unfiltered()


def push(place: Path, bundle: Path, kind: str, last: int = 0) -> None:
    """Push; the process dies before file operation `last` of the transaction."""
    repo = opened(place)
    count, store = 0, os.fsencode(place / ".hg")
    pinned = b"/proc/self/fd/"

    def step(*_: object) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def die_in_time(event: str, arguments: tuple) -> None:
        # A kill before a read finds the same files as a kill before the next write.
        if event not in EVENTS or (event == "open" and not arguments[2] & WRITES):
            return
        name = arguments[0]
        name = name.encode() if isinstance(name, str) else name
        if isinstance(name, bytes) and name.startswith((store, pinned)):
            step()

    def entered(original, *arguments):
        original(*arguments)
        step()

    with repo.wlock(), repo.lock():
        if last:
            sys.addaudithook(die_in_time)
            extensions.wrapfunction(transaction_module.transaction, "_addentry", entered)
        if kind == "strip":
            repair.strip(repo.ui, repo, [repo[1].node()], backup=False)
            return
        with repo.transaction(b"push") as transaction:
            if kind == "changesets":
                with bundle.open("rb") as file:
                    unbundler = exchange.readbundle(repo.ui, file, b"all.hg")
                    bundle2.applybundle(repo, unbundler, transaction, source=b"push", url=b"push")
            if kind == "phases":
                phases.advanceboundary(repo, transaction, phases.public, [repo[b"tip"].node()])
            moved = [(b"stable", repo[b"tip"].node())]
            repo._bookmarks.applychanges(repo, transaction, moved)


def state(place: Path, kind: str) -> tuple:
    """Return all that a push changes, as the next session finds it."""
    repo = opened(place)
    assert not repo.svfs.exists(b"journal")
    if kind == "strip":
        assert not repo.svfs.exists(b"pushlog-removal")
        assert not list(place.glob(".hg/strip-backup/*"))
        repo.ui.quiet = True
        assert not hg.verify(repo)
    entries = list(chain.checked(log_file.entries(place / ".hg/store/pushlog")))
    assert entries[-1].record.heads.digest == digest(repo.changelog)
    assert entries[-1].end == (place / ".hg/store/pushlog").stat().st_size
    # A strip adds changesets again, in another order.
    changesets = sorted((repo[number].hex(), repo[number].phase()) for number in repo)
    bookmarks = sorted((name, node.hex()) for name, node in repo._bookmarks.items())
    last = entries[-1].record
    recorded = len(entries), last.kind, last.user, last.changesets, last.heads, last.bookmarks
    return changesets, bookmarks, recorded


def report(place: Path, kind: str, file: Path) -> None:
    file.write_text(repr(state(place, kind)))


def found(place: Path, kind: str, file: Path) -> str:
    file.unlink(missing_ok=True)
    code = forked(report, place, kind, file)
    assert code == 0, f"the repository cannot be opened, or has a problem, after the kill ({code})"
    return file.read_text()


def main(folder: Path, base: Path, bundle: Path, kind: str) -> None:
    file = folder / "state"
    opened(base)  # each process finds the extensions loaded
    before, after, kept = found(base, kind, file), "", 0
    place = folder / "repository"
    shutil.copytree(base, place, symlinks=True)
    assert forked(push, place, bundle, kind) == 0
    after = found(place, kind, file)
    assert before != after
    for last in range(1, 1000):
        shutil.rmtree(place)
        shutil.copytree(base, place, symlinks=True)
        ended = forked(push, place, bundle, kind, last)
        print(f"killed at {last}")
        now = found(place, kind, file)
        assert now in (before, after), f"killed at {last}: {now}"
        if now == before:
            assert ended == -signal.SIGKILL
            assert forked(push, place, bundle, kind) == 0, f"killed at {last}: the next push fails"
            now = found(place, kind, file)
        else:
            kept += 1
        assert now == after, f"killed at {last}, then pushed: {now}"
        if ended == 0:
            print(f"{last - 1} kills, {kept - 1} after the transaction was complete")
            return
        assert ended == -signal.SIGKILL, ended


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
