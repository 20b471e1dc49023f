"""Hints of the registry and of the tokens, followed at once and told of."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import UnavailableError
from hgfleet.replication.documents import first_documents
from hgfleet.replication.documents.documents import RefusedError
from hgfleet.replication.documents.first_documents import FirstDocuments
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = messages.documents("tokens")
REGISTRY = messages.documents("registry")


class Mirror:
    """A mirror whose documents are brought by a function of the test."""

    def __init__(self, bring: Callable[[str], bool]) -> None:
        self.told: list[tuple[str, Hint]] = []
        self.said: list[str] = []
        self.changes = 0
        self.first = FirstDocuments(bring, self.changed, self.tell, self.say)

    def changed(self) -> None:
        self.changes += 1

    async def tell(self, name: str, hint: Hint) -> None:
        self.told.append((name, hint))

    def say(self, event: str, **_fields: Any) -> None:
        self.said.append(event)

    async def until(self, probe: Callable[[], Any]) -> None:
        """Run until a state has come."""
        task = asyncio.ensure_future(self.first.run())
        try:
            async with asyncio.timeout(60):
                while not probe():
                    assert not task.done(), task
                    await asyncio.sleep(0.01)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def test_a_hint_is_told_of_when_it_was_followed() -> None:
    mirror = Mirror(lambda name: name == "registry")
    mirror.first.hint(REGISTRY, Hint("boot", 1).body())
    mirror.first.hint(TOKENS, Hint("boot", 2).body())
    asyncio.run(mirror.until(lambda: len(mirror.told) == 2))
    assert sorted(mirror.told, key=lambda entry: entry[0]) == [
        ("registry", Hint("boot", 1)),
        ("tokens", Hint("boot", 2)),
    ]
    assert mirror.changes == 1


def test_a_hint_that_comes_meanwhile_is_followed_by_another_look() -> None:
    looks: list[int] = []

    def bring(_name: str) -> bool:
        looks.append(len(looks))
        if len(looks) == 1:
            mirror.first.hint(TOKENS, Hint("boot", 8).body())
        return False

    mirror = Mirror(bring)
    mirror.first.hint(TOKENS, Hint("boot", 7).body())
    asyncio.run(mirror.until(lambda: len(mirror.told) == 2))
    assert mirror.told == [("tokens", Hint("boot", 7)), ("tokens", Hint("boot", 8))]
    assert len(looks) == 2


def test_a_failure_is_tried_again_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_documents, "LONGEST_SECONDS", 0.01)
    looks: list[str] = []

    def bring(name: str) -> bool:
        looks.append(name)
        if len(looks) < 4:
            raise UnavailableError("the source is away")
        return True

    mirror = Mirror(bring)
    mirror.first.hint(TOKENS, Hint("boot", 1).body())
    asyncio.run(mirror.until(lambda: mirror.told))
    assert mirror.told == [("tokens", Hint("boot", 1))]
    assert mirror.said == ["document-away"]
    assert len(looks) == 4


def test_why_a_document_cannot_be_brought_is_known_until_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_documents, "AGAIN_SECONDS", 0.01)
    seen: list[dict[str, str]] = []

    def bring(name: str) -> bool:
        seen.append(dict(mirror.first.problems))
        if name == "tokens" and len(seen) < 5:
            raise UnavailableError("no answer")
        return False

    mirror = Mirror(bring)
    mirror.first.connected()
    asyncio.run(mirror.until(lambda: mirror.first.are_tokens_known))
    assert seen[-1] == {"tokens": "no answer"}
    assert mirror.first.problems == {}


def test_a_document_that_went_back_is_told_of_to_no_session_and_keeps_no_mirror_away() -> None:
    looks: list[str] = []

    def bring(name: str) -> bool:
        looks.append(name)
        raise RefusedError("generation 1.1 of the primary is older")

    mirror = Mirror(bring)
    mirror.first.connected()
    mirror.first.hint(TOKENS, Hint("boot", 1).body())
    asyncio.run(mirror.until(lambda: mirror.first.are_tokens_known))
    assert (mirror.told, mirror.said, mirror.changes) == ([], [], 0)
    assert looks.count("tokens") == 1


def test_after_a_connection_the_tokens_are_unknown_until_they_are_brought() -> None:
    mirror = Mirror(lambda _name: False)
    assert not mirror.first.are_tokens_known
    mirror.first.connected()
    asyncio.run(mirror.until(lambda: mirror.first.are_tokens_known))
    mirror.first.connected()
    assert not mirror.first.are_tokens_known


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"boot": 1, "number": "x"}'])
def test_a_hint_without_a_number_is_followed_and_told_of_to_no_relay(body: bytes) -> None:
    looks: list[str] = []

    def bring(name: str) -> bool:
        looks.append(name)
        return True

    mirror = Mirror(bring)
    mirror.first.hint(TOKENS, body)
    mirror.first.hint("hgfleet.documents.ff", Hint("boot", 1).body())
    asyncio.run(mirror.until(lambda: mirror.changes))
    assert (looks, mirror.told) == (["tokens"], [])
