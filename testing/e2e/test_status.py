"""The public status page: in the object store, of clones of the last minutes."""

from __future__ import annotations

import urllib.error
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until
from testing.e2e.prometheus import SEEN
from testing.e2e.status import fetch, last_clone, page, probe

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.prometheus import Prometheus

MINUTES: Final = timedelta(minutes=3)
"""Age of the last clone that the page may show: a run each minute, and the run itself."""


def test_the_page_is_public_and_shows_a_clone_of_the_last_minutes(cluster: Cluster) -> None:
    def shows_one() -> str:
        text = page(cluster)
        when, how = last_clone(text)
        assert datetime.now(UTC) - when < MINUTES, when
        assert how == "took", text
        return text

    text = wait_until("the page shows a clone", shows_one, 120)
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


def test_results_are_metrics(cluster: Cluster, prometheus: Prometheus) -> None:
    host = cluster.first("monitoring")
    name = 'sum by (host) (hgfleet_probes_total{probe="clone"})'
    wait_until("clones are counted", lambda: prometheus.query(name), SEEN)
    before = prometheus.query(name)[host.name]
    probe(host)
    wait_until("the clone is counted", lambda: prometheus.query(name)[host.name] > before, SEEN)
    uploaded = prometheus.query("time() - hgfleet_status_page_uploaded_timestamp_seconds")
    assert uploaded[host.name] < 300
