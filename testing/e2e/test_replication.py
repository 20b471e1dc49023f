"""Pushes are on every mirror at once, private repositories stay private, and readers follow.

Tests without a mirror or the broker are in `testing/faults/test_fault_mirrors.py`.
"""

from __future__ import annotations

import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until
from testing.e2e.mirrors import (
    REPOSITORY,
    SECONDS,
    is_equal,
    log_of,
    mirrors_of,
    requests_after,
    wait_for_absence,
    wait_for_use,
)
from testing.e2e.people import basic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Client, Clone, Person
    from testing.e2e.service import Page

PRIVATE: Final = "e2e/private"
HEARTBEAT_SECONDS: Final = 15
"""Most seconds between lines of the feed of events."""
RECORDED: Final = re.compile(r"push (\d+) recorded; visible on (\d+)/(\d+) mirrors in [\d.]+ s")


@pytest.fixture(scope="module")
def mirrors(cluster: Cluster) -> list[Host]:
    """The web hosts that take no pushes."""
    return mirrors_of(cluster)


@pytest.fixture
def work(alice: Person, tmp_path: Path) -> Clone:
    """A clone to push from."""
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


def ask(cluster: Cluster, host: Host, path: str, headers: Mapping[str, str] | None = None) -> Page:
    """Ask a web host, past the proxy."""
    return cluster.get(f"https://{cluster.address(host)}:8443/{path}", headers=headers)


def heads(cluster: Cluster, host: Host, path: str = REPOSITORY) -> set[str]:
    page = ask(cluster, host, f"{path}?cmd=heads")
    assert page.status == 200, f"{host.name}: {page}"
    return set(page.body.split())


def refuses(cluster: Cluster, host: Host, who: Mapping[str, str]) -> bool:
    """Tell whether a web host refuses these credentials."""
    return ask(cluster, host, f"{PRIVATE}?cmd=heads", who).status == 401


def test_a_push_is_visible_on_every_mirror_when_its_client_is_told_so(
    cluster: Cluster, mirrors: list[Host], work: Clone
) -> None:
    numbers = []
    for _ in range(3):
        node = work.commit("greeting.txt", uuid.uuid4().bytes, "something new")
        said = work.hg("push").ok().output

        told = RECORDED.search(said)
        assert told, said
        assert (int(told[2]), int(told[3])) == (len(mirrors), len(mirrors)), said
        for host in mirrors:
            assert node in heads(cluster, host), host.name
        numbers.append(int(told[1]))
    assert numbers == list(range(numbers[0], numbers[0] + 3))


def test_clients_hear_of_a_push_when_every_mirror_shows_it(
    cluster: Cluster, mirrors: list[Host], work: Clone
) -> None:
    lines = cluster.lines(f"api/events?repository={REPOSITORY}")
    # From here on the feed sends new events.
    assert next(lines) == "retry: 2000"
    node = work.commit("heard.txt", uuid.uuid4().bytes, "something to hear of")
    work.hg("push").ok()
    quiet = 0
    for line in lines:
        field, _, text = line.partition(": ")
        if field == "data" and json.loads(text)["changesets"]["last"] == node:
            break
        quiet += line == ": alive"
        assert quiet * HEARTBEAT_SECONDS < SECONDS, "no event of the push"
    else:
        pytest.fail("the feed ended")
    for host in mirrors:
        assert node in heads(cluster, host), host.name


def test_bookmarks_and_phases_are_on_every_mirror(
    cluster: Cluster, mirrors: list[Host], work: Clone, alice: Person, tmp_path: Path
) -> None:
    name = f"mark-{uuid.uuid4().hex[:8]}"
    node = work.commit("marked.txt", uuid.uuid4().bytes, "to be marked")
    work.hg("bookmark", name).ok()
    work.hg("push", "--bookmark", name).ok()
    for number, host in enumerate(mirrors):
        url = f"https://{cluster.address(host)}:8443/{REPOSITORY}"
        copy = alice.clone(url, tmp_path / str(number), "--noupdate")
        shown = copy.hg("log", "-r", f"bookmark({name})", "-T", "{node} {phase}").ok().stdout
        assert shown == f"{node} public"
    work.hg("bookmark", "--delete", name).ok()
    # The exit code is 1, because there are no changesets to push.
    assert f"deleting remote bookmark {name}" in work.hg("push", "--bookmark", name).output
    for host in mirrors:
        shown = json.loads(ask(cluster, host, f"{REPOSITORY}/json-bookmarks").body)["bookmarks"]
        assert name not in [bookmark["bookmark"] for bookmark in shown], host.name


