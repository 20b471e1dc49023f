"""Registry and tokens of a mirror, fetched as soon as a hint says that they changed.

Each has a task of its own: a revoked token does not wait until bundles are fetched or a repository
is moved. A mirror tells the relay which hint it has followed, so that a user who revokes a token
learns whether a mirror still accepts it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HgfleetError
from hgfleet.replication.documents import documents
from hgfleet.replication.documents.documents import RefusedError
from hgfleet.replication.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hgfleet.replication.protocol.messages import Hint

AGAIN_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 5.0
"""First and longest wait after failures: each failure doubles the wait, a hint ends it."""


class FirstDocuments:
    """The tasks, and the documents that are still to be fetched.

    `bring` fetches a document and returns whether it changed (called in threads); `changed` is
    called after a change; `tell` gets each hint that was followed.
    """

    def __init__(
        self,
        bring: Callable[[str], bool],
        changed: Callable[[], None],
        tell: Callable[[str, Hint], Awaitable[None]],
        say: Callable[..., None],
    ) -> None:
        self._bring, self._changed, self._tell, self._say = bring, changed, tell, say
        self._events = {name: asyncio.Event() for name in documents.FIRST}
        self._hints: dict[str, Hint] = {}
        self.are_tokens_known = False
        """The tokens were brought since the last connection to a broker."""
        self.problems: dict[str, str] = {}
        """Why a document cannot be brought, by its name."""

    def connected(self) -> None:
        """Fetch both documents: hints may have been missed."""
        self.are_tokens_known = False
        for event in self._events.values():
            event.set()

    def hint(self, subject: str, body: bytes) -> None:
        """Take a hint; if it cannot be read, it counts as a hint without a number."""
        for name, event in self._events.items():
            if subject == messages.documents(name):
                with contextlib.suppress(ValueError):
                    self._hints[name] = messages.decode_hint(body)
                event.set()

    async def run(self) -> None:
        """Fetch documents until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name in documents.FIRST:
                tasks.create_task(self._follow(name))

    async def _follow(self, name: str) -> None:
        event, pause = self._events[name], 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause or None):
                    await event.wait()
            event.clear()
            hint = self._hints.get(name)
            try:
                is_changed = await asyncio.to_thread(self._bring, name)
            except RefusedError:
                # This mirror's version is newer. It does not follow the hint, and goes on serving.
                is_changed, hint = False, None
            except (HgfleetError, OSError) as error:
                if str(error) != self.problems.get(name):
                    self._say("document-away", document=name, reason=error)
                self.problems[name] = str(error)
                pause = min(max(AGAIN_SECONDS, pause * 2), LONGEST_SECONDS)
                continue
            self.problems.pop(name, None)
            pause = 0.0
            if name == documents.TOKENS and not event.is_set():
                self.are_tokens_known = True
            if is_changed:
                self._changed()
            if hint is not None:
                await self._tell(name, hint)
