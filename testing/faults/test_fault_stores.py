"""Stores of bundles fail in every way, and every clone succeeds.

The gate has the faults that are hardest to notice: a store that answers slowly, and objects that
differ from the published ones. The same requests notice a store that refuses or is silent.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from controller.cluster import images
from testing.e2e.command import run, wait_until
from testing.faults.support import paused, stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person
    from testing.e2e.turns import Turns
    from testing.faults.support import Fault, Faults

WHOLE: Final = pytest.mark.whole
REPOSITORY: Final = "e2e/steering"
NOTICED_S: Final = 15
"""Seconds after which no client is sent to a store that is gone; the bar of the service."""
OBJECTS_NOTICED_S: Final = 75
"""Seconds after which no client is sent to a missing or wrong object: eleven rounds, and some."""
BACK_S: Final = 60
COUNT: Final = 9
"""Three kinds of bundles, in two stores and in the cache of the first store."""
BUNDLES: Final = "hgfleet-bundles.service"
FINDINGS: Final = "/var/lib/hgfleet-bundles/corrupt.json"
READ_MARKS: Final = "/var/cache/hgfleet/bundles/read"
VERIFY: Final = ("runuser", "-u", "hgbundles", "--", "hgfleet", "bundles", "verify", REPOSITORY)

S3: Final = """
import boto3, json, os, sys
lines = open("/etc/hgfleet/secrets/objectstore-root.env").read().splitlines()
root = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
client = boto3.client(
    "s3", endpoint_url=f"https://{os.uname().nodename}:7443", region_name="us-east-1",
    verify="/etc/hgfleet/tls/ca.pem", aws_access_key_id=root["ROOT_ACCESS_KEY_ID"],
    aws_secret_access_key=root["ROOT_SECRET_ACCESS_KEY"],
)
bucket = "bundles"
"""
"""The object store's administrator, on its host."""


def as_root(host: Host, script: str, *words: str) -> str:
    """Run a script on a store's host that has its administrator as `client`."""
    return host.run("python3", "-", *words, stdin=S3 + script).ok().stdout


def forbidden(_cluster: Cluster, host: Host) -> Iterator[None]:
    """The bucket has lost its policy: every client gets 403."""
    policy = as_root(host, "print(client.get_bucket_policy(Bucket=bucket)['Policy'])")
    as_root(host, "client.delete_bucket_policy(Bucket=bucket)")
    try:
        yield
    finally:
        as_root(host, "client.put_bucket_policy(Bucket=bucket, Policy=sys.argv[1])", policy)


def slow(_cluster: Cluster, host: Host) -> Iterator[None]:
    """The host's network passes a byte per second."""
    inside = ["docker", "run", "--rm", f"--network=container:{host.container}"]
    inside += ["--cap-add=NET_ADMIN", images.ensure_base(), "tc", "qdisc"]
    limit = ["tbf", "rate", "8bit", "burst", "1600", "latency", "1s"]
    run([*inside, "add", "dev", "eth0", "root", *limit]).ok()
    try:
        yield
    finally:
        run([*inside, "del", "dev", "eth0", "root"]).ok()


