"""./deploy: what it decides, what it says, and in which order it does things."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ansible"))

from deploy import cli, decide, run  # noqa: E402
from deploy.decide import DeployError, HostState, Result  # noqa: E402

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


def test_variables_of_one_run_reach_every_playbook() -> None:
    site = run.Site("x", Path("/inv/hosts.yml"), extra_vars=("ansible_port=22", '{"a": [1]}'))
    assert site.playbook(Path("/site.yml"), "--check") == [
        *("ansible-playbook", "-i", "/inv/hosts.yml", "/site.yml", "--check"),
        *("--extra-vars", "ansible_port=22", "--extra-vars", '{"a": [1]}'),
    ]


def test_an_inventory_is_a_file_a_folder_or_a_name(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("---\n")
    assert run.find_inventory(str(hosts)) == hosts
    assert run.find_inventory(str(tmp_path)) == hosts
    assert run.find_inventory("cluster") == ROOT / "ansible/inventories/cluster/hosts.yml"
    with pytest.raises(DeployError, match=r"no inventory nowhere.*\n.*cluster"):
        run.find_inventory("nowhere")


# --- what Ansible says ------------------------------------------------------------------------


def state_output(hosts: dict[str, dict[str, Any]], *, task: str = decide.STATE_TASK) -> str:
    document = {"plays": [{"tasks": [{"task": {"name": task}, "hosts": hosts}]}], "stats": {}}
    return f"some words of a callback before it\n{json.dumps(document)}\n"


def test_the_state_of_hosts_is_read() -> None:
    message = {
        "provisioned": True,
        "current": NEW,
        "releases": [NEW, OLD],
        "registry": "/r.yml",
        "extensions": [f"{NEW}/hgext/access.py"],
    }
    states = decide.states_of(
        state_output(
            {"hg1": {"msg": message}, "hg2": {"unreachable": True, "msg": "no route\n to host"}}
        )
    )
    extensions = frozenset({f"{NEW}/hgext/access.py"})
    assert states["hg1"] == HostState(True, NEW, (NEW, OLD), "/r.yml", extensions=extensions)
    assert states["hg2"].problem == "no route to host"


def test_a_failure_in_an_earlier_task_is_a_problem() -> None:
    states = decide.states_of(state_output({"hg1": {"failed": True, "msg": "x" * 999}}, task="any"))
    assert 0 < len(states["hg1"].problem) <= 300


def test_the_task_that_reports_the_state_is_in_the_playbook() -> None:
    assert f"name: {decide.STATE_TASK}\n" in (ROOT / "ansible/playbooks/state.yml").read_text()


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


def test_hosts_without_certificate_are_new() -> None:
    groups = {"hg1": ["release"], "hg3": ["proxy"]}
    assert decide.new_hosts(STATES, groups, groups) == ["hg3"]


def test_a_first_run_that_broke_off_before_the_release_leaves_a_new_host() -> None:
    states = {"hg1": HostState(provisioned=True), "proxy1": HostState(provisioned=True)}
    groups = {"hg1": ["release"], "proxy1": ["proxy"]}
    assert decide.new_hosts(states, groups, groups) == ["hg1"]


def test_a_rollback_needs_the_release_on_every_host() -> None:
    decide.require_present(OLD, STATES, ["hg1", "hg2"])
    with pytest.raises(DeployError, match=f"{NEW} is not on hg2 and hg3") as caught:
        decide.require_present(NEW, STATES, ["hg1", "hg2", "hg3"])
    assert f"hg2 has {OLD}" in str(caught.value)
    assert "hg3 has no release" in str(caught.value)


@pytest.mark.parametrize("version", ["", "..", "a/b", "-x", "a b", "x" * 65])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(DeployError, match="not the version"):
        decide.check_version(version)


def test_another_current_release_after_a_run_is_told() -> None:
    decide.require_current(NEW, STATES, ["hg1"])
    with pytest.raises(DeployError, match=f"hg2: {OLD}"):
        decide.require_current(NEW, STATES, ["hg1", "hg2"])


def test_the_way_back_names_the_release_of_before() -> None:
    assert decide.way_back("production", {}) == ""
    before = decide.previous(STATES, ["hg2", "hg3"], NEW)
    assert before == {OLD: ["hg2"]}
    assert decide.way_back("production", before).endswith(f"./deploy production --rollback {OLD}")


def test_the_way_back_from_a_mixed_fleet_has_a_line_for_each_release() -> None:
    before = decide.previous(STATES, ["hg1", "hg2"], "0.2.0-cccc")
    text = decide.way_back("production", before)
    assert f"--limit 'hg1' --rollback {NEW}" in text
    assert f"--limit 'hg2' --rollback {OLD}" in text


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


# --- releases ---------------------------------------------------------------------------------


def archive(path: Path, member: str) -> Path:
    with tarfile.open(path, "w:gz") as file:
        entry = tarfile.TarInfo(member)
        file.addfile(entry, io.BytesIO())
    return path


def test_the_version_is_in_the_archive_whatever_its_name(tmp_path: Path) -> None:
    found = run.take_archive(archive(tmp_path / "renamed.tar.gz", f"{NEW}/"))
    assert found.version == NEW
    assert found.variables()["HGFLEET_RELEASE_ARCHIVE"] == str(tmp_path / "renamed.tar.gz")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="No such file"):
        run.take_archive(tmp_path / "missing")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(DeployError, match="no tar file"):
        run.take_archive(tmp_path / "text")
    with pytest.raises(DeployError, match="not the version"):
        run.take_archive(archive(tmp_path / "odd.tar.gz", "../../etc"))


def test_a_release_without_archive_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path)
    monkeypatch.delenv("HGFLEET_VERSITYGW", raising=False)
    assert run.known_release(OLD).variables() == {
        "HGFLEET_RELEASE_VERSION": OLD,
        "HGFLEET_RELEASE_ARCHIVE": "",
        "HGFLEET_VERSITYGW": "",
    }


# --- the order of things ----------------------------------------------------------------------


class Stage:
    """Stands for Ansible: remembers what was run, and gives the answers that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.done: list[str] = []
        self.states = {"hg1": HostState(True, OLD, (OLD,)), "proxy1": HostState(True)}
        self.after: dict[str, HostState] | None = {
            "hg1": HostState(True, NEW, (NEW, OLD)),
            "proxy1": HostState(True),
        }
        self.plan = {"hg1": Result(2, False), "proxy1": Result(0, False)}
        self.codes = {"plan": 0, "apply": 0}
        self.versions: list[str] = []
        hosts = {"hg1": ["release"], "proxy1": ["proxy"]}
        site = run.Site("production", tmp_path / "production/hosts.yml", hosts)
        monkeypatch.setattr(cli, "CACHE", tmp_path)
        monkeypatch.setattr(cli.bootstrap, "ensure_controller", lambda: None)
        monkeypatch.setattr(run, "read_site", lambda *_args, **_kwargs: site)
        monkeypatch.setattr(run, "read_states", self.read_states)
        monkeypatch.setattr(run, "check_registries", lambda _states: self.done.append("registry"))
        monkeypatch.setattr(run, "check_variables", lambda *_: self.done.append("variables"))
        monkeypatch.setattr(run, "build", self.build)
        monkeypatch.setattr(run, "site_playbook", self.site_playbook)

    def read_states(self, _site: run.Site) -> dict[str, HostState]:
        applied = any(word.startswith("apply") for word in self.done)
        return self.after if applied and self.after is not None else self.states

    def build(self) -> run.Built:
        self.done.append("build")
        return run.Built(NEW, Path("archive"), None)

    def site_playbook(
        self, _site: run.Site, built: run.Built, hosts: list[str], *, check: bool
    ) -> tuple[dict[str, Result], int, Path]:
        name = "plan" if check else "apply"
        self.done.append(f"{name} {' '.join(hosts)}")
        self.versions.append(built.version)
        return self.plan, self.codes[name], ROOT / "log"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path)


