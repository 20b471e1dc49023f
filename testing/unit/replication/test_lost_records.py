"""A store that was put back: the publisher fences it, also where the relay or the broker forgot.

The bar of each test: the broker gets no record after the loss, and a fence names the lost push.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import HostError
from hgfleet.replication.protocol import messages
from hgfleet.replication.repositories.group_sync import GroupSync
from hgfleet.replication.terms import given_up, repository_fences
from hgfleet.replication.terms.repository_fences import ForkedError
from testing.unit.replication.replication_model import Primary, Relay, Stream, identity

if TYPE_CHECKING:
    from pathlib import Path

ID = identity(0)


class Site:
    """A primary, whose first repository is pushed to, its relay, and the stream."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.primary, self.stream = Primary(folder / "primary", 2), Stream()
        self.state = folder / "relay"
        self.relay = Relay(self.primary, self.stream, self.state)

    @property
    def log(self) -> Path:
        return self.primary._store(0) / "pushlog"

    def push(self, count: int, user: str = "alice") -> None:
        for _ in range(count):
            self.primary.push(0, is_large=False, user=user)

    def put_back(self, count: int) -> list[bytes]:
        """Take the last records out of the log, as a power cut does; return them."""
        log = self.primary.logs[0]
        lost = log[-count:]
        del log[-count:]
        self.log.write_bytes(b"".join(line + b"\n" for line in log))
        return lost

    def stream_hash(self, sequence: int) -> str:
        return messages.hash_in(self.stream.messages[sequence][2])

    def fork(self) -> ForkedError:
        """Publish a repository that is fenced: the stream gets nothing. Return the error."""
        before = dict(self.stream.messages)
        with pytest.raises(ForkedError) as caught:
            self.relay.publish(0)
        assert self.stream.messages == before
        return caught.value


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


RESTARTS = pytest.mark.parametrize("restart", ["none", "kill", "positions lost", "last lost"])


def go_on(site: Site, restart: str, saved: bytes) -> None:
    """Have the relay go on, start again, or start with positions that a power cut took."""
    if restart == "last lost":
        site.relay._positions.close()
        for file in site.state.glob("positions*"):
            file.unlink()
        (site.state / "positions.sqlite").write_bytes(saved)
        site.relay.start()
    elif restart != "none":
        site.relay.kill(with_its_state=restart == "positions lost")


def positions(site: Site) -> bytes:
    """Return the positions as they are on the disk now."""
    file = site.relay._positions._file
    assert file is not None
    file.execute("pragma wal_checkpoint(truncate)")
    return (site.state / "positions.sqlite").read_bytes()


@RESTARTS
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("pushes", [0, 1, 2, 3, 5])
def test_a_store_that_was_put_back_is_fenced(
    site: Site, restart: str, count: int, pushes: int
) -> None:
    site.push(4)
    site.relay.publish(0)
    saved = positions(site)
    site.push(1)
    site.relay.publish(0)
    site.put_back(count)
    # The same number of pushes: the log is as long as before.
    site.push(pushes, user="mallo")
    go_on(site, restart, saved)
    fenced = site.fork().fenced
    assert (fenced.repository, fenced.number, fenced.here) == (ID, 5, 5 - count + pushes)
    assert fenced.hash == messages.hash_in(site.stream.messages[5][2])
    # Enough further pushes, and further restarts, change nothing.
    site.push(4, user="mallo")
    assert site.fork().fenced.number == 5
    site.relay.kill(with_its_state=False)
    assert site.fork().fenced.number == 5
    site.relay.kill(with_its_state=True)
    assert site.fork().fenced.number == 5


@RESTARTS
def test_a_log_that_is_gone_or_empty_is_fenced(site: Site, restart: str) -> None:
    site.push(1)
    site.relay.publish(0)
    saved = positions(site)
    site.push(1)
    site.relay.publish(0)
    whole = site.log.read_bytes()
    for content in (None, b""):
        if content is None:
            site.log.unlink()
        else:
            site.log.write_bytes(content)
        go_on(site, restart, saved)
        assert site.fork().fenced.number == 2
    site.log.write_bytes(whole)
    assert site.relay.publish(0)


def test_a_broker_and_a_primary_that_both_lost_the_last_push_are_told_by_the_position(
    site: Site,
) -> None:
    """Mirrors have it, and its pusher read that it is visible."""
    site.push(3)
    site.relay.publish(0)
    site.put_back(1)
    site.stream.lose_last(1)
    site.relay.disconnect()
    assert site.fork().fenced.number == 3


