"""Answers of pull bundles to every sort of request: one changegroup, equal to the live answer."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from hgfleet.admission import queue
from testing.integration.support import site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.integration.bundles.pullbundle_host import Host

PROTOCOLS = ("ssh", "http")
FROM = [None, 20, 125, 225]
"""Revisions that end a client's history: none, in the middle of a link, and near the end.

From the last of them, a bookmark needs less than a link."""

PULLED_LIVE: dict[str, set[str]] = {}
"""Changesets that a live pull brings, by the state of the repository."""


def stale(host: Host, have: int | None) -> Path:
    """Make a clone that has the history up to a revision."""
    clone = host.root / "stale"
    host.hg("init", clone)
    if have is not None:
        host.hg("-R", clone, "pull", "-q", "-r", str(have), host.source)
    return clone


def nodes(host: Host, repository: Path) -> set[str]:
    return set(host.hg("-R", repository, "log", "-T", "{node}\n").splitlines())


def described(host: Host, repository: Path) -> set[str]:
    """Describe each changeset, apart from the order in which they came."""
    template = "{node} {phase} {p1.node} {p2.node} [{bookmarks}] {file_mods}\n"
    return set(host.hg("-R", repository, "log", "-T", template).splitlines())


def everything(host: Host) -> set[str]:
    """Describe the changesets that a live pull into an empty repository brings."""
    state = host.state()
    if state not in PULLED_LIVE:
        PULLED_LIVE[state] = described(host, host.pull("reference", live=True))
    return PULLED_LIVE[state]


@contextlib.contextmanager
def reached(host: Host, protocol: str) -> Iterator[tuple[str, ...]]:
    """Serve; yield how a client names the host: options of its hg, and last the URL."""
    if protocol == "ssh":
        yield (*host.ssh(), host.url("project"))
        return
    process = subprocess.Popen(
        [site.program(), "-R", host.source, "serve", "-a", "127.0.0.1", "-p", "0", "--print-url"],
        env=host.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield (process.stdout.readline().strip(),)
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(params=PROTOCOLS)
def client(host: Host, request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """How a client names the host."""
    with reached(host, request.param) as words:
        yield words


@pytest.mark.parametrize("have", FROM)
def test_incoming_shows_each_changeset_and_its_bundle_can_be_applied(
    host: Host, have: int | None, client: tuple[str, ...]
) -> None:
    """`hg incoming` opens the answer as a bundle repository, which takes one changegroup only."""
    clone, bundle = stale(host, have), host.root / "incoming.hg"
    missing = nodes(host, host.source) - nodes(host, clone)
    shown = host.hg("-R", clone, "incoming", "-q", "-T", "{node}\n", "--bundle", bundle, *client)
    assert sorted(shown.splitlines()) == sorted(missing)
    assert "event=pullbundle " in host.log()
    # The differences need manifests and files of all links.
    patches = host.hg("-R", clone, "incoming", "-q", "-p", *client)
    assert "event=pullbundle " in host.log()
    with_live = ("--config", "hgfleet.pullbundles=no", "-p", host.source)
    assert patches == host.hg("-R", clone, "incoming", "-q", *with_live)
    host.hg("-R", clone, "unbundle", "-q", bundle)
    assert host.hg("-R", clone, "verify", "-q") == ""
    assert missing <= nodes(host, clone)
    parts = host.hg("debugbundle", "--quiet", bundle)
    assert parts.count("changegroup -- ") == 1, parts


@pytest.mark.parametrize("have", FROM)
def test_a_pull_of_a_bookmark_and_of_everything_else_afterwards(
    host: Host, have: int | None, client: tuple[str, ...]
) -> None:
    clone = stale(host, have)
    host.hg("-R", clone, "pull", "-q", "-B", "newest", *client)
    assert ("event=pullbundle " in host.log()) is (have != FROM[-1])
    assert "newest" in host.hg("-R", clone, "bookmarks")
    host.hg("-R", clone, "pull", "-q", *client)
    assert described(host, clone) == everything(host)
    assert host.hg("-R", clone, "verify", "-q") == ""


def test_a_clone_up_to_a_revision(host: Host, client: tuple[str, ...]) -> None:
    clone = host.root / "clone"
    host.hg("clone", "-q", "-U", "-r", "100", *client, clone)
    assert "event=pullbundle " in host.log()
    until = host.hg("-R", host.source, "log", "-r", "::100", "-T", "{node}\n").split()
    assert nodes(host, clone) == set(until)
    assert host.hg("-R", clone, "verify", "-q") == ""


def test_a_pull_after_a_clone_bundle_goes_on_at_a_link(host: Host) -> None:
    clone = stale(host, None)
    first = host.chain()[3]
    revisions = [word for node in first.heads for word in ("-r", node)]
    host.hg("-R", clone, "pull", "-q", *revisions, host.source)
    host.hg("-R", clone, "pull", "-q", *host.ssh(), host.url("project"))
    assert "links=4 " in host.log()
    assert described(host, clone) == everything(host)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("most", [9, 10])
def test_live_changesets_beside_pull_bundles_need_a_slot(
    host: Host, protocol: str, most: int
) -> None:
    """The last 9 changesets are in no link, and the only slot is taken."""
    folder, clone = host.root / "queue", stale(host, None)
    folder.mkdir()
    limits = {"slots": 1, "waiting": 0, "changesets": most}
    with host.hgrc.open("a") as hgrc:
        hgrc.write(f"[extensions]\nadmission = {site.HGEXT}/admission.py\n")
        hgrc.write(f"[hgfleet]\nadmission = {folder}\n")
        hgrc.writelines(f"admission-{name} = {value}\n" for name, value in limits.items())
    slot = queue.enter(folder, queue.Limits(slots=1, waiting=0, patience=60, hold=600), "")
    try:
        assert slot.ask() is None
        with reached(host, protocol) as words:
            said = host.start("-R", clone, "pull", *words)
            is_refused = "1 clone is being served and 0 wait; try again" in said.stderr
            assert is_refused is (most == 9), said
            assert (nodes(host, clone) < nodes(host, host.source)) is is_refused
            slot.leave()
            host.start("-R", clone, "pull", *words)
    finally:
        slot.leave()
    assert nodes(host, clone) == nodes(host, host.source)
    assert "links=8 " in host.log()