def test_what_is_private_on_the_primary_is_private_on_every_mirror(
    cluster: Cluster, mirrors: list[Host], alice: Person, bob: Person
) -> None:
    missing = "e2e/pryvate"
    for host in mirrors:
        page = ask(cluster, host, f"{PRIVATE}?cmd=heads")
        absent = ask(cluster, host, f"{missing}?cmd=heads")
        assert page.status == absent.status == 401
        assert page.body.replace(PRIVATE, missing) == absent.body
        for stranger in (basic("bob", bob.password), basic("alice", "wrong")):
            assert ask(cluster, host, f"{PRIVATE}?cmd=heads", stranger).status in (401, 404)
        answer = ask(cluster, host, f"{PRIVATE}?cmd=heads", basic("alice", alice.password))
        assert answer.status == 200


def test_a_token_signs_in_on_every_mirror_until_it_is_revoked(
    cluster: Cluster, mirrors: list[Host], alice: Person
) -> None:
    made = alice.ssh("token", "create", "--days", "1", "mirrors").ok()
    match = re.match(r"(hgt_[a-z2-7]{40})\n\nThis is token ([a-z2-7]{8})\.", made.stdout)
    assert match, made
    assert re.search(rf"accepted on \d/{len(mirrors)} mirrors", made.stderr), made
    who = basic("alice", match[1])
    try:
        for host in mirrors:
            assert ask(cluster, host, f"{PRIVATE}?cmd=heads", who).status == 200, host.name
    finally:
        revoked = alice.ssh("token", "revoke", match[2]).ok()
    assert re.search(rf"refused on \d/{len(mirrors)} mirrors", revoked.stderr), revoked
    for host in mirrors:
        # On a busy machine a mirror may be late; then the message names it.
        if host.name not in revoked.stderr:
            assert refuses(cluster, host, who), revoked
        wait_until(f"{host.name} refuses the token", partial(refuses, cluster, host, who), SECONDS)


@pytest.fixture
def own(bob: Person) -> Iterator[str]:
    """A repository that bob creates over SSH; deleted afterwards."""
    path = f"people/bob/mirrored-{uuid.uuid4().hex[:8]}"
    bob.ssh("repo", "create", path).ok()
    yield path
    bob.ssh("repo", "archive", path).ok()
    bob.ssh("repo", "delete", path, path).ok()


def test_a_repository_that_a_person_creates_is_on_every_mirror(
    cluster: Cluster, mirrors: list[Host], bob: Person, own: str, tmp_path: Path
) -> None:
    mine = bob.clone(bob.ssh_url(own), tmp_path / "mine")
    node = mine.commit("first.txt", b"first\n", "the first")
    said = mine.hg("push").ok().output
    assert f"visible on {len(mirrors)}/{len(mirrors)} mirrors" in said
    for host in mirrors:
        assert heads(cluster, host, own) == {node}


def test_clone_bundles_are_advertised_by_every_mirror(
    cluster: Cluster, mirrors: list[Host]
) -> None:
    cluster.wait_for_bundles("hgfleet")
    primary = ask(cluster, cluster.first("ssh"), "hgfleet?cmd=clonebundles").body.split()
    urls = sorted(word for word in primary if word.startswith("https://"))
    assert urls
    for host in mirrors:

        def advertised(host: Host = host) -> bool:
            page = ask(cluster, host, "hgfleet?cmd=clonebundles")
            assert page.status == 200
            advertised_urls = [word for word in page.body.split() if word.startswith("https://")]
            assert sorted(advertised_urls) == urls
            return True

        # The prober of each host reads new objects before clients are sent to them.
        wait_until(f"{host.name} advertises the bundles of the primary", advertised, SECONDS)


def test_a_mirror_refuses_changes_and_names_the_primary(
    cluster: Cluster, mirrors: list[Host]
) -> None:
    script = (
        f"cd /srv/hg/repos/{REPOSITORY}; runuser -u hg -- env HGRCPATH=/etc/hgfleet/hgrc"
        " HGFLEET_USER=operator:root /opt/hgfleet/current/bin/hg bookmark -r null of-a-test 2>&1"
        " || :"
    )
    for host in mirrors:
        said = host.shell(script)
        assert f"its primary is {cluster.first('ssh').name}" in said, said


