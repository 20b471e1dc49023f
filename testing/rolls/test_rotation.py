"""Clients and bundle jobs do not notice that the access keys of an object store are replaced."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.e2e.command import wait_until
from testing.rolls.clients import Clients
from testing.rolls.rotation import ACCOUNTS, Keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

PRIVATE: Final = "e2e/confidential"
MINUTES: Final = 1
SIGNING: Final = "/etc/hgfleet/signing.toml"
USERS: Final = "/etc/hgfleet/objectstore/users.json"
KNOWN_SECONDS: Final = 30
"""For the refusal of a removed account: the server reads its accounts again after 10 s."""


def accounts(store: Host) -> dict[str, str]:
    """Return the accounts of a store, with their secrets."""
    listed = json.loads(store.shell(f"cat {USERS}"))["accessAccounts"]
    return {name: account["secret"] for name, account in listed.items()}


def lifetime(cluster: Cluster, before: int, after: int) -> None:
    """Set for how many minutes the URLs that hosts sign are valid."""
    script = f"sed -i 's/^lifetime = {before * 60}$/lifetime = {after * 60}/' {SIGNING}"
    for host in cluster.hosts:
        host.shell(f"[ ! -e {SIGNING} ] || {script}")


@pytest.fixture
def keys(cluster: Cluster, tmp_path: Path) -> Iterator[Keys]:
    """The keys that the first store has, in a vault; the store has them again afterwards."""
    store = cluster.first("objectstore")
    before = accounts(store)
    names = dict(zip(ACCOUNTS, ("bundles", "reader"), strict=True))
    secrets = {f"{vault}_access_key": name for vault, name in names.items()}
    secrets |= {f"{vault}_secret_key": before[name] for vault, name in names.items()}
    made = Keys(cluster, tmp_path / "inventory", MINUTES)
    made.write(secrets)
    lifetime(cluster, 10, MINUTES)
    try:
        yield made
    finally:
        now = made.read()
        if now != secrets:
            # The rotation to the former keys ended early: the playbook continues it.
            replaced = {f"former_{name}": now[name] for name in secrets}
            made.write({**secrets, **replaced})
            made.rotate().ok()
        lifetime(cluster, MINUTES, 10)
        assert accounts(store) == before


@pytest.fixture
def clients(cluster: Cluster, tmp_path: Path) -> Iterator[Clients]:
    """Clients that work during a test, also with clones of a private repository from its bundle."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(PRIVATE), tmp_path / "private")
    work.commit("new.bin", os.urandom(300_000), "something of size")
    work.hg("push").ok()
    cluster.wait_for_bundles(PRIVATE)

    def clone_privately() -> None:
        place = tmp_path / f"private-{time.monotonic_ns()}"
        try:
            clone = alice.clone(alice.ssh_url(PRIVATE), place, "--noupdate")
            assert "applying clone bundle from https://" in clone.made.output, clone.made
        finally:
            shutil.rmtree(place, ignore_errors=True)

    with Clients(cluster, tmp_path) as working:
        working.go_on("private clone", clone_privately)
        working.go_on("bundle run", lambda: run_all(cluster))
        working.wait_for_more()
        yield working
    print(working.said)


def run_all(cluster: Cluster) -> None:
    """Run the bundle job for all repositories, as its timer does."""
    cluster.first("bundles").systemctl("start", "hgfleet-bundles.service").ok()


def words(line: str) -> dict[str, str]:
    """Return the fields of a line in logfmt."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def refused(lines: list[str]) -> list[str]:
    """Return the requests for bundles that a store refused, by its log.

    Other requests are refused on purpose: jobs and probers check that a private bucket is closed.
    """
    return [line for line in lines if " 403 " in line and ".hg " in line]


def test_clients_and_bundle_jobs_do_not_notice_new_access_keys(
    cluster: Cluster, keys: Keys, clients: Clients
) -> None:
    store, jobs = cluster.first("objectstore"), cluster.first("bundles")
    before, vault = accounts(store), keys.read()
    log, runs = store.journal_cursor(), jobs.journal_cursor()
    unit = ["systemctl", "show", "--property=InvocationID", "hgfleet-objectstore.service"]
    process = store.run(*unit).ok().stdout

    dry = keys.rotate("--check").ok()
    assert "vault_bundles_store_secret_key" in dry.stdout
    assert keys.read() == vault

    done = keys.rotate().ok()
    clients.wait_for_more()

    assert not clients.failed, "\n".join(clients.failed)
    after = accounts(store)
    assert set(after) == {"bundles-2", "reader-2"}
    assert not set(after.values()) & set(before.values())
    assert not [secret for secret in (*before.values(), *after.values()) if secret in done.output]
    assert keys.read() == {
        f"{vault}_{part}": value
        for vault, name in zip(ACCOUNTS, ("bundles-2", "reader-2"), strict=True)
        for part, value in (("access_key", name), ("secret_key", after[name]))
    }
    assert store.run(*unit).ok().stdout == process
    assert refused(store.journal_after(log, "--unit=hgfleet-objectstore")) == []
    ended = [words(line) for line in jobs.journal_after(runs) if "event=bundles.done" in line]
    assert ended
    assert all((run["failed"], run["degraded"]) == ("0", "0") for run in ended)
    wait_until(
        "the former account is refused",
        lambda: ask(store, "bundles", before["bundles"]) == 403,
        KNOWN_SECONDS,
    )
    assert ask(store, "bundles-2", after["bundles-2"]) == 200


def ask(store: Host, name: str, secret: str) -> Any:
    """Return the status of listing the bucket with an account."""
    script = """
import json, sys
import boto3, botocore.config, botocore.exceptions
name, secret, endpoint = json.load(sys.stdin)
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="us-east-1", verify="/etc/hgfleet/tls/ca.pem",
    aws_access_key_id=name, aws_secret_access_key=secret,
    config=botocore.config.Config(s3={"addressing_style": "path"}),
)
try:
    answer = client.list_objects_v2(Bucket="bundles", MaxKeys=1)
except botocore.exceptions.ClientError as error:
    answer = error.response
print(answer["ResponseMetadata"]["HTTPStatusCode"])
"""
    endpoint = f"https://{store.shell('hostname').strip()}:7443"
    told = store.run("python3", "-c", script, stdin=json.dumps([name, secret, endpoint]))
    return int(told.ok().stdout)
