"""Clones of a private repository come from a private store, only for people who may read it."""

from __future__ import annotations

import os
import re
import tomllib
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.objectstore.presign import PrivateStore, presign
from testing.e2e.command import wait_until
from testing.e2e.host import changesets_sent
from testing.e2e.people import basic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

REPOSITORY = "e2e/confidential"
SIGNING = "/etc/hgfleet/signing.toml"
# Random bytes, so that no compression makes a clone cheap.
CONTENT_BYTES = 300_000
SMALL_BYTES = 20_000


@pytest.fixture(scope="module")
def source(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A new changeset in the repository, and bundles with it."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path_factory.mktemp("source") / "work")
    if not work.heads():
        work.commit("large.bin", os.urandom(CONTENT_BYTES), "something of size")
    work.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
    work.hg("push").ok()
    cluster.wait_for_bundles(REPOSITORY)
    offered = wait_until("bundles are offered", lambda: told(cluster, alice))
    assert len(offered) == 2
    return work


@pytest.fixture(scope="module")
def store(cluster: Cluster) -> PrivateStore:
    """The private store, with the key of its reader."""
    text = cluster.first("ssh").shell(f"cat {SIGNING}")
    (fields,) = tomllib.loads(text)["store"]
    return PrivateStore(**fields)


@pytest.fixture
def token(alice: Person) -> Iterator[str]:
    """A token for alice, revoked afterwards."""
    said = alice.ssh("token", "create", "--days", "1", "private", "bundles").ok().stdout
    match = re.match(r"(hgt_[a-z2-7]{40})\n\nThis is token ([a-z2-7]{8})\.", said)
    assert match, said
    yield match[1]
    alice.ssh("token", "revoke", match[2]).ok()


def told(cluster: Cluster, person: Person) -> list[str]:
    """The URLs that a person gets over HTTPS, with a password."""
    who = basic(person.name, person.password)
    page = cluster.get(f"{REPOSITORY}?cmd=clonebundles", headers=who)
    assert page.status == 200, page
    assert page.headers["cache-control"] == "private, no-store"
    assert "etag" not in page.headers
    return [line.split(" ")[0] for line in page.body.splitlines() if line]


def published(cluster: Cluster) -> list[str]:
    """The URLs in the manifest itself."""
    manifest = f"/var/lib/hgfleet/manifests/{cluster.identity(REPOSITORY)}.manifest"
    lines = cluster.first("bundles").shell(f"cat {manifest}").splitlines()
    assert all(" private=yes " in f"{line} " for line in lines)
    return [line.split(" ")[0] for line in lines]


def served(cluster: Cluster, cursor: str, url: str) -> Callable[[], list[str]]:
    """Search the log of the store for downloads of an object."""
    host, key = cluster.first("objectstore"), url.rpartition("/")[2]

    def look() -> list[str]:
        lines = host.journal_after(cursor, "--unit=hgfleet-objectstore")
        return [line for line in lines if key in line and " 200 " in line]

    return look


def test_a_reader_clones_over_ssh_from_the_private_store(
    cluster: Cluster, source: Clone, alice: Person, store: PrivateStore, tmp_path: Path
) -> None:
    cursor = cluster.first("objectstore").journal_cursor()
    log = cluster.sessions(REPOSITORY, "alice")

    clone = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "clone")

    url = published(cluster)[0]
    assert url.startswith(f"{store.url}/{cluster.identity(REPOSITORY)}/")
    assert f"applying clone bundle from {url}?X-Amz-Algorithm=" in clone.made.output, clone.made
    assert log.written() < SMALL_BYTES < clone.size()
    wait_until("the store logs the download", served(cluster, cursor, url), 10)
    assert clone.heads() == source.heads()
    clone.hg("verify").ok()


def test_a_reader_clones_over_https_with_a_token_from_the_private_store(
    cluster: Cluster, source: Clone, alice: Person, token: str, tmp_path: Path
) -> None:
    cursor = cluster.first("objectstore").journal_cursor()
    requests = cluster.requests(REPOSITORY)

    clone = alice.signed_in(token, tmp_path).clone(cluster.url(REPOSITORY), tmp_path / "clone")

    url = published(cluster)[0]
    assert f"applying clone bundle from {url}?X-Amz-Algorithm=" in clone.made.output, clone.made
    lines = requests.wait("getbundle")
    assert changesets_sent(lines) == 0, lines
    assert sum(line["bytes"] for line in lines) < SMALL_BYTES, lines
    wait_until("the store logs the download", served(cluster, cursor, url), 10)
    assert clone.heads() == source.heads()


@pytest.mark.usefixtures("source")
def test_a_signed_url_is_for_one_download_of_one_object_in_its_time(
    cluster: Cluster, alice: Person, store: PrivateStore
) -> None:
    first, second = told(cluster, alice)
    assert re.search(r"X-Amz-Expires=600&", first)
    # The URL is enough, without a key or a password.
    assert cluster.get(first).status == 200
    path, _, query = first.partition("?")
    other = second.partition("?")[0]
    now = datetime.now(UTC)

    def sign(age: timedelta) -> str:
        return presign(path, store, now - age, 600, "GET")

    assert cluster.get(sign(timedelta(minutes=9))).status == 200
    for what, url, method in (
        ("unsigned", path, "GET"),
        ("for another object", f"{other}?{query}", "GET"),
        ("for another request", first, "HEAD"),
        ("for another request", first, "DELETE"),
        ("to list", f"{store.url}/?{query}", "GET"),
        ("expired", sign(timedelta(minutes=11)), "GET"),
        ("for longer", first.replace("Expires=600", "Expires=6000"), "GET"),
    ):
        assert cluster.get(url, method=method).status == 403, what


