"""A pushed secret is removed from the repository, its mirrors, bundles, stores and caches."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Person

REPOSITORY: Final = "e2e/secret"
UNIT: Final = "hgfleet-bundles-withdraw.service"
REVALIDATED_S: Final = 60
"""For how long a cache serves a copy without asking the store (cdn_revalidate_seconds)."""

STRIP: Final = (
    "cd /srv/hg/repos/{repository}; runuser -u hg -- env HGRCPATH=/etc/hgfleet/hgrc"
    " HGFLEET_USER=operator:root /opt/hgfleet/current/bin/hg"
    " debugstrip --no-backup {node}"
)

KILLED: Final = "/run/e2e-killed-strip.py"
KILLS: Final = """\
import os, signal
from mercurial import extensions, repair
def uisetup(ui):
    def strip(original, *words, **named):
        original(*words, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    extensions.wrapfunction(repair, "strip", strip)
"""
"""An extension that kills a removal after core's transactions, before its record."""


def offered(cluster: Cluster) -> list[str]:
    """Return the URLs that clients are offered, once they include the caches."""
    urls = cluster.manifest_of_all(REPOSITORY)
    caches = {cluster.address(host) for host in cluster.all("cdn")}
    hosts = {urlsplit(url).hostname for url in urls}
    assert caches <= hosts, f"got {hosts}, expected {caches} among them"
    return urls


def status(cluster: Cluster, url: str) -> int:
    return cluster.get(url, method="HEAD").status


def test_a_removed_secret_is_gone_from_the_last_cache(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    work.commit("before.txt", uuid.uuid4().bytes, "before the secret")
    secret = work.commit("secret.txt", uuid.uuid4().bytes, "a password")
    work.hg("push").ok()
    cluster.wait_for_bundles(REPOSITORY)
    urls = wait_until("caches have the bundles", lambda: offered(cluster), 120)
    assert {status(cluster, url) for url in urls} == {200}
    through = alice.clone(cluster.url(REPOSITORY), tmp_path / "leaked")
    assert secret in through.heads()

    cluster.first("ssh").shell(STRIP.format(repository=REPOSITORY, node=secret))
    jobs = cluster.first("bundles")
    jobs.systemctl("start", UNIT).ok()

    # The manifest and the stores lose the bundles at once, even if a run is under way.
    manifest = f"/var/lib/hgfleet/manifests/{cluster.identity(REPOSITORY)}.manifest"
    assert jobs.shell(f"cat {manifest}") == ""
    caches = {cluster.address(host) for host in cluster.all("cdn")}
    stored = [url for url in urls if urlsplit(url).hostname not in caches]
    assert {status(cluster, url) for url in stored} == {404}
    assert secret not in cluster.remote_heads(REPOSITORY)
    # Clients are offered none of the bundles, and a cache asks the store before it answers again.
    wait_until(
        "clients are told of no bundle with the secret",
        lambda: not {*cluster.manifest_of_all(REPOSITORY)} & {*urls},
    )
    wait_until(
        "caches have forgotten them",
        lambda: {status(cluster, url) for url in urls} == {404},
        2 * REVALIDATED_S,
    )

    # New bundles are made, with everything but the secret.
    cluster.make_bundles(REPOSITORY).ok()
    wait_until("bundles are offered again", lambda: offered(cluster), 120)
    clone = alice.clone(cluster.url(REPOSITORY), tmp_path / "clone")
    assert "applying clone bundle from" in clone.made.output
    assert clone.hg("log", "-r", secret).code != 0
    clone.hg("verify").ok()


def test_a_removal_that_was_killed_reaches_mirrors_with_the_next_session(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    before = work.commit("before.txt", uuid.uuid4().bytes, "before the secret")
    secret = work.commit("secret.txt", uuid.uuid4().bytes, "a password")
    work.hg("push").ok()
    host = cluster.first("ssh")
    store = f"/srv/hg/repos/{REPOSITORY}/.hg/store"
    strip = STRIP.format(repository=REPOSITORY, node=secret)
    host.write(KILLED, KILLS)
    try:
        killed = host.run("sh", "-c", f"{strip} --config extensions.killed={KILLED}")
    finally:
        host.shell(f"rm {KILLED}")
    assert killed.code != 0
    assert host.run("test", "-e", f"{store}/pushlog-removal").code == 0

    alice.hg("identify", alice.ssh_url(REPOSITORY)).ok()

    assert host.run("test", "-e", f"{store}/pushlog-removal").code != 0
    record = host.shell(f"tail -n 1 {store}/pushlog")
    assert '"kind":"strip"' in record
    assert '"user":"operator:root"' in record
    host.shell(f"hgfleet pushlog verify {REPOSITORY}")
    # The session wakes the relay, but does not wait for mirrors.
    wait_until("mirrors follow", lambda: secret not in cluster.remote_heads(REPOSITORY))
    # Pushes still work.
    work.hg("update", "-q", before).ok()
    after = work.commit("after.txt", uuid.uuid4().bytes, "after the secret")
    work.hg("push", "-r", after).ok()
    assert after in cluster.remote_heads(REPOSITORY)
