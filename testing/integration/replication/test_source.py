"""The source of a primary, over TLS, as its mirrors use it."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest
from mercurial import changegroup, phases
from mercurial.repo import factory

from hgfleet.core import identity as identities
from hgfleet.core.errors import UnavailableError
from hgfleet.pushlog.record import FIRST, hash_of, parse
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.replication.repositories import readers_gate
from hgfleet.replication.source import changesets, requests
from hgfleet.replication.source.answers import HEAVY, Source, lines_after
from hgfleet.replication.source.client import (
    FORMER_S,
    GoneError,
    Position,
    RepositoryError,
    SourceClient,
)
from hgfleet.replication.source.requests import Selection
from hgfleet.replication.terms import repository_fences
from hgfleet.storage import work_folder
from testing.integration.support.hosts import IDENTITY, Authority, Host, Primary, client
from testing.integration.support.site import HGEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from testing.conftest import WaitFor

TOOL = IDENTITY
EMPTY = "e0" * 16
OTHER = "0a" * 16


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def primary(tmp_path: Path, authority: Authority) -> Primary:
    made = Primary(tmp_path / "hg1", authority)
    made.create("team/tool")
    made.create("empty")
    made.declare("team/tool", "empty")
    made.identify("team/tool", TOOL)
    made.identify("empty", EMPTY)
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
    assert sorted(source.repositories(), key=lambda position: position.path) == [
        Position(EMPTY, "empty", 0, FIRST),
        Position(TOOL, "team/tool", 2, hash_of(line)),
    ]


def test_a_log_is_sent_from_a_record_on(primary: Primary, source: SourceClient) -> None:
    for name in ("one", "two", "three"):
        primary.push("team/tool", name)
    whole = primary.log("team/tool").read_bytes().splitlines()
    assert list(source.log_after(TOOL, 0)) == whole
    assert list(source.log_after(TOOL, 2)) == whole[2:]
    assert list(source.log_after(TOOL, 3)) == []
    assert list(source.log_after(EMPTY, 0)) == []


def test_a_line_that_is_not_complete_is_not_sent(primary: Primary, source: SourceClient) -> None:
    primary.push("team/tool", "one")
    with primary.log("team/tool").open("ab") as file:
        file.write(b'{"v":1,')
    assert [parse(line).id for line in source.log_after(TOOL, 0)] == [1]


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
    with source.changegroup(TOOL, nodes[:2]) as data:
        assert apply(mirror, "team/tool", data) == nodes[:2]
    with source.changegroup(TOOL, nodes[2:3]) as data:
        assert apply(mirror, "team/tool", data) == nodes[:3]
    with source.changesets(TOOL, Selection(heads=nodes[3:], common=nodes[2:3])) as data:
        assert apply(mirror, "team/tool", data) == nodes
    mirror.hg_in("team/tool", "verify")


def test_changesets_with_others_between_them_are_not_those_of_a_push(
    primary: Primary, source: SourceClient
) -> None:
    """A changegroup of them would have no manifests that the others have as well."""
    first, _second, third = (primary.push("team/tool", name) for name in ("one", "two", "three"))
    with (
        pytest.raises(GoneError, match="later changesets between them"),
        source.changegroup(TOOL, [first, third]),
    ):
        pass


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
    # The left side and the merge are pushed together: their parents are known in part.
    for nodes in ([base, right], [left, merge]):
        with source.changegroup(TOOL, nodes) as data:
            apply(mirror, "team/tool", data)
    mirror.hg_in("team/tool", "verify")
    assert mirror.hg_in("team/tool", "heads", "-T", "{node}") == merge


def test_hidden_changesets_are_sent(primary: Primary, mirror: Host, source: SourceClient) -> None:
    first = primary.commit("team/tool", "one", "first")
    (primary.path("team/tool") / "one").write_text("second")
    primary.hg_in("team/tool", "commit", "--amend", "--message", "amended")
    second = primary.hg_in("team/tool", "log", "-r", "tip", "-T", "{node}")
    mirror.create("team/tool")
    with source.changegroup(TOOL, [first, second]) as data:
        assert apply(mirror, "team/tool", data) == [first, second]


def test_stripped_changesets_are_gone(primary: Primary, source: SourceClient) -> None:
    node = primary.push("team/tool", "one")
    primary.hg_in("team/tool", "strip", "--no-backup", node)
    with pytest.raises(GoneError, match=f"changeset {node} is no longer in the repository"):
        source.changegroup(TOOL, [node]).__enter__()


def test_a_registry_that_is_lost_has_no_stamp(primary: Primary, source: SourceClient) -> None:
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/x"] = Entry("bob", created="2026-11-21T00:00:00Z", read=())
    assert source.registry_stamp() == readers_gate.stamp(primary.dynamic.read_bytes())
    primary.dynamic.unlink()
    with pytest.raises(UnavailableError, match="missing, and it existed before"):
        source.registry_stamp()


def test_a_large_changegroup_is_whole(primary: Primary, mirror: Host, source: SourceClient) -> None:
    text = "".join(f"{zlib.crc32(b'%d' % number):x}\n" for number in range(300_000))
    node = primary.push("team/tool", "large", text)
    mirror.create("team/tool")
    with source.changegroup(TOOL, [node]) as data:
        assert apply(mirror, "team/tool", data) == [node]


def test_repositories_that_are_not_registered_are_not_served(
    primary: Primary, source: SourceClient
) -> None:
    primary.create("left/over")
    node = primary.commit("left/over", "one", "one")
    primary.record("left/over", node, identity="ab" * 16)
    for identity in ("ab" * 16, "cd" * 16):
        with pytest.raises(GoneError, match="no such repository is in service"):
            list(source.log_after(identity, 0))
    with pytest.raises(RepositoryError, match="got 'team/tool', expected the identity"):
        list(source.log_after("team/tool", 0))


def test_a_repository_that_was_deleted_is_told_apart_from_an_unknown_one(
    primary: Primary, source: SourceClient
) -> None:
    with dynamic_update.update(primary.dynamic) as change:
        change.note_purged("9a" * 16)
    with pytest.raises(GoneError, match=r"\(410\): '9a9a.*: the repository was deleted"):
        source.state("9a" * 16)


def test_the_state_of_a_fenced_repository_is_not_given(
    primary: Primary, source: SourceClient
) -> None:
    """A mirror that is made again from it would lose the last copy of the lost push."""
    primary.record("team/tool", primary.commit("team/tool", "one", "one"))
    terms = primary.settings.terms
    repository_fences.fence(terms, repository_fences.Fenced(TOOL, "team/tool", 2))
    for ask in (source.state, source.digests):
        with pytest.raises(
            UnavailableError, match=r"\(503\).*team/tool: fenced, because mirrors have a push"
        ):
            ask(TOOL)
    assert [position.id for position in source.repositories() if position.identity == TOOL] == [1]
    assert len(list(source.log_after(TOOL, 0))) == 1
    repository_fences.lift(terms, TOOL)
    assert source.state(TOOL).id == 1


def test_the_path_of_a_repository_is_that_of_the_registry_now(
    primary: Primary, source: SourceClient
) -> None:
    """Renamed, and another repository made at its path: each identity has its own content."""
    first = primary.push("team/tool", "one")
    primary.path("team/tool").rename(primary.path("team/moved"))
    primary.create("team/tool")
    primary.identify("team/moved", TOOL)
    primary.identify("team/tool", OTHER)
    primary.declare("team/tool", "team/moved", "empty")
    other = primary.push("team/tool", "two")
    assert source.state(TOOL).heads == (first,)
    assert source.state(OTHER).heads == (other,)
    assert [parse(line).repository for line in source.log_after(TOOL, 0)] == [TOOL]
    listed = {position.path: position.identity for position in source.repositories()}
    assert listed == {"team/tool": OTHER, "team/moved": TOOL, "empty": EMPTY}


@pytest.mark.parametrize("in_folder", [OTHER, ""])
def test_a_folder_that_is_another_repository_than_its_entry_is_not_served(
    primary: Primary, source: SourceClient, in_folder: str
) -> None:
    node = primary.push("team/tool", "one")
    file = primary.path("team/tool") / identities.FILE
    file.write_text(identities.text(in_folder)) if in_folder else file.unlink()
    got = in_folder or "a repository without identity"
    for ask in (
        lambda: list(source.log_after(TOOL, 0)),
        lambda: source.state(TOOL),
        lambda: source.digests(TOOL),
        lambda: source.changegroup(TOOL, [node]).__enter__(),
    ):
        with pytest.raises(RepositoryError, match=f"got .*{got}, expected {TOOL}"):
            ask()
    (listed,) = (position for position in source.repositories() if position.identity == TOOL)
    assert (listed.path, listed.id) == ("team/tool", 0)
    assert got in listed.problem


def test_a_folder_that_comes_to_the_path_during_an_answer_is_not_served(
    primary: Primary, source: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary.push("team/tool", "one")
    primary.create("team/other")
    primary.record("team/other", primary.commit("team/other", "two", "two"), identity=OTHER)

    def exchanged(log: Path, after: int) -> Iterator[bytes]:
        primary.path("team/tool").rename(primary.path("gone"))
        primary.path("team/other").rename(primary.path("team/tool"))
        return lines_after(log, after)

    monkeypatch.setattr("hgfleet.replication.source.answers.lines_after", exchanged)
    with pytest.raises(RepositoryError, match="got a repository without identity"):
        list(source.log_after(TOOL, 0))


def test_a_repository_that_comes_to_the_path_and_its_entry_is_not_taken_for_the_one_asked_for(
    primary: Primary, source: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renamed, and another made at its path, after the request was given its path."""
    primary.push("team/tool", "one")
    primary.create("team/other")
    primary.record("team/other", primary.commit("team/other", "two", "two"), identity=OTHER)
    find = Source._path

    def path(self: Source, request: requests.Request) -> str:
        former = find(self, request)
        primary.path("team/tool").rename(primary.path("team/moved"))
        primary.path("team/other").rename(primary.path("team/tool"))
        primary.identify("team/moved", TOOL)
        primary.identify("team/tool", OTHER)
        primary.declare("team/tool", "team/moved", "empty")
        return former

    monkeypatch.setattr(Source, "_path", path)
    with pytest.raises(RepositoryError, match=f"got repository {OTHER}, expected {TOOL}"):
        list(source.log_after(TOOL, 0))
    monkeypatch.undo()
    assert len(list(source.log_after(TOOL, 0))) == 1


