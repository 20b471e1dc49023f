"""The running cluster, its people, and the journals of a failure.

    ./run-tests e2e                                          brings the cluster up to date first
    .venv/bin/python -m pytest testing/e2e                   on the cluster as it runs
    .venv/bin/python -m pytest testing/e2e -n 2 --no-loadscope-reorder    with two workers

Tests share the cluster, so each keeps to a repository of its own below `e2e/` (in the cluster's
registry) and leaves people, keys and services as they were. The content of repositories stays: a
test finds the changesets of an earlier run, and adds to them. `turns.py` has the rules for several
workers.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import yaml

from controller.bootstrap import ROOT, VENV, SetupError
from controller.cluster import images, release
from controller.cluster.cluster import INVENTORY
from controller.cluster.lock import undisturbed
from testing.e2e.cluster import Cluster
from testing.e2e.command import run, wait_until
from testing.e2e.host import Host
from testing.e2e.lane import (  # noqa: F401  hooks of pytest
    MARK,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_runtest_protocol,
    pytest_runtest_teardown,
    pytest_sessionfinish,
    pytest_xdist_make_scheduler,
)
from testing.e2e.people import Client, Directory, Person
from testing.e2e.prometheus import Prometheus
from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from controller.cluster.marks import Mark

BEGUN = pytest.StashKey[str]()
NETWORK = tuple(
    f"mercurial.{name}" for name in ("bundlecaches", "httppeer", "sslutil", "streamclone")
)
"""Modules that a client of the service uses in addition to those of a local command."""
NEEDED = ("HGFLEET_HTTP_URL", "HGFLEET_SSH_PORT", "HGFLEET_CLUSTER_NAME", "HGFLEET_HGRC")


def environment() -> dict[str, str]:
    """Return the variables of `./cluster env`, from this process if all are set."""
    if all(name in os.environ for name in NEEDED):
        return {name: value for name, value in os.environ.items() if name.startswith("HGFLEET_")}
    asked = subprocess.run(
        [str(ROOT / "cluster"), "env"], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        pytest.exit(
            "These tests need the local cluster, and none runs: ./cluster up brings it up.\n"
            f"./cluster env said: {asked.stderr.strip()}",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )
    words = [shlex.split(line) for line in asked.stdout.splitlines()]
    pairs = [word.partition("=") for _, word in words]
    return {name: value for name, _, value in pairs}


@pytest.fixture(scope="session")
def _cluster_stays(request: pytest.FixtureRequest, worker_id: str) -> Iterator[Mark]:
    """Share the lock of ./cluster, so that nothing changes the cluster while it is tested.

    Killed tests leave the mark, and the next `./cluster up` repairs the hosts.
    """
    try:
        with undisturbed(f"tests ({worker_id})") as mark:
            request.config.stash[MARK] = mark
            yield mark
    except SetupError as problem:
        pytest.exit(str(problem), pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def cluster(_cluster_stays: Mark) -> Cluster:
    """Return the running cluster."""
    for file in (VENV / "bin/hg", INVENTORY):
        if not file.exists():
            pytest.exit(f"{file} is missing: ./cluster up makes it", pytest.ExitCode.USAGE_ERROR)
    running = Cluster(environment())
    # Imports take nine tenths of the processor time of a short command, and forks share them.
    forks = prefork.shared(running.person("alice").environment, NETWORK)
    running = replace(running, hg=forks.program)
    try:
        wait_until("the web part answers", lambda: running.get("").status == 200)
        wait_until("SSH lets alice in", lambda: running.person("alice").ssh("whoami").ok())
    except AssertionError as problem:
        pytest.exit(f"The cluster runs but does not serve: {problem}\nSee ./cluster status.", 1)
    return running


@pytest.fixture
def prometheus(cluster: Cluster) -> Prometheus:
    """Return the Prometheus that watches the cluster."""
    return Prometheus(cluster)


@pytest.fixture
def alice(cluster: Cluster) -> Person:
    """Alice, who may push to everything."""
    return cluster.person("alice")


@pytest.fixture
def bob(cluster: Cluster) -> Person:
    """Bob, who may push where the group sandbox may push."""
    return cluster.person("bob")


@pytest.fixture
def carol(cluster: Cluster) -> Person:
    """Carol, who has two keys, with the first of them."""
    return cluster.person("carol")


@pytest.fixture
def carols_entry(cluster: Cluster) -> Iterator[Directory]:
    """Carol's entry; its keys are restored afterwards."""
    directory = cluster.directory("carol")
    before = directory.keys()
    assert len(before) == 2, f"expected two keys of carol: {before}"
    yield directory
    after = directory.keys()
    for identity, key in before.items():
        if identity not in after:
            directory.change("add", identity, key)


def client_volumes(cluster: Cluster) -> list[str]:
    """Return docker's options that mount a client's keys and certificates."""
    names = ("HGFLEET_CA_CERT", "HGFLEET_KEYS", "HGFLEET_KNOWN_HOSTS")
    return [f"--volume={cluster.env[name]}:/client/{name}:ro" for name in names]


