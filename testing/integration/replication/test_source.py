"""The source of a primary, over TLS, as its mirrors use it."""

from __future__ import annotations

import http.client
import socket
import ssl
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from mercurial import changegroup, phases
from mercurial.repo import factory

from hgfleet.core.errors import UnavailableError
from hgfleet.pushlog.record import FIRST, hash_of, parse
from hgfleet.registry import dynamic_update
from hgfleet.registry.entry import Entry
from hgfleet.replication import changesets, registry_gate
from hgfleet.replication.source_client import GoneError, Position, SourceClient
from hgfleet.replication.source_requests import Selection
from hgfleet.storage import place
from testing.integration.support.hosts import IDENTITY, Authority, Host, Primary, client
from testing.integration.support.site import HGEXT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from testing.conftest import WaitFor


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def primary(tmp_path: Path, authority: Authority) -> Primary:
    made = Primary(tmp_path / "hg1", authority)
    made.create("team/tool")
    made.create("empty")
    made.declare("team/tool", "empty")
    return made


@pytest.fixture
def url(primary: Primary) -> Iterator[str]:
    with primary.serving() as url:
        yield url


@pytest.fixture
def mirror(tmp_path: Path, authority: Authority, url: str) -> Host:
    return Host(tmp_path / "hgweb1", "hgweb1", authority, url)


@pytest.fixture
def source(mirror: Host, url: str) -> SourceClient:
    return client(mirror, url)


def test_positions_are_the_ends_of_the_push_logs(primary: Primary, source: SourceClient) -> None:
    primary.push("team/tool", "one")
    line = primary.record("team/tool", phases=())
    assert sorted(source.repositories(), key=lambda one: one.path) == [
        Position("empty", "", 0, FIRST),
        Position("team/tool", IDENTITY, 2, hash_of(line)),
    ]


def test_a_log_is_sent_from_a_record_on(primary: Primary, source: SourceClient) -> None:
    for name in ("one", "two", "three"):
        primary.push("team/tool", name)
    whole = primary.log("team/tool").read_bytes().splitlines()
    assert list(source.log_after("team/tool", 0)) == whole
    assert list(source.log_after("team/tool", 2)) == whole[2:]
    assert list(source.log_after("team/tool", 3)) == []
    assert list(source.log_after("empty", 0)) == []


def test_a_line_that_is_not_complete_is_not_sent(primary: Primary, source: SourceClient) -> None:
    primary.push("team/tool", "one")
    with primary.log("team/tool").open("ab") as file:
        file.write(b'{"v":1,')
    assert [parse(line).id for line in source.log_after("team/tool", 0)] == [1]


def apply(host: Host, path: str, data: BinaryIO) -> list[str]:
    """Add a changegroup to a repository of a host; return its changesets."""
    ui = changesets.new_ui(host.hgrc)
    repo = factory.repository(ui, str(host.path(path)).encode())
    with repo.lock(), repo.transaction(b"test") as tr:
        unpacker = changegroup.getunbundler(b"03", data, b"GZ")
        unpacker.apply(repo, tr, b"pull", b"test", targetphase=phases.draft)
    return host.hg_in(path, "log", "--hidden", "-T", "{node}\n").split()[::-1]


def test_exactly_the_changesets_asked_for_are_sent(
    primary: Primary, mirror: Host, source: SourceClient
) -> None:
    nodes = [primary.push("team/tool", name) for name in ("one", "two", "three", "four")]
    mirror.create("team/tool")
    with source.changegroup("team/tool", nodes[:2]) as data:
        assert apply(mirror, "team/tool", data) == nodes[:2]
    with source.changegroup("team/tool", nodes[2:3]) as data:
        assert apply(mirror, "team/tool", data) == nodes[:3]
    with source.changesets("team/tool", Selection(heads=nodes[3:], common=nodes[2:3])) as data:
        assert apply(mirror, "team/tool", data) == nodes
    mirror.hg_in("team/tool", "verify")


