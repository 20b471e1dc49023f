"""The disk that relay and workers keep open, and the outcome of a failed sync for each caller."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import durable
from hgfleet.core.errors import HostError
from hgfleet.replication.protocol.settings import Role, Settings
from hgfleet.replication.repositories.group_sync import GroupSync, syncing

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sync_that_fails_once_is_an_error_of_all_whose_writes_it_was_to_cover() -> None:
    """The kernel tells of a loss once, so another sync would confirm lost data."""
    outcomes: list[HostError | None] = [HostError("lost"), None, HostError("again"), None]

    async def story() -> None:
        loop, may_end = asyncio.get_running_loop(), asyncio.Event()

        def sync() -> None:
            asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
            if (problem := outcomes.pop(0)) is not None:
                raise problem

        shared = GroupSync(sync)
        waiting = [asyncio.ensure_future(shared.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        may_end.set()
        assert [
            type(result) for result in await asyncio.gather(*waiting, return_exceptions=True)
        ] == [HostError] * 3
        await shared.wait()
        # A caller that is cancelled does not take the outcome with it.
        may_end.clear()
        first = asyncio.ensure_future(shared.wait())
        second = asyncio.ensure_future(shared.wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        loop.call_later(0.05, may_end.set)
        with pytest.raises(HostError, match="again"):
            await second
        assert first.cancelled()
        await shared.wait()
        assert not outcomes

    asyncio.run(story())


def test_a_program_opens_its_disk_before_it_writes_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    made = durable.Disk.__init__

    def observed(disk: durable.Disk, folder: str) -> None:
        opened.append(folder)
        made(disk, folder)

    monkeypatch.setattr(durable.Disk, "__init__", observed)
    settings = replace(
        Settings(Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", (), ()),
        repositories=tmp_path,
        hgrc=tmp_path / "hgrc",
    )
    sync = syncing(settings)
    assert sync is not None
    assert len(opened) == 1
    sync()
    sync()
    assert len(opened) == 1
    (tmp_path / "hgrc").write_text("[hgfleet]\ndurable = no\n")
    assert syncing(settings) is None