@pytest.fixture(scope="session")
def client_host(cluster: Cluster, worker_id: str) -> Iterator[Host]:
    """A temporary host in the cluster's network, with other clients than this machine has."""
    container = f"{cluster.env['HGFLEET_CLUSTER_NAME']}-client-{worker_id}"
    run(["docker", "rm", "--force", container])
    words = ["docker", "run", "--detach", "--rm", "--init", "--hostname=client"]
    words += ["--tmpfs=/tmp:exec"]  # clones have thousands of files
    words += [f"--name={container}", f"--network={cluster.env['HGFLEET_CLUSTER_NAME']}"]
    words += [f"--volume={release.older_clients()}:/opt/hg:ro", *client_volumes(cluster)]
    run([*words, images.ensure_client(), "sleep", "infinity"]).ok()
    yield Host("client", container)
    run(["docker", "rm", "--force", container]).ok()


@pytest.fixture(scope="session")
def clients(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Mapping[str, Client]]:
    """A client in the network of each region of the inventory, and another in an unknown network.

    Each worker of pytest-xdist ("gw0", "gw1"; "master" without workers) has clients of its own.
    """
    worker = int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 0
    env = cluster.env
    # The hosts' hg, since Debian's in the image is older.
    releases = tmp_path_factory.mktemp("releases")
    run(["tar", "-xzf", env["HGFLEET_RELEASE_ARCHIVE"], "-C", str(releases)]).ok()
    mounts = [f"--volume={releases}:/opt/hgfleet/releases:ro"]
    mounts += client_volumes(cluster)
    hg = f"/opt/hgfleet/releases/{env['HGFLEET_RELEASE_VERSION']}/bin/hg"
    image, network = images.ensure_client(), env["HGFLEET_CLUSTER_NAME"]
    made = {}
    for place, number in (("east", 130), ("west", 194), ("elsewhere", 66)):
        container = f"{network}-client-{place}-{worker}"
        address = f"{env['HGFLEET_CLUSTER_NETWORK']}.{number + worker}"
        run(["docker", "rm", "--force", container])
        words = ["docker", "run", "--detach", "--rm", "--init", f"--hostname=client-{place}"]
        words += [f"--name={container}", f"--network={network}", f"--ip={address}", *mounts]
        run([*words, image, "sleep", "infinity"]).ok()
        made[place] = Client(Host(f"client-{place}", container), address, [hg])
    yield made
    run(["docker", "rm", "--force", *(client.host.container for client in made.values())]).ok()


@pytest.fixture
def stopped(cluster: Cluster) -> Iterator[Callable[[str, str], None]]:
    """Give a function that stops a unit on all hosts of a group, until the test ends."""
    units: list[tuple[Host, str]] = []

    def stop(group: str, unit: str) -> None:
        for host in cluster.all(group):
            units.append((host, unit))
            host.systemctl("stop", unit).ok()

    yield stop
    for host, unit in units:
        host.systemctl("start", unit).ok()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with an argument `each_host` once for every host of the inventory."""
    if "each_host" in metafunc.fixturenames:
        names: dict[str, None] = {}

        def collect(group: object) -> None:
            content = group if isinstance(group, dict) else {}
            names.update(dict.fromkeys(content.get("hosts") or {}))
            for child in (content.get("children") or {}).values():
                collect(child)

        collect(yaml.safe_load(INVENTORY.read_text())["all"])
        metafunc.parametrize("each_host", list(names))


# --- failures ---------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record when a test began, for the journal of a failure."""
    item.stash[BEGUN] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journals of the service's units to the report of a failed test."""
    report = yield
    funcargs = getattr(item, "funcargs", {})
    cluster = funcargs.get("cluster")
    if report.failed and call.when in ("setup", "call") and isinstance(cluster, Cluster):
        for name, text in journals(cluster, item.stash[BEGUN]):
            title = f"journal of {name} during this test"
            add = getattr(report.longrepr, "addsection", None)
            if add is not None:
                add(title, text)
            else:
                report.sections.append((title, text))
    return report


def journals(cluster: Cluster, since: str) -> Iterator[tuple[str, str]]:
    """Yield each host's name and the journal of its units of the service."""
    listed = subprocess.run(
        [
            *("docker", "ps", "--format", '{{.Label "hgfleet.host"}}'),
            *("--filter", f"label=hgfleet.cluster={cluster.env['HGFLEET_CLUSTER_NAME']}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    for name in sorted(listed.stdout.split()):
        text = cluster.host(name).journal_of_service(since)
        if text and "-- No entries --" not in text:
            yield name, text


@pytest.fixture(autouse=True)
def _cluster_is_known(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    """Give every test the cluster, for the report of a failure, and name the test in the mark."""
    assert cluster.env
    request.config.stash[MARK].at(request.node.name)
