"""Hints to mirrors that documents of the primary changed, and generations that are due.

The registry and the tokens are looked at each second. The folders of manifests and pull bundles are
thousands on a large site; they are looked at less often when that takes long. A hint that is lost
costs nothing but time: mirrors look at the documents now and then.

A registry or tokens that another program than a writer of this release has written get their
generation here, and so do those of a host that begins an epoch as the primary.
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
"""Between looks at the registry and the tokens."""

SHARE: Final = 50
"""Of its time that a look at the folders may take: one part of this."""

FOLDERS: Final = "manifests"
"""The document that a hint names for manifests and pull bundles."""

Looks = dict[str, object]
"""The state seen of each document; None for a folder that is changing."""


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
        """Return the state of each document now."""
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


class Renewal:
    """Generations of the documents of this primary, where one is due."""

    def __init__(self, settings: Settings) -> None:
        self._epoch = settings.terms / host_terms.EPOCH
        self._places = places_of(settings)
        self._done: dict[str, object] = {}

    def run(self) -> dict[str, str]:
        """Look at documents that changed, and at all in a new epoch; return the problems."""
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
                # Not as it is by now: another change may have come since.
                self._done[name] = seen
        return problems


async def watch(relay: Relay) -> None:
    """Publish a hint for each change, and one for each document at the start."""
    looker, renewal = Looker(relay.settings), Renewal(relay.settings)
    told: Looks = {}
    while True:
        # A broker has confirmed that this host is the primary.
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
    """Have the relay name problems of documents, as long as they last."""
    for name in documents.FIRST:
        relay.problems.set(name, problems.get(name, ""), "document-refused")
