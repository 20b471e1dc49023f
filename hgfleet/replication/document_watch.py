"""Hints to mirrors that documents of the primary changed.

The registry and the tokens are looked at each second. The folders of manifests and pull bundles are
thousands on a large site; they are looked at less often when that takes long. A hint that is lost
costs nothing but time: mirrors look at the documents now and then.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from hgfleet.registry.effective import stamp_of
from hgfleet.replication import documents
from hgfleet.replication.broker import BrokerError
from hgfleet.replication.document_files import TOKENS_FILE, TOKENS_FOLDER, Documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.replication.relay import Relay
    from hgfleet.replication.settings import Settings

LOOK_SECONDS: Final = 1.0
"""Between looks at the registry and the tokens."""

SHARE: Final = 50
"""Of its time that a look at the folders may take: one part of this."""

FOLDERS: Final = "manifests"
"""The document that a hint names for manifests and pull bundles."""

Looks = dict[str, object]
"""What was seen of each document; None for a folder that is changing."""


def changed(told: Mapping[str, object], seen: Mapping[str, object]) -> list[str]:
    """Return the documents that a hint is due for: those seen otherwise than when last told."""
    return [name for name, look in seen.items() if look is not None and told.get(name) != look]


class Looker:
    """Looks at the documents of this host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = Documents(settings)
        self._folders: str | None = None
        self._next = 0.0

    def look(self) -> Looks:
        """Return what is seen of each document now."""
        dynamic = self._settings.dynamic
        began = time.monotonic()
        if began >= self._next:
            # "" while a folder is changing: the next look tells.
            self._folders = self._files.stamp() or None
            self._next = began + (time.monotonic() - began) * SHARE
        return {
            documents.REGISTRY: stamp_of(dynamic),
            documents.TOKENS: stamp_of(dynamic.parent / TOKENS_FOLDER / TOKENS_FILE),
            FOLDERS: self._folders,
        }


async def watch(relay: Relay) -> None:
    """Publish a hint for each change, and one for each document at the start."""
    looker = Looker(relay.settings)
    told: Looks = {}
    while True:
        await relay.broker.ready.wait()
        try:
            seen = await asyncio.to_thread(looker.look)
            for name in changed(told, seen):
                await relay.hint(name)
                told[name] = seen[name]
        except (BrokerError, OSError) as error:
            relay.say("hint-lost", reason=error)
        await asyncio.sleep(LOOK_SECONDS)