def test_a_push_log_of_another_repository_is_a_problem_of_its_own(
    primary: Primary, source: SourceClient
) -> None:
    node = primary.commit("team/tool", "one", "one")
    primary.record("team/tool", node, identity=OTHER)
    (listed,) = (position for position in source.repositories() if position.identity == TOOL)
    assert (listed.id, listed.problem) == (
        0,
        f"team/tool: its push log belongs to repository {OTHER}",
    )
    with pytest.raises(RepositoryError, match=f"sent the state of {OTHER}"):
        source.state(TOOL)


def damage_the_log(primary: Primary) -> None:
    with primary.log("team/tool").open("ab") as file:
        file.write(b"nonsense\n")


def damage_the_store(primary: Primary) -> None:
    for file in (primary.path("team/tool") / ".hg/store").glob("00changelog.*"):
        file.write_bytes(b"\0\1\0\2" + b"x" * 124)


def take_the_store_away(primary: Primary) -> None:
    (primary.path("team/tool") / ".hg/store").rename(primary.root / "away")


@pytest.mark.parametrize("damage", [damage_the_log, damage_the_store, take_the_store_away])
def test_a_repository_that_cannot_be_read_is_no_trouble_of_the_source(
    primary: Primary, source: SourceClient, damage: Callable[[Primary], None]
) -> None:
    node = primary.push("team/tool", "one")
    damage(primary)
    for _ in range(HEAVY + 1):
        with pytest.raises(RepositoryError, match="team/tool"):
            source.state(TOOL)
    if damage is not damage_the_log:
        with pytest.raises(RepositoryError):
            source.changegroup(TOOL, [node]).__enter__()
    assert source.state(EMPTY).id == 0
    listed = {position.path: position.problem for position in source.repositories()}
    assert listed.keys() == {"team/tool", "empty"}
    assert not listed["empty"]
    assert damage is damage_the_store or "team/tool" in listed["team/tool"]