def test_a_merge_of_known_and_new_changesets_is_sent(
    primary: Primary, mirror: Host, source: SourceClient
) -> None:
    base = primary.push("team/tool", "base")
    left = primary.push("team/tool", "left")
    primary.hg_in("team/tool", "update", base)
    right = primary.push("team/tool", "right")
    primary.hg_in("team/tool", "merge", left)
    merge = primary.push("team/tool", "merged")
    mirror.create("team/tool")
    # The left side and the merge are one push: its parents are known in part.
    for nodes in ([base, right], [left, merge]):
        with source.changegroup("team/tool", nodes) as data:
            apply(mirror, "team/tool", data)
    mirror.hg_in("team/tool", "verify")
    assert mirror.hg_in("team/tool", "heads", "-T", "{node}") == merge


def test_hidden_changesets_are_sent(primary: Primary, mirror: Host, source: SourceClient) -> None:
    first = primary.commit("team/tool", "one", "first")
    (primary.path("team/tool") / "one").write_text("second")
    primary.hg_in("team/tool", "commit", "--amend", "--message", "amended")
    second = primary.hg_in("team/tool", "log", "-r", "tip", "-T", "{node}")
    mirror.create("team/tool")
    with source.changegroup("team/tool", [first, second]) as data:
        assert apply(mirror, "team/tool", data) == [first, second]


def test_stripped_changesets_are_gone(primary: Primary, source: SourceClient) -> None:
    node = primary.push("team/tool", "one")
    primary.hg_in("team/tool", "strip", "--no-backup", node)
    with pytest.raises(GoneError, match=f"changeset {node} is not in the repository any more"):
        source.changegroup("team/tool", [node]).__enter__()


def test_a_registry_that_is_lost_has_no_stamp(primary: Primary, source: SourceClient) -> None:
    assert source.registry_stamp() == registry_gate.NONE
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/x"] = Entry("bob", created="2026-11-21T00:00:00Z", read=())
    assert source.registry_stamp() == registry_gate.stamp(primary.dynamic.read_bytes())
    primary.dynamic.unlink()
    with pytest.raises(UnavailableError, match="missing, and it existed before"):
        source.registry_stamp()


def test_a_large_changegroup_is_whole(primary: Primary, mirror: Host, source: SourceClient) -> None:
    text = "".join(f"{zlib.crc32(b'%d' % number):x}\n" for number in range(300_000))
    node = primary.push("team/tool", "large", text)
    mirror.create("team/tool")
    with source.changegroup("team/tool", [node]) as data:
        assert apply(mirror, "team/tool", data) == [node]


def test_repositories_that_are_not_registered_are_not_served(
    primary: Primary, source: SourceClient
) -> None:
    primary.create("left/over")
    for path in ("left/over", "no/such"):
        with pytest.raises(GoneError, match="no repository in service has this path"):
            list(source.log_after(path, 0))
    with pytest.raises(UnavailableError, match="expected a path"):
        list(source.log_after("../etc", 0))


def test_hosts_that_are_no_mirrors_are_refused(
    tmp_path: Path, primary: Primary, authority: Authority, url: str
) -> None:
    other = Host(tmp_path / "s3", "s3-1", authority, url)
    with pytest.raises(UnavailableError, match="s3-1 is no mirror of this service"):
        list(client(other, url).repositories())
    assert "status=403" in primary.said[-1]


def test_clients_without_a_certificate_of_the_site_do_not_get_in(
    tmp_path: Path, authority: Authority, url: str
) -> None:
    foreign = Authority(tmp_path / "foreign")
    certificate, key = foreign.host("hgweb1")
    host = Host(tmp_path / "hgweb1", "hgweb1", authority, url)
    host.settings = replace(host.settings, certificate=certificate, key=key)
    with pytest.raises(UnavailableError):
        list(client(host, url).repositories())
    port = int(url.rpartition(":")[2])
    context = ssl.create_default_context(cafile=str(authority.file))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)

    def ask() -> None:
        connection.request("GET", "/v1/repositories")
        connection.getresponse()

    with pytest.raises(OSError):  # noqa: PT011  (TLS 1.3 tells of it in several ways)
        ask()


