"""The play describes the hosts as they are: running it again finds nothing to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import ROOT

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result

SITE = str(ROOT / "ansible/site.yml")
RECAP = re.compile(r"^(?P<host>\S+)\s+: ok=(?P<ok>\d+)\s+changed=(?P<changed>\d+)\s", re.MULTILINE)


def assert_nothing_changed(cluster: Cluster, done: Result) -> None:
    """Check the recap of every host; show the tasks that changed something."""
    task, guilty = "", []
    for line in done.stdout.splitlines():
        if line.startswith(("TASK [", "RUNNING HANDLER [")):
            task = line.rstrip("* ")
        elif line.startswith("changed: ["):
            guilty.append(f"{task}: {line}")
    recap = {match["host"]: match for match in RECAP.finditer(done.stdout)}
    expected = {host.name for host in cluster.hosts}
    assert expected <= set(recap), f"no recap of {expected - set(recap)}:\n{done}"
    changed = {host: int(match["changed"]) for host, match in recap.items()}
    assert not any(changed.values()), "\n".join([f"changed: {changed}", *guilty])
    roles = {path.name for path in (ROOT / "ansible/roles").iterdir()}
    missing = {role for role in roles if f"TASK [{role} : " not in done.stdout}
    assert not missing, f"no task of {missing} ran: no host of the cluster carries them"
    assert all(int(match["ok"]) > 5 for host, match in recap.items() if host in expected)


@pytest.mark.slow
def test_a_second_run_changes_nothing(cluster: Cluster) -> None:
    assert_nothing_changed(cluster, cluster.ansible("ansible-playbook", SITE).ok())


@pytest.mark.whole
@pytest.mark.slow
def test_a_dry_run_has_no_diff(cluster: Cluster) -> None:
    done = cluster.ansible("ansible-playbook", SITE, "--check", "--diff").ok()

    assert_nothing_changed(cluster, done)
    differences = [line for line in done.stdout.splitlines() if re.match(r"(---|\+\+\+|@@) ", line)]
    assert not differences, str(done)


@pytest.mark.whole
def test_wrong_variables_are_refused_together_before_a_host_is_touched(cluster: Cluster) -> None:
    wrong = ("-e", "web_send_timeout=5", "-e", "web_tilte=x")
    done = cluster.ansible("ansible-playbook", SITE, "--check", *wrong)
    assert done.code != 0
    assert "web_send_timeout is now web_send_timeout_seconds." in done.output
    assert "No role knows web_tilte; web_title is one." in done.output
    assert "Every host has packages" not in done.output
