"""A run of a part of the site does not make a former primary the primary again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from testing.integration.deploy.plays import inventory, play

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GROUPS: Final = {
    "ssh": ["hg1", "hg2"],
    "web": ["hg1", "hg2", "hgweb1"],
    "broker": ["broker1"],
    "proxy": ["proxy1"],
}


def run(
    folder: Path,
    terms: dict[str, tuple[int, str]],
    *options: str,
    away: Sequence[str] = (),
    groups: dict[str, list[str]] = GROUPS,
) -> tuple[int, str]:
    """Run the guard; `terms` has the term that each host remembers."""
    for host, (epoch, primary) in terms.items():
        (folder / host).mkdir()
        (folder / host / "epoch.json").write_text(json.dumps({"epoch": epoch, "primary": primary}))
    file = f"{folder}/{{{{ item }}}}/epoch.json"
    return play(
        inventory(folder, groups, away), "internal/primary.yml", {"__primary_file": file}, *options
    )


@pytest.mark.parametrize("limit", ["hgweb1", "broker1", "all"])
def test_an_inventory_that_names_the_former_primary_is_refused_with_any_limit(
    tmp_path: Path, limit: str
) -> None:
    code, told = run(tmp_path, {"hg1": (1, "hg1"), "hg2": (2, "hg2")}, "--limit", limit)
    assert code != 0
    assert "hg2 is the primary of this site since epoch 2, and the inventory names hg1" in told


def test_one_ssh_host_that_answers_is_enough(tmp_path: Path) -> None:
    terms = {"hg1": (1, "hg1"), "hg2": (2, "hg2")}
    code, told = run(tmp_path, terms, "--limit", "broker1", away=["hg1"])
    assert code != 0
    assert "hg2 is the primary of this site" in told
    assert "None of the ssh hosts" not in told


def test_no_answer_is_no_leave(tmp_path: Path) -> None:
    code, told = run(tmp_path, {}, "--limit", "hgweb1,broker1", away=["hg1", "hg2"])
    assert code != 0
    assert "None of the ssh hosts hg1, hg2 tells which host is the primary" in told
    assert "Connection refused" in told


def test_a_blank_host_does_not_speak_for_a_silent_one(tmp_path: Path) -> None:
    """hg2 was promoted and is down, and hg1 lost its disk: the term is unknown."""
    code, told = run(tmp_path, {}, "--limit", "hgweb1,broker1", away=["hg2"])
    assert code != 0
    assert "and hg2 did not answer" in told
    assert "Connection refused" in told


def test_the_primary_of_the_inventory_and_a_site_before_its_first_term_go_on(
    tmp_path: Path,
) -> None:
    assert run(tmp_path, {}, "--limit", "broker1")[0] == 0
    assert run(tmp_path, {"hg1": (3, "hg1"), "hg2": (2, "hg2")}, "--limit", "broker1")[0] == 0


def test_a_site_without_brokers_has_no_terms(tmp_path: Path) -> None:
    groups = {"ssh": ["hg1"], "web": ["hg1"]}
    assert run(tmp_path, {}, away=["hg1"], groups=groups)[0] == 0


@pytest.mark.parametrize("follows", ["hg1", "hg2", ""])
def test_hosts_that_follow_the_primary_change_while_no_ssh_host_tells_the_term(
    tmp_path: Path, follows: str
) -> None:
    """hg1 is down, and hg2 was never the primary: a run would point hgweb1 to where it points."""
    if follows:
        (tmp_path / "replication.toml").write_text(f'role = "mirror"\nprimary = "{follows}"\n')
    given = {
        "__primary_file": f"{tmp_path}/{{{{ item }}}}/epoch.json",
        "__primary_settings": str(tmp_path / "replication.toml"),
    }
    hosts = inventory(tmp_path, GROUPS, ["hg1"])
    code, told = play(hosts, "internal/primary.yml", given, "--limit", "hgweb1,proxy1")
    assert (code == 0) is (follows == "hg1"), told
    if follows != "hg1":
        assert "leave out the hosts that do not follow hg1 (hgweb1) with --limit" in told


def test_the_only_ssh_host_is_the_primary_although_it_is_down(tmp_path: Path) -> None:
    groups = {**GROUPS, "ssh": ["hg1"], "web": ["hg1", "hgweb1"]}
    code, told = run(tmp_path, {}, "--limit", "hgweb1,broker1", away=["hg1"], groups=groups)
    assert code == 0, told
