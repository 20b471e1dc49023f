"""Children of ./deploy end with it, however it ends, and keep its checkout locked until then."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from controller.deploy import processes

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]

SECONDS: Final = 30.0
ENV: Final = dict(os.environ)

DEPLOY: Final = textwrap.dedent("""\
    import os, sys
    sys.path[:0] = [{ansible!r}]
    from controller.deploy import processes
    lock = open({folder!r} + "/lock", "a+")
    assert processes.locked(lock)
    try:
        with processes.interrupts(), processes.kept_by_children(lock.fileno()):
            done = processes.run([sys.executable, "-c", {child!r}], os.environ)
    except KeyboardInterrupt:
        sys.exit(130)
""")
"""Stands for ./deploy: a lock, and a command."""

ANSIBLE: Final = textwrap.dedent("""\
    import os, signal, sys
    def note(name):
        with open({folder!r} + "/" + name + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename({folder!r} + "/" + name + ".new", {folder!r} + "/" + name)
    for name in ("worker", "orphan"):
        if os.fork() == 0:
            # As Ansible's workers, and as the connection of ssh that stays.
            os.setsid()
            if name == "orphan" and os.fork():
                os._exit(0)
            if {deaf}:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note(name)
            signal.pause()
    if {deaf}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("main")
    signal.pause()
""")
"""Stands for ansible-playbook: a worker with a session of its own, and a process without parent."""


def wait_until(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS
    while not (so := is_so()) and time.monotonic() < until:
        time.sleep(0.02)
    return so


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Run:
    """A ./deploy at work, with the processes below it."""

    def __init__(self, folder: Path, *, deaf: bool = False) -> None:
        self.folder = folder
        child = ANSIBLE.format(folder=str(folder), deaf=deaf)
        text = DEPLOY.format(ansible=str(ROOT / "ansible"), folder=str(folder), child=child)
        self.process = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)
        names = ("main", "worker", "orphan")
        assert wait_until(lambda: all((folder / name).exists() for name in names))
        self.children = [int((folder / name).read_text()) for name in names]
        below = [pid for pid in processes.below(self.process.pid) if is_alive(pid)]
        self.guards = [pid for pid in below if pid not in self.children]

    def alive(self) -> list[int]:
        return [pid for pid in [*self.children, *self.guards] if is_alive(pid)]

    def is_locked(self) -> bool:
        with (self.folder / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def end(self) -> None:
        for pid in [self.process.pid, *self.children, *self.guards]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(SECONDS)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 130),
        (signal.SIGHUP, 130),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_everything_ends_with_a_deploy_that_alone_gets_a_signal(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = Run(tmp_path)
    try:
        assert len(run.alive()) == 4
        assert run.is_locked()
        run.process.send_signal(number)
        assert run.process.wait(SECONDS) == code
        assert wait_until(lambda: not run.alive())
        assert wait_until(lambda: not run.is_locked())
    finally:
        run.end()


def test_the_checkout_stays_locked_while_a_child_of_a_killed_deploy_lives(tmp_path: Path) -> None:
    """A program that does not end at SIGTERM is killed after a while; until then it works."""
    run = Run(tmp_path, deaf=True)
    try:
        run.process.kill()
        run.process.wait(SECONDS)
        began = time.monotonic()
        while run.alive():
            assert run.is_locked() or not run.alive()
            assert time.monotonic() - began < SECONDS
            time.sleep(0.05)
        assert time.monotonic() - began > processes.GRACE_SECONDS - 1
        assert wait_until(lambda: not run.is_locked())
    finally:
        run.end()


def test_the_command_ends_with_its_guard(tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        (guard,) = run.guards
        os.kill(guard, signal.SIGKILL)
        main = run.children[0]
        assert wait_until(lambda: not is_alive(main))
    finally:
        run.end()


def test_a_command_has_its_output_and_its_exit_code() -> None:
    words = [sys.executable, "-c", "import sys; print(1); print(2, file=sys.stderr); sys.exit(3)"]
    done = processes.run(words, ENV)
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "2\n")


def test_a_command_that_a_signal_ends_has_the_code_of_a_shell() -> None:
    words = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert processes.run(words, ENV).returncode == 128 + 9


def test_a_command_that_is_not_there_is_told() -> None:
    done = processes.run(["/no/such/program"], ENV)
    assert done.returncode == 127
    assert "/no/such/program" in done.stderr


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    child = ANSIBLE.format(folder=str(tmp_path), deaf=False)
    # Other tests of this process may have left processes.
    before = set(processes.below(os.getpid()))
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run([sys.executable, "-c", child], ENV, seconds=2)
    assert set(processes.below(os.getpid())) <= before


def test_what_a_command_leaves_behind_outlives_it(tmp_path: Path) -> None:
    """The connection of SSH that the next command uses."""
    stays = f"""
import os, signal
if os.fork() == 0:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    with open({str(tmp_path / "pid")!r}, "w") as file:
        file.write(str(os.getpid()))
    signal.pause()
while not os.path.exists({str(tmp_path / "pid")!r}) or not open({str(tmp_path / "pid")!r}).read():
    pass
"""
    assert processes.run([sys.executable, "-c", stays], ENV).returncode == 0
    pid = int((tmp_path / "pid").read_text())
    try:
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_everything_ends_with_a_deploy_whose_group_gets_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    """As with Ctrl-C: the guard is in another group, and outlives it to end the others."""
    run = Run(tmp_path)
    try:
        os.killpg(run.process.pid, number)
        run.process.wait(SECONDS)
        assert wait_until(lambda: not run.alive())
        assert wait_until(lambda: not run.is_locked())
    finally:
        run.end()


def test_the_next_deploy_waits_for_the_children_of_a_killed_deploy(tmp_path: Path) -> None:
    run = Run(tmp_path, deaf=True)
    try:
        with (tmp_path / "lock").open("a+") as lock:
            assert not processes.locked(lock), "it is at work"
            run.process.kill()
            run.process.wait(SECONDS)
            assert run.alive()
            assert processes.locked(lock)
            assert not run.alive()
            lock.seek(0)
            assert lock.read() == f"{os.getpid()}\n"
    finally:
        run.end()


def test_a_second_signal_does_not_break_off_the_end() -> None:
    text = textwrap.dedent(f"""\
        import os, signal, sys
        sys.path[:0] = [{str(ROOT / "ansible")!r}]
        from controller.deploy import processes
        try:
            with processes.interrupts():
                try:
                    print("ready", flush=True)
                    signal.pause()
                finally:
                    os.kill(os.getpid(), signal.SIGTERM)
                    print("given back", flush=True)
        except KeyboardInterrupt:
            sys.exit(130)
    """)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.stdout.read() == "given back\n"
    assert process.wait(SECONDS) == 130


def test_a_deploy_under_nohup_goes_on_when_its_terminal_is_gone() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with processes.interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_the_descriptors_of_locks_alone_are_inherited(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "other").open("w") as other:
        os.set_inheritable(other.fileno(), True)
        listed = (
            "import json, os\n"
            "found = [f'/proc/self/fd/{number}' for number in os.listdir('/proc/self/fd')]\n"
            "print(json.dumps([os.readlink(path) for path in found if os.path.exists(path)]))\n"
        )
        with processes.kept_by_children(lock.fileno()):
            inherited = json.loads(processes.run([sys.executable, "-c", listed], ENV).stdout)
    assert str(tmp_path / "lock") in inherited
    assert str(tmp_path / "other") not in inherited
