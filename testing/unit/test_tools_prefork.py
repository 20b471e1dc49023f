from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from testing.tools import prefork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOW = """
import os, sys
from mercurial import registrar
cmdtable = {}
command = registrar.command(cmdtable)
@command(b"show", norepo=True)
def show(ui):
    umask = os.umask(0)
    said = os.environ["SAID"], os.getcwd(), umask, sys.stdin.read(), "hgfleet" in sys.modules
    ui.write(b"%s\\n" % repr(said).encode())
    ui.write_err(b"complaint\\n")
    return 7
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("environment")
    (folder / "show.py").write_text(SHOW)
    (folder / "hgrc").write_text(f"[extensions]\nshow = {folder}/show.py\n")
    return {"PATH": os.environ["PATH"], "HGRCPATH": f"{folder}/hgrc", "HGENCODING": "utf-8"}


@pytest.fixture(scope="module")
def program(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Path]:
    with prefork.running(tmp_path_factory.mktemp("bin"), environment) as made:
        yield made


def run(program: Path, *words: str, folder: Path, **more: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [program, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    return done.returncode, done.stdout, done.stderr


def test_a_command_has_everything_of_its_client(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    for said in ("one", "two"):
        told = {"env": {**environment, "SAID": said}, "input": "words", "umask": 0o027}
        got = run(program, "show", folder=tmp_path, **told)
        assert got == (7, f"{(said, str(tmp_path), 0o027, 'words', False)}\n", "complaint\n")


def test_a_command_that_fails_says_what_the_real_hg_says(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    ours, real = (
        run(one, "log", folder=tmp_path, env=environment) for one in (program, prefork.HG)
    )
    assert ours == real
    assert ours[0] == 255


def test_another_encoding_starts_the_real_hg(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    other = {**environment, "HGENCODING": "latin-1"}
    template = "{'ä'|utf8}\n"
    ours, real = (
        run(one, "log", "-r", "null", "-T", template, folder=tmp_path, env=other)
        for one in (program, prefork.HG)
    )
    assert ours == real
