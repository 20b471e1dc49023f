"""Older versions of Mercurial clone from the bundles, and push.

Both come from the package index, by hash (docker/clients), and run on the Python of Debian 13. The
last 5.x does not support this Python: its C modules do not compile, so it runs as pure Python, with
the package `zstandard` instead of its own copy.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until
from testing.e2e.people import Client

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

REPOSITORY: Final = "e2e/old-clients"
# The bytecode goes to /tmp and is reused, because /opt/hg is read-only.
PYTHON: Final = ("env", "PYTHONPYCACHEPREFIX=/tmp/hg", "PYTHONWARNINGS=ignore")
PURE: Final = (*PYTHON, "HGMODULEPOLICY=py", "HGDEMANDIMPORT=disable")
PROGRAMS: Final = {
    "6.9.5": (*PYTHON, "PYTHONPATH=/opt/hg/6", "python3", "/opt/hg/6/bin/hg"),
    "5.9.3": (*PURE, "PYTHONPATH=/opt/hg/5", "python3", "/opt/hg/5/hg"),
}


def machine(host: Host, version: str) -> Client:
    """Return a machine with an older hg."""
    client = Client(host, "", PROGRAMS[version])
    assert client.hg("version", "-q").ok().stdout.endswith(f"version {version})\n")
    return client


# Any server names the same bundle, so the gate has each version and each transport once.
@pytest.mark.parametrize(
    ("version", "transport"),
    [
        ("6.9.5", "ssh"),
        ("5.9.3", "https"),
        pytest.param("6.9.5", "https", marks=pytest.mark.whole),
        pytest.param("5.9.3", "ssh", marks=pytest.mark.whole),
    ],
)
def test_it_clones_from_a_bundle_and_pushes(
    cluster: Cluster, client_host: Host, version: str, transport: str
) -> None:
    old = machine(client_host, version)
    there = f"ssh://hg@{cluster.first('ssh').name}/{REPOSITORY}"
    web = f"https://{cluster.first('proxy').name}/{REPOSITORY}"
    source = there if transport == "ssh" else web
    place = old.host.shell("mktemp -d").strip()
    alice = Client(old.host, "", PROGRAMS["6.9.5"])

    def offered() -> list[str]:
        return cluster.manifest(REPOSITORY)

    if not offered():
        alice.hg("clone", there, f"{place}/first").ok()
        old.host.shell(f"head -c 100000 /dev/urandom >{place}/first/large.bin")
        alice.hg("-R", f"{place}/first", "commit", "-qAm", "something", "-u", "alice").ok()
        alice.hg("-R", f"{place}/first", "push", "--force").ok()
    cluster.wait_for_bundles(REPOSITORY)
    wait_until("there are bundles", offered)

    for kind in ("--pull", "--stream"):
        said = old.hg("clone", kind, source, f"{place}/{kind}").ok().output
        assert "applying clone bundle from https://" in said
        assert "finished applying clone bundle" in said
        old.hg("-R", f"{place}/{kind}", "verify").ok()

    clone = f"{place}/--pull"
    old.host.shell(f"echo {uuid.uuid4()} >{clone}/new.txt")
    old.hg("-R", clone, "commit", "-qAm", "something new", "-u", "alice").ok()
    node = old.hg("-R", clone, "log", "-r", ".", "-T", "{node}").ok().stdout
    old.hg("-R", clone, "push", "--force", there).ok()
    assert node in cluster.remote_heads(REPOSITORY)
