"""Pushes that hg records itself, from the transaction to the answer."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hgfleet.pushlog import index_step
from testing.integration.web.support import PROJECT, Site, ask

ROOT = Path(__file__).resolve().parents[3]
KEY = "SHA256:" + "q" * 43
ADDRESS = "198.51.100.23"
REPOSITORY = "team/project"


@pytest.fixture
def recorded(site: Site) -> Site:
    """The site as a session of alice sees it, with push logs."""
    hgrc = site.folder / "session.rc"
    base = Path(site.environment["HGRCPATH"]).read_text()
    hgrc.write_text(
        f"{base}[extensions]\npushlog = {ROOT}/hgext/pushlog.py\n"
        f"pushlog_index = {ROOT}/hgext/pushlog_index.py\n"
        f"[hgfleet]\npushlog = yes\npath = {REPOSITORY}\n"
    )
    session = {
        "HGRCPATH": str(hgrc),
        "HGFLEET_USER": "alice",
        "HGFLEET_KEY": KEY,
        "SSH_CONNECTION": f"{ADDRESS} 40000 192.0.2.1 22",
        "PYTHONPATH": str(ROOT),
    }
    return replace(site, environment={**site.environment, **session})


def commit(site: Site, name: str) -> str:
    """Commit a file; hg prints the hooks of each transaction."""
    site.commit(REPOSITORY, name)
    return site.hg(REPOSITORY, "log", "-r", "tip", "-T", "{node}")


def test_a_recorded_push_is_shown(recorded: Site) -> None:
    before = recorded.hg(REPOSITORY, "log", "-r", "all()", "-T", "{node}\n").split()
    node = commit(recorded, "three.txt")
    web = recorded.application()
    answer = json.loads(ask(web, f"{PROJECT}/json-pushes", "version=2&startID=0").body)
    assert answer["lastpushid"] == 2
    assert answer["pushes"]["2"]["changesets"] == [node]
    assert answer["pushes"]["2"]["user"] == "alice"
    adopted = json.loads(ask(web, f"{PROJECT}/json-pushes", f"changeset={before[0]}").body)
    assert adopted["1"]["changesets"] == [before[0]]
    page = ask(web, f"{PROJECT}/rev/{node}")
    assert "push 2</a> by alice with an SSH key" in page.text
    for command in ("json-pushes", "pushloghtml", "pushlog", "json-repoinfo", f"rev/{node}"):
        reply = ask(web, f"{PROJECT}/{command}")
        assert reply.status == 200
        assert KEY[7:] not in reply.text
        assert ADDRESS not in reply.text


def test_a_removed_changeset_is_gone_from_its_push(recorded: Site) -> None:
    node = commit(recorded, "three.txt")
    recorded.hg(REPOSITORY, "--config", "extensions.strip=", "strip", "-q", "--no-backup", node)
    web = recorded.application()
    answer = json.loads(ask(web, f"{PROJECT}/json-pushes", "empty=1&version=2&startID=1").body)
    assert {number: push["changesets"] for number, push in answer["pushes"].items()} == {
        "2": [],
        "3": [],
    }
    assert ask(web, f"{PROJECT}/json-pushes", f"changeset={node}").status == 404
    assert "Changesets removed by alice" in ask(web, f"{PROJECT}/pushloghtml").text


def test_the_index_follows_and_the_answers_stay_the_same(recorded: Site) -> None:
    """Commit until the index is due: before and after, the answers have all pushes."""
    log = recorded.path(REPOSITORY) / ".hg/store/pushlog"
    index = recorded.path(REPOSITORY) / ".hg/cache" / index_step.NAME
    commit(recorded, "three.txt")
    bookmarks = " ".join(f"mark{number:04}-{'x' * 60}" for number in range(160)).split()
    recorded.hg(REPOSITORY, "bookmark", "-r", "tip", *bookmarks)
    assert log.stat().st_size >= index_step.STEP
    assert index_step.covered_bytes(str(index)) == log.stat().st_size // 1024 * 1024
    node = commit(recorded, "four.txt")
    web = recorded.application()
    pushes = json.loads(ask(web, f"{PROJECT}/json-pushes", "empty&startID=0").body)
    assert list(pushes) == ["1", "2", "3", "4"]
    assert pushes["4"]["changesets"] == [node]
    page = ask(web, f"{PROJECT}/pushloghtml").text
    assert re.findall(r'id="push(\d)"', page) == ["4", "3", "2", "1"]
