"""Daemons of these tests end, also where their client swallows a cancellation."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from testing.integration.replication import relaying


def test_a_group_whose_task_swallows_a_cancellation_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "SECONDS", 6.0)

    async def swallow() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def daemon(began: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(swallow())
            began.set()

    async def story() -> None:
        before, began = asyncio.all_tasks(), asyncio.Event()
        older = asyncio.ensure_future(asyncio.Event().wait())
        task = asyncio.ensure_future(daemon(began))
        await began.wait()
        await asyncio.sleep(0)
        await relaying.end(task, {*before, older})
        assert task.cancelled()
        assert not older.done()
        older.cancel()

    asyncio.run(story())


def test_the_error_of_a_daemon_is_raised_at_its_end() -> None:
    async def daemon() -> None:
        raise ValueError("it is broken")

    async def story() -> None:
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(daemon())
        await asyncio.wait({task})
        with pytest.raises(ValueError, match="it is broken"):
            await relaying.end(task, before)

    asyncio.run(story())