def test_the_log_of_pushes_is_the_same_everywhere(
    cluster: Cluster, mirrors: list[Host], work: Clone
) -> None:
    work.commit("logged.txt", uuid.uuid4().bytes, "to be logged")
    work.hg("push").ok()
    primary = log_of(cluster.first("ssh"))
    assert primary
    for host in mirrors:
        assert log_of(host) == primary, host.name


def test_a_mirror_is_what_the_primary_is(mirrors: list[Host]) -> None:
    for host in mirrors:
        wait_until(f"{host.name} is equal to the primary", partial(is_equal, host), SECONDS)


# --- the proxy --------------------------------------------------------------------------------


def server_of(cluster: Cluster, client: Client, cursor: str) -> set[str]:
    """Return the web hosts to which the proxy sent requests of a client."""
    requests = requests_after(cluster, cursor)
    return {request["server"] for request in requests if request["client"] == client.address}


def test_a_client_stays_on_one_mirror_and_the_primary_serves_no_readers(
    cluster: Cluster, mirrors: list[Host], clients: Mapping[str, Client]
) -> None:
    cursor = cluster.first("proxy").journal_cursor()

    def read(client: Client) -> None:
        for _ in range(5):
            client.hg("identify", f"https://proxy1/{REPOSITORY}").ok()

    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(read, clients.values()))

    for client in clients.values():
        servers = server_of(cluster, client, cursor)
        assert len(servers) == 1
        assert servers <= {host.name for host in mirrors}


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[Callable[[Host], None]]:
    """Give a function that drains a web host until the test ends."""
    hosts: list[Host] = []

    def drain(host: Host) -> None:
        hosts.append(host)
        host.run("touch", "/etc/hgfleet/web.drain").ok()
        wait_for_absence(cluster, host)

    yield drain
    for host in hosts:
        host.run("rm", "/etc/hgfleet/web.drain").ok()
        wait_for_use(cluster, host)


@pytest.mark.disruptive
def test_readers_of_a_drained_mirror_go_on_at_another_and_at_last_at_the_primary(
    cluster: Cluster,
    mirrors: list[Host],
    clients: Mapping[str, Client],
    drained: Callable[[Host], None],
) -> None:
    client = clients["elsewhere"]
    remaining = {host.name for host in mirrors}
    for _ in mirrors:
        cursor = cluster.first("proxy").journal_cursor()
        client.hg("identify", f"https://proxy1/{REPOSITORY}").ok()
        (served,) = server_of(cluster, client, cursor)
        assert served in remaining
        remaining.discard(served)
        drained(cluster.host(served))
    cursor = cluster.first("proxy").journal_cursor()
    client.hg("identify", f"https://proxy1/{REPOSITORY}").ok()
    assert server_of(cluster, client, cursor) == {cluster.first("ssh").name}


def test_a_host_that_is_no_mirror_is_refused_by_the_source(cluster: Cluster) -> None:
    script = """
import socket, ssl, sys
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
if sys.argv[2:]:
    context.load_cert_chain("/etc/hgfleet/tls/cert.pem", "/etc/hgfleet/tls/key.pem")
try:
    raw = socket.create_connection((sys.argv[1], 7460), 20)
    with context.wrap_socket(raw, server_hostname=sys.argv[1]) as secure:
        head = "GET /v1/repositories HTTP/1.1", "Host: x", "Connection: close", "", ""
        secure.sendall("\\r\\n".join(head).encode())
        print((secure.recv(100) or b"closed").split(b"\\r")[0].decode())
except OSError as error:
    print("refused:", error)
"""
    source = cluster.first("ssh")
    primary = source.name
    # The firewall would refuse the connection, but this test is about the source itself.
    source.shell("hgfleet-firewall add insert rule inet hgfleet input tcp dport 7460 accept")
    try:
        for words in ((), ("certificate",)):
            said = cluster.first("proxy").run("python3", "-c", script, primary, *words).ok().stdout
            assert " 200 " not in said, said
            assert "Connection refused" not in said, said
    finally:
        source.systemctl("reload", "hgfleet-firewall.service").ok()
    mirror = next(host for host in cluster.all("web") if host.name != primary)
    said = mirror.run("python3", "-c", script, primary, "certificate").ok().stdout
    assert " 200 " in said, said