@pytest.mark.usefixtures("source")
def test_who_may_not_read_it_is_told_no_url(cluster: Cluster, bob: Person) -> None:
    for command in ("clonebundles", "clonebundles_manifest"):
        asked = f"{REPOSITORY}?cmd={command}"
        answers = [cluster.get(asked), cluster.get(asked, headers=basic("bob", bob.password))]
        assert [page.status for page in answers] == [401, 404]
        assert not any("X-Amz" in page.body or "private" in page.body for page in answers)
    bob.ssh(f"hg -R {REPOSITORY} serve --stdio", stdin="clonebundles\n").refused(
        "There is no repository"
    )


@pytest.mark.usefixtures("source")
def test_no_page_names_it(cluster: Cluster, store: PrivateStore) -> None:
    for host in cluster.all("objectstore"):
        script = "cd /srv/objectstore/data && cat bundles/index.html bundles/bundles.json"
        pages = host.shell(script)
        assert "sandbox/smoke" in pages
        assert REPOSITORY not in pages
    objects = cluster.first("objectstore").shell("cd /srv/objectstore/data && find . -type f")
    assert f"./private/{cluster.identity(REPOSITORY)}/" in objects
    assert f"./bundles/{cluster.identity(REPOSITORY)}/" not in objects
    for name in ("index.html", "bundles.json"):
        assert cluster.get(f"{store.url}/{name}").status == 403


@pytest.mark.usefixtures("source")
def test_what_signs_is_out_of_reach_for_people(
    cluster: Cluster, alice: Person, store: PrivateStore
) -> None:
    """Alice may push and read, but no input makes her hg session show a file of the host."""
    asked = []
    for path in (SIGNING, f"../../../../../..{SIGNING}", f".hg/bundle-cache/../../../..{SIGNING}"):
        asked.append(f"get_cached_bundle_inline\npath {len(path)}\n{path}")
        asked.append(f"lookup\nkey {len(path)}\n{path}")
    for request in asked:
        said = alice.ssh(f"hg -R {REPOSITORY} serve --stdio", stdin=request).output
        assert store.secret_key not in said
        assert "access_key" not in said
    for words in (("cat", SIGNING), ("hg", "config"), ("repo", "show", f"file:{SIGNING}")):
        assert store.secret_key not in alice.ssh(*words).output
    for rest in (f"raw-file/tip{SIGNING}", f"static/../../..{SIGNING}", f"?style={SIGNING}"):
        page = cluster.get(f"{REPOSITORY}/{rest}", headers=basic("alice", alice.password))
        assert store.secret_key not in page.body


@pytest.mark.usefixtures("source")
def test_nothing_signed_and_no_key_is_written_anywhere(
    cluster: Cluster, alice: Person, store: PrivateStore, tmp_path: Path
) -> None:
    cursors = {host.name: host.journal_cursor() for host in cluster.hosts}
    for number, person in enumerate((alice, alice.signed_in(alice.password, tmp_path))):
        address = (alice.ssh_url(REPOSITORY), cluster.url(REPOSITORY))[number]
        made = person.clone(address, tmp_path / str(number)).made.output
        signature = re.search(r"X-Amz-Signature=([0-9a-f]{64})", made)
        assert signature, made
        for host in cluster.hosts:
            said = "\n".join(host.journal_after(cursors[host.name]))
            said += host.shell("cat /var/log/hgfleet/*/*.log /var/log/nginx/*.log 2>&1 || true")
            said += host.shell("cat /run/hgfleet-steering/health.* 2>&1 || true")
            said += host.shell("ps -eww -o args")
            assert signature[1] not in said, host.name
            assert store.secret_key not in said, host.name
    cluster.make_bundles(REPOSITORY).ok()
    said = "\n".join(cluster.first("bundles").journal_after(cursors[cluster.first("bundles").name]))
    assert f"repository={REPOSITORY}" in said
    assert "X-Amz-" not in said


@pytest.mark.disruptive
@pytest.mark.usefixtures("source")
def test_without_a_key_clones_come_from_the_server_and_the_log_says_why(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    hosts = cluster.all("web")
    cursors = [(host, host.journal_cursor()) for host in hosts]
    for host in hosts:
        host.shell(f"mv {SIGNING} {SIGNING}.away")
    try:
        # Steering notices too; neither steering nor the sessions may send clients there.
        clones = [
            alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "ssh"),
            alice.signed_in(alice.password, tmp_path).clone(
                cluster.url(REPOSITORY), tmp_path / "https"
            ),
        ]
        assert not any("clone bundle" in clone.made.output for clone in clones)
        assert told(cluster, alice) == []

        def noticed() -> bool:
            said = [
                "\n".join(host.journal_after(cursor, "--unit=hgfleet-steering"))
                for host, cursor in cursors
            ]
            return all(
                re.search(f"endpoint-down endpoint=private .*{SIGNING}", text) for text in said
            )

        wait_until("the prober of each host says why", noticed)
    finally:
        for host in hosts:
            host.shell(f"mv {SIGNING}.away {SIGNING}")
    wait_until("bundles are offered again", lambda: told(cluster, alice))
