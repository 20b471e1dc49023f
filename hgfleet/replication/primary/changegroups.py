"""Changegroups of pushes, from workers that keep hg imported and repositories open.

A worker is a process (`changegroup_worker`): an error, or the memory need, of a huge push ends the
worker and not the relay. Workers start when they are needed. If a request fails, or its answer is
not as expected, its worker gets no other request.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import sys
from typing import IO, TYPE_CHECKING, Final

from hgfleet.replication.protocol.messages import MAX_PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WORKERS: Final = 2
"""Number of workers for messages, and also for objects: large pushes do not delay messages."""

SECONDS: Final = 60.0
"""Time for the changegroup of a message; after it the worker is killed."""

OBJECT_SECONDS: Final = 900.0
"""Time for the changegroup of an object."""

MESSAGE_LEVEL: Final = 6
"""Level of zlib: a message goes to every mirror, and stays on the brokers' disks for days."""

OBJECT_LEVEL: Final = 1
"""A large changegroup costs more processor time than disk."""

MAX_REQUEST: Final = 256 * 1024
"""Bytes of the line before a piece."""


class _TooLargeError(Exception):
    """The changegroup has more bytes than the request allows."""


class Changegroups:
    """A pool of workers, started on demand."""

    def __init__(
        self, hgrc: Path, say: Callable[..., None], most: int = WORKERS, seconds: float = SECONDS
    ) -> None:
        self._hgrc, self._say, self._seconds = hgrc, say, seconds
        self._slots, self._large = asyncio.Semaphore(most), asyncio.Semaphore(most)
        self._idle: list[asyncio.subprocess.Process] = []
        self._numbers = itertools.count(1)

    async def make(self, repository: Path, nodes: Sequence[str], limit: int = MAX_PAYLOAD) -> bytes:
        """Return the compressed changegroup of exactly these changesets; empty after a failure."""
        made = io.BytesIO()
        asked = {"repository": str(repository), "nodes": list(nodes), "level": MESSAGE_LEVEL}
        async with self._slots:
            problem = await self._write(asked, made, limit, self._seconds)
        return b"" if problem is not None else made.getvalue()

    async def write(
        self, repository: Path, nodes: Sequence[str], file: IO[bytes], limit: int
    ) -> str | None:
        """Write such a changegroup to a file; return why it is not whole, None if it is whole."""
        asked = {"repository": str(repository), "nodes": list(nodes), "level": OBJECT_LEVEL}
        async with self._large:
            problem = await self._write(asked, file, limit, OBJECT_SECONDS)
        return problem if problem != "" else f"its changesets have more than {limit} bytes"

    async def _write(
        self, asked: dict[str, object], file: IO[bytes], limit: int, seconds: float
    ) -> str | None:
        """Return why a changegroup is not whole, "" if it is too large, None if it is whole."""
        try:
            await asyncio.wait_for(self._ask(asked, file, limit), seconds)
        except _TooLargeError:
            return ""
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            # asyncio.IncompleteReadError is an EOFError.
            reason = str(error) or "it takes too long"
            self._say("changegroup-failed", repository=asked["repository"], reason=reason)
            return reason
        return None

    async def _ask(self, asked: dict[str, object], file: IO[bytes], limit: int) -> None:
        number, size = next(self._numbers), 0
        line = json.dumps(asked | {"request": number}).encode("ascii") + b"\n"
        worker = self._idle.pop() if self._idle else await self._start()
        healthy = False
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(line)
            await worker.stdin.drain()
            while True:
                head = json.loads(await worker.stdout.readline() or b"{}")
                if not head.keys() >= {"request", "size"}:
                    raise EOFError("its process ended")
                if head["request"] != number:
                    raise ValueError(f"it answered request {head['request']}, expected {number}")
                if not head["size"]:
                    break
                file.write(await worker.stdout.readexactly(head["size"]))
                if (size := size + head["size"]) > limit:
                    raise _TooLargeError
            if "reason" in head:
                raise ValueError(head["reason"])
            healthy = True
        finally:
            if healthy:
                self._idle.append(worker)
            else:
                await _end(worker)

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hgfleet.replication.primary.changegroup_worker"),
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
