"""Documents of the primary, brought to a mirror.

The registry comes first: from then on the mirror's web workers know the readers of each repository,
and only then are folders and bundles changed. Registry and tokens are brought by themselves as well
(`first`), beside a run that fetches bundles, and neither waits for the other. A mirror whose source
does not answer keeps what it has. Each step may be the last one of a killed process; the next run
goes on.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import threading
from typing import IO, TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import HgfleetError
from hgfleet.registry import dynamic_update, moves, provision, user_repositories
from hgfleet.registry.compiled import load_compiled
from hgfleet.replication import documents, places
from hgfleet.replication.document_files import Documents, make_folders
from hgfleet.replication.documents import Document
from hgfleet.replication.registry_changes import changes
from hgfleet.replication.registry_gate import NONE, RegistryStamp
from hgfleet.replication.source_client import GoneError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.registry.model import Registry
    from hgfleet.registry.user_repositories import Dynamic
    from hgfleet.replication.settings import Settings
    from hgfleet.replication.source_client import SourceClient

FOLLOWED: Final = ".registry-followed"
"""Beside the registry: the one whose repositories are all in their places on this mirror."""

FOLLOWING: Final = ".registry-following"
"""Beside the registry: the one whose repositories are being brought to their places."""

AWAY: Final = ".replication"
"""Folder below the root of repositories for those that move or go; no path begins with a dot."""

LOCK_WAIT_S: Final = 10


class DocumentSync:
    """One mirror. `first` is safe in threads; one at a time calls `run`."""

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
        # While it exists, repositories are at new places, and none is taken away again.
        self._taken = settings.repositories / AWAY / "taken"

    def run(self) -> int:
        """Bring all documents; return the number of changes.

        Raises UnavailableError where the source does not answer. One document that cannot be
        brought is told of, and keeps no other from it.
        """
        known = self._current(self._files.stamp())
        stamp, listed = self._source.documents(known)
        if listed is None:
            self.follow()
            return 0
        self._brought = ("", "")
        plan = documents.plan(self._files.have(), listed)
        done = int(self.first(documents.REGISTRY)) if plan.registry else 0
        self.follow()
        for name in plan.delete:
            # The list may be older than the tokens.
            done += self.first(name) if name == documents.TOKENS else self._delete(name)
        failed = 0
        for one in plan.fetch:
            try:
                self._bring(one)
                done += 1
            except (HgfleetError, OSError) as error:
                failed += 1
                self._say(f"document {one.name}: {error}")
        if not failed:
            self._brought = (stamp, self._files.stamp())
        return done

    def _current(self, here: str) -> str:
        """Return the stamp of the primary's documents that this mirror has, or ""."""
        there, then = self._brought
        return there if here and here == then else ""

    def first(self, name: str) -> bool:
        """Bring the registry, with its repositories, or the tokens, as the primary has them now.

        Returns whether there was a change. Raises UnavailableError where the source does not
        answer.
        """
        with self._bringing[name]:
            if name == documents.TOKENS:
                return self._first_tokens()
            there = self._source.registry_stamp()
            # Mirrors of a primary without a registry keep the one that they have.
            is_new = there not in (NONE, self._stamp.read())
            if is_new:
                self._first_registry()
        self.follow()
        return is_new

    def _first_tokens(self) -> bool:
        content = io.BytesIO()
        try:
            self._source.document(documents.TOKENS, content, documents.SMALL)
        except GoneError:
            return self._delete(documents.TOKENS)
        return self._write(documents.TOKENS, content.getvalue())

    def _first_registry(self) -> None:
        """Replace the registry by one that can be read; else the old one stays."""
        content = io.BytesIO()
        self._source.document(documents.REGISTRY, content, user_repositories.MAX_SIZE)
        user_repositories.parse(content.getvalue(), "the registry of the primary")
        with dynamic_update.locked(self._settings.dynamic):
            self._write(documents.REGISTRY, content.getvalue())
            (self._settings.dynamic.parent / user_repositories.SEEN).touch(mode=0o640)

    def _write(self, name: str, content: bytes) -> bool:
        """Replace a document unless it is the same; return whether it was another one."""
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

    def _bring(self, one: Document) -> None:
        if one.name == documents.TOKENS:
            self.first(one.name)
            return

        def fetch(file: IO[bytes]) -> None:
            self._source.document(one.name, file, one.size)

        self._files.replace(one, fetch)

    def follow(self) -> None:
        """Have the repositories on disk follow the registry that lies on this mirror."""
        dynamic = self._settings.dynamic
        begun, note = dynamic.with_name(FOLLOWING), dynamic.with_name(FOLLOWED)
        with dynamic_update.locked(dynamic):
            # Steps that a killed process left are those between two registries: they come first.
            for wanted in (user_repositories.read_content(file) for file in (begun, dynamic)):
                before = user_repositories.read_content(note)
                if wanted is None or wanted == before:
                    continue
                files.replace(begun, wanted, mode=0o640)
                followed = user_repositories.NOTHING
                if before is not None:
                    followed = user_repositories.parse(before, str(note))
                after = user_repositories.parse(wanted, str(dynamic))
                self._carry_out(followed, after, load_compiled(self._settings.compiled))
                files.replace(note, wanted, mode=0o640)
                self._taken.unlink(missing_ok=True)
            begun.unlink(missing_ok=True)
            self._taken.unlink(missing_ok=True)
        self._empty_away()

    def _carry_out(self, before: Dynamic, after: Dynamic, static: Registry) -> None:
        wanted = changes(before, after, static)
        root = self._settings.repositories
        for path in wanted.kept:
            self._say(
                f"{path}: left the registry with more than half of all; kept on the disk, and "
                "served by nothing"
            )
        # First all out of their places, so that two repositories can exchange their paths.
        if not self._taken.exists():
            self._empty_away()
            for old, new in wanted.moves:
                self._take_away(old, f"to-{files.file_name(new)}")
            for path in wanted.remove:
                self._take_away(path, f"gone-{files.file_name(path)}")
                self._say(f"{path}: left the registry, removed")
            self._taken.parent.mkdir(mode=0o700, exist_ok=True)
            self._taken.touch()
        for old, new in wanted.moves:
            away = root / AWAY / f"to-{files.file_name(new)}"
            if away.is_dir():
                make_folders(root, new.rpartition("/")[0])
                away.rename(root / new)
                self._say(f"{new}: moved from {old}")
        served = user_repositories.merged(static, after).repositories
        target = places.target(self._settings)
        for path in wanted.configure:
            if (repository := served.get(path)) is not None:
                provision.follow(repository, target, self._say)

    def _take_away(self, path: str, name: str) -> None:
        """Move a repository out of its place, unless an earlier run did."""
        root = self._settings.repositories
        away = root / AWAY
        away.mkdir(mode=0o700, exist_ok=True)
        if not (root / path / ".hg").is_dir() or (away / name).exists():
            return
        with moves.at_rest(root / path, path, LOCK_WAIT_S):
            (root / path).rename(away / name)
        _remove_empty_parents(root, path)

    def _empty_away(self) -> None:
        """Delete the repositories that went; those that move stay until they are in place."""
        away = self._settings.repositories / AWAY
        for gone in away.glob("gone-*"):
            shutil.rmtree(gone, ignore_errors=True)


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)


def _remove_empty_parents(root: Path, path: str) -> None:
    """Remove the folders above a path that are empty; rmdir removes no others."""
    for above in (root / path).parents:
        if above == root:
            return
        try:
            above.rmdir()
        except OSError:
            return
