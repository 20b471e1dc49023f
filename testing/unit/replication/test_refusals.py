"""Messages that the broker refuses: pushes that need a copy are refused until it takes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import HostError
from hgfleet.replication.primary import relay as relaying
from hgfleet.replication.primary.broker import BrokerError
from hgfleet.replication.primary.refusals import Refusals
from hgfleet.replication.primary.relay import Relay
from hgfleet.replication.promotion import former_terms
from hgfleet.replication.protocol.settings import Role, Settings

if TYPE_CHECKING:
    from pathlib import Path

ID, OTHER = "1f" * 16, "2e" * 16


def test_a_refusal_lasts_while_a_repository_waits_for_the_broker() -> None:
    said: list[Any] = []
    refusals = Refusals(lambda event, **fields: said.append((event, fields["reason"])))
    assert (refusals.reason, refusals.began) == ("", 0.0)
    refusals.note(ID, "full")
    began = refusals.began
    assert began > 0
    refusals.note(OTHER, "full")
    refusals.note(OTHER, "no answer")
    refusals.end(ID)
    assert (refusals.reason, refusals.began) == ("no answer", began)
    refusals.end(OTHER)
    refusals.end(OTHER)
    assert refusals.reason == ""
    assert said == [("refused", "full"), ("refused", "no answer")]
    refusals.note(ID, "full")
    refusals.note(OTHER, "full")
    refusals.clear()
    assert refusals.reason == ""


@pytest.mark.parametrize("end", [None, HostError("the disk does not confirm")])
def test_the_refusal_of_a_repository_that_is_gone_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: Exception | None
) -> None:
    """It was archived, deleted, or cannot be read: no message of it waits for the broker."""
    monkeypatch.setattr(relaying, "REFUSED_SECONDS", 0.0)
    settings = Settings(
        *(Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", (), ()),
        terms=tmp_path,
        positions=tmp_path / "positions",
        dynamic=tmp_path,
    )
    results: list[Exception | None] = [BrokerError("no space in the stream"), end]
    seen: list[str] = []

    async def story() -> None:
        relay = Relay(settings, lambda *_, **__: None, name_former=former_terms.settle)
        done = asyncio.Event()

        async def publish(_repository: str) -> None:
            seen.append(relay.refusals.reason)
            if not results:
                done.set()
            elif (result := results.pop(0)) is not None:
                raise result

        monkeypatch.setattr(relay.publisher, "publish", publish)
        relay.broker.ready.set()
        worker = asyncio.ensure_future(relay._work())
        relay.add([ID])
        while results:
            await asyncio.sleep(0)
        relay.add([OTHER])
        await done.wait()
        worker.cancel()
        relay.positions.close()

    asyncio.run(asyncio.wait_for(story(), 10.0))
    assert seen == ["", "no space in the stream", ""]
