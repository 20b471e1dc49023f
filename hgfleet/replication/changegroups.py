"""Changegroups for messages, from workers that keep hg imported and repositories open.

A worker is a process (`changegroup_worker`): an error, or the memory, of a huge push ends the
worker and not the relay. Workers start when they are needed. A worker whose request failed, or that
sent anything else than the answer of its request, gets no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from hgfleet.replication.messages import MAX_PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WORKERS: Final = 2
SECONDS: Final = 60.0
"""For a changegroup; a worker that takes longer is ended, and mirrors fetch the changesets."""

MAX_REQUEST: Final = 256 * 1024
"""Bytes of an answer's first line."""


class Changegroups:
    """A pool of workers, started on demand."""

    def __init__(
        self, hgrc: Path, say: Callable[..., None], most: int = WORKERS, seconds: float = SECONDS
    ) -> None:
        self._hgrc, self._say, self._seconds = hgrc, say, seconds
        self._slots = asyncio.Semaphore(most)
        self._idle: list[asyncio.subprocess.Process] = []
        self._numbers = itertools.count(1)

    async def make(self, repository: Path, nodes: Sequence[str], limit: int = MAX_PAYLOAD) -> bytes:
        """Return the compressed changegroup of exactly these changesets, empty if there is none."""
        asked = {"repository": str(repository), "nodes": list(nodes), "limit": limit}
        async with self._slots:
            try:
                return await asyncio.wait_for(self._ask(asked, str(repository)), self._seconds)
            except (TimeoutError, OSError, EOFError, ValueError) as error:
                # asyncio.IncompleteReadError is an EOFError.
                reason = str(error) or "it takes too long"
                self._say("changegroup-failed", repository=repository, reason=reason)
                return b""

    async def _ask(self, asked: dict[str, object], repository: str) -> bytes:
        number = next(self._numbers)
        line = json.dumps(asked | {"request": number}).encode("ascii") + b"\n"
        worker = self._idle.pop() if self._idle else await self._start()
        healthy = False
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(line)
            await worker.stdin.drain()
            head = json.loads(await worker.stdout.readline() or b"{}")
            if not head.keys() >= {"request", "size"}:
                raise EOFError("its process ended")
            if head["request"] != number:
                raise ValueError(f"it answered request {head['request']}, expected {number}")
            body = await worker.stdout.readexactly(head["size"])
            healthy = bool(body)
        finally:
            if healthy:
                self._idle.append(worker)
            else:
                await _end(worker)
        if head.get("reason"):
            self._say("changegroup-failed", repository=repository, reason=head["reason"])
        return body

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hgfleet.replication.changegroup_worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=dict(os.environ) | {"HGRCPATH": str(self._hgrc), "HGPLAIN": "1"},
            cwd="/",
            limit=MAX_REQUEST,
        )

    async def close(self) -> None:
        """End the workers."""
        idle, self._idle = self._idle, []
        for worker in idle:
            await _end(worker)


async def _end(worker: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.kill()
    await asyncio.shield(worker.wait())
