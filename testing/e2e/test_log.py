"""A push and a clone, traced through the logs of all hosts by the id that the client reads."""

from __future__ import annotations

import json
import re
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.e2e.command import wait_until
from testing.e2e.mirrors import mirrors_of, requests_after
from testing.e2e.people import basic

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone, Person

REPOSITORY: Final = "e2e/replication"
HGFLEET: Final = "/opt/hgfleet/current/bin/hgfleet"
ID: Final = re.compile(r"; id ([0-9a-f]{16})$", re.MULTILINE)
SECONDS: Final = 30
"""For lines that are written after the answer, on a machine under load."""


@pytest.fixture
def work(alice: Person, tmp_path: Path) -> Clone:
    """A clone to push from."""
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


def push(work: Clone) -> str:
    """Push something new; return the id that the pusher reads."""
    work.commit("followed.txt", uuid.uuid4().bytes, "something to follow")
    said = work.hg("push").ok().output
    match = ID.search(said)
    assert match, said
    return match[1]


def lines(host: Host, *names: str) -> list[dict[str, Any]]:
    """Return the entries about some ids or pushes on a host."""
    host.run("journalctl", "--sync").ok()
    done = host.run(HGFLEET, "log", "--format", "json", *names)
    assert done.code in (0, 1), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def events(entries: list[dict[str, Any]], source: str) -> list[str]:
    return [line["fields"].get("event", "") for line in entries if line["source"] == source]


def applied_lines(mirror: Host, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(mirror, name) if line["source"] == "hgfleet-applier"]


def test_a_push_is_followed_from_sshd_to_each_mirror(cluster: Cluster, work: Clone) -> None:
    name = push(work)
    primary = cluster.first("ssh")

    def ended() -> list[dict[str, Any]]:
        entries = lines(primary, name)
        return entries if "session-end" in events(entries, "hgfleet-shell") else []

    entries = wait_until("the end of the session in the log", ended, SECONDS)
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)
    said = [entry["message"] for entry in entries if entry["source"] == "sshd-session"]
    assert any(line.startswith("Accepted publickey for hg from ") for line in said), entries
    session = events(entries, "hgfleet-shell")
    assert session[0] == "session"
    assert {"push", "session-end"} <= set(session)
    assert "relay.published" in events(entries, "hgfleet-relay")
    pushes = {entry["fields"]["push"] for entry in entries if "push" in entry["fields"]}
    assert len(pushes) == 1, entries

    for mirror in mirrors_of(cluster):
        # Found by the id, which the message carries, and by the name of the push.
        for wanted in (name, pushes.copy().pop()):
            (applied,) = wait_until(
                f"the push in the log of {mirror.name}",
                partial(applied_lines, mirror, wanted),
                SECONDS,
            )
            assert applied["fields"]["event"] == "applied"
            assert applied["fields"]["repository"] == REPOSITORY
            assert applied["fields"]["id"] == name
            assert {applied["fields"]["push"]} == pushes


def test_the_lines_of_all_hosts_are_merged_by_time(
    cluster: Cluster, work: Clone, tmp_path: Path
) -> None:
    name = push(work)
    hosts = {cluster.first("ssh"), *mirrors_of(cluster)}
    for host in hosts:
        wait_until(f"lines of {host.name}", partial(lines, host, name), SECONDS)
    file = tmp_path / "lines"
    cluster.ansible(
        "ansible-playbook",
        "ansible/playbooks/log.yml",
        "--extra-vars",
        json.dumps({"log_id": name, "log_file": str(file)}),
    ).ok()
    merged = file.read_text().splitlines()
    assert merged == sorted(merged)
    assert {line.split()[1] for line in merged} == {host.name for host in hosts}


def test_an_id_that_is_none_is_refused_and_an_unknown_one_is_not_found(cluster: Cluster) -> None:
    primary = cluster.first("ssh")
    primary.run(HGFLEET, "log", ".*").refused("expected the id of a session")
    missing = primary.run(HGFLEET, "log", uuid.uuid4().hex[:16])
    assert (missing.code, missing.stdout) == (1, "")
    assert "no log line of the last 2 days" in missing.stderr


def test_a_clone_is_followed_from_the_proxy_to_the_worker(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    proxy = cluster.first("proxy")
    cursor = proxy.journal_cursor()
    alice.clone(cluster.url(REPOSITORY), tmp_path / "clone", "--noupdate")
    path = f"/{REPOSITORY}?cmd=getbundle"

    def logged() -> list[dict[str, Any]]:
        return [entry for entry in requests_after(cluster, cursor) if entry["uri"].startswith(path)]

    request = wait_until("the clone in the proxy's log", logged, SECONDS)[-1]
    assert re.fullmatch(r"[0-9a-f]{16}", request["id"]), request
    (at_proxy,) = lines(proxy, request["id"])
    assert (at_proxy["source"], at_proxy["fields"]["server"]) == ("haproxy", request["server"])
    web = cluster.host(request["server"])

    def both() -> list[dict[str, Any]]:
        entries = [entry for entry in lines(web, request["id"]) if "status" in entry["fields"]]
        return entries if {entry["source"] for entry in entries} == {"nginx", "hgfleet-web"} else []

    entries = wait_until(f"the clone in the logs of {web.name}", both, SECONDS)
    for entry in entries:
        assert entry["fields"]["status"] == "200"
        assert entry["fields"]["client"] == request["client"]
    (at_worker,) = [entry for entry in entries if entry["source"] == "hgfleet-web"]
    assert at_worker["fields"]["repository"] == REPOSITORY
    assert at_worker["fields"]["command"] == "getbundle"


def test_a_client_reads_the_id_of_its_request_and_cannot_choose_it(
    cluster: Cluster, bob: Person
) -> None:
    own = uuid.uuid4().hex[:16]
    headers = {"X-Request-ID": own, "X-Forwarded-For": "192.0.2.66", **basic("bob", bob.password)}
    seen = []
    for _ in range(2):
        answer = cluster.get(f"{REPOSITORY}?cmd=heads", headers=headers)
        assert answer.status == 200
        seen.append(answer.headers["x-request-id"])
    assert len({own, *seen}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{16}", each) for each in seen), seen
    # A client past the proxy sends nginx an id and an address, which nginx ignores.
    mirror = mirrors_of(cluster)[0]
    url = cluster.url_past_proxy(mirror, f"{REPOSITORY}?cmd=heads&own={own}")
    # The worker refuses the argument `own`, by which the test finds the line of the request.
    refused = cluster.get(url, headers=headers)
    assert refused.headers["content-type"] == "application/hg-error"

    def logged() -> list[str]:
        said = mirror.shell(f"grep -h 'own={own}' /var/log/nginx/access.log || :")
        return said.splitlines()

    (line,) = wait_until("the request in nginx's log", logged, SECONDS)
    assert json.loads(line)["id"] != own
    assert lines(mirror, own) == []
