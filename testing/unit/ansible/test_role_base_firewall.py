"""The program that loads the rules of the firewall and watches them, with an nft of the test."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from controller.bootstrap import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = ROOT / "ansible/roles/base/files/hgfleet-firewall"

# The rules in force are a file; a file of rules that begins with "bad" is refused.
NFT = """#!/bin/sh
table=$HGFLEET_FIREWALL_ROOT/table
case "$*" in
'--stateless --terse list table inet hgfleet') cat "$table" ;;
'-f '*) ! grep -q ^bad "$2" && cp "$2" "$table" ;;
'destroy table inet hgfleet') rm -f "$table" ;;
*) echo "$*" >>"$table" ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
[ -e "$HGFLEET_FIREWALL_ROOT/trying" ]
"""


@dataclass(frozen=True)
class Host:
    root: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {
            "HGFLEET_FIREWALL_ROOT": str(self.root),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
        }
        return subprocess.run(
            ["sh", PROGRAM, *arguments], env=env, capture_output=True, text=True, check=False
        )

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def look(self) -> dict[str, Any]:
        """Look at the rules once; return the state, without the time of the look."""
        self.ok("look")
        state = json.loads((self.root / "run/hgfleet-firewall-watch/state.json").read_text())
        assert abs(state.pop("looked") - time.time()) < 60
        return dict(state)

    @property
    def kept(self) -> Path:
        return self.root / "etc/hgfleet/firewall.nft"

    @property
    def table(self) -> Path:
        """The rules in force."""
        return self.root / "table"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for folder in ("bin", "etc/hgfleet", "run/hgfleet-firewall-watch"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in (("nft", NFT), ("systemctl", SYSTEMCTL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    made = Host(tmp_path)
    made.kept.write_text("rules 1\n")
    return made


WELL = {"in_force": True, "restored": 0, "reason": ""}


def test_loaded_rules_are_in_force(host: Host) -> None:
    host.ok("load")
    assert host.look() == WELL
    assert host.table.read_text() == "rules 1\n"


@pytest.mark.parametrize("left", [None, "", "rules 1\nanother rule\n"])
def test_rules_that_another_program_removed_or_changed_are_loaded_again(
    host: Host, left: str | None
) -> None:
    host.ok("load")
    host.table.unlink()
    if left is not None:
        host.table.write_text(left)
    done = host.run("look")
    assert "event=firewall.restored" in done.stdout
    assert host.table.read_text() == "rules 1\n"
    state = host.look()
    assert state["in_force"] is True
    assert abs(state["restored"] - time.time()) < 60
    # The time of the repair stays.
    assert host.look() == state


def test_rules_that_cannot_be_loaded_are_told(host: Host) -> None:
    host.ok("load")
    host.table.unlink()
    host.kept.write_text("bad\n")
    assert host.look()["in_force"] is False
    host.kept.write_text("rules 1\n")
    assert host.look()["in_force"] is True
    assert host.table.read_text() == "rules 1\n"


def test_a_file_that_was_changed_by_hand_is_told_and_not_loaded(host: Host) -> None:
    host.ok("load")
    host.kept.write_text("rules 2\n")
    state = host.look()
    assert (state["in_force"], state["restored"]) == (False, 0)
    assert "has changed since it was loaded" in state["reason"]
    assert host.table.read_text() == "rules 1\n"
    host.ok("load")
    assert host.look() == WELL


def test_new_rules_that_a_run_tries_stay(host: Host) -> None:
    host.ok("load")
    new = host.root / "new.nft"
    new.write_text("rules 2\n")
    (host.root / "trying").touch()
    host.ok("load", str(new))
    assert host.look() == WELL
    assert host.table.read_text() == "rules 2\n"
    # So do rules that a run of a release before loads by nft itself.
    host.table.write_text("rules 3\n")
    assert host.look() == WELL
    host.table.write_text("rules 2\n")
    # The run keeps them, and ends.
    host.kept.write_text("rules 2\n")
    (host.root / "trying").unlink()
    assert host.look() == WELL


def test_a_rule_that_was_added_stays_until_the_rules_are_loaded_again(host: Host) -> None:
    host.ok("load")
    host.ok("add", "insert rule inet hgfleet input accept")
    assert host.look() == WELL
    assert host.table.read_text().endswith("input accept\n")
    host.ok("load")
    assert host.table.read_text() == "rules 1\n"
    assert host.look() == WELL


def test_rules_that_a_release_before_loaded_are_loaded_once_without_a_word(host: Host) -> None:
    host.table.write_text("rules 1\n")
    assert host.look() == WELL
    host.table.unlink()
    assert host.look()["restored"] > 0


def test_removed_rules_and_another_word(host: Host) -> None:
    host.ok("load")
    host.ok("remove")
    assert not host.table.exists()
    assert not (host.root / "run/hgfleet-firewall/loaded").exists()
    assert "expected load" in host.run("begin").stderr
