"""Clients are told of bundles that answer, whatever happens to the store's objects."""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING

import pytest

from testing.e2e.support import Clone, Cluster, Person, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REPOSITORY = "e2e/steering"
NOTICED_S = 15
"""Seconds after which no client is sent to what has gone; the bar of the service."""


@pytest.fixture(scope="module")
def source(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Bundles of all kinds are made of something new."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path_factory.mktemp("source") / "work")
    work.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
    work.hg("push").ok()
    cluster.make_bundles().ok()
    return work


@pytest.fixture
def delete(cluster: Cluster) -> Callable[[str], None]:
    """Delete an object behind everybody's back, with the credentials of the bundle jobs."""
    host = cluster.first("bundles")

    def do(url: str) -> None:
        script = f"""
import tomllib, boto3
store = tomllib.load(open("/etc/hgfleet/bundles.toml", "rb"))
ca, store = store["ca"], store["store"][0]
secret = [open(f"/etc/hgfleet/secrets/bundles-{{store['name']}}-{{name}}").read().strip()
          for name in ("access-key-id", "secret-access-key")]
client = boto3.client("s3", endpoint_url=store["endpoint"], verify=ca, region_name="us-east-1",
                      aws_access_key_id=secret[0], aws_secret_access_key=secret[1])
client.delete_object(Bucket=store["bucket"], Key={url.partition("/bundles/")[2]!r})
"""
        host.run("/opt/hgfleet/current/bin/python3", "-", stdin=script).ok()

    return do


@pytest.mark.usefixtures("source")
def test_an_object_that_is_gone_is_not_handed_out(
    cluster: Cluster, alice: Person, delete: Callable[[str], None], tmp_path: Path
) -> None:
    host, name = cluster.first("bundles"), f"/var/lib/hgfleet/manifests/{REPOSITORY}.manifest"
    published = [line.split(" ")[0] for line in host.shell(f"cat {name}").splitlines()]
    assert len(published) == 3
    told = functools.partial(cluster.manifest, REPOSITORY)
    wait_until("bundles are known to answer", lambda: told() == published, NOTICED_S)

    delete(published[0])
    wait_until("nobody is told of it any more", lambda: told() == published[1:], NOTICED_S)

    for place, url in (("https", cluster.url(REPOSITORY)), ("ssh", alice.ssh_url(REPOSITORY))):
        clone = alice.clone(url, tmp_path / place)
        assert f"applying clone bundle from {published[1]}" in clone.made.output, clone.made
    # The next run makes it again.
    cluster.make_bundles().ok()
    wait_until("it is handed out again", lambda: published[0] in told(), NOTICED_S)
