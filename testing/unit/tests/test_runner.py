"""The command line of ./run-tests, and the steps of its tiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.tests import cli, commands, hosts, linters, tiers


def test_all_tiers_in_their_order_unless_some_are_named() -> None:
    _, chosen = cli.parse([])
    gate = ["lint", "unit", "goldens", "integration", "roles", "e2e", "faults"]
    assert [tier for tier, _ in chosen] == gate
    assert cli.parse(["deploys"])[1] == [("deploys", "")]
    _, chosen = cli.parse(["--all"])
    assert sorted(tier for tier, _ in chosen) == sorted(
        [*gate, "mutants", "deploys", "alerts", "bench", "rolls"]
    )
    assert cli.parse(["--all", "rolls", "deploys"])[1] == [("deploys", ""), ("rolls", "")]
    _, chosen = cli.parse(["e2e", "unit:registry", "unit:keys", "lint"])
    assert chosen == [("lint", ""), ("unit", "registry"), ("unit", "keys"), ("e2e", "")]


def test_tests_on_the_cluster_run_beside_all_that_needs_none() -> None:
    of = tiers.lanes(cli.parse([])[1])
    alone = ("lint", "unit", "goldens", "integration", "roles")
    assert of == [[("e2e", ""), ("faults", "")], [(tier, "") for tier in alone]]
    assert tiers.lanes([("unit", ""), ("roles", "ssh")]) == [[("unit", ""), ("roles", "ssh")]]
    assert tiers.lanes([("e2e", "")]) == [[("e2e", "")]]
    several = cli.parse(["roles:web", "roles:ssh", "deploys", "faults:clock", "faults:logs"])[1]
    assert tiers.lanes(several) == [
        [("faults", "clock"), ("faults", "logs")],
        [("roles", "web"), ("roles", "ssh"), ("deploys", "")],
    ]


@pytest.mark.parametrize(
    ("tier", "asked", "jobs", "alone"),
    [
        ("roles", None, tiers.PROCESSORS, tiers.PROCESSORS + 1),
        ("roles", 9, 9, 9),
        ("e2e", None, tiers.PROCESSORS + 1, tiers.PROCESSORS + 1),
        ("faults", 9, 1, 1),
    ],
)
def test_beside_the_cluster_a_scenario_runs_for_each_processor(
    tier: str, asked: int | None, jobs: int, alone: int
) -> None:
    room = tiers.room(tier, asked)
    assert (room.jobs, room.most) == (jobs, alone)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["units"], ["--jobs", "0"], ["--nonsense"], ["--update"]),
        *(["unit", "goldens", "--update"], ["goldens", "--all", "--update"]),
        *(["--all", "--changed"], ["--all", "unit:keys"], ["--all", "site"]),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parse(arguments)
    assert caught.value.code == 2


def test_every_alert_is_provoked_by_a_tier_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "cluster_environment", dict)
    (faults,) = tiers.faults("")
    assert tiers.WITHOUT_ALERTS in faults.command
    (alerts,) = tiers.alerts("")
    assert tiers.ALERTS in alerts.command
    assert "testing/faults" not in alerts.command
    # Words choose among all tests, and so does a changed file.
    assert tiers.WITHOUT_ALERTS not in tiers.faults("alerts")[0].command
    assert tiers.WITHOUT_ALERTS not in tiers.faults("", [tiers.ALERTS])[0].command
    assert (Path(__file__).parents[3] / tiers.ALERTS).is_file()


def test_the_gate_leaves_out_marked_tests_and_those_of_roles_on_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = tiers.shared_cluster("e2e", "service", "testing/e2e", words="", env={})
    host = commands.pytest("e2e", f"{tiers.OF_HOST}hg1", "testing/roles/test_ssh.py", words="")
    ruff = linters.steps("")[0]
    narrowed = tiers.of_gate([host, service, ruff])
    assert [step.name for step in narrowed] == ["service", ruff.name]
    assert list(narrowed[0].command) == [*service.command, "--gate"]
    assert narrowed[0].narrowed
    assert narrowed[1] == ruff
    monkeypatch.setattr(tiers, "cluster_environment", dict)
    monkeypatch.setattr(tiers, "host_tests", lambda _env: [("hg1", "c-hg1", ["test_ssh.py"])])
    monkeypatch.setattr(tiers.site, "of_cluster", lambda _words: ruff)
    assert [step.name for step in tiers.e2e("")] == ["host-hg1", ruff.name, "service"]


def test_shell_scripts_are_found_by_name_or_first_line(tmp_path: Path) -> None:
    for name, text, expected in (
        ("a.sh", "", True),
        ("b", "#!/bin/sh\n", True),
        ("c", "#!/usr/bin/env bash\n", True),
        ("d", "#!/usr/bin/python3\n", False),
        ("e.sh.j2", "#!/bin/sh\n", False),
        ("f", "\x00\xff", False),
    ):
        (tmp_path / name).write_text(text)
        assert linters.is_shell(tmp_path / name) is expected, name
    assert not linters.is_shell(tmp_path / "missing")


def test_the_variables_of_the_cluster_are_read_as_a_shell_would() -> None:
    assert hosts.parse_exports("# x\nexport A=1\nexport B='two words'\necho no\n") == {
        "A": "1",
        "B": "two words",
    }


def test_each_host_is_checked_for_every_role_it_has() -> None:
    inventory: dict[str, dict[str, object]] = {
        "_meta": {"hostvars": {"hg1": {"ansible_host": "c-hg1"}, "ldap1": {}}},
        "all": {"children": ["mercurial", "directory"]},
        "mercurial": {"children": ["ssh", "web"]},
        "ssh": {"hosts": ["hg1"]},
        "web": {"hosts": ["hg1"]},
        "directory": {"hosts": ["ldap1"]},
    }
    assert hosts.tests_of_hosts(inventory, "c", lambda name: "web" not in name) == [
        (
            "hg1",
            "c-hg1",
            [
                f"testing/roles/test_{role}.py"
                for role in ("base", "mercurial", "ssh", "directory_replica")
            ],
        ),
        ("ldap1", "c-ldap1", [f"testing/roles/test_{role}.py" for role in ("base", "directory")]),
    ]


def test_every_step_has_a_log_of_its_own() -> None:
    steps = linters.steps("") + tiers.unit("") + tiers.integration("")
    assert len({step.log for step in steps}) == len(steps)
    assert all(" " not in step.log.name for step in steps)


BACKUP = ["restic", "rclone", "openssh-server", "curl"]


@pytest.mark.parametrize(
    ("tier", "only", "program", "installed"),
    [
        ("integration", None, None, ["nats-server", *BACKUP, "vagrant"]),
        ("integration", ["testing/integration/replication/test_x.py"], None, ["nats-server"]),
        ("integration", ["testing/integration/test_vagrantfile.py"], None, ["vagrant"]),
        ("integration", ["testing/integration/backup/test_ssh_store.py"], None, BACKUP),
        ("integration", ["testing/integration/test-access.t"], None, []),
        ("integration", None, "/usr/sbin/nats-server", []),
        ("bench", None, None, ["nats-server"]),
        ("unit", None, None, []),
    ],
)
def test_programs_are_installed_for_the_tests_that_start_them(
    monkeypatch: pytest.MonkeyPatch,
    tier: str,
    only: list[str] | None,
    program: str | None,
    installed: list[str],
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(tiers.shutil, "which", lambda _name, **_path: program)
    monkeypatch.setattr(
        tiers.bootstrap, "ensure_debian_packages", lambda names, _reason: asked.append(names)
    )
    tiers.set_up(tier, only)
    # A single call, because each call reads all lists of packages.
    assert asked == ([installed] if installed else [])
