"""The lock of the site, as playbooks that people run by hand take it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.integration.deploy.plays import ROOT, inventory, play

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GROUPS: Final = {"ssh": ["hg2", "hg1"], "web": ["hg1", "hg2", "hgweb1"]}
BOOK: Final = """\
- import_playbook: {books}/internal/locked.yml
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Work
      ansible.builtin.command: cp {folder}/lock.json {folder}/during.json
      when: not fails | default(false)
    - name: Trouble
      ansible.builtin.fail:
      when: fails | default(false)
      any_errors_fatal: true
- import_playbook: {books}/internal/unlocked.yml
"""


class Site:
    """Hosts that are this machine, and a folder for the files of the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        books = ROOT / "ansible/playbooks"
        self.book = folder / "book.yml"
        self.book.write_text(BOOK.format(books=books, folder=folder))

    def play(self, *options: str, away: Sequence[str] = (), **given: Any) -> tuple[int, str]:
        variables = {
            "lock_what": "promotion",
            "__lock_folder": {"folder": str(self.folder)},
            **given,
        }
        hosts = inventory(self.folder, GROUPS, away)
        return play(hosts, f"../../{self.relative(self.book)}", variables, *options)

    def relative(self, path: Path) -> str:
        return f"{'../' * (len(ROOT.parts) - 1)}{str(path).lstrip('/')}"

    def lock(self, name: str = "lock.json") -> dict[str, Any] | None:
        file = self.folder / name
        content: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
        return content

    def log(self) -> list[str]:
        lines = (self.folder / "log.jsonl").read_text().splitlines()
        return [f"{entry['event']} {entry['plan']}" for entry in map(json.loads, lines)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_playbook_has_the_lock_until_its_end(site: Site) -> None:
    code, told = site.play("--limit", "hgweb1,localhost")
    assert code == 0, told
    during = site.lock("during.json")
    assert during is not None
    assert during["said"].endswith(
        "(promotion; run it again, which finishes it and gives the lock back)"
    )
    assert during["seconds"] == 3600
    assert site.lock() is None
    assert site.log() == ["begin promotion", "end promotion"]
    # The first ssh host by its name has it for all controllers.
    assert "item=hg1" in told


def test_a_playbook_that_broke_off_keeps_the_lock_and_takes_it_again(site: Site) -> None:
    assert site.play(fails=True)[0] != 0
    first = site.lock()
    assert first is not None
    code, told = site.play(lock_what="rotation")
    assert code != 0
    assert "hg1 has the lock of the site: " in told
    assert "(promotion; run it again" in told
    assert site.lock() == first
    assert site.play("--check", lock_what="rotation")[0] == 0
    assert site.lock() == first
    code, told = site.play()
    assert code == 0, told
    assert site.lock() is None


def test_a_run_of_deploy_that_has_the_lock_is_not_asked_for_it_again(site: Site) -> None:
    code, _told = site.play(fails=True, lock_is_held=True)
    assert code != 0
    assert site.lock() is None


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({}, 2, "hg1 has the lock of the site: it did not answer ("),
        ({"lock_hosts": "hgweb1"}, 0, "item=hgweb1"),
        ({"lock_elsewhere": True}, 0, "item=hg2"),
    ],
)
def test_a_dead_host_of_the_lock_is_told_or_replaced(
    site: Site, given: dict[str, Any], code: int, words: str
) -> None:
    done, told = site.play("--limit", "hgweb1,localhost", away=["hg1"], **given)
    assert done == code, told
    assert words in told
    assert ("start it, or take the lock elsewhere, -e lock_hosts=HOST" in told) is bool(code)
