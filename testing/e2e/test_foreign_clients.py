"""Programs other than today's hg read a repository whose pulls come from pull bundles.

A client that opens an answer as a bundle repository (`hg incoming`, desktop programs, the polling
of build servers) accepts only one changegroup. So each program makes every kind of request here:
for everything, from half-way, and for the changesets that it does not have yet.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.e2e.people import Client
from testing.e2e.test_old_clients import PROGRAMS as OLD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

REPOSITORY: Final = "hgfleet"

_EVOLVE: Final = "/opt/hg/evolve/hgext3rd"
PROGRAMS: Final = {
    "Debian's": ("hg",),
    **OLD,
    "evolve": (
        *("env", "PYTHONPATH=/opt/hg/evolve", "hg"),
        *("--config", f"extensions.evolve={_EVOLVE}/evolve"),
        *("--config", f"extensions.topic={_EVOLVE}/topic"),
    ),
    "hg-git": ("hg", "--config", "extensions.hggit="),
}


@pytest.fixture(scope="module", autouse=True)
def _links(cluster: Cluster) -> None:
    """Wait until pull bundles of this project's own history exist."""
    cluster.wait_for_bundles(REPOSITORY)
    said = cluster.first("bundles").run("hgfleet", "bundles", "status", REPOSITORY).ok().stdout
    assert "pull" in said


@pytest.fixture(scope="module")
def half_way(cluster: Cluster) -> str:
    """The revision in the middle of this project's own history, which the cluster has imported."""
    hg = "runuser -u hg -- /opt/hgfleet/current/bin/hg"
    told = cluster.first("ssh").shell(f"{hg} -R /srv/hg/repos/{REPOSITORY} id -n -r tip")
    return str(int(told) // 2)


def address(cluster: Cluster, transport: str) -> str:
    """Return the repository's address in the cluster's network."""
    host = f"hg@{cluster.first('ssh').name}" if transport == "ssh" else cluster.first("proxy").name
    return f"{transport}://{host}/{REPOSITORY}"


@pytest.fixture
def place(client_host: Host) -> Iterator[str]:
    """A temporary folder on the client host."""
    folder = client_host.shell("mktemp -d").strip()
    yield folder
    client_host.shell(f"rm -rf {folder}")


def pairs(programs: Iterable[str], gate: set[tuple[str, str]]) -> list[Any]:
    """Return each program with both transports; pairs that the gate leaves out are marked `whole`.

    The answers that a program understands do not depend on the transport, so the gate has each
    program once, and each transport.
    """
    return [
        pytest.param(name, transport, marks=() if (name, transport) in gate else pytest.mark.whole)
        for name in programs
        for transport in ("https", "ssh")
    ]


def changesets(client: Client, clone: str) -> set[str]:
    """Return the changesets of a clone."""
    return set(client.hg("-R", clone, "log", "-T", "{node}\n").ok().stdout.split())


@pytest.mark.parametrize(
    ("program", "transport"),
    pairs(PROGRAMS, {("Debian's", "ssh"), *((name, "https") for name in PROGRAMS)}),
)
def test_incoming_and_pulls_bring_the_same_changesets(
    cluster: Cluster, client_host: Host, half_way: str, place: str, program: str, transport: str
) -> None:
    client, source = Client(client_host, "", PROGRAMS[program]), address(cluster, transport)
    every = set(cluster.remote_heads(REPOSITORY))

    client.hg("clone", "--noupdate", "-r", half_way, source, f"{place}/half").ok()
    half = changesets(client, f"{place}/half")
    client_host.shell(f"cp -a {place}/half {place}/by-bundle")

    told = client.hg("-R", f"{place}/half", "incoming", "-T", "{node}\n", "--quiet", source)
    newer = set(told.ok().stdout.split())
    client.hg(
        *("-R", f"{place}/by-bundle", "incoming", "--quiet"),
        *("--bundle", f"{place}/newer.hg", source),
    ).ok()
    client.hg("-R", f"{place}/by-bundle", "unbundle", f"{place}/newer.hg").ok()
    client.hg("-R", f"{place}/half", "pull", source).ok()

    assert every <= newer
    assert changesets(client, f"{place}/half") == half | newer
    assert changesets(client, f"{place}/by-bundle") == half | newer
    client.hg("-R", f"{place}/half", "verify", "--quiet").ok()


@pytest.mark.parametrize(
    ("program", "transport"),
    pairs(("Debian's", "evolve"), {("Debian's", "https"), ("evolve", "ssh")}),
)
def test_a_pull_into_an_empty_repository_and_after_a_clone_bundle_is_whole(
    cluster: Cluster, client_host: Host, place: str, program: str, transport: str
) -> None:
    client, source = Client(client_host, "", PROGRAMS[program]), address(cluster, transport)

    client.hg("init", f"{place}/empty").ok()
    newer = client.hg("-R", f"{place}/empty", "incoming", "-T", "{node}\n", "--quiet", source)
    client.hg("-R", f"{place}/empty", "pull", source).ok()
    client.hg("clone", "--noupdate", source, f"{place}/clone").ok()
    none = client.hg("-R", f"{place}/clone", "incoming", "--quiet", source)

    assert none.code == 1, f"there is nothing to bring after a clone:\n{none}"
    pulled = changesets(client, f"{place}/empty")
    assert pulled == set(newer.ok().stdout.split()) == changesets(client, f"{place}/clone")
    assert set(cluster.remote_heads(REPOSITORY)) <= pulled


@pytest.mark.parametrize("transport", ["https", pytest.param("ssh", marks=pytest.mark.whole)])
def test_git_clones_and_fetches_through_cinnabar(
    cluster: Cluster, client_host: Host, half_way: str, place: str, transport: str
) -> None:
    source = address(cluster, transport)
    ssh = (
        "ssh -F none -i /client/HGFLEET_KEYS/alice -o IdentitiesOnly=yes -o BatchMode=yes"
        " -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/client/HGFLEET_KNOWN_HOSTS"
    )
    git = (
        f"GIT_SSH_COMMAND={shlex.quote(ssh)} "
        f"git -c http.sslCAInfo=/client/HGFLEET_CA_CERT -C {place}/clone"
    )
    hg = Client(client_host, "", PROGRAMS["Debian's"])
    hg.hg("clone", "--noupdate", "-r", half_way, source, f"{place}/half").ok()
    half = hg.hg("-R", f"{place}/half", "log", "-r", "tip", "-T", "{node}").ok().stdout

    client_host.shell(
        f"git init --quiet {place}/clone\n"
        f"{git} remote add origin hg::{source}\n"
        f"{git} cinnabar fetch origin {half} 2>&1\n"
        f"{git} fetch --quiet origin 2>&1"
    )
    heads = client_host.shell(
        f"{git} for-each-ref --format='%(objectname)' refs/remotes/origin | "
        f"{git} cinnabar git2hg --batch"
    ).split()

    assert set(heads) & set(cluster.remote_heads(REPOSITORY))
    assert half in client_host.shell(f"{git} rev-list --remotes | {git} cinnabar git2hg --batch")
