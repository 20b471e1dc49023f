"""Hints to mirrors that documents of the primary changed, and generations that are due.

The registry and the tokens are checked each second. A large site has thousands of folders of
manifests and pull bundles; they are checked less often when a check takes long. A lost hint costs
only time: mirrors check the documents now and then.

If another program than a writer of this release wrote the registry or the tokens, they get their
generation here. So do the registry and the tokens of a host that begins an epoch as the primary.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file
from hgfleet.core.errors import HgfleetError
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.effective import stamp_of
from hgfleet.replication.documents import documents
from hgfleet.replication.documents.document_files import TOKENS_FILE, TOKENS_FOLDER, Documents
from hgfleet.replication.documents.generation_guard import places_of
from hgfleet.replication.primary.broker import BrokerError
from hgfleet.replication.terms import host_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.replication.primary.relay import Relay
    from hgfleet.replication.protocol.settings import Settings

LOOK_SECONDS: Final = 1.0
"""Pause between checks of the registry and the tokens."""

SHARE: Final = 50
"""Checks of the folders take at most a fiftieth of the time."""

FOLDERS: Final = "manifests"
"""The document that a hint names for manifests and pull bundles."""

Looks = dict[str, object]
"""The state seen of each document; None for a folder that is changing."""


def changed(told: Mapping[str, object], seen: Mapping[str, object]) -> list[str]:
    """Return the documents that need a hint: their state differs from the last hinted state."""
    return [name for name, look in seen.items() if look is not None and told.get(name) != look]


class Looker:
    """Reader of the state of this host's documents."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = Documents(settings)
        self._folders: str | None = None
        self._next = 0.0

    def look(self) -> Looks:
        """Return the state of each document now."""
        dynamic = self._settings.dynamic
        began = time.monotonic()
        if began >= self._next:
            # "" while a folder is changing: the next check has its state.
            self._folders = self._files.stamp() or None
            self._next = began + (time.monotonic() - began) * SHARE
        return {
            documents.REGISTRY: stamp_of(dynamic),
            documents.TOKENS: stamp_of(dynamic.parent / TOKENS_FOLDER / TOKENS_FILE),
            FOLDERS: self._folders,
        }


class Renewal:
    """Renewal of the generations of this primary's documents, where it is due."""

    def __init__(self, settings: Settings) -> None:
        self._epoch = settings.terms / host_terms.EPOCH
        self._places = places_of(settings)
        self._done: dict[str, object] = {}

    def run(self) -> dict[str, str]:
        """Renew changed documents, and in a new epoch all documents; return the problems."""
        problems = {}
        for name, place in self._places.items():
            seen = stamp_of(place), stamp_of(self._epoch)
            if seen == self._done.get(name):
                continue
            try:
                if name == documents.REGISTRY:
                    dynamic_update.renew(place, self._epoch)
                else:
                    token_file.renew(str(place), self._epoch)
            except (HgfleetError, OSError) as error:
                problems[name] = str(error)
            else:
                # Not the present stamps: another change may have come since.
                self._done[name] = seen
        return problems


async def watch(relay: Relay) -> None:
    """Publish a hint for each document at the start, and after each change."""
    looker, renewal = Looker(relay.settings), Renewal(relay.settings)
    told: Looks = {}
    while True:
        # From here on a broker has confirmed that this host is the primary.
        await relay.broker.ready.wait()
        _tell(relay, await asyncio.to_thread(renewal.run))
        try:
            seen = await asyncio.to_thread(looker.look)
            for name in changed(told, seen):
                await relay.documents.publish(name)
                told[name] = seen[name]
        except (BrokerError, OSError) as error:
            relay.say("hint-lost", reason=error)
        await asyncio.sleep(LOOK_SECONDS)


def _tell(relay: Relay, problems: Mapping[str, str]) -> None:
    """Let the relay report problems of documents, as long as they last."""
    for name in documents.FIRST:
        relay.problems.set(name, problems.get(name, ""), "document-refused")
