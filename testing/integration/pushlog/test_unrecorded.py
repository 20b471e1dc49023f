"""A store that changed without a record takes no changes until an operator has answered for it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.pushlog import log_file
from testing.integration.pushlog.site import OPERATOR
from testing.integration.support import site as support

if TYPE_CHECKING:
    from testing.integration.pushlog.site import PushlogSite

PAST_THE_LOG = ("--config", "hgfleet.pushlog=no")


def bring(site: PushlogSite) -> None:
    """Bring alice's changesets into the store, past the log."""
    site.at_work("bundle", "--all", site.root / "all.hg")
    site.server("unbundle", site.root / "all.hg", *PAST_THE_LOG)


@pytest.fixture
def changed(site: PushlogSite) -> PushlogSite:
    """Two recorded changesets, 0 and 1, and a foreign changeset, 2."""
    for text in ("one\n", "two\n"):
        site.change(text=text)
        site.push()
    site.change(text="foreign\n")
    bring(site)
    return site


def refused(site: PushlogSite) -> str:
    """Push a new changeset, which is refused; return the message that alice reads."""
    content, before = site.log().read_bytes(), site.server("log", "-T", "{node} ")
    site.change("other")
    said = site.push("--force", code=255)
    assert "server takes no changes, and nothing was changed: its store has" in said
    assert site.log().read_bytes() == content
    assert site.server("log", "-T", "{node} ") == before
    return said


def test_a_push_is_refused_with_the_way_out(changed: PushlogSite) -> None:
    said = refused(changed)
    assert "other heads than after record 2 of its push log; tell the operators" in said
    assert "`hgfleet pushlog accept server`" in said
    done = changed.start("-R", changed.path("server"), "bookmark", "-r", "0", "x", **OPERATOR)
    assert done.returncode == 255
    assert "server takes no changes" in done.stderr


def test_a_refusal_is_counted(changed: PushlogSite) -> None:
    counters = changed.root / "counters"
    counters.mkdir()
    plain = changed.hgrc.read_text()
    changed.hgrc.write_text(
        plain.replace("[hgfleet]\n", f"[hgfleet]\ncounters = {counters}\n")
        + f"pushcounts = {support.HGEXT}/pushcounts.py\n"
    )
    refused(changed)
    assert (counters / "pushes").read_text() == "unrecorded 1\n"


def test_an_operator_removes_foreign_changesets(changed: PushlogSite) -> None:
    content = changed.log().read_bytes()
    changed.server("debugstrip", "2")
    assert changed.log().read_bytes() == content
    assert changed.server("debugpushlog", "--verify") == ""
    changed.push()
    assert [record.kind for record in changed.records()] == ["push"] * 3


def test_a_removal_that_leaves_foreign_changesets_is_no_answer_for_them(
    changed: PushlogSite,
) -> None:
    changed.change("more")
    bring(changed)
    done = changed.start("-R", changed.path("server"), "debugstrip", "3", **OPERATOR)
    assert done.returncode == 0
    assert "the removal is not recorded: still, its store has other heads" in done.stderr
    refused(changed)


def test_an_operator_answers_for_changesets_that_came(changed: PushlogSite) -> None:
    foreign = changed.server("log", "-r", "2", "-T", "{node}")
    changed.server("debugpushlog", "--accept")
    record = changed.records()[-1]
    assert (record.id, record.kind, record.user) == (3, "push", "operator:root")
    assert record.changesets == (foreign,)
    assert record.phases == ((foreign, None, "draft"),)
    assert record.heads.new == (foreign,)
    assert len(record.heads.gone) == 1
    changed.change(text="four\n")
    changed.push()
    # There is nothing left to accept.
    changed.server("debugpushlog", "--accept")
    assert len(changed.records()) == 4


