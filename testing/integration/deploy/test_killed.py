"""Ansible ends with a ./deploy that is killed, at any point of its work."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from testing.integration.deploy.plays import ROOT, inventory

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = 60.0
HOSTS: Final = ["one", "two", "three"]

DEPLOY: Final = textwrap.dedent("""\
    import fcntl, sys
    from pathlib import Path
    sys.path[:0] = [{top!r} + "/ansible", {top!r} + "/docker"]
    from controller.deploy import processes, run
    folder = Path({folder!r})
    run.LOGS, run.ROOT = folder, folder
    site = run.Site("x", folder / "hosts.json", dict.fromkeys({hosts!r}, []))
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    run.SITE = folder / "book.yml"
    try:
        with processes.interrupts(), processes.kept_by_children(lock.fileno()):
            run.site_playbook(site, run.Built("1", None, None), {hosts!r}, check=False)
    except KeyboardInterrupt:
        sys.exit(130)
""")

BOOK: Final = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: false
  tasks:
    - name: First task
      ansible.builtin.command: {python} {program} {folder}/first-{{{{ inventory_hostname }}}}
      loop: [1, 2]
    - name: Second task
      ansible.builtin.command: {python} {program} {folder}/second-{{{{ inventory_hostname }}}} stays
"""

PROGRAM: Final = """\
import os, signal, sys
open(sys.argv[1], "w").close()
if sys.argv[2:]:
    signal.pause()
"""


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def of_run(folder: Path) -> list[str]:
    """Return the commands of processes that have to do with the run, but for the parent."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in words and " -c " not in words:
            commands.append(words)
    return commands


def is_locked(folder: Path) -> bool:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("point", ["start", "first-*", "second-*"])
def test_a_deploy_that_alone_is_killed_leaves_no_ansible(
    tmp_path: Path, number: signal.Signals, point: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = str(tmp_path / "program.py")
    book = BOOK.format(python=sys.executable, program=program, folder=tmp_path)
    (tmp_path / "book.yml").write_text(book)
    inventory(tmp_path, {"web": HOSTS})
    text = DEPLOY.format(top=str(ROOT), folder=str(tmp_path), hosts=HOSTS)
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    process = subprocess.Popen(
        [sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        if point == "start":
            wait_until(lambda: any("ansible-playbook" in words for words in of_run(tmp_path)))
        else:
            wait_until(lambda: any(tmp_path.glob(point)) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0].decode()
        assert is_locked(tmp_path)
        process.send_signal(number)
        code = process.wait(SECONDS)
        wait_until(lambda: not of_run(tmp_path))
        wait_until(lambda: not is_locked(tmp_path))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert code == (130 if number == signal.SIGTERM else -signal.SIGKILL)
