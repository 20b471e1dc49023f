"""Answers of the source, on the primary: data that mirrors fetch besides messages of pushes.

It reads repositories and writes nothing. A mirror only gets repositories in service.
"""

from __future__ import annotations

import errno
import gc
import itertools
import json
import threading
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from hgfleet.core.errors import HgfleetError, PushlogError, RegistryError, TemporaryError
from hgfleet.core.names import path_problem
from hgfleet.pushlog import identities, log_file
from hgfleet.pushlog.record import FIRST
from hgfleet.registry.dynamic import user_repositories
from hgfleet.replication.documents import document_files, documents
from hgfleet.replication.protocol import snapshot
from hgfleet.replication.repositories import readers_gate
from hgfleet.replication.repositories.readers_gate import RegistryStamp
from hgfleet.replication.repositories.served import Served
from hgfleet.replication.source.requests import RefusedError, parse_selection
from hgfleet.replication.terms import repository_fences

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.requests import Request

HEAVY: Final = 4
"""Most concurrent requests that compute changegroups or states; others wait."""

PATIENCE_S: Final = 30.0
"""Seconds that such a request waits for its turn."""

JSON_LINES: Final = "application/x-ndjson"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"

_PIECE: Final = 256 * 1024

_HOST_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that concern the process, not a repository."""


class Pieces(Protocol):
    """The body of an answer in pieces; its reader closes it."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """End the answer, whether it is complete or not."""


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
        self._served = Served(settings, complain)
        self._registry_stamp = RegistryStamp(settings.dynamic)
        self._heavy = threading.BoundedSemaphore(HEAVY)
        self._documents = document_files.Documents(settings)
        self._ui: Any = None

    def answer(self, request: Request, body: bytes) -> Answer:
        """Answer a request; raises RefusedError, also while the pieces are read."""
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
        return self._of_repository(request, self._path(request), body)

    def _of_repository(self, request: Request, path: str, body: bytes) -> Answer:
        """Answer from a repository; its errors are reported as its own problem."""
        place = self._settings.repositories / path

        def problem() -> str | None:
            if (wrong := self._served.problem(path)) or not request.identity:
                return wrong
            # By now another repository may have the path, also in the registry.
            if (got := identities.of(place)) != request.identity:
                return (
                    f"{path}: got repository {got or '-'}, expected {request.identity}; ask again"
                )
            return None

        if request.what == "log":
            lines = partial(lines_after, _log(place), request.after)
            return Answer(BYTES, _Checked(lambda: _in_pieces(lines()), problem, path))
        if request.what == "state":
            self._refuse_fenced(request, place, path)
            return Answer(JSON, self._in_turn(path, lambda: self._state(request, place), problem))
        selection = parse_selection(body)
        from hgfleet.replication.source import changesets

        def stream() -> Iterator[bytes]:
            return changesets.stream(self._open(place), selection)

        return Answer(BYTES, self._in_turn(path, stream, problem))

    def _refuse_fenced(self, request: Request, place: Path, path: str) -> None:
        """Refuse the state of a fenced repository: the mirror that asks may have its lost pushes.

        If the mirror replaced its repository by this state, the last copy of them would be deleted.
        """
        identity = request.identity or identities.of(place) or ""
        if repository_fences.find(self._settings.terms, identity) is not None:
            raise RefusedError(
                503,
                f"{path}: fenced, because mirrors have a push that this host lost; operators: "
                "`hgfleet replication fences` on the primary, then ask again",
            )

    def _registry_now(self) -> bytes:
        stamp = self._registry_stamp.read()
        if stamp in (readers_gate.UNKNOWN, readers_gate.NONE):
            # This raises if the registry is lost or cannot be read, but not if there is none.
            user_repositories.load(self._settings.dynamic)
        return json.dumps({"stamp": stamp}).encode("ascii")

    def _path(self, request: Request) -> str:
        """Return the present path of the repository of a request; raises RefusedError."""
        path, named = request.path, request.identity or request.path
        if request.identity:
            path = self._served.path(request.identity) or ""
        if path not in self._served.registry().repositories:
            if request.identity in self._served.purged():
                raise RefusedError(410, f"{named}: the repository was deleted")
            raise RefusedError(404, f"{named}: no such repository is in service")
        if not (self._settings.repositories / path / ".hg/store").is_dir():
            raise RefusedError(500, f"{path}: registered, but not on the disk yet; try again")
        return path

    def _positions(self) -> Iterator[bytes]:
        for identity, path in self._served.paths().items():
            if not path_problem(path):
                yield json.dumps(self._position(identity, path)).encode("ascii") + b"\n"

    def _position(self, identity: str, path: str) -> dict[str, object]:
        try:
            tip = log_file.tip(_log(self._settings.repositories / path))
            problem = self._served.problem(path)
            if tip.repository not in ("", identity):
                problem = f"{path}: its push log belongs to repository {tip.repository}"
        except (PushlogError, OSError) as error:
            tip, problem = log_file.Tip(), f"{path}: {error}"
        if problem:
            self._complain(problem)
            # These numbers tell mirrors of the previous release that nothing is missing.
            known = {"id": 0, "hash": FIRST, "repository": "", "problem": problem[:500]}
        else:
            known = {"id": tip.id, "hash": tip.hash, "repository": tip.repository}
        return {"identity": identity, "path": path, **known}

    def _state(self, request: Request, place: Path) -> Iterator[bytes]:
        state = snapshot.read(place, lambda: self._open(place))
        yield json.dumps(state.to_json() if request.full else state.digests().to_json()).encode()

    def _document(self, request: Request) -> Answer:
        name = request.name
        if not name:
            # Read before the list is made, so that a change during this time has another stamp.
            stamp = self._documents.stamp()
            is_known = stamp != "" and stamp == request.known
            listed = [] if is_known else self._documents.all()
            first = documents.stamp_line(stamp) + b"\n"
            lines = itertools.chain((first,), (document.line() + b"\n" for document in listed))
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

        from hgfleet.replication.source import changesets

        if self._ui is None:
            self._ui = changesets.new_ui(self._settings.hgrc)
            # Modules and settings stay, so `_end_turn` only checks objects that requests made.
            gc.freeze()
        try:
            return changesets.open_repository(self._ui.copy(), place)
        except error.Error as problem:
            sentence = f"{place}: Mercurial says: {changesets.text(problem)}"
            raise RefusedError(500, sentence) from problem

    def _in_turn(
        self, path: str, make: Callable[[], Iterator[bytes]], problem: Callable[[], str | None]
    ) -> Pieces:
        """Begin a request that takes processor time when it is its turn; raises early errors."""
        if not self._heavy.acquire(timeout=PATIENCE_S):
            raise RefusedError(
                503, f"{HEAVY} other requests have been running for {PATIENCE_S:.0f} s; try again"
            )
        return _Checked(make, problem, path, self._end_turn)

    def _end_turn(self) -> None:
        self._heavy.release()
        # A repository is a cycle of objects, and until it is collected, a storage upgrade has to
        # keep the store that it pinned.
        gc.collect()


class _Checked:
    """Pieces of an answer from the repository at a path.

    The answer is made with its first piece, which is read before the folder's identity is compared:
    then the files are open, and a folder that comes to the path later is not read. All errors
    except the host's errors concern the repository. `over` ends the turn of the request.
    """

    def __init__(
        self,
        make: Callable[[], Iterator[bytes]],
        problem: Callable[[], str | None],
        path: str,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self._over = path, over
        self._is_over = False
        self._pieces: Iterator[bytes] = _begun(make)
        first = next(self, b"")
        try:
            if wrong := problem():
                raise RefusedError(500, wrong)
        except BaseException:
            self.close()
            raise
        self._pieces = itertools.chain((first,), self._pieces)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except (StopIteration, RefusedError):
            self.close()
            raise
        except Exception as error:
            self.close()
            raise _refusal(self._path, error) from error

    def close(self) -> None:
        """End the turn."""
        if not self._is_over:
            self._is_over = True
            self._pieces = iter(())
            self._over()


def _begun(make: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    yield from make()


def _refusal(path: str, error: Exception) -> RefusedError:
    """Return the answer after an error while a repository is read."""
    if isinstance(error, OSError):
        status = 503 if error.errno in _HOST_ERRORS else 500
        return RefusedError(status, f"{path}: {error.filename}: {error.strerror}")
    if isinstance(error, HgfleetError):
        return RefusedError(500, f"{path}: {error}")
    # Mercurial's errors about a damaged store may have any class.
    traceback.print_exception(error)
    return RefusedError(500, f"{path}: it cannot be read: {type(error).__name__}: {error}")


def lines_after(log: Path, after: int) -> Iterator[bytes]:
    """Yield the lines of a push log after a record, each with its line feed.

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