def test_while_the_registry_of_people_is_damaged_folders_tell_their_identity(
    primary: Primary, source: SourceClient
) -> None:
    primary.push("team/tool", "one")
    primary.dynamic.write_text("nonsense")
    assert {position.identity for position in source.repositories()} == {TOOL, EMPTY}
    assert source.state(TOOL).id == 1


def test_a_host_without_open_files_is_no_trouble_of_a_repository(
    source: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Iterator[bytes]:
        raise OSError(errno.EMFILE, "too many", "file")
        yield b""

    monkeypatch.setattr("hgfleet.replication.source.answers.lines_after", refused)
    with pytest.raises(UnavailableError, match=r"\(503\)") as caught:
        list(source.log_after(TOOL, 0))
    assert not isinstance(caught.value, RepositoryError)


def test_a_source_of_the_release_before_is_asked_by_path(
    primary: Primary, source: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll changes mirrors before the primary."""
    node = primary.push("team/tool", "one")
    former = {"log": {"path", "after"}, "state": {"path", "full"}, "changesets": {"path"}}
    fields = {**requests._FIELDS, **{k: frozenset(v) for k, v in former.items()}}
    monkeypatch.setattr(requests, "_FIELDS", fields)
    position = Source._position

    def of_the_release_before(self: Source, identity: str, path: str) -> dict[str, object]:
        return {k: v for k, v in position(self, identity, path).items() if k != "identity"}

    monkeypatch.setattr(Source, "_position", of_the_release_before)
    assert [(listed.identity, listed.id) for listed in source.repositories()] == [(TOOL, 1)]
    assert source.state(TOOL).heads == (node,)
    assert len(list(source.log_after(TOOL, 0))) == 1
    with source.changegroup(TOOL, [node]) as data:
        assert data.read()
    # The primary gets this release. Its paths are used for a while, and not after an error.
    monkeypatch.undo()
    asked: list[str] = []
    parse_request = requests.parse

    def noted(method: str, target: str) -> requests.Request:
        asked.append(target)
        return parse_request(method, target)

    def failed(*_words: object) -> NoReturn:
        raise requests.RefusedError(500, "its log is damaged")

    monkeypatch.setattr("hgfleet.replication.source.server.parse", noted)
    clock = "hgfleet.replication.source.client.time.monotonic"
    monkeypatch.setattr(clock, lambda: 1e9)
    source._former_until = 1e9 + FORMER_S
    assert source.state(TOOL).heads == (node,)
    with monkeypatch.context() as damaged:
        damaged.setattr(Source, "_of_repository", failed)
        with pytest.raises(RepositoryError):
            source.state(TOOL)
    assert source.state(TOOL).heads == (node,)
    source._former_until = 1e9 + FORMER_S
    monkeypatch.setattr(clock, lambda: 1e9 + FORMER_S)
    assert source.state(TOOL).heads == (node,)
    by = [target.partition("?")[2].partition("=")[0] for target in asked]
    assert by == ["path", "path", "repository", "repository"]


def test_a_mirror_of_the_release_before_is_answered_by_path(
    primary: Primary, mirror: Host, authority: Authority, url: str
) -> None:
    """A rollback changes mirrors before the primary."""
    line = primary.record("team/tool", primary.commit("team/tool", "one", "one"))
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(mirror.settings.certificate, mirror.settings.key)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", int(url.rpartition(":")[2]), context=context, timeout=30
    )
    connection.request("GET", "/v1/log?path=team/tool&after=0")
    assert connection.getresponse().read() == line + b"\n"
    connection.request("GET", "/v1/repositories")
    listed = [json.loads(text) for text in connection.getresponse().read().splitlines()]
    expected = {"path": "team/tool", "repository": TOOL, "id": 1, "hash": hash_of(line)}
    assert {**expected, "identity": TOOL} in listed
    connection.request("GET", "/v1/log?path=no/such")
    assert connection.getresponse().status == 404


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
        ("POST", f"/v1/log?repository={EMPTY}", b"", 405),
        ("GET", f"/v1/log?repository={EMPTY}&after=-1", None, 400),
        ("GET", f"/v1/log?repository={EMPTY}&repository={TOOL}", None, 400),
        ("GET", f"/v1/log?repository={EMPTY}&path=empty", None, 400),
        ("GET", "/v1/log?path=../../etc", None, 400),
        ("GET", "/v1/documents/..%2f..%2fetc%2fpasswd", None, 404),
        ("GET", "/v1/documents/%00", None, 400),
        ("POST", f"/v1/changesets?repository={EMPTY}", b"{}", 400),
        ("POST", f"/v1/changesets?repository={EMPTY}", b'{"nodes":["x"]}', 400),
        ("POST", f"/v1/changesets?repository={EMPTY}", b"[" * 100_000, 400),
    ):
        connection.request(method, target, body)
        answer = connection.getresponse()
        assert (answer.status, target) == (status, target)
        assert answer.headers["Allow"] == ("GET" if status == 405 else None)
        assert answer.read().endswith(b"\n")


def test_an_answer_that_ends_early_is_an_error(
    primary: Primary, source: SourceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        primary.push("team/tool", name)

    def broken(*_: object) -> Iterator[bytes]:
        yield b"x" * 400_000 + b"\n"
        raise OSError("disk")

    monkeypatch.setattr("hgfleet.replication.source.answers.lines_after", broken)
    with pytest.raises(RepositoryError, match="not complete"):
        list(source.log_after(TOOL, 0))
    assert "status=500" in primary.said[-1]


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
    with source.changegroup(TOOL, [node]) as data:
        assert data.read()
    assert source.state(TOOL).heads

    wait_for("the store has no reader", lambda: not work_folder.is_read(store))


def test_digests_and_state_are_those_of_the_last_record(
    primary: Primary, source: SourceClient
) -> None:
    public = primary.commit("team/tool", "one", "one")
    primary.hg_in("team/tool", "phase", "--public", public)
    draft = primary.commit("team/tool", "two", "two")
    secret = primary.commit("team/tool", "three", "three", "--secret")
    primary.hg_in("team/tool", "bookmark", "--rev", draft, "naïve mark")
    line = primary.record("team/tool", public, draft, secret)
    state = source.state(TOOL)
    assert (state.repository, state.id, state.hash) == (IDENTITY, 1, hash_of(line))
    assert state.heads == (secret,)
    assert state.phases == {"public": (public,), "secret": (secret,)}
    assert state.bookmarks == (("naïve mark", draft),)
    assert source.digests(TOOL) == state.digests()
    before = state.digests()
    primary.hg_in("team/tool", "phase", "--public", draft)
    after = source.digests(TOOL)
    assert after.phases != before.phases
    assert (after.heads, after.bookmarks) == (before.heads, before.bookmarks)
