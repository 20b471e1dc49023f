"""A removal whose process was killed is completed by the next writer, or withdrawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.pushlog import removal
from testing.integration.pushlog.site import OPERATOR
from testing.integration.support.site import HGEXT

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.pushlog.site import PushlogSite

# After core's transactions, before the record's; and where core's changesets that stay are only in
# its bundle.
POINTS = {
    "unrecorded": (
        "from mercurial import extensions, repair\n"
        "def uisetup(ui):\n"
        "    def strip(original, *arguments, **named):\n"
        "        original(*arguments, **named)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    extensions.wrapfunction(repair, 'strip', strip)\n"
    ),
    "taken": (
        "from mercurial import extensions, exchange\n"
        "def uisetup(ui):\n"
        "    def read(original, *arguments, **named):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    extensions.wrapfunction(exchange, 'readbundle', read)\n"
    ),
}


def intent(site: PushlogSite) -> Path:
    """Return the path of the intent."""
    return site.path("server") / ".hg/store" / removal.NAME


def killed(site: PushlogSite, point: str) -> str:
    """Kill the removal of changeset 1, before changeset 2; return its node."""
    die = site.root / "die.py"
    die.write_text("import os, signal\n" + POINTS[point])
    gone = site.server("log", "-r", "1", "-T", "{node}")
    words = ("debugstrip", "--no-backup", "1", "--config", f"extensions.die={die}")
    done = site.start(
        "-R", site.path("server"), *words, **OPERATOR | {"HGFLEET_USER": "operator:eve"}
    )
    assert done.returncode != 0
    assert intent(site).exists()
    assert len(site.log().read_bytes().splitlines()) == 1
    return gone


@pytest.fixture
def pushed(site: PushlogSite) -> PushlogSite:
    """Push three changesets together; 1 and 2 are children of 0."""
    site.change()
    site.change("secret", "a password\n")
    site.at_work("update", "-q", "0", "--cwd", site.work)
    site.change("other", "two\n")
    site.push("--force")
    return site


def recovering(site: PushlogSite) -> None:
    """Have all processes of the host recover."""
    loaded = "".join(f"{name} = {HGEXT}/{name}.py\n" for name in ("replicated", "recovery"))
    site.hgrc.write_text(site.hgrc.read_text() + loaded)


@pytest.mark.parametrize("point", POINTS)
def test_the_next_session_completes_it_in_the_name_of_who_began_it(
    pushed: PushlogSite, point: str
) -> None:
    gone = killed(pushed, point)
    recovering(pushed)
    # A person who may not push opens the repository for a pull.
    reader = {"HGFLEET_USER": "carol", "HGFLEET_GROUPS": "readers"}
    reader["HGRCPATH"] = str(pushed.client_rc)
    url, ssh = pushed.url("server"), pushed.ssh()
    done = pushed.start("pull", "--repository", pushed.work, url, *ssh, **reader)
    assert done.returncode == 0, done.stderr
    assert "record" not in done.stdout + done.stderr
    assert not intent(pushed).exists()
    last = pushed.records()[-1]
    assert (last.kind, last.changesets, last.user) == ("strip", (gone,), "operator:eve")
    assert pushed.server("debugpushlog", "--verify") == ""
    assert pushed.server("log", "-T", "{desc},") == "change other,change file,"
    pushed.change("more")
    pushed.push("-r", ".")
    assert [record.kind for record in pushed.records()] == ["push", "strip", "push"]


def test_a_push_completes_it(pushed: PushlogSite) -> None:
    killed(pushed, "taken")
    # As where the extension is loaded before `pushlog`.
    pushed.hgrc.write_text(
        pushed.hgrc.read_text().replace(
            "[extensions]\n", f"[extensions]\nrecovery = {HGEXT}/recovery.py\n"
        )
    )
    pushed.change("more")
    # The client has seen the heads before: the changesets that came back are news to it.
    assert "remote repository changed while pushing" in pushed.push("-r", ".", code=255)
    assert [record.kind for record in pushed.records()] == ["push", "strip"]
    pushed.push("-r", ".")
    assert [record.kind for record in pushed.records()] == ["push", "strip", "push"]


def test_an_intent_whose_removal_was_taken_back_is_withdrawn(pushed: PushlogSite) -> None:
    killed(pushed, "unrecorded")
    pushed.at_work("bundle", "--all", pushed.root / "all.hg")
    pushed.server("unbundle", pushed.root / "all.hg", "--config", "hgfleet.pushlog=no")
    recovering(pushed)
    assert pushed.server("debugpushlog", "--verify") == ""
    assert not intent(pushed).exists()
    assert len(pushed.records()) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("repository", "5" * identity.LENGTH), ("last", 7), ("hash", "a" * 64)]
)
def test_an_intent_of_another_state_is_withdrawn_and_tells_nothing(
    pushed: PushlogSite, name: str, value: object
) -> None:
    # It came with a backup, or with a copy of another repository.
    killed(pushed, "unrecorded")
    data = json.loads(intent(pushed).read_bytes())
    intent(pushed).write_text(json.dumps(data | {name: value}))
    recovering(pushed)
    said = pushed.server("debugpushlog", "--verify", code=1)
    assert "missing in the repository" in said
    assert not intent(pushed).exists()
    # The store is explained by an operator, as any other change past the log.
    pushed.server("debugpushlog", "--accept")
    assert [record.kind for record in pushed.records()] == ["push", "strip"]


def test_an_intent_of_a_later_release_refuses_pushes_until_the_log_explains_the_store(
    pushed: PushlogSite,
) -> None:
    gone = killed(pushed, "unrecorded")
    data = json.loads(intent(pushed).read_bytes())
    intent(pushed).write_text(json.dumps(data | {"v": 2}))
    recovering(pushed)
    pushed.change("more")
    said = pushed.push("-r", ".", code=255)
    assert "a removal of changesets was interrupted" in said
    assert intent(pushed).exists()
    pushed.server("debugpushlog", "--accept")
    assert pushed.records()[-1].changesets == (gone,)
    pushed.push("-r", ".")
    assert not intent(pushed).exists()


def test_changesets_whose_bundle_is_missing_are_not_recorded_as_removed(
    pushed: PushlogSite,
) -> None:
    # A store from a backup has its intent, and not core's folder of bundles.
    killed(pushed, "taken")
    (kept,) = (pushed.path("server") / ".hg/strip-backup").iterdir()
    kept.unlink()
    recovering(pushed)
    said = pushed.server("debugpushlog", "--verify", code=1)
    assert "a removal of changesets was interrupted" in said
    assert len(pushed.log().read_bytes().splitlines()) == 1
    # Back from another host.
    pushed.at_work("bundle", "--all", pushed.root / "all.hg")
    pushed.server("unbundle", pushed.root / "all.hg", "--config", "hgfleet.pushlog=no")
    assert pushed.server("debugpushlog", "--verify") == ""
    assert not intent(pushed).exists()


def test_a_removal_completes_the_one_before_it(pushed: PushlogSite) -> None:
    gone = killed(pushed, "taken")
    later = pushed.at_work("log", "-r", "desc('change other')", "-T", "{node}")
    # A process without the extension `recovery` opens it: the changeset is back before it is named.
    pushed.server("debugpushlog", "--verify", code=1)
    pushed.server("debugstrip", "--no-backup", "0")
    first, second = pushed.records()[1:]
    assert (first.changesets, first.user) == ((gone,), "operator:eve")
    assert later in second.changesets
    assert second.user == "operator:root"


def test_a_removal_is_refused_after_one_that_cannot_be_completed(pushed: PushlogSite) -> None:
    killed(pushed, "taken")
    (kept,) = (pushed.path("server") / ".hg/strip-backup").iterdir()
    kept.write_bytes(kept.read_bytes()[:-30])
    recovering(pushed)
    before = intent(pushed).read_bytes()
    words = ("debugstrip", "--no-backup", "0")
    done = pushed.start("-R", pushed.path("server"), *words, **OPERATOR)
    assert done.returncode == 255
    assert intent(pushed).read_bytes() == before
    # Readers go on.
    assert pushed.client("id", "-r", "0", pushed.url("server"), *pushed.ssh())
    kept.unlink()
    done = pushed.start("-R", pushed.path("server"), *words, **OPERATOR)
    assert "an earlier removal was interrupted: .hg/strip-backup/" in done.stderr
    assert "runbook pushlog" in done.stderr
    assert intent(pushed).read_bytes() == before


@pytest.mark.parametrize("setting", ["replica-of=hg1", "pushlog=no", "path="])
def test_a_mirror_and_a_process_without_the_log_leave_it_alone(
    pushed: PushlogSite, setting: str
) -> None:
    killed(pushed, "unrecorded")
    recovering(pushed)
    before = pushed.log().read_bytes()
    pushed.server("debugpushlog", "--verify", "--config", f"hgfleet.{setting}", code=1)
    assert intent(pushed).exists()
    assert pushed.log().read_bytes() == before


def test_a_refused_removal_leaves_no_intent(pushed: PushlogSite) -> None:
    done = pushed.start(
        "-R",
        pushed.path("server"),
        "debugstrip",
        "1",
        "--config",
        "hgfleet.replica-of=hg1",
        **OPERATOR,
    )
    assert done.returncode == 255
    assert not intent(pushed).exists()
    assert len(pushed.records()) == 1


def test_a_removal_past_the_log_brings_back_what_stays(pushed: PushlogSite) -> None:
    pushed.server("bookmark", "-r", "1", "x", "--config", "hgfleet.pushlog=no")
    pushed.at_work("update", "-q", "0", "--cwd", pushed.work)
    pushed.change("foreign")
    pushed.at_work("bundle", "--all", pushed.root / "all.hg")
    pushed.server("unbundle", pushed.root / "all.hg", "--config", "hgfleet.pushlog=no")
    killed(pushed, "taken")
    recovering(pushed)
    said = pushed.server("debugpushlog", "--verify", code=1)
    assert "no record has" in said
    assert not intent(pushed).exists()
    assert pushed.server("log", "-T", "{desc},") == "change foreign,change other,change file,"
    assert len(pushed.log().read_bytes().splitlines()) == 1