def test_a_deploy_checks_builds_plans_applies_and_says_how_to_go_back(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--yes"]) == 0
    assert stage.done == ["registry", "build", "plan hg1 proxy1", "apply hg1 proxy1"]
    assert f"./deploy production --rollback {OLD}" in capsys.readouterr().out


def test_status_says_what_there_is_and_whether_all_answered(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--status"]) == 0
    assert OLD in capsys.readouterr().out
    stage.states["proxy1"] = HostState(problem="no route to host")
    assert cli.main(["production", "--status"]) == 1
    assert stage.done == []


def test_check_ends_after_the_plan(stage: Stage) -> None:
    assert cli.main(["production", "--check"]) == 0
    assert stage.done[-1] == "plan hg1 proxy1"


def test_nothing_is_applied_when_nothing_would_change(stage: Stage) -> None:
    stage.plan = {"hg1": Result(0, False), "proxy1": Result(0, False)}
    assert cli.main(["production", "--yes"]) == 0
    assert stage.done[-1] == "plan hg1 proxy1"


def test_a_new_host_is_left_out_of_the_plan_and_applied(stage: Stage) -> None:
    stage.states["proxy1"] = HostState()
    stage.plan = {}
    assert cli.main(["production", "--yes"]) == 0
    assert stage.done == ["registry", "build", "variables", "plan hg1", "apply hg1 proxy1"]


def test_without_a_plan_the_variables_are_still_checked(stage: Stage) -> None:
    assert cli.main(["production", "--yes", "--no-plan"]) == 0
    assert stage.done == ["registry", "build", "variables", "apply hg1 proxy1"]


def test_nothing_begins_when_nobody_can_be_asked(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert cli.main(["production"]) == 1
    assert stage.done == []
    assert "--yes" in capsys.readouterr().err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "applied"), [("yes\n", True), ("y\n", False), ("", False)])
def test_only_yes_applies(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, answer: str, applied: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    assert (cli.main(["production"]) == 0) is applied
    assert stage.done[-1].startswith("apply") is applied


def test_an_unreachable_host_stops_before_anything_is_built(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.states["proxy1"] = HostState(problem="no route to host")
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done == []
    assert "proxy1: no route to host" in capsys.readouterr().err


def test_a_failed_plan_applies_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.codes["plan"] = 2
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done[-1] == "plan hg1 proxy1"
    assert "Nothing was changed" in capsys.readouterr().err


def test_a_host_that_vanishes_during_the_plan_is_no_reason_to_leave_the_plan_out(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.codes["plan"] = run.UNREACHABLE
    assert cli.main(["production", "--yes"]) == 1
    told = capsys.readouterr().err
    assert "stopped answering" in told
    assert "--no-plan" not in told


def test_a_failed_run_says_how_to_go_on_and_how_to_go_back(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.codes["apply"] = 2
    assert cli.main(["production", "--yes"]) == 1
    told = capsys.readouterr().err
    assert "same command again" in told
    assert f"--rollback {OLD}" in told


def test_a_release_that_did_not_become_current_is_a_failure(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.after = None
    assert cli.main(["production", "--yes"]) == 1
    assert "release_version" in capsys.readouterr().err


def test_a_rollback_builds_nothing_and_touches_only_hosts_with_releases(stage: Stage) -> None:
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    stage.states["hg1"] = HostState(True, NEW, (NEW, OLD), extensions=extensions)
    stage.after = {"hg1": HostState(True, OLD, (NEW, OLD)), "proxy1": HostState(True)}
    assert cli.main(["production", "--yes", "--rollback", OLD]) == 0
    assert stage.done == ["plan hg1", "apply hg1"]
    assert stage.versions == [OLD, OLD]


def test_a_rollback_to_what_is_gone_touches_nothing(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--yes", "--rollback", "0.0.9-gone"]) == 1
    assert stage.done == []
    assert f"hg1 has {OLD}" in capsys.readouterr().err


def test_a_rollback_to_a_release_without_an_extension_of_the_hgrc_touches_nothing(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    stage.states["hg1"] = HostState(
        True, NEW, (NEW, OLD), extensions=extensions - {f"{OLD}/hgext/hardening.py"}
    )
    assert cli.main(["production", "--yes", "--rollback", OLD]) == 1
    assert stage.done == []
    assert f"{OLD} has no hardening.py" in capsys.readouterr().err


def test_two_deploys_do_not_meet(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = run.Site("production", tmp_path / "production/hosts.yml")
    with cli._alone(site):
        assert cli.main(["production", "--yes"]) == 1
    assert stage.done == []
    assert "Another ./deploy" in capsys.readouterr().err


def test_ctrl_c_is_answered_with_the_way_to_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> run.Built:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "build", interrupted)
    assert cli.main(["production", "--yes"]) == 130
    assert "same command" in capsys.readouterr().err
    assert stage.done == ["registry"]