def test_a_fence_holds_until_its_file_is_removed(site: Site) -> None:
    site.push(2)
    site.relay.publish(0)
    lost = site.put_back(1)
    repository_fences.fence(site.state, site.fork().fenced)
    site.log.write_bytes(site.log.read_bytes() + lost[0] + b"\n")
    assert "push 2" in str(site.fork())
    repository_fences.lift(site.state, ID)
    assert site.relay.publish(0)
    assert site.relay.publish(0)


@pytest.mark.parametrize("with_its_state", [False, True])
def test_a_push_that_was_given_up_is_followed_by_another_of_its_number(
    site: Site, *, with_its_state: bool
) -> None:
    site.push(3)
    site.relay.publish(0)
    site.put_back(2)
    site.push(1, user="mallo")
    fenced = site.fork().fenced
    given_up.note(site.state, 1, [(ID, fenced.number, fenced.hash)])
    site.relay.kill(with_its_state=with_its_state)
    assert site.relay.publish(0)
    named = [messages.named(kept[2]) for kept in site.stream.messages.values()]
    assert named == [(ID, number, 1) for number in (1, 2, 3)]
    site.push(1, user="mallo")
    assert site.relay.publish(0)
    last = site.stream.messages[max(site.stream.messages)]
    assert messages.decode_push(last[2], last[1]).record.user == "mallo"
    # It is given up once: a later loss is fenced again.
    site.put_back(1)
    assert site.fork().fenced.number == 3


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_host_that_is_the_primary_again_is_judged_by_the_pushes_since(
    site: Site, *, is_whole: bool
) -> None:
    """Another host was promoted, gave up push 3, and published other pushes; they came here."""
    site.push(3)
    site.relay.publish(0)
    site.relay.kill(with_its_state=False)
    site.put_back(1)
    other = Relay(site.primary, site.stream, site.state / "other")
    given_up.note(site.state / "other", 2, [(ID, 3, site.stream_hash(3))])
    for _ in range(2):
        site.primary.push(0, is_large=False, user="mallo", epoch=2)
    assert other.publish(0)
    site.stream.guard = SimpleNamespace(epoch=3, fenced="")
    # The promotion of this host has compared all logs with the stream.
    given_up.note(site.state, 3, [])
    if is_whole:
        assert site.relay.publish(0)
        site.primary.push(0, is_large=False, epoch=3)
        assert site.relay.publish(0)
        last = site.stream.messages[max(site.stream.messages)]
        assert messages.named(last[2]) == (ID, 5, 3)
    else:
        site.put_back(1)
        assert site.fork().fenced.number == 4


def test_a_message_that_the_broker_lost_after_the_relay_lost_its_positions_is_told_again(
    site: Site,
) -> None:
    site.push(1)
    site.relay.publish(0)
    # Another repository, whose position tells how far the stream is.
    site.primary.push(1, is_large=False)
    site.relay.publish(1)
    site.push(1)
    site.relay.publish(0)
    site.relay.kill(with_its_state=True)
    site.relay.publish(0)
    site.relay.publish(1)
    site.stream.lose_last(1)
    site.relay.disconnect()
    assert site.relay.publish(1)
    named = [messages.named(kept[2]) for kept in site.stream.messages.values()]
    assert named == [(ID, 1, 1), (identity(1), 1, 1), (ID, 2, 1)]


def test_another_push_of_a_number_has_another_id(site: Site) -> None:
    """So the broker never takes it for a second copy, and the relay never for acknowledged."""
    site.push(1)
    site.relay.publish(0)
    first = site.stream.messages[1][2][messages.MESSAGE_ID_HEADER]
    other = Site(site.state.parent / "other")
    other.push(1, user="mallo")
    other.relay.publish(0)
    assert other.stream.messages[1][2][messages.MESSAGE_ID_HEADER] != first
    assert first.startswith(f"{ID}.1.1.")


def test_a_record_is_on_the_disk_before_the_broker_has_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    publish = site.stream.publish

    async def observed(*arguments: Any) -> tuple[int, bool]:
        order.append("published")
        return await publish(*arguments)

    monkeypatch.setattr(site.stream, "publish", observed)
    site.relay._publisher._synced = GroupSync(lambda: order.append("synced"))
    site.push(2)
    site.relay.publish(0)
    site.push(1)
    site.relay.publish(0)
    assert order == ["synced", "published", "published", "synced", "published"]
    # A disk that does not confirm keeps records from the broker.
    site.relay._publisher._synced = GroupSync(refuse)
    site.push(1)
    with pytest.raises(HostError):
        site.relay.publish(0)
    assert order.count("published") == 3


def refuse() -> None:
    raise HostError("the disk does not confirm")
