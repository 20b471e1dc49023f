"""Commands over the connection of an old login: the directory is asked about the person."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import AccessDeniedError
from hgfleet.core.principal import Principal
from hgfleet.directory.person_state import PersonState
from hgfleet.selfservice import login_check
from hgfleet.selfservice.context import Context

if TYPE_CHECKING:
    from pathlib import Path

KEY = f"SHA256:{'k' * 43}"


class Asked:
    """Answers a question about a person, and notes it."""

    def __init__(self, state: PersonState) -> None:
        self.found = state
        self.asked: list[tuple[str, str]] = []

    def __call__(self, person: str, socket: str) -> PersonState:
        self.asked.append((person, socket))
        return self.found


def context(tmp_path: Path, hgrc: str) -> Context:
    (tmp_path / "hgrc").write_text(hgrc)
    principal = Principal("alice", frozenset({"staff"}))
    return Context(principal, "", "", "", str(tmp_path / "hgrc"), KEY)


def test_an_old_login_of_a_disabled_person_gets_no_command(tmp_path: Path) -> None:
    site = context(tmp_path, "[hgfleet]\nsession-people = /run/people\n")
    ask = Asked(PersonState("disabled"))
    with pytest.raises(AccessDeniedError, match="Nothing was done: alice may not use"):
        login_check.check(site, str(int(time.time()) - 3600), ask)
    assert ask.asked == [("alice", "/run/people")]


@pytest.mark.parametrize("login", ["", "1"])
def test_a_login_of_long_ago_or_of_unknown_age_is_asked_about(tmp_path: Path, login: str) -> None:
    site = context(tmp_path, "[hgfleet]\nsession-people = /run/people\n")
    ask = Asked(PersonState("enabled", frozenset({"staff"}), frozenset({KEY})))
    login_check.check(site, login, ask)
    assert len(ask.asked) == 1


def test_a_new_login_and_a_host_without_the_daemon_ask_nothing(tmp_path: Path) -> None:
    ask = Asked(PersonState("disabled"))
    new = str(int(time.time()))
    login_check.check(context(tmp_path, "[hgfleet]\nsession-people = /run/people\n"), new, ask)
    login_check.check(context(tmp_path, "[hgfleet]\n"), "1", ask)
    assert ask.asked == []
