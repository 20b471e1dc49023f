"""Commands, revset and template keywords of the push log."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.registry.model.registry import Settings, build
from testing.integration.pushlog.site import KEY, OPERATOR

if TYPE_CHECKING:
    from testing.integration.pushlog.site import PushlogSite


@pytest.fixture
def pushed(site: PushlogSite) -> PushlogSite:
    """An adopted changeset 0, a push of 1 and 2 by alice, a bookmark of the operator."""
    site.change(text="zero\n")
    site.at_work("bundle", "--all", site.root / "all.hg")
    site.server("unbundle", site.root / "all.hg", "--config", "hgfleet.pushlog=no")
    site.change(text="one\n")
    site.change(text="two\n")
    site.push()
    site.server("bookmark", "-r", "1", "stable")
    return site


def test_the_log_shows_who_pushed_what(pushed: PushlogSite) -> None:
    newest, push, adoption = pushed.server("pushlog").splitlines()
    assert newest.startswith("3 push operator:root 20")
    assert newest.endswith(" UTC: 0 changesets, bookmarks stable")
    assert push.startswith("2 push alice 20")
    assert push.endswith(f" UTC from 192.0.2.7 with {KEY}: 2 changesets")
    assert adoption.startswith("1 adoption - 20")


def test_the_log_is_searched_by_user_id_changeset_and_time(pushed: PushlogSite) -> None:
    def ids(*words: str, code: int = 0) -> str:
        return pushed.server("pushlog", "-T", "{id} ", *words, code=code).strip()

    assert ids() == "3 2 1"
    assert ids("--limit", "2") == "3 2"
    assert ids("--user", "alice") == "2"
    assert ids("--user", "re:^oper") == "3"
    assert ids("--id", "2:") == "3 2"
    assert ids("--rev", "2") == "2"
    assert ids("--date", "-1") == "3 2 1"
    assert ids("--date", "<2001-01-01", code=1) == ""
    assert ids("--user", "alice", "--id", "3", code=1) == ""
    ids("--id", "x", code=255)
    (record,) = json.loads(pushed.server("pushlog", "-T", "json", "--id", "2"))
    assert len(record["changesets"]) == 2
    assert (record["user"], record["client"], record["key"]) == ("alice", "192.0.2.7", KEY)
    assert record["verdicts"] == ["file-lists: allowed", "metadata: allowed", "names: allowed"]


def test_changesets_are_found_by_their_push(pushed: PushlogSite) -> None:
    def numbers(revset: str) -> str:
        return pushed.server("log", "-r", revset, "-T", "{rev} ").strip()

    assert numbers("pushed()") == numbers("pushed(alice)") == "1 2"
    assert numbers("pushed(user='re:^a', date='-1', id='2')") == "1 2"
    assert numbers("pushed(id='3:')") == numbers("pushed(bob)") == ""
    assert numbers("pushed(date='<2001-01-01')") == ""
    assert numbers("not pushed()") == "0"
    pushed.server("log", "-r", "pushed(1, 2, 3, 4)", code=255)


def test_a_changeset_shows_its_push(pushed: PushlogSite) -> None:
    template = "{rev}:{pushid}:{pushuser}:{if(pushid, shortdate(pushdate))} "
    shown = pushed.server("log", "-T", template).split()
    day = pushed.server("pushlog", "--id", "2", "-T", "{date|shortdate}")
    assert shown == [f"2:2:alice:{day}", f"1:2:alice:{day}", "0:::"]


def test_a_whole_log_is_verified(pushed: PushlogSite) -> None:
    assert pushed.server("debugpushlog", "--verify") == ""
    pushed.server("debugstrip", "-r", "2")
    assert pushed.server("debugpushlog", "--verify") == ""
    pushed.server("debugpushlog", code=255)


def test_a_changeset_that_passed_by_the_log_is_found(pushed: PushlogSite) -> None:
    node = pushed.change(text="three\n")
    pushed.at_work("bundle", "--all", pushed.root / "all.hg")
    pushed.server("unbundle", pushed.root / "all.hg", "--config", "hgfleet.pushlog=no")
    said = pushed.server("debugpushlog", "--verify", code=1)
    assert "the changesets without a push are not the changesets that were adopted" in said
    assert "the repository has other heads than after its last record 3" in said
    pushed.server("debugstrip", "-r", "1", "--config", "hgfleet.pushlog=no")
    said = pushed.server("debugpushlog", "--verify", code=1)
    assert said.startswith("record 2 has changesets ")
    assert node[:12] not in said


def test_a_changed_record_is_found(pushed: PushlogSite) -> None:
    content = pushed.log().read_bytes()
    pushed.log().write_bytes(content.replace(b'"alice"', b'"mallo"'))
    assert "the chain is broken at byte" in pushed.server("debugpushlog", "--verify", code=1)
    pushed.log().write_bytes(content.replace(b'"alice"', b'"alice" '))
    assert "not in its canonical form" in pushed.server("debugpushlog", "--verify", code=1)
    pushed.log().write_bytes(content + b"{")
    assert "1 bytes of an incomplete record" in pushed.server("debugpushlog", "--verify", code=1)


def test_a_repository_is_adopted_once(pushed: PushlogSite) -> None:
    pushed.log().unlink()
    assert "no log, and 3 changesets" in pushed.server("debugpushlog", "--verify", code=1)
    for _ in range(2):
        pushed.server("debugpushlog", "--adopt")
        (adoption,) = pushed.records()
        assert (adoption.kind, adoption.user) == ("adoption", "operator:root")
    pushed.hg("init", pushed.root / "clone")
    said = pushed.start("-R", pushed.root / "clone", "debugpushlog", "--adopt", **OPERATOR)
    assert "only registered repositories have one" in said.stderr


def test_operators_verify_and_adopt_all_repositories(pushed: PushlogSite) -> None:
    pushed.hg("clone", "--pull", "-U", pushed.path("server"), pushed.path("fork"), **OPERATOR)
    pushed.configure("fork")
    settings = Settings(push=("staff",))
    pushed.register(build({"server": ("", settings), "fork": ("", settings)}, {}, settings))

    def hgfleet(*words: str) -> tuple[int, list[str]]:
        options = ["--registry", pushed.registry, "--dynamic", pushed.dynamic]
        options += ["--root", pushed.repos, "--hgrc", pushed.hgrc, "--user", "root"]
        done = subprocess.run(
            [sys.executable, "-m", "hgfleet", "pushlog", *words, *map(str, options)],
            env=pushed.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()

    code, said = hgfleet("verify")
    assert code == PushlogError.exit_code, "\n".join(said)
    assert sorted(said) == [
        "fork: no log, and 3 changesets; `hgfleet pushlog adopt` begins a log",
        "hgfleet: 1 push logs have problems; docs/runbooks/pushlog.md has the repairs",
        "server: ok",
    ]
    assert hgfleet("adopt") == (0, ["fork: ok", "server: ok"])
    (adoption,) = pushed.records("fork")
    assert (adoption.kind, adoption.user) == ("adoption", "operator:pushlog")
    assert hgfleet("verify") == (0, ["fork: ok", "server: ok"])
    assert hgfleet("verify", "server") == (0, ["server: ok"])
    assert hgfleet("verify", "other")[0] == 2

    # Changesets past the log are accepted in a single repository at a time.
    pushed.change(text="past the log\n")
    pushed.at_work("bundle", "--all", pushed.root / "more.hg")
    pushed.server("unbundle", pushed.root / "more.hg", "--config", "hgfleet.pushlog=no")
    code, said = hgfleet("adopt")
    assert code == PushlogError.exit_code
    assert any("other heads than after its last record" in line for line in said)
    code, said = hgfleet("accept")
    assert code == 2
    assert "got no repository, expected the paths of those" in said[-1]
    assert hgfleet("accept", "server") == (0, ["server: ok"])
    assert pushed.records()[-1].user == "operator:pushlog"
