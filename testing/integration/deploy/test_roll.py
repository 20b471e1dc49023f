"""Steps of a roll with proxies and a primary that do not answer."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.integration.deploy.plays import inventory, play

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

GROUPS: Final = {
    "web": ["hgweb1", "hgweb2"],
    "proxy": ["proxy1", "proxy2"],
}
HEAD: Final = "# pxname,svname,scur,status\n"
OTHERS_SERVE: Final = HEAD + "web,hgweb1,0,NOLB\nweb,hgweb2,3,UP\n"
ALL_SERVE: Final = HEAD + "web,hgweb1,0,UP\nweb,hgweb2,3,UP\n"
NONE_SERVES: Final = HEAD + "web,hgweb1,0,DOWN\nweb,hgweb2,0,DOWN\n"


@contextlib.contextmanager
def haproxy(path: Path, stat: str) -> Iterator[None]:
    """Answer `show stat` at a socket, as HAProxy does."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(stat.encode())

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def step(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    book: str,
    stat: str,
    *,
    away: Sequence[str],
    **given: Any,
) -> tuple[int, str]:
    """Run a step of the roll on hgweb1."""
    address = folder / "haproxy"
    monkeypatch.setenv("HGFLEET_HAPROXY_SOCKET", str(address))
    variables = {"__roll_folder": str(folder), "roll_silent_seconds": 0, **given}
    with haproxy(address, stat):
        hosts = inventory(folder, GROUPS, away)
        return play(hosts, f"roll/{book}.yml", variables, "--limit", "hgweb1")


@pytest.mark.parametrize("away", [[], ["proxy1"], ["proxy2"], ["proxy1", "proxy2"]])
def test_a_host_is_drained_and_put_back_while_proxies_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: list[str]
) -> None:
    file = tmp_path / "web.drain"
    code, told = step(tmp_path, monkeypatch, "drain", OTHERS_SERVE, away=away)
    assert code == 0, told
    assert file.read_text().startswith("until=")
    (tmp_path / "haproxy").unlink()
    code, told = step(tmp_path, monkeypatch, "ready", ALL_SERVE, away=away)
    assert code == 0, told
    assert not file.exists()


@pytest.mark.parametrize("away", [[], ["proxy1"]])
def test_the_last_web_host_of_a_proxy_that_answers_is_not_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: list[str]
) -> None:
    code, told = step(tmp_path, monkeypatch, "drain", NONE_SERVES, away=away)
    assert code != 0
    assert "Without hgweb1 no web host would be in use at a proxy" in told
    assert not (tmp_path / "web.drain").exists()


@pytest.mark.parametrize(("waits", "code"), [(True, 2), (False, 0)])
def test_a_host_that_no_proxy_uses_again_is_told_if_it_was_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool, code: int
) -> None:
    (tmp_path / "web.drain").write_text(f"until={time.time() + 60:.0f}\n")
    given = {"roll_back_waits": waits, "roll_back_seconds": 1}
    done, told = step(tmp_path, monkeypatch, "ready", NONE_SERVES, away=["proxy1"], **given)
    assert done == code
    assert ("hgweb1: not in use at a proxy" in told) is waits
    assert not (tmp_path / "web.drain").exists()


# --- the check --------------------------------------------------------------------------------

SITE: Final = {
    "ssh": ["hg1"],
    "web": ["hg1", "hgweb1", "hgweb2"],
    "proxy": ["proxy1", "proxy2"],
    "release": ["hgweb1"],
}


def programs(folder: Path, answers: dict[str, Any]) -> None:
    """Write programs that stand for those of the deploy."""
    for name, answer in answers.items():
        (folder / name).write_text(f"import json\nprint(json.dumps({answer!r}))\n")


LOOK: Final = {"inactive": [], "release": "r1", "running": {}, "held": {}}
WEB: Final = {
    "health": 404,
    "problem": "draining",
    "wrong": [],
    "errors": [],
    "clone": "",
    "seconds": [],
    "peers": [],
}
PROBE: Final = """\
import json, pathlib, sys
pathlib.Path({question!r}).write_text(sys.argv[1])
print(json.dumps({web!r}))
"""


