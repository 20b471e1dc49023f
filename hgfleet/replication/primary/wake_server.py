"""Wake socket of the relay: a Unix socket on which sessions report their changes.

A session sends a line of JSON and reads a line of JSON (`wake.py`). The socket is open to the group
`hg`; each line is parsed as hostile input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import trace
from hgfleet.core.identity import is_identity
from hgfleet.hg import required_copy
from hgfleet.hg.wake import MAX_LINE
from hgfleet.pushlog.record import is_hash
from hgfleet.replication.documents.documents import FIRST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

MAX_SESSIONS: Final = 512
"""Most sessions that wait at the same time; further sessions are refused at once."""

REQUEST_SECONDS: Final = 5.0
MAX_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """A push, the seconds that its session waits, and the id of the session if it has any.

    `repository` is its identity, `hash` the hash of the push's record, which a session of the
    previous release does not name.
    """

    repository: str
    id: int
    wait: float
    hash: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """A change of the registry or of the tokens, and the seconds that its session waits."""

    document: str
    wait: float


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A push that begins: the copy that it requires, and the seconds that its session waits."""

    required: str
    wait: float


Asked = Request | DocumentRequest | CopyRequest


def parse(line: bytes) -> Asked:
    """Read a request; raises ValueError."""
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError(f"not an object: {line!r:.200}")
    wait = data.get("wait", 0)
    if not isinstance(wait, int | float) or not 0 <= wait <= MAX_WAIT_SECONDS:
        raise ValueError(f"got {wait!r:.200}, expected seconds from 0 to {MAX_WAIT_SECONDS:g}")
    if "document" in data:
        if data["document"] not in FIRST:
            raise ValueError(f"got the document {data['document']!r:.200}")
        return DocumentRequest(data["document"], float(wait))
    if "require" in data:
        if data["require"] not in (required_copy.BROKER, required_copy.MIRROR):
            raise ValueError(f"got the required copy {data['require']!r:.200}")
        return CopyRequest(data["require"], float(wait))
    repository, number, hash_ = data.get("repository"), data.get("id"), data.get("hash", "")
    if not isinstance(repository, str) or not is_identity(repository):
        raise ValueError(f"got the repository {repository!r:.200}")
    if type(number) is not int or number < 1:
        raise ValueError(f"got the push {number!r:.200}")
    if hash_ != "" and not is_hash(hash_):
        raise ValueError(f"got the hash {hash_!r:.200}")
    session = trace.accepted(data.get("session"))
    return Request(repository, number, float(wait), hash_, session)


class WakeServer:
    """The socket, and the sessions that wait at it."""

    def __init__(
        self,
        socket: Path,
        respond: Callable[[Asked], Awaitable[dict[str, Any]]],
        say: Callable[..., None],
        most: int = MAX_SESSIONS,
    ) -> None:
        self._socket, self._respond, self._say, self._most = socket, respond, say, most
        self._sessions: set[asyncio.Task[None] | None] = set()

    async def start(self) -> asyncio.Server:
        """Open the socket for the group, in place of the socket of a former relay."""
        new = self._socket.with_name(f".{self._socket.name}.new")
        new.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, new, limit=MAX_LINE)
        new.chmod(0o660)
        new.rename(self._socket)
        return server

    async def end_with_sessions(self, server: asyncio.Server) -> None:
        """Wait to be cancelled; then end the sessions without an answer, so that they ask again.

        A relay that is being stopped no longer hears the mirrors, and would report all as down.
        """
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for session in self._sessions:
                if session is not None:
                    session.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.current_task()
        self._sessions.add(session)
        try:
            if len(self._sessions) > self._most:
                self._say("wake-refused", reason=f"{self._most} sessions wait already")
                return
            line = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
            answer = await self._respond(parse(line))
            writer.write(json.dumps(answer).encode("ascii") + b"\n")
            await asyncio.wait_for(writer.drain(), REQUEST_SECONDS)
        except (ValueError, RecursionError) as error:
            self._say("wake-refused", reason=error)
        except (OSError, TimeoutError):
            pass  # the session has ended
        finally:
            self._sessions.discard(session)
            with contextlib.suppress(OSError):
                writer.close()