@pytest.fixture(scope="module")
def told(cluster: Cluster, logins: Turns, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The URLs that clients get while all is well."""
    alice = cluster.person("alice")
    with logins.turn(alone=False):
        work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path_factory.mktemp("source") / "work")
        work.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
        work.hg("push").ok()
    cluster.wait_for_bundles(REPOSITORY)
    return all_are_told(cluster)


def all_are_told(cluster: Cluster) -> list[str]:
    """Wait until clients are offered all bundles in all places."""

    def probe() -> list[str]:
        urls = cluster.manifest_of_all(REPOSITORY)
        return urls if len(urls) == COUNT else []

    return wait_until("all bundles are handed out", probe, BACK_S)


def at(cluster: Cluster, urls: Sequence[str], host: Host) -> list[str]:
    """Return those URLs that lie at a host."""
    return [url for url in urls if f"://{cluster.address(host)}" in url]


def clones(cluster: Cluster, alice: Person, place: Path) -> list[str]:
    """Clone over HTTPS and SSH; return where the bundles came from."""
    used = []
    for way, url in (("https", cluster.url(REPOSITORY)), ("ssh", alice.ssh_url(REPOSITORY))):
        clone = alice.clone(url, place / way)
        assert clone.heads() == cluster.remote_heads(REPOSITORY)
        used.append(clone.made.output.partition("applying clone bundle from ")[2].split()[0])
    return used


@pytest.mark.parametrize(
    "fault", [slow, *(pytest.param(fault, marks=WHOLE) for fault in (stopped, paused, forbidden))]
)
def test_nobody_is_sent_to_a_store_that_does_not_serve(
    cluster: Cluster,
    alice: Person,
    told: list[str],
    store_faults: Faults,
    logins: Turns,
    fault: Fault,
    tmp_path: Path,
) -> None:
    store = cluster.first("objectstore")
    gone = at(cluster, told, store)
    assert told[0] in gone
    store_faults.stack.callback(all_are_told, cluster)
    store_faults.break_(fault, store)

    def left() -> list[str]:
        now = cluster.manifest_of_all(REPOSITORY)
        return [] if set(now) & set(gone) else now

    # The other store works as before. The cache asks the store each minute whether it still has an
    # object, and a probe that waits for a slow answer counts the cache as away until the next
    # probe.
    now = wait_until("nobody is told of it", left, NOTICED_S)
    others = [u for u in told if u not in gone]
    cached = at(cluster, told, cluster.first("cdn"))
    assert now == [u for u in others if u in now]
    assert {u for u in others if u not in cached} <= set(now)
    with logins.turn(alone=False):
        assert not set(clones(cluster, alice, tmp_path)) & set(gone)


def deleted(store: Host, key: str) -> None:
    as_root(store, "client.delete_object(Bucket=bucket, Key=sys.argv[1])", key)


def bit_turned(store: Host, key: str) -> None:
    """Flip a bit on the disk: length, time, entity tag and all other metadata in the store stay."""
    script = """
path = f"/srv/objectstore/data/{bucket}/{sys.argv[1]}"
before = os.stat(path)
with open(path, "r+b") as file:
    file.seek(before.st_size // 2)
    byte = file.read(1)[0]
    file.seek(before.st_size // 2)
    file.write(bytes([byte ^ 1]))
os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
"""
    as_root(store, script, key)


def replaced(store: Host, key: str) -> None:
    """Invert an object's content, with its owner's credentials; a second call restores it."""
    script = """
found = client.get_object(Bucket=bucket, Key=sys.argv[1])
body = bytes(byte ^ 255 for byte in found["Body"].read())
client.put_object(Bucket=bucket, Key=sys.argv[1], Body=body, Metadata=found["Metadata"])
"""
    as_root(store, script, key)


def cache_turned(edge: Host, key: str) -> None:
    """Flip a bit of a copy on the disk of the cache."""
    script = """
import pathlib, sys
name = f"KEY: slices-only:/bundles/{sys.argv[1]}bytes=0-".encode()
for path in pathlib.Path("/var/cache/hgfleet-cdn/copies").rglob("*"):
    if path.is_file() and name in (data := path.read_bytes())[:4096]:
        with path.open("r+b") as file:
            file.seek(len(data) - 1)
            file.write(bytes([data[-1] ^ 1]))
        break
else:
    sys.exit("no such copy")
"""
    edge.run("python3", "-", key, stdin=script).ok()


def by_kind(cluster: Cluster, urls: Sequence[str], host: Host) -> dict[str, str]:
    """Return the URLs that lie at a host, by the kind of their bundles."""
    kinds = ("stream", "zstd", "gzip")
    return {kind: url for url in at(cluster, urls, host) for kind in kinds if f".{kind}" in url}


def key_of(url: str) -> str:
    """Return the key of an object by its URL."""
    return url.partition("/bundles/")[2]


def offers(cluster: Cluster) -> list[str]:
    """Return the manifest that each web host advertises."""
    urls = [cluster.url_past_proxy(host, REPOSITORY) for host in cluster.all("web")]
    return [cluster.get(f"{url}?cmd=clonebundles").body for url in urls]


def test_nobody_is_sent_to_objects_that_are_gone_or_wrong_and_a_wrong_copy_mends_itself(
    cluster: Cluster,
    alice: Person,
    told: list[str],
    store_faults: Faults,
    logins: Turns,
    tmp_path: Path,
) -> None:
    """Four faults at once: each waits for the same rounds of the probers."""
    store, other = cluster.all("objectstore")
    edge = cluster.first("cdn")
    here, there = by_kind(cluster, told, store), by_kind(cluster, told, other)
    copies = by_kind(cluster, told, edge)
    copy = copies["gzip"]
    wrong = {here["stream"], here["zstd"], there["gzip"]}
    store_faults.stack.callback(all_are_told, cluster)

    # Faults are undone in reverse order: the bundle jobs make the deleted object last.
    store_faults.stack.callback(lambda: cluster.make_bundles(REPOSITORY).ok())
    deleted(store, key_of(here["stream"]))
    store_faults.stack.callback(bit_turned, store, key_of(here["zstd"]))
    bit_turned(store, key_of(here["zstd"]))
    store_faults.stack.callback(replaced, other, key_of(there["gzip"]))
    replaced(other, key_of(there["gzip"]))
    cache_turned(edge, key_of(copy))
    noticed = set()

    def left() -> bool:
        now = offers(cluster)
        # The first prober that reads the copy makes the cache fetch it again.
        if any(copy not in offer for offer in now):
            noticed.add(copy)
        assert copy in noticed, f"every host hands out {copy}"
        handed_out = {url for url in wrong for offer in now if url in offer}
        assert not handed_out, handed_out
        return True

    wait_until("nobody is told of them", left, OBJECTS_NOTICED_S)
    # A deleted object leaves the cache when the cache asks the origin again, after a minute.
    expected = [url for url in told if url not in wrong | {copies["stream"]}]
    wait_until(
        "the cache has fetched its copy again, and the deleted one left",
        lambda: cluster.manifest_of_all(REPOSITORY) == expected,
        60 + BACK_S,
    )
    with logins.turn(alone=False):
        assert not set(clones(cluster, alice, tmp_path)) & wrong
    said = cluster.first("web").run("hgfleet", "steering", "status").stdout
    for problem in ("the answer is 404", "its content is not what was published"):
        assert problem in said


def test_an_object_that_its_store_cannot_read_is_dead_alone_and_is_made_again(
    cluster: Cluster, told: list[str], store_faults: Faults
) -> None:
    """As with a bad sector: the list, the headers and all other objects are as before."""
    store, jobs = cluster.first("objectstore"), cluster.first("bundles")
    url = next(url for url in at(cluster, told, store) if ".gzip" in url)
    path = f"/srv/objectstore/data/bundles/{key_of(url)}"
    store_faults.stack.callback(all_are_told, cluster)
    # The alert about a corrupt object fires for a day.
    store_faults.stack.callback(jobs.write, FINDINGS, jobs.shell(f"cat {FINDINGS}"))
    store_faults.stack.callback(store.run, "chmod", "640", path)
    store.shell(f"chmod 000 {path}")

    def left() -> list[str]:
        now = cluster.manifest_of_all(REPOSITORY)
        return [] if url in now else now

    now = wait_until("no client is told of it", left, OBJECTS_NOTICED_S)
    # Another repository of the site may have objects in the store: these are told as before.
    assert set(at(cluster, now, store)) == set(at(cluster, told, store)) - {url}
    said = cluster.first("web").run("hgfleet", "steering", "status").stdout
    assert f"DEAD: {url}: " in said
    # The prober of the jobs' host has found it too, so a run reads it before its time.
    wait_until(
        "the prober of the jobs' host knows of it",
        lambda: url in jobs.shell("cat /run/hgfleet-steering/health.objects"),
        OBJECTS_NOTICED_S,
    )
    cursor = jobs.journal_cursor()
    jobs.systemctl("start", BUNDLES).ok()
    said_by_jobs = jobs.journal_after(cursor, f"--unit={BUNDLES}")
    assert any("event=bundles.withdrawn" in line and url in line for line in said_by_jobs)
    assert store.shell(f"stat -c %a {path}").strip() == "640"


@pytest.fixture
def corrupt(
    cluster: Cluster, told: list[str], store_faults: Faults
) -> tuple[Host, str, Callable[[], bool]]:
    """A stored bundle with a flipped bit: host of the jobs, URL, and a check of its repair."""
    store, jobs = cluster.first("objectstore"), cluster.first("bundles")
    url = next(url for url in at(cluster, told, store) if ".zstd" in url)
    key = key_of(url)
    content = f"sha256sum /srv/objectstore/data/bundles/{key}"
    cluster.make_bundles(REPOSITORY).ok()
    findings, right = jobs.shell(f"cat {FINDINGS}"), store.shell(content)
    store_faults.stack.callback(all_are_told, cluster)
    store_faults.stack.callback(jobs.write, FINDINGS, findings)
    bit_turned(store, key)

    def is_well() -> bool:
        # A clone from each published bundle is correct.
        return store.shell(content) == right and jobs.run(*VERIFY).code == 0

    assert store.shell(content) != right
    return jobs, url, is_well


@pytest.mark.whole
def test_a_corrupt_object_is_found_and_replaced_by_command(
    corrupt: tuple[Host, str, Callable[[], bool]],
) -> None:
    jobs, url, is_well = corrupt
    # Neither a listing nor headers show the flipped bit.
    assert url in jobs.run("hgfleet", "bundles", "status", REPOSITORY).ok().stdout
    verified = jobs.run(*VERIFY)
    assert verified.code == 1, verified
    assert f"{url}: got sha256 " in verified.output

    jobs.systemctl("start", BUNDLES).ok()

    assert is_well()


def test_a_corrupt_object_is_found_by_schedule_recorded_and_replaced(
    cluster: Cluster, corrupt: tuple[Host, str, Callable[[], bool]]
) -> None:
    """An alert reports this record (`test_fault_alert_smoke.py`)."""
    jobs, url, is_well = corrupt
    # The time of the weekly read has come; the run that reads also repairs.
    mark = cluster.identity(REPOSITORY)
    jobs.shell(f"cd {READ_MARKS} && touch -c -- * && touch -c -d '8 days ago' {mark}")
    cursor, begun = jobs.journal_cursor(), float(jobs.shell("date +%s"))

    jobs.systemctl("start", BUNDLES).ok()

    said = jobs.journal_after(cursor, f"--unit={BUNDLES}")
    assert any("event=bundles.withdrawn" in line and url in line for line in said), said
    assert is_well()
    places = json.loads(jobs.shell(f"cat {FINDINGS}"))["places"]
    assert places[cluster.first("objectstore").name] >= begun