def check(
    folder: Path, away: Sequence[str], host: str = "hgweb1", ssh: Sequence[str] = ()
) -> tuple[int, str, dict[str, Any]]:
    """Check a host; return the exit code, the output, and the question to the probe.

    `ssh` are the problems of its SSH service.
    """
    programs(folder, {"look.py": LOOK, "truth.py": [{"path": "a"}]})
    question, of_ssh = folder / "question", folder / "ssh_question"
    answer = {"problems": list(ssh)}
    (folder / "ssh_probe.py").write_text(PROBE.format(question=str(of_ssh), web=answer))
    (folder / "probe.py").write_text(PROBE.format(question=str(question), web=WEB))
    given = {
        "__roll_programs": str(folder),
        "roll_versions": {"hgweb1": "r1"},
        "ansible_python_interpreter": sys.executable,
    }
    hosts = inventory(folder, SITE, away)
    code, told = play(hosts, "roll/check.yml", given, "--limit", host, "-v")
    return code, told, json.loads(question.read_text()) if question.exists() else {}


def test_a_host_is_compared_with_the_primary(tmp_path: Path) -> None:
    code, told, question = check(tmp_path, [])
    assert code == 0, told
    assert question["truth"] == [{"path": "a"}]
    assert question["primary"] == "https://hg1:8443"
    assert question["peers"] == ["https://hgweb2:8443"]


@pytest.mark.parametrize(
    ("away", "notes"),
    [
        (["hg1"], ["no answer from the primary hg1: compared with hgweb2"]),
        (["hg1", "hgweb2"], ["no answer from the primary hg1: compared with hgweb1"]),
        (["proxy1"], ["no answer from proxy1: met from proxy2"]),
        (["proxy1", "proxy2"], ["no answer from proxy1, proxy2: met from hgweb1"]),
    ],
)
def test_a_host_is_checked_without_hosts_that_are_away_and_the_verdict_says_so(
    tmp_path: Path, away: list[str], notes: list[str]
) -> None:
    code, told, question = check(tmp_path, away)
    assert code == 0, told
    assert question["truth"] == [{"path": "a"}]
    assert bool(question["primary"]) is ("proxy1, proxy2" not in str(notes) and "hg1" not in away)
    for note in notes:
        assert note in told, told[-3000:]


@pytest.mark.parametrize(("taken", "code"), [(100.0, 0), (99.0, 2)])
def test_a_host_refuses_the_drain_of_a_run_that_lost_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: float, code: int
) -> None:
    """Another run, whose lock was taken at 100, has changed the host."""
    holder = {"id": "b", "said": "operator of b", "taken": 100.0}
    (tmp_path / "holder.json").write_text(json.dumps(holder))
    given = {
        "roll_lock": {"id": "a", "said": "operator of a", "taken": taken},
        "__roll_lock_folder": {"folder": str(tmp_path)},
    }
    done, told = step(tmp_path, monkeypatch, "drain", OTHERS_SERVE, away=["proxy1"], **given)
    assert done == code, told
    assert ("operator of b took the lock of the site later, and was here" in told) is bool(code)
    assert (tmp_path / "web.drain").exists() is not bool(code)


@pytest.mark.parametrize("problem", ["", "the key lookup fails (1): no module"])
def test_an_ssh_host_is_met_over_ssh(tmp_path: Path, problem: str) -> None:
    code, told, _question = check(tmp_path, [], "hg1", [problem] if problem else [])
    assert (code == 0) is not bool(problem), told
    assert problem in told
    assert json.loads((tmp_path / "ssh_question").read_text()) == {
        "address": "127.0.0.1",
        "port": 22,
        "truth": [{"path": "a"}],
    }


def test_hosts_of_a_batch_are_checked_together(tmp_path: Path) -> None:
    """No other web host is left to compare with; the first of them asks for both."""
    away = ["hg1", "proxy1"]
    code, told, question = check(tmp_path, away, "hgweb1,hgweb2")
    assert code == 0, told
    assert question["truth"] == [{"path": "a"}]
    assert (question["primary"], question["peers"]) == ("", [])
    assert told.count("no answer from the primary hg1: compared with hgweb1") >= 2
    assert told.count("no answer from proxy1: met from proxy2") >= 2
