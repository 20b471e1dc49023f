"""Guard of a mirror's registry, or of its tokens, that takes no older version.

The versions that the mirror has had, and the reason for a refusal, are in the file of its memory
(`core/generation.py`), so a restart of any host does not change them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.core import files, generation
from hgfleet.core.generation import Memory, Version
from hgfleet.replication.documents import documents
from hgfleet.replication.documents.document_files import TOKENS_FILE, TOKENS_FOLDER
from hgfleet.replication.documents.documents import RefusedError
from hgfleet.replication.repositories.readers_gate import stamp_digits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings


def places_of(settings: Settings) -> dict[str, Path]:
    """Return the place of each document with a generation, by its name."""
    folder = settings.dynamic.parent
    tokens = folder / TOKENS_FOLDER / TOKENS_FILE
    return {documents.REGISTRY: settings.dynamic, documents.TOKENS: tokens}


class GenerationGuard:
    """Guard of a document. Its caller excludes other writers."""

    def __init__(self, name: str, place: Path, say: Callable[[str], None]) -> None:
        self.place = place
        self._name, self._say = name, say
        self.refused = generation.read_beside(place).refused
        """Why this mirror keeps its version; "" while it follows the primary."""

    def take(self, folder: int, there: Version) -> None:
        """Record that the primary's version will be written; raises RefusedError if it is older."""
        memory, here = self._known(folder)
        decision = generation.decide(memory, there)
        if decision.refused:
            self._refuse(
                folder, memory, decision.refused, there.sha256, went_back=decision.went_back
            )
        if there.generation is not None:
            self._note(folder, memory, replace(_taken(there), before=here.sha256 if here else ""))

    def taken(self, folder: int) -> None:
        """Record that the version that `take` recorded is written."""
        generation.settle(folder, self.place.name)

    def agree(self) -> None:
        """Record that the primary has this mirror's version: it has not gone back after all."""
        if not self.refused:
            return
        with files.open_folder(self.place.parent) as folder:
            memory, here = self._known(folder)
            if here is not None and here.generation == memory.generation:
                self._note(folder, memory, _taken(here))

    def keep(self) -> None:
        """Raise RefusedError if the primary has no version and this mirror has a generation."""
        if not self.place.parent.is_dir():
            return
        with files.open_folder(self.place.parent) as folder:
            memory, _ = self._known(folder)
            if memory.generation is not None:
                reason = f"the primary has none; this mirror keeps generation {memory.generation}"
                self._refuse(folder, memory, reason, "", went_back=memory.went_back)

    def refuse_again(self, stamp: str) -> None:
        """Raise RefusedError if the version with this stamp was refused last."""
        memory = generation.read_beside(self.place)
        if self.refused and memory.refused and stamp_digits(memory.refused_sha256) == stamp:
            raise RefusedError(f"{self._name}: {memory.refused}")

    def _known(self, folder: int) -> tuple[Memory, Version | None]:
        here = None
        if self.place.is_file() and not self.place.is_symlink():
            here = generation.version(self.place.read_bytes())
        return generation.known(generation.read(folder, self.place.name), here), here

    def _refuse(
        self, folder: int, memory: Memory, reason: str, sha256: str, *, went_back: bool
    ) -> None:
        if self.refused != reason:
            self._say(f"{self._name}: refused: {reason}")
        made = replace(memory, refused=reason, refused_sha256=sha256, went_back=went_back)
        self._note(folder, memory, made)
        raise RefusedError(f"{self._name}: {reason}")

    def _note(self, folder: int, memory: Memory, made: Memory) -> None:
        if made != replace(memory, before=made.before):
            generation.write(folder, self.place.name, made)
        if self.refused and not made.refused:
            self._say(f"{self._name}: generation {made.generation} of the primary is taken")
        self.refused = made.refused


def _taken(version: Version) -> Memory:
    return Memory(version.generation, version.sha256, past=version.past)
