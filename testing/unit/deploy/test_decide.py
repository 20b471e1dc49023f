"""Decisions and texts of ./deploy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.deploy import decide, run
from controller.deploy.decide import DeployError, HostState, Result
from controller.deploy.fitness import Machine

ROOT = Path(__file__).resolve().parents[3]

FIT = Machine("debian 13", 0.2, {"/": 5 << 30}, [])

OLD, NEW = "0.1.0-aaaaaaaaaaaa", "0.1.0-bbbbbbbbbbbb"

RECAP = (
    "hg1  : ok=54   changed=3    unreachable=0    failed=0    skipped=13   rescued=0   ignored=0"
)


# --- the inventory ----------------------------------------------------------------------------


def test_a_host_is_in_the_parents_of_its_groups() -> None:
    listing = {
        "_meta": {"hostvars": {"hg1": {}, "proxy1": {}, "alone": {}}},
        "all": {"children": ["ungrouped", "release", "proxy"]},
        "release": {"children": ["ssh", "web"]},
        "ssh": {"hosts": ["hg1"]},
        "web": {"hosts": ["hg1"]},
        "proxy": {"hosts": ["proxy1"]},
    }
    hosts = decide.hosts_of(json.dumps(listing))
    assert hosts == {
        "alone": [],
        "hg1": ["all", "release", "ssh", "web"],
        "proxy1": ["all", "proxy"],
    }
    site = run.Site("x", Path("x"), hosts)
    assert site.in_group("release") == ["hg1"]


def test_the_limit_never_leaves_out_the_play_that_checks_the_registry() -> None:
    assert decide.limit_to(["hg1", "hg2"]) == "hg1,hg2,localhost"


# --- output of Ansible -----------------------------------------------------------------------


def state_output(hosts: dict[str, dict[str, Any]], *, task: str = decide.STATE_TASK) -> str:
    document = {"plays": [{"tasks": [{"task": {"name": task}, "hosts": hosts}]}], "stats": {}}
    return f"some words of a callback before it\n{json.dumps(document)}\n"


def test_the_state_of_hosts_is_read() -> None:
    host = {
        "provisioned": True,
        "groups": ["web", "eu"],
        "current": NEW,
        "releases": [NEW, OLD],
        "extensions": [f"{NEW}/hgext/access.py"],
        "record": {"begun": True},
        "unfinished": True,
        "drained": True,
        "trust": "a certificate",
        "formats": {},
    }
    message = {
        "host": host,
        "machine": FIT._asdict(),
        "sudo": "",
        "registry": "/r.yml",
        "ca_folder": "/ca",
        "primary": "hg1",
        "arrival": {"connection": "192.0.2.9 50000 192.0.2.1 22", "moves_to": "2222"},
    }
    states = decide.states_of(
        state_output(
            {"hg1": {"msg": message}, "hg2": {"unreachable": True, "msg": "no route\n to host"}}
        )
    )
    extensions = frozenset({f"{NEW}/hgext/access.py"})
    assert states["hg1"] == HostState(
        True,
        NEW,
        (NEW, OLD),
        "/r.yml",
        extensions=extensions,
        groups=frozenset({"web", "eu"}),
        record={"begun": True},
        is_unfinished=True,
        is_drained=True,
        primary="hg1",
        arrival={"connection": "192.0.2.9 50000 192.0.2.1 22", "moves_to": "2222"},
        trust="a certificate",
        ca_folder="/ca",
    )
    assert states["hg2"].problem == "no route to host"


@pytest.mark.parametrize(
    "before",
    [
        'Data could not be sent to remote host "h". Make sure this host can be reached over ssh: ',
        "Task failed: Failed to connect to the host via ssh: ",
        "Failed to connect to the host via ssh: ",
        "Task failed: EOF on stream; last 100 lines received: ",
        "Task failed: ",
    ],
)
def test_a_host_that_does_not_answer_is_told_in_the_words_of_ssh(before: str) -> None:
    said = "ssh: connect to host 192.0.2.7 port 22: Connection refused"
    output = state_output({"hg1": {"unreachable": True, "msg": f"{before}{said}\r\n"}})
    assert decide.states_of(output)["hg1"].problem == said


def test_a_failure_in_an_earlier_task_is_a_problem() -> None:
    states = decide.states_of(state_output({"hg1": {"failed": True, "msg": "x" * 999}}, task="any"))
    assert 0 < len(states["hg1"].problem) <= 300


def test_the_task_that_reports_the_state_is_in_the_playbook() -> None:
    assert (
        f"name: {decide.STATE_TASK}\n"
        in (ROOT / "ansible/playbooks/internal/state.yml").read_text()
    )


@pytest.mark.parametrize("colour", ["", "\x1b[0;33m"])
def test_the_recap_is_read(colour: str) -> None:
    assert decide.recap_of(colour + RECAP) == ("hg1", Result(3, failed=False))
    gone = RECAP.replace("unreachable=0", "unreachable=1")
    assert decide.recap_of(colour + gone) == ("hg1", Result(3, failed=True))
    assert decide.recap_of("TASK [base : TLS] ****") is None


def test_tasks_that_only_include_others_are_not_shown() -> None:
    lines = [
        "PLAY [Every host] **\n",
        "\n",
        "TASK [base : TLS] **\n",
        "included: tls.yml for hg1\n",
        "included: tls.yml for hg2\n",
        "\n",
        "TASK [base : Host has a key] **\n",
        "changed: [hg1]\n",
        "\n",
    ]
    shown = [lines[0], *lines[5:]]
    assert list(decide.without_includes(lines)) == shown


def test_plays_are_recognised() -> None:
    assert decide.play_of("PLAY [Every host] *****") == "Every host"
    assert decide.play_of("PLAY RECAP *****") is None


# --- decisions --------------------------------------------------------------------------------

STATES = {
    "hg1": HostState(True, NEW, (NEW, OLD)),
    "hg2": HostState(True, OLD, (OLD,)),
    "hg3": HostState(),
    "dead": HostState(problem="no route to host"),
}


def test_a_host_that_does_not_answer_stops_everything() -> None:
    decide.require_reached(STATES, ["hg1", "hg3"])
    with pytest.raises(DeployError) as caught:
        decide.require_reached(STATES, ["hg1", "dead", "forgotten"])
    text = str(caught.value)
    assert "dead: no route to host" in text
    assert "forgotten: it gave no answer" in text
    assert "hg1" not in text


PARTS = {"release", "web", "ssh", "proxy", "metrics"}


def test_hosts_that_a_run_would_leave_half_way_are_refused_with_every_reason() -> None:
    decide.require_fit(STATES, ["hg1", "hg2"])
    unfit = HostState(True, NEW, unfit=("its disk is full", "its clock is wrong"))
    with pytest.raises(DeployError) as caught:
        decide.require_fit({**STATES, "web1": unfit}, ["hg1", "web1"])
    text = str(caught.value)
    assert "web1: its disk is full" in text
    assert "web1: its clock is wrong" in text
    assert "hg1" not in text


def test_a_host_without_the_end_of_a_run_is_new() -> None:
    states = {"hg1": HostState(current=NEW), "proxy1": provisioned("proxy", "eu")}
    groups = {"hg1": ["release"], "proxy1": ["proxy"]}
    assert decide.new_hosts(states, groups, groups, PARTS) == ["hg1"]


@pytest.mark.parametrize(
    ("added", "is_new"),
    [("web", True), ("eu", False), ("ssh", False), ("release", True), ("metrics", False)],
)
def test_a_host_with_a_new_part_is_new(added: str, is_new: bool) -> None:
    states = {"hg1": provisioned("ssh")}
    groups = {"hg1": ["all", "ssh", added]}
    assert decide.new_hosts(states, groups, groups, PARTS) == (["hg1"] if is_new else [])


def test_a_host_that_lost_its_release_is_new() -> None:
    states = {"hg1": provisioned("release")}
    groups = {"hg1": ["release"]}
    assert decide.new_hosts(states, groups, groups, PARTS) == ["hg1"]


def provisioned(*groups: str) -> HostState:
    return HostState(provisioned=True, groups=frozenset(groups))


def test_a_rollback_needs_the_release_on_every_host() -> None:
    decide.require_present(OLD, STATES, ["hg1", "hg2"])
    with pytest.raises(DeployError, match=f"{NEW} is not on hg2 and hg3") as caught:
        decide.require_present(NEW, STATES, ["hg1", "hg2", "hg3"])
    assert f"hg2 has {OLD}" in str(caught.value)
    assert "hg3 has no release" in str(caught.value)


@pytest.mark.parametrize("version", ["", "..", "a/b", "-x", "a b", "x" * 65])
def test_a_wrong_version_is_refused(version: str) -> None:
    with pytest.raises(DeployError, match="not the version"):
        decide.check_version(version)


def test_another_current_release_after_a_run_is_told() -> None:
    decide.require_current(NEW, STATES, ["hg1"])
    with pytest.raises(DeployError, match=f"hg2: {OLD}"):
        decide.require_current(NEW, STATES, ["hg1", "hg2"])


def test_the_plan_is_summed_up() -> None:
    results = {"hg1": Result(2, False), "hg2": Result(0, False), "proxy1": Result(1, False)}
    assert decide.plan_summary(results, []) == "Plan: 3 changes (hg1 2, proxy1 1)."
    assert decide.plan_summary({}, []) == "Plan: nothing to change."
    assert "everything on hg3" in decide.plan_summary(results, ["hg3"])


def test_the_table_of_releases_says_where_nothing_is_known() -> None:
    groups = {"hg1": ["release"], "hg3": ["release"], "dead": ["web"], "lost": ["web"]}
    rows = decide.status_table(STATES, groups).splitlines()
    assert rows[1].split() == ["hg1", NEW, OLD]
    assert "not provisioned yet" in rows[2]
    assert "no route to host" in rows[3]
    assert "it gave no answer" in rows[4]
