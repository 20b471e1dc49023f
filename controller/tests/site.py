"""The tier `site`: a deployed site is what its inventory says. No host is changed.

The words of the tier name an inventory, as for ./deploy. Each host is checked with the tests of its
roles, then clients without an account use the service. A test that changes a host or needs the key
of a person is left out and listed among the skipped tests (testing/site/plugin.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Final

from controller import bootstrap
from controller.bootstrap import CACHE, ROOT
from controller.deploy import run, validate
from controller.deploy.decide import DeployError
from controller.tests import hosts
from controller.tests.commands import pytest
from controller.tests.execution import Step
from testing.site import machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testing.site.machine import Machine

PLUGIN: Final = ("-p", "testing.site.plugin")
CLIENTS: Final = ("testing/site/test_https.py", "testing/site/test_repositories.py")
"""Tests of the service as clients without an account have it."""

OF_HOST: Final = {"": "testing/site/test_ports.py", "ssh": "testing/site/test_host_keys.py"}
"""Tests of a host from the outside, by the group that has them; "" for every host."""

WITHOUT_BROKER: Final = {"testing/roles/test_replication.py": "testing/site/test_no_broker.py"}
"""Tests of a role that does nothing on a site without a broker, and the tests that prove it."""

LEFT_OUT: Final = {
    "e2e": "they push, or sign in: ./run-tests e2e, on a cluster",
    "faults": "they break hosts: ./run-tests faults, on a cluster",
}


def steps(words: str, only: Sequence[str] | None = None) -> list[Step]:
    """Return a step per host, most tests first, a step for the clients, and the left-out steps."""
    if only is not None or not words:
        bootstrap.fail(
            "The tier site needs an inventory.",
            "Name it as for ./deploy: ./run-tests site:INVENTORY, for instance site:cluster.",
        )
    machines, record = read(words), record_of(words)
    machine.save(machines, record)
    of_hosts = sorted(
        (of_host(each, record) for each in machines), key=lambda step: -len(step.command)
    )
    return [*of_hosts, clients("site", record), *map(left_out, LEFT_OUT)]


def of_cluster(words: str) -> Step:
    """Return the step of the tier e2e that uses the cluster as clients of a site do."""
    record = record_of("cluster")
    machine.save(read("cluster"), record)
    return clients("e2e", record, words)


def record_of(said: str) -> Path:
    """Return the file for the hosts of an inventory."""
    return CACHE / f"site/{re.sub(r'[^A-Za-z0-9.-]+', '-', said).strip('-')}.json"


def read(said: str) -> list[Machine]:
    """Return the hosts of an inventory; SetupError if there is none, or it is wrong."""
    before = dict(os.environ)
    try:
        return _read(said)
    finally:
        # Steps inherit the environment of this process, also steps of other tiers.
        os.environ.clear()
        os.environ.update(before)


def _read(said: str) -> list[Machine]:
    try:
        path = run.find_inventory(said)
        if path.parent == run.INVENTORIES / "cluster":
            os.environ.update(hosts.cluster_environment())
        run.require_no_dangling_link(path.parent)
        site = run.read_site(said, None)
    except DeployError as error:
        raise bootstrap.SetupError(str(error)) from error
    if problems := validate.inventory_problems(site.everything, site.variables, run.parts()):
        bootstrap.fail(f"The inventory {said} is wrong. {' '.join(problems)}", "Correct it first.")
    command = site.playbook(ROOT / "testing/site/addresses.yml")
    env = {
        **run.environment(),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_FORKS": str(min(len(site.everything), run.MOST_FORKS)),
    }
    asked = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    try:
        machines = machine.read(asked.stdout)
    except ValueError:
        machines = []
    missing = [name for name in site.everything if name not in {host.name for host in machines}]
    if missing:
        said_last = (asked.stderr + asked.stdout).strip().splitlines()[-1:]
        bootstrap.fail(
            f"The variables of {', '.join(missing)} in {said} have no values: {said_last}.",
            run.way_out(str(said_last)),
        )
    return machines


def of_host(host: Machine, record: Path) -> Step:
    """Return the step that checks a host."""
    options = machine.connection(host)
    if not options:
        why = f"the tests connect by SSH or in a container, not by {host.connection}"
        return Step("site", f"host-{host.name}", (), skip=why)
    tests = tests_of(host)
    env = {"HGFLEET_SITE": str(record), "HGFLEET_SITE_HOST": host.name}
    return pytest("site", f"host-{host.name}", *PLUGIN, *options, *tests, words="", env=env)


def tests_of(host: Machine) -> list[str]:
    """Return the files of tests for a host: of its roles, and from the outside."""
    tests = hosts.role_tests(host.groups, lambda name: (ROOT / name).exists())
    if not host.brokers:
        tests = [WITHOUT_BROKER.get(name, name) for name in tests]
    return tests + [name for group, name in OF_HOST.items() if not group or group in host.groups]


def clients(tier: str, record: Path, words: str = "") -> Step:
    """Return the step that uses the service as clients without an account do."""
    env = {"HGFLEET_SITE": str(record)}
    return pytest(tier, "clients", *PLUGIN, *CLIENTS, words=words, env=env, alone=True)


def left_out(folder: str) -> Step:
    """Return a step that is not run, and says how many tests of a folder are not for a site."""
    files = sorted((ROOT / "testing" / folder).rglob("test_*.py"))
    text = "\n".join(file.read_text("utf-8") for file in files)
    count = len(re.findall(r"^def test_", text, re.MULTILINE))
    name = f"testing/{folder}, {count} tests in {len(files)} files"
    return Step("site", name, (), skip=LEFT_OUT[folder])
