"""hg as a server of commands: the features that a run relies on."""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mercurial import zstd

from hgfleet.bundles.hg.budget import MIB, required_ram
from hgfleet.hg import command_server
from hgfleet.hg.command_server import Hg, HgError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(sys.executable).with_name("hg")

SUICIDE = """
import gc, os, signal
from mercurial import error, registrar
cmdtable = {}
command = registrar.command(cmdtable)
@command(b"suicide", norepo=True)
def suicide(ui):
    os.kill(os.getpid(), signal.SIGKILL)
@command(b"whoami", norepo=True)
def whoami(ui):
    ui.write(b"%d" % os.getpid())
@command(b"ask", norepo=True)
def ask(ui):
    ui.write(b"got %r" % ui.fin.read(5))
class Late:
    def __init__(self, ui):
        self.ui, self.me = ui, self
    def __del__(self):
        self.ui.write(b"late ")
        self.ui.flush()
@command(b"fail", norepo=True)
def fail(ui):
    Late(ui)
    raise error.Abort(b"no")
@command(b"collect", norepo=True)
def collect(ui):
    gc.collect()
    ui.write(b"mine")
@command(b"frame", norepo=True)
def frame(ui, frame):
    ui.fout.out.write(frame.replace(b"_", bytes(1)))
    ui.fout.out.flush()
"""


@pytest.fixture
def hg(tmp_path: Path) -> Iterator[Hg]:
    extension = tmp_path / "suicide.py"
    extension.write_text(SUICIDE)
    hgrc = tmp_path / "hgrc"
    hgrc.write_text(f"[ui]\nusername = t\n[extensions]\nsuicide = {extension}\n")
    made = Hg(PROGRAM, hgrc)
    yield made
    made.close()


def test_commands_share_a_process_and_nothing_else(hg: Hg, tmp_path: Path) -> None:
    first = hg.run("whoami")
    hg.run("init", tmp_path / "one")
    hg.run("--config", "ui.verbose=yes", "status", "--repository", tmp_path / "one")
    assert hg.run("whoami") == first
    with pytest.raises(HgError, match="hg config failed"):
        hg.run("config", "ui.verbose")


def test_a_repository_is_seen_as_it_is_now(hg: Hg, tmp_path: Path) -> None:
    repository = tmp_path / "one"
    hg.run("init", repository)
    other = Hg(hg.executable, hg.hgrc)
    for number in range(3):
        (repository / "file").write_text(f"{number}\n")
        other.run("commit", "--repository", repository, "-A", "-m", "change")
        assert hg.run("log", "--repository", repository, "-r", "tip", "-T", "{rev}") == str(number)
    other.close()


@pytest.mark.parametrize("level", [3, 10, 19, 20, 21, 22])
def test_clients_are_told_of_the_windows_that_zstd_really_takes(
    hg: Hg, tmp_path: Path, level: int
) -> None:
    repository, bundle = tmp_path / "one", tmp_path / "one.hg"
    hg.run("init", repository)
    (repository / "file").write_text("one\n")
    hg.run("commit", "--repository", repository, "-A", "-m", "change")
    setting = f"experimental.bundlecomplevel.zstd={level}"
    hg.run("bundle", "--repository", repository, "-a", "-t", "zstd-v2", "--config", setting, bundle)
    frame = bundle.read_bytes().partition(zstd.FRAME_HEADER)
    window = zstd.get_frame_parameters(frame[1] + frame[2]).window_size
    told = required_ram("zstd", level)
    assert told > window if window > 8 * MIB else told == 0


def test_a_failure_has_the_words_of_hg(hg: Hg, tmp_path: Path) -> None:
    with pytest.raises(HgError, match=r"hg log failed \(exit code 255\): abort: repository"):
        hg.run("log", "--repository", tmp_path / "none")
    assert hg.run("whoami")


def test_a_server_that_dies_fails_one_command(hg: Hg) -> None:
    with pytest.raises(HgError, match=r"hg suicide failed .*killed by signal 9"):
        hg.run("suicide")
    assert hg.run("whoami")


def test_a_server_that_died_while_idle_fails_no_command(hg: Hg) -> None:
    dead = hg.run("whoami")
    os.kill(int(dead), signal.SIGKILL)
    hg._idle[0]._process.wait()
    assert hg.run("whoami") != dead


def test_a_command_that_failed_writes_nothing_into_the_next(hg: Hg) -> None:
    first = hg.run("whoami")
    with pytest.raises(HgError, match="abort: no"):
        hg.run("fail")
    assert hg.run("collect") == "mine"
    assert hg.run("whoami") != first


def test_a_server_that_says_something_while_idle_runs_no_other_command(hg: Hg) -> None:
    first = hg.run("whoami")
    server = hg._idle[0]
    # The frame comes after the result of a command that is told to write it.
    pipe, said = server._process.stdin, server._process.stdout
    assert pipe is not None
    assert said is not None
    pipe.write(b"runcommand\n" + struct.pack(">I", 6) + b"whoami")
    select.select([said], [], [])
    assert hg.run("whoami") not in (first, first * 2)


@pytest.mark.parametrize("frame", ["X___\x01y", "r___\x01y", "1____"])
def test_a_frame_that_has_no_place_there_ends_the_server(hg: Hg, frame: str) -> None:
    first = hg.run("whoami")
    with pytest.raises(HgError, match="its server is ended: got "):
        hg.run("frame", frame)
    assert hg.run("whoami") != first


def test_nobody_answers_questions(hg: Hg) -> None:
    assert hg.run("ask") == "got b''"


def test_commands_at_the_same_time_have_servers_of_their_own(hg: Hg, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: hg.run("init", tmp_path / str(number)), range(12)))
    assert all((tmp_path / str(number) / ".hg").is_dir() for number in range(12))


def test_no_server_lives_for_ever(hg: Hg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_server, "COMMANDS_PER_SERVER", 2)
    processes = [hg.run("whoami") for _ in range(4)]
    assert processes[0] == processes[1] != processes[2] == processes[3]


def test_no_hg_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(HgError, match=r"none: cannot run hg \(No such file or directory\)"):
        Hg(tmp_path / "none", tmp_path / "hgrc").run("version")
    program = tmp_path / "hg"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    with pytest.raises(HgError, match=r"does not start as a command server \(exit code 7\)"):
        Hg(program, tmp_path / "hgrc").run("version")
