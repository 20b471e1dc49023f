"""Answers of the source, on the primary: what mirrors fetch beside the messages of pushes.

It reads repositories and writes nothing. A mirror gets repositories in service alone.
"""

from __future__ import annotations

import gc
import itertools
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from hgfleet.core.errors import PushlogError, RegistryError, TemporaryError
from hgfleet.core.names import path_problem
from hgfleet.pushlog import log_file
from hgfleet.registry import user_repositories
from hgfleet.registry.effective import EffectiveRegistry
from hgfleet.replication import document_files, documents, registry_gate, snapshot
from hgfleet.replication.registry_gate import RegistryStamp
from hgfleet.replication.source_requests import RefusedError, parse_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from hgfleet.registry.model import Registry
    from hgfleet.replication.settings import Settings
    from hgfleet.replication.source_requests import Request

HEAVY: Final = 4
"""Requests at a time that compute changegroups or states; others wait."""

PATIENCE_S: Final = 30.0
"""Seconds that such a request waits for its turn."""

JSON_LINES: Final = "application/x-ndjson"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"

_PIECE: Final = 256 * 1024


class Pieces(Protocol):
    """The body of an answer in pieces; its reader closes it."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """End the answer, at its end or before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer, and its content type."""

    kind: str
    pieces: Pieces


class Source:
    """The answers, computed in the threads of the server."""

    def __init__(self, settings: Settings, complain: Callable[[str], None]) -> None:
        self._settings = settings
        self._complain = complain
        self._registry = EffectiveRegistry(settings.compiled, settings.dynamic)
        self._registry_stamp = RegistryStamp(settings.dynamic)
        self._reading = threading.Lock()
        self._heavy = threading.BoundedSemaphore(HEAVY)
        self._documents = document_files.Documents(settings)
        self._ui: Any = None

    def answer(self, request: Request, body: bytes) -> Answer:
        """Answer one request; raises RefusedError, also while the pieces are read."""
        try:
            return self._answer(request, body)
        except (TemporaryError, RegistryError, PushlogError) as error:
            raise RefusedError(503, str(error)) from error
        except OSError as error:
            raise RefusedError(503, f"{error.filename}: {error.strerror}; try again") from error

    def _answer(self, request: Request, body: bytes) -> Answer:
        if request.what == "repositories":
            return Answer(JSON_LINES, _in_pieces(self._positions()))
        if request.what == "registry":
            return Answer(JSON, _in_pieces(iter([self._registry_now()])))
        if request.what == "documents":
            return self._document(request)
        place = self._place(request.path)
        if request.what == "log":
            return Answer(BYTES, _in_pieces(lines_after(_log(place), request.after)))
        if request.what == "state":
            return Answer(JSON, self._in_turn(lambda: self._state(request, place)))
        selection = parse_selection(body)
        from hgfleet.replication import changesets

        return Answer(
            BYTES,
            self._in_turn(lambda: changesets.stream(self._open(place), selection)),
        )

    def registry(self) -> Registry:
        """Return the registry as it is now."""
        with self._reading:
            return self._registry.read(self._complain)

    def _registry_now(self) -> bytes:
        stamp = self._registry_stamp.read()
        if stamp in (registry_gate.UNKNOWN, registry_gate.NONE):
            # A registry that is lost or cannot be read is told apart from none.
            user_repositories.load(self._settings.dynamic)
        return json.dumps({"stamp": stamp}).encode("ascii")

    def _place(self, path: str) -> Path:
        if path not in self.registry().repositories:
            raise RefusedError(404, f"{path}: no repository in service has this path")
        place = self._settings.repositories / path
        if not (place / ".hg/store").is_dir():
            raise RefusedError(503, f"{path}: registered, and not on the disk yet; try again")
        return place

    def _positions(self) -> Iterator[bytes]:
        for path in self.registry().repositories:
            if path_problem(path):
                continue
            try:
                tip = log_file.tip(_log(self._settings.repositories / path))
            except (PushlogError, OSError) as error:
                # The others are fine, and this one has no position that a mirror could compare.
                self._complain(f"{path}: {error}")
                continue
            found = {"path": path, "repository": tip.repository, "id": tip.id, "hash": tip.hash}
            yield json.dumps(found).encode("ascii") + b"\n"

    def _state(self, request: Request, place: Path) -> Iterator[bytes]:
        state = snapshot.read(place, lambda: self._open(place))
        yield json.dumps(state.to_json() if request.full else state.digests().to_json()).encode()

    def _document(self, request: Request) -> Answer:
        name = request.name
        if not name:
            # Before the list is made: a change that comes meanwhile has another stamp.
            stamp = self._documents.stamp()
            is_known = stamp != "" and stamp == request.known
            found = [] if is_known else self._documents.all()
            first = documents.stamp_line(stamp) + b"\n"
            lines = itertools.chain((first,), (one.line() + b"\n" for one in found))
            return Answer(JSON_LINES, _in_pieces(lines))
        opened = self._documents.open(name)
        if opened is None:
            raise RefusedError(404, f"{name}: no document has this name")

        def pieces() -> Generator[bytes]:
            with opened:
                while piece := opened.read(_PIECE):
                    yield piece

        return Answer(BYTES, pieces())

    def _open(self, place: Path) -> Any:
        from mercurial import error

        from hgfleet.replication import changesets

        if self._ui is None:
            self._ui = changesets.new_ui(self._settings.hgrc)
            # Modules and settings stay; `_end_turn` looks at what requests have made alone.
            gc.freeze()
        try:
            return changesets.open_repository(self._ui.copy(), place)
        except error.Error as problem:
            sentence = f"{place}: Mercurial says: {changesets.text(problem)}"
            raise RefusedError(503, sentence) from problem

    def _in_turn(self, make: Callable[[], Iterator[bytes]]) -> Pieces:
        """Begin a request that takes processor time when it is its turn; errors come before."""
        if not self._heavy.acquire(timeout=PATIENCE_S):
            raise RefusedError(
                503, f"{HEAVY} other requests have been at work for {PATIENCE_S:.0f} s; try again"
            )
        try:
            made = iter(make())
            first = next(made, b"")
        except BaseException:
            self._heavy.release()
            raise
        return _Turn(itertools.chain((first,), made), self._end_turn)

    def _end_turn(self) -> None:
        self._heavy.release()
        # A repository is a cycle of objects, and the store that it has pinned is kept by a storage
        # upgrade until it is gone.
        gc.collect()


class _Turn:
    """Pieces of an answer; its end, or that of its connection, is the next one's turn."""

    def __init__(self, pieces: Iterator[bytes], over: Callable[[], None]) -> None:
        self._pieces, self._over = pieces, over
        self._is_over = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the turn."""
        if not self._is_over:
            self._is_over = True
            self._pieces = iter(())
            self._over()


def lines_after(log: Path, after: int) -> Iterator[bytes]:
    """Yield the lines of a push log behind a record, each with its line feed.

    Records are numbered from 1 without gaps, so line N has record N.
    """
    for number, (_, line) in enumerate(log_file.lines(log), 1):
        if number > after:
            yield line + b"\n"


def _log(place: Path) -> Path:
    return place / ".hg/store" / log_file.NAME


def _in_pieces(lines: Iterator[bytes]) -> Generator[bytes]:
    """Join short lines; each piece costs system calls."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= _PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)
