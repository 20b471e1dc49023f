"""Lines about the mirrors that a person reads after a command of the self-service."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.principal import Principal
from hgfleet.selfservice import commands, mirrors
from hgfleet.selfservice.context import Context

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {command.name: command for command in commands.COMMANDS}


def context(tmp_path: Path, hgrc: str) -> Context:
    (tmp_path / "hgrc").write_text(hgrc)
    return Context(Principal("bob"), "", "", "", str(tmp_path / "hgrc"))


class Relay:
    """A wake socket that always gives the same answer."""

    def __init__(self, folder: Path, answer: dict[str, Any]) -> None:
        self.path = folder / "wake.sock"
        self.asked: list[dict[str, Any]] = []
        self._answer = answer
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            self.asked.append(json.loads(connection.makefile("rb").readline()))
            connection.sendall(json.dumps(self._answer).encode() + b"\n")


@pytest.mark.parametrize(
    ("command", "document", "expected"),
    [
        ("repo create", "registry", "repo create: visible on 2/2 mirrors in 0.31 s\n"),
        ("repo archive", "registry", "repo archive: gone from 2/2 mirrors in 0.31 s\n"),
        ("token create", "tokens", "token create: accepted on 2/2 mirrors in 0.31 s\n"),
        ("token revoke", "tokens", "token revoke: refused on 2/2 mirrors in 0.31 s\n"),
    ],
)
def test_a_change_is_told_with_its_mirrors(
    tmp_path: Path, command: str, document: str, expected: str
) -> None:
    answer = {"visible": 2, "of": 2, "seconds": 0.31, "slow": [], "down": [], "broker": True}
    relay = Relay(tmp_path, answer)
    asking = context(tmp_path, f"[hgfleet]\nrelay = {relay.path}\nreplication-wait = 1.5\n")
    assert mirrors.sentence(asking, COMMANDS[command]) == expected
    assert relay.asked == [{"document": document, "wait": 1.5}]


def test_a_host_without_replication_says_nothing(tmp_path: Path) -> None:
    asking = context(tmp_path, "[hgfleet]\nssh-url = ssh://hg@hg1\n")
    assert mirrors.sentence(asking, COMMANDS["token revoke"]) == ""


def test_a_command_that_changes_nothing_wakes_no_relay(tmp_path: Path) -> None:
    asking = context(tmp_path, "[hgfleet]\nrelay = /nonexistent/wake.sock\nreplication-wait = 0\n")
    changing = {command.name for command in commands.COMMANDS if command.document}
    for command in commands.COMMANDS:
        assert bool(mirrors.sentence(asking, command)) is (command.name in changing)
    assert {name for name in COMMANDS if name not in changing} == {
        *("help", "whoami", "keys", "repo list", "repo info", "token list"),
    }


def test_without_a_relay_a_revoked_token_may_be_accepted(tmp_path: Path) -> None:
    asking = context(tmp_path, "[hgfleet]\nrelay = /nonexistent/wake.sock\nreplication-wait = 0\n")
    assert mirrors.sentence(asking, COMMANDS["token revoke"]) == (
        "token revoke: replication is down, mirrors may accept it until it is back\n"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2.0), ("0.5", 0.5), ("600", 60.0), ("soon", 5.0), ("", 5.0)]
)
def test_the_wait_is_bounded(tmp_path: Path, text: str, seconds: float) -> None:
    asking = context(tmp_path, f"[hgfleet]\nreplication-wait = {text}\n")
    assert asking.mirror_wait == seconds