def test_a_mirror_follows_an_answer(changed: PushlogSite) -> None:
    mirror = changed.path("mirror")
    changed.hg("init", mirror, **OPERATOR)
    changed.server("debugpushlog", "--accept")
    foreign = changed.records()[-1].changesets
    (mirror / identity.FILE).write_text(identity.text(changed.records()[-1].repository))
    apply = changed.root / "apply.py"
    apply.write_text(
        "import io, sys\n"
        "from pathlib import Path\n"
        "from hgfleet.pushlog import log_file\n"
        "from hgfleet.replication.mirror import apply\n"
        "from hgfleet.replication.primary import changegroup_worker\n"
        "from hgfleet.replication.source import changesets\n"
        "from hgfleet.replication.source.requests import Selection\n"
        "source, mirror = map(Path, sys.argv[1:])\n"
        "opened = changegroup_worker.Opened()\n"
        "for one in log_file.entries(source / '.hg/store/pushlog'):\n"
        "    selection = Selection(nodes=tuple(one.record.changesets))\n"
        "    data = b''.join(changesets.stream(opened.get(str(source)), selection))\n"
        "    repo = apply.open_repository(mirror)\n"
        "    print(apply.apply(repo, one.line, one.record, io.BytesIO(data)))\n"
    )
    (mirror / ".hg/hgrc").write_text("[hgfleet]\npath = mirror\nread = public\n")
    done = subprocess.run(
        [sys.executable, apply, changed.path("server"), mirror],
        env=changed.environment(HGFLEET_USER="operator:applier"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["apply"] * 3, done.stderr
    assert changed.log("mirror").read_bytes() == changed.log().read_bytes()
    assert changed.hg("-R", mirror, "log", "-r", "tip", "-T", "{node}", **OPERATOR) in foreign


def test_an_operator_answers_for_changesets_that_went(changed: PushlogSite) -> None:
    gone = changed.server("log", "-r", "1", "-T", "{node}")
    changed.server("debugstrip", "1", *PAST_THE_LOG)
    changed.change("more")
    assert "record 2 has changeset" in changed.server("debugpushlog", "--verify", code=1)
    changed.server("debugpushlog", "--accept")
    record = changed.records()[-1]
    assert (record.kind, record.changesets) == ("strip", (gone,))
    changed.push()
    assert changed.server("debugpushlog", "--verify") == ""


def test_an_operator_answers_for_both_at_once(changed: PushlogSite) -> None:
    gone = changed.server("log", "-r", "1", "-T", "{node}")
    changed.server("debugstrip", "1", *PAST_THE_LOG)
    changed.at_work("update", "-q", "0", "--cwd", changed.work)
    foreign = changed.change("more")
    changed.at_work("bundle", "-r", foreign, "--base", "null", changed.root / "one.hg")
    changed.server("unbundle", changed.root / "one.hg", *PAST_THE_LOG)
    changed.server("debugpushlog", "--accept")
    removed, brought = changed.records()[-2:]
    assert (removed.kind, removed.changesets) == ("strip", (gone,))
    assert (brought.kind, brought.changesets) == ("push", (foreign,))


def test_a_log_that_begins_with_an_adoption_names_changesets_behind_its_last_record(
    site: PushlogSite,
) -> None:
    site.change()
    bring(site)
    site.change(text="two\n")
    site.push()
    foreign = [site.change(text="three\n"), site.change(text="four\n")]
    bring(site)
    refused(site)
    site.server("debugpushlog", "--accept")
    adoption, push, accepted = site.records()
    assert (adoption.kind, push.kind) == ("adoption", "push")
    assert accepted.changesets == tuple(foreign)
    assert site.server("debugpushlog", "--verify") == ""
    # Which of the adopted changesets are gone, no record can tell.
    site.server("debugstrip", "0", *PAST_THE_LOG)
    said = site.start("-R", site.path("server"), "debugpushlog", "--accept", **OPERATOR).stderr
    assert "because it begins with an adoption" in said


def test_a_repository_that_was_made_under_the_log_is_not_adopted_by_a_push(
    site: PushlogSite,
) -> None:
    (site.path("server") / ".hg" / log_file.FROM_START).touch()
    site.change()
    site.push()
    assert [record.kind for record in site.records()] == ["push"]
    site.server("debugstrip", "0")
    assert [record.kind for record in site.records()] == ["push", "strip"]
    site.log().unlink()
    bring(site)
    site.change("other")
    said = site.push(code=255)
    assert "its store has 1 changesets, and its push log has no record" in said
    assert not site.log().exists()
    # `--adopt` is refused for a repository that began with a log; `--accept` answers for it.
    assert "no log, and 1 changesets" in site.server("debugpushlog", "--adopt", code=1)
    site.server("debugpushlog", "--accept")
    site.push()
    assert [record.kind for record in site.records()] == ["adoption", "push"]


def test_a_killed_removal_is_recorded_by_an_operator(changed: PushlogSite) -> None:
    changed.server("debugpushlog", "--accept")
    (changed.root / "killed.py").write_text(
        "from mercurial import extensions, repair\n"
        "def uisetup(ui):\n"
        "    def strip(original, *arguments, **named):\n"
        "        original(*arguments, **named)\n"
        "        raise SystemExit(9)\n"
        "    extensions.wrapfunction(repair, 'strip', strip)\n"
    )
    killed = ("--config", f"extensions.killed={changed.root}/killed.py")
    gone = changed.server("log", "-r", "2", "-T", "{node}")
    changed.start("-R", changed.path("server"), "debugstrip", "2", *killed, **OPERATOR)
    refused(changed)
    changed.server("debugpushlog", "--accept")
    record = changed.records()[-1]
    assert (record.kind, record.changesets) == ("strip", (gone,))
