"""The probes clone and push; the public status page about that is in the object store."""

from __future__ import annotations

import json
import urllib.error
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e import metrics
from testing.e2e.command import wait_until
from testing.e2e.mirrors import log_of
from testing.e2e.status import fetch, last, page, probe

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster

MINUTES: Final = timedelta(minutes=3)
"""Most age of the last clone on the page: a run each minute, and the run itself."""

PUSHED: Final = "canary"
"""The repository that the probes push to."""

KNOWN_HOSTS: Final = "/etc/hgfleet/probes.known_hosts"


def test_the_page_is_public_and_shows_a_clone_and_a_push_of_now(
    cluster: Cluster,
) -> None:
    def shows_both() -> str:
        text = page(cluster)
        for name in ("clone", "push"):
            when, how = last(name, text)
            assert datetime.now(UTC) - when < MINUTES, when
            assert how == "took", text
        return text

    text = wait_until("the page shows a clone and a push", shows_both, 120)
    assert "<h1>The local cluster</h1>" in text
    assert "<script" not in text


def test_the_bucket_has_the_page_and_nothing_that_the_public_may_list(cluster: Cluster) -> None:
    folder = cluster.env["HGFLEET_STATUS_URL"].rpartition("/")[0]
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(cluster, folder)
    assert refused.value.code == 403


def test_the_account_of_the_page_may_not_touch_bundles(cluster: Cluster) -> None:
    """Runs on the host, as root: no other user may read the secret."""
    script = """
import boto3, botocore, sys
names = ("status-access-key-id", "status-secret-access-key")
key, secret = (open("/etc/hgfleet/secrets/" + name).read().strip() for name in names)
store = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id=key,
    aws_secret_access_key=secret, region_name="us-east-1",
    verify="/etc/ssl/certs/ca-certificates.crt",
    config=botocore.config.Config(s3={"addressing_style": "path"}))
store.head_object(Bucket="status", Key="index.html")
try:
    store.put_object(Bucket="bundles", Key="index.html", Body=b"")
except botocore.exceptions.ClientError as error:
    print(error.response["ResponseMetadata"]["HTTPStatusCode"])
"""
    host = cluster.first("monitoring")
    endpoint = f"https://{cluster.address(cluster.first('objectstore'))}:7443"
    python = "/opt/hgfleet/current/bin/python"
    assert host.run(python, "-c", script, endpoint).ok().stdout.split() == ["403"]


def test_results_are_metrics(cluster: Cluster) -> None:
    host = cluster.first("monitoring")
    names = [f'hgfleet_probes_total{{probe="{kind}"}}' for kind in ("clone", "push")]
    before = metrics.written([host])

    probe(host)

    after = metrics.written([host])
    for name in names:
        assert metrics.total(after, name) > metrics.total(before, name), name
    uploaded = metrics.total(after, "hgfleet_status_page_uploaded_timestamp_seconds")
    assert datetime.now(UTC).timestamp() - uploaded < 300


def test_a_push_is_in_the_push_log_of_the_primary_and_of_each_mirror(cluster: Cluster) -> None:
    """The next run pushes again: the bookmark moves to and fro."""
    primary, monitor = cluster.first("ssh"), cluster.first("monitoring")
    before = log_of(primary, PUSHED).splitlines()
    for _ in range(2):
        probe(monitor)
        assert last("push", page(cluster))[1] == "took"
    new = [json.loads(line) for line in log_of(primary, PUSHED).splitlines()[len(before) :]]
    assert len(new) >= 2
    for record in new:
        assert record["user"] == "probe"
        assert [name for name, _, _ in record["bookmarks"]] == [f"minute/{monitor.name}"]
    # The regular run of each minute may push, too.
    wait_until(
        "each mirror has the push",
        lambda: all(
            len(log_of(host, PUSHED).splitlines()) >= len(before) + 2 for host in cluster.all("web")
        ),
        30,
    )


def test_the_key_of_the_probes_may_push_nowhere_else(cluster: Cluster, tmp_path: Path) -> None:
    person = cluster.person("probe")
    for repository in ("sandbox/playground", "sandbox/smoke"):
        work = person.clone(person.ssh_url(repository), tmp_path / repository.replace("/", "-"))
        work.commit("probe.txt", b"a push", "a push")
        work.hg("push", "--force").refused("probe may not push to")
    person.ssh("repo create people/probe/mine").refused()


@pytest.mark.alone
def test_a_server_with_another_host_key_gets_no_push(cluster: Cluster) -> None:
    monitor = cluster.first("monitoring")
    keys = monitor.shell(f"cat {KNOWN_HOSTS}")
    another = cluster.person("mallory").key.with_suffix(".pub").read_text().split()[:2]
    names = keys.split()[0]
    cursor = monitor.journal_cursor()
    try:
        monitor.write(KNOWN_HOSTS, f"{names} {' '.join(another)}\n")
        probe(monitor)
        assert last("push", page(cluster))[1] == "failed"
    finally:
        monitor.write(KNOWN_HOSTS, keys)
    said = "\n".join(monitor.journal_after(cursor, "--unit=hgfleet-probes"))
    assert "Host key verification failed" in said, said
    # After a failure the next run asks what the server has.
    probe(monitor)
    assert last("push", page(cluster))[1] == "took"