def test_a_silent_client_delays_no_other(source: SourceClient, url: str) -> None:
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)):
        assert len(list(source.repositories())) == 2


def test_senseless_requests_are_answered_with_a_sentence(
    mirror: Host, authority: Authority, url: str
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(mirror.settings.certificate, mirror.settings.key)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", int(url.rpartition(":")[2]), context=context, timeout=30
    )
    for method, target, body, status in (
        ("GET", "/", None, 404),
        ("GET", "/v2/log", None, 404),
        ("POST", "/v1/log?path=empty", b"", 405),
        ("GET", "/v1/log?path=empty&after=-1", None, 400),
        ("GET", "/v1/log?path=empty&path=team/tool", None, 400),
        ("GET", "/v1/documents/..%2f..%2fetc%2fpasswd", None, 404),
        ("GET", "/v1/documents/%00", None, 400),
        ("POST", "/v1/changesets?path=empty", b"{}", 400),
        ("POST", "/v1/changesets?path=empty", b'{"nodes":["x"]}', 400),
        ("POST", "/v1/changesets?path=empty", b"[" * 100_000, 400),
    ):
        connection.request(method, target, body)
        answer = connection.getresponse()
        assert (answer.status, target) == (status, target)
        assert answer.read().endswith(b"\n")


def test_an_answer_that_ends_early_is_an_error(
    primary: Primary, source: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        primary.push("team/tool", name)

    def broken(*_: object) -> Iterator[bytes]:
        yield b"x" * 400_000 + b"\n"
        raise OSError("disk")

    monkeypatch.setattr("hgfleet.replication.source.lines_after", broken)
    with pytest.raises(UnavailableError, match="not complete"):
        list(source.log_after("team/tool", 0))
    assert "status=499" in primary.said[-1]


def test_renewed_certificates_are_used_at_once(
    authority: Authority, url: str, mirror: Host
) -> None:
    assert list(client(mirror, url).repositories())
    authority.host("hg1")
    with pytest.raises(UnavailableError, match="IP address mismatch"):
        list(client(mirror, url).repositories())


def test_a_repository_is_closed_after_its_answer(
    primary: Primary, source: SourceClient, wait_for: WaitFor
) -> None:
    """A storage upgrade keeps an old store until its last reader is gone."""
    with primary.hgrc.open("a") as file:
        file.write(f"[extensions]\npinned_store = {HGEXT / 'pinned_store.py'}\n")
    node = primary.push("team/tool", "one")
    store = primary.path("team/tool") / ".hg/store"
    with source.changegroup("team/tool", [node]) as data:
        assert data.read()
    assert source.state("team/tool").heads

    wait_for("the store has no reader", lambda: not place.is_read(store))


def test_digests_and_state_are_those_of_the_last_record(
    primary: Primary, source: SourceClient
) -> None:
    public = primary.commit("team/tool", "one", "one")
    primary.hg_in("team/tool", "phase", "--public", public)
    draft = primary.commit("team/tool", "two", "two")
    secret = primary.commit("team/tool", "three", "three", "--secret")
    primary.hg_in("team/tool", "bookmark", "--rev", draft, "naïve mark")
    line = primary.record("team/tool", public, draft, secret)
    state = source.state("team/tool")
    assert (state.repository, state.id, state.hash) == (IDENTITY, 1, hash_of(line))
    assert state.heads == (secret,)
    assert state.phases == {"public": (public,), "secret": (secret,)}
    assert state.bookmarks == (("naïve mark", draft),)
    assert source.digests("team/tool") == state.digests()
    before = state.digests()
    primary.hg_in("team/tool", "phase", "--public", draft)
    after = source.digests("team/tool")
    assert after.phases != before.phases
    assert (after.heads, after.bookmarks) == (before.heads, before.bookmarks)
