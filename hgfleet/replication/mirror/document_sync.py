"""Documents of the primary, copied to a mirror.

The registry comes first: from then on the mirror's web workers know the readers of each repository,
and only then are folders and bundles changed. Registry and tokens are also fetched separately
(`first`), at the same time as a run that fetches bundles, and neither waits for the other. A mirror
keeps its documents if the source does not answer, or if it has a later generation of them. A
process may be killed after any step; the next run continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
from typing import IO, TYPE_CHECKING

from hgfleet.core import files, generation
from hgfleet.core.errors import HgfleetError, RegistryError
from hgfleet.registry.dynamic import dynamic_update, missing, user_repositories
from hgfleet.replication.documents import documents
from hgfleet.replication.documents.document_files import TOKENS_FOLDER, Documents, make_folders
from hgfleet.replication.documents.documents import Document, RefusedError
from hgfleet.replication.documents.generation_guard import GenerationGuard, places_of
from hgfleet.replication.mirror import asides
from hgfleet.replication.mirror.follow import Follow
from hgfleet.replication.mirror.state_file import Held
from hgfleet.replication.repositories.readers_gate import NONE, RegistryStamp
from hgfleet.replication.source.client import GoneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.client import SourceClient


class DocumentSync:
    """Documents of a mirror. `first` is safe in threads; `run` has a single caller at a time."""

    def __init__(
        self, settings: Settings, source: SourceClient, say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._source = source
        self._say = say
        self._files = Documents(settings)
        self._stamp = RegistryStamp(settings.dynamic)
        self._bringing = {name: threading.Lock() for name in documents.FIRST}
        # Stamps of the primary's documents and of this mirror's, after a run without a failure.
        self._brought = ("", "")
        self._follow = Follow(settings, say)
        self._told: list[str] = []
        self._away: dict[str, str] = {}
        self._guards = {
            name: GenerationGuard(name, place, say) for name, place in places_of(settings).items()
        }

    def held(self) -> Held:
        """Return the points in which this mirror does not follow the primary."""
        refused = {name: guard.refused for name, guard in self._guards.items() if guard.refused}
        days = self._settings.keep_missing_days
        return Held(refused, asides.sentences(self._follow.aside, days), self._away)

    def run(self) -> int:
        """Fetch all documents; return the number of changes.

        Raises UnavailableError if the source does not answer. If a document cannot be fetched, this
        is logged, and the others are fetched all the same.
        """
        known = self._current(self._files.stamp())
        stamp, listed = self._source.documents(known)
        if listed is None:
            self._away = {}
            self._try_to_follow()
            return 0
        self._brought = ("", "")
        plan = documents.plan(self._files.have(), listed)
        done = 0
        if plan.registry or self._guards[documents.REGISTRY].refused:
            with contextlib.suppress(RefusedError):
                done += self._bring_registry()
        self._try_to_follow()
        for name in plan.delete:
            with contextlib.suppress(RefusedError):
                # The list may be older than the tokens.
                done += self.first(name) if name == documents.TOKENS else self._delete(name)
        away: dict[str, str] = {}
        for document in plan.fetch:
            try:
                self._bring(document)
                done += 1
            except RefusedError:
                continue
            except (HgfleetError, OSError) as error:
                away[document.name] = str(error)
                self._say(f"document {document.name}: {error}")
        self._away = away
        if not away:
            self._brought = (stamp, self._files.stamp())
        return done

    def _current(self, here: str) -> str:
        """Return the stamp of the primary's documents if this mirror has them all, else ""."""
        there, then = self._brought
        return there if here and here == then else ""

    def first(self, name: str) -> bool:
        """Fetch the registry, with its repositories, or the tokens, as the primary has them now.

        Returns whether there was a change. Raises RefusedError if the primary's version is older
        than this mirror's version, and UnavailableError if the source does not answer.
        """
        if name == documents.TOKENS:
            with self._bringing[name]:
                return self._first_tokens()
        try:
            is_new = self._bring_registry()
        except RefusedError:
            self._try_to_follow()
            raise
        self._try_to_follow()
        return is_new

    def _bring_registry(self) -> bool:
        with self._bringing[documents.REGISTRY]:
            there, here = self._source.registry_stamp(), self._stamp.read()
            guard = self._guards[documents.REGISTRY]
            if there == here:
                guard.agree()
                return False
            if there == NONE:
                # Mirrors of a primary without a registry keep their own registry.
                guard.keep()
                return False
            guard.refuse_again(there)
            self._first_registry(guard)
            return True

    def _try_to_follow(self) -> None:
        """Follow the registry, and log folders that cannot move yet; all others move."""
        is_sure = not self._guards[documents.REGISTRY].refused
        problems = self._follow.run(expires=is_sure)
        if problems != self._told:
            for problem in problems:
                self._say(problem)
        self._told = problems

    def _first_tokens(self) -> bool:
        content, guard = io.BytesIO(), self._guards[documents.TOKENS]
        try:
            self._source.document(documents.TOKENS, content, documents.SMALL)
        except GoneError:
            guard.keep()
            return self._delete(documents.TOKENS)
        make_folders(self._settings.dynamic.parent, TOKENS_FOLDER)
        with files.open_folder(guard.place.parent) as folder:
            guard.take(folder, generation.version(content.getvalue()))
            is_new = self._write(documents.TOKENS, content.getvalue())
            guard.taken(folder)
        return is_new

    def _first_registry(self, guard: GenerationGuard) -> None:
        """Replace the registry if the new version is later and can be read; else it stays."""
        content = io.BytesIO()
        self._source.document(documents.REGISTRY, content, user_repositories.MAX_SIZE)
        coming = user_repositories.parse(content.getvalue(), "the registry of the primary")
        dynamic = self._settings.dynamic
        with dynamic_update.locked(dynamic) as folder:
            guard.take(folder, generation.version(content.getvalue()))
            self._follow.leave(coming)
            with contextlib.suppress(RegistryError):
                missing.note(dynamic, folder, user_repositories.load(dynamic), coming)
            self._write(documents.REGISTRY, content.getvalue())
            guard.taken(folder)
            (dynamic.parent / user_repositories.SEEN).touch(mode=0o640)

    def _write(self, name: str, content: bytes) -> bool:
        """Replace a document unless the content is the same; return whether it changed."""
        opened = self._files.open(name)
        if opened is not None:
            with opened:
                if opened.read(len(content) + 1) == content:
                    return False
        wanted = Document(name, hashlib.sha256(content).hexdigest(), len(content))
        self._files.replace(wanted, lambda file: _write(file, content))
        return True

    def _delete(self, name: str) -> bool:
        opened = self._files.open(name)
        if opened is not None:
            opened.close()
        self._files.delete(name)
        return opened is not None

    def _bring(self, document: Document) -> None:
        if document.name == documents.TOKENS:
            self.first(document.name)
            return

        def fetch(file: IO[bytes]) -> None:
            self._source.document(document.name, file, document.size)

        self._files.replace(document, fetch)


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
