"""The session of a push is named to mirrors, and in the log lines of relay and applier."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hgfleet.replication.protocol import messages
from testing.integration.replication.relaying import identity, pushed, relaying, stream_of

if TYPE_CHECKING:
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker

ID = "1f2e3d4c5b6a7988"


def test_a_relay_names_the_session_of_a_push(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            first = primary.record("team/tool")
            await pushed(primary, "team/tool", first, session=ID)
            second = primary.record("team/tool")
            await pushed(primary, "team/tool", second)
            nodes = tuple(f"{number:040x}" for number in range(30_000))
            huge = primary.record("team/tool", nodes)
            await pushed(primary, "team/tool", huge, session="0" * 16)
            said = [fields for event, fields in relay.said if event == "published"]  # type: ignore[attr-defined]
        sent = await stream_of(broker)
        assert [messages.decode_push(*message).session for message in sent[:2]] == [ID, ""]
        with pytest.raises(messages.LargeRecordError) as caught:
            messages.decode_push(*sent[2])
        assert caught.value.session == "0" * 16
        name = identity("team/tool")
        assert [(fields["push"], fields["id"]) for fields in said] == [
            (f"{name}.1", ID),
            (f"{name}.2", None),
            (f"{name}.3", "0" * 16),
        ]

    asyncio.run(story())
