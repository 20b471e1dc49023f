from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

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
def server(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[prefork.Server]:
    with prefork.running(tmp_path_factory.mktemp("bin"), environment) as made:
        yield made


@pytest.fixture(scope="module")
def program(server: prefork.Server) -> Path:
    return server.program


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
        run(command, "log", folder=tmp_path, env=environment) for command in (program, prefork.HG)
    )
    assert ours == real
    assert ours[0] == 255


def test_another_encoding_starts_the_real_hg(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    other = {**environment, "HGENCODING": "latin-1"}
    template = "{'ä'|utf8}\n"
    ours, real = (
        run(command, "log", "-r", "null", "-T", template, folder=tmp_path, env=other)
        for command in (program, prefork.HG)
    )
    assert ours == real


def test_a_command_without_a_client_is_the_same(
    server: prefork.Server, environment: dict[str, str], tmp_path: Path
) -> None:
    given = b"words" * 100_000
    done = server.hg(["show"], {**environment, "SAID": "one"}, tmp_path, given)
    said = ("one", str(tmp_path), os.umask(0o022), given.decode(), False)
    os.umask(said[2])
    assert done.stdout.decode() == f"{said}\n"
    assert (done.returncode, done.stderr) == (7, b"complaint\n")
    # A command that ends before it has read its stdin.
    assert server.hg(["version", "-q"], environment, tmp_path, given).returncode == 0


ENDINGS = {
    "pass": 0,
    "import sys; sys.exit(3)": 3,
    "import sys; sys.exit('a sentence')": 1,
    "1 / 0": 1,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
}


def test_python_runs_a_file_with_its_folder_and_arguments(
    server: prefork.Server, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("word = 'found'\n")
    (tmp_path / "file.py").write_text(
        "import beside, sys\nprint(__name__, sys.argv, beside.word)\nsys.exit(len(sys.argv))\n"
    )
    for words in ([], ["one", "two"]):
        done = run(server.interpreter, "file.py", *words, folder=tmp_path, env=environment)
        assert done == (1 + len(words), f"__main__ {['file.py', *words]} found\n", "")


@pytest.mark.parametrize("code", ENDINGS)
def test_python_ends_as_it_does_without_a_server(
    server: prefork.Server, environment: dict[str, str], code: str
) -> None:
    code = f"import atexit; atexit.register(print, 'end', __name__); {code}"
    ours, client, real = (
        server.python(code, ["word"], environment),
        *(
            subprocess.run(
                [interpreter, "-c", code, "word"], env=environment, capture_output=True, check=False
            )
            for interpreter in (server.interpreter, sys.executable)
        ),
    )
    assert ours.returncode == client.returncode == real.returncode
    assert ours.stdout == client.stdout == real.stdout
    assert ours.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_a_module_runs_as_the_main_program(
    server: prefork.Server, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "told.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    said = subprocess.run(
        [server.interpreter, "-m", "told", "a", "b"],
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "__main__ ['a', 'b']\n"


def test_a_command_ends_with_its_client(
    server: prefork.Server, environment: dict[str, str], wait_for: WaitFor
) -> None:
    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    client = subprocess.Popen(
        [server.interpreter, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    client.kill()
    client.wait()
    client.stdout.close()
    wait_for("its command has ended", lambda: not Path(f"/proc/{pid}").exists())
    # The server goes on.
    assert server.python("pass", [], environment).returncode == 0
