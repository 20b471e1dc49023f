"""Client of the source: requests of a mirror to the primary, with limits on time and size.

Answers come from another host, so each is checked before it is used. Errors of the network and
refusals of the source raise UnavailableError with its sentence. A refusal about a repository raises
RepositoryError: then the source is there, and answers about other repositories. If the source does
not have a repository or changesets, this raises GoneError.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import tempfile
import time
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from hgfleet.core.errors import ConfigurationError, HgfleetError, UnavailableError
from hgfleet.core.identity import is_identity
from hgfleet.core.names import path_problem
from hgfleet.pushlog.log_file import MAX_LINE
from hgfleet.pushlog.record import FIRST
from hgfleet.replication.documents.documents import Document, parse_line, parse_stamp
from hgfleet.replication.protocol import snapshot
from hgfleet.replication.protocol.certificates import Certificates
from hgfleet.replication.protocol.messages import is_stamp
from hgfleet.replication.source.requests import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.protocol.snapshot import Digests, State

CONNECT_S: Final = 5.0
SILENT_S: Final = 60.0
"""Seconds without a byte: a large changegroup may take that long until its first byte."""

MOST_CHANGESETS: Final = 64 * 2**30
"""Bytes of a compressed changegroup."""
MOST_STATE: Final = 256 * 2**20
MOST_DOCUMENT: Final = 16 * 2**30
MOST_LISTED: Final = 1_000_000
"""Most repositories, or documents, in a list."""

FORMER_S: Final = 60.0
"""Seconds for which the paths that a source of the previous release listed are used."""

IN_MEMORY: Final = 8 * 2**20
"""Bytes up to which a changegroup is kept in memory, not in a file."""

_PIECE: Final = 256 * 1024
_LONGEST: Final = 2000
"""Most bytes of a sentence."""
_LONGEST_ENTRY: Final = 8192

_HASH: Final = re.compile(r"[0-9a-f]{64}")

_State = TypeVar("_State", "Digests", "State")


class GoneError(HgfleetError):
    """The source no longer has these changesets, or this repository."""


class RepositoryError(UnavailableError):
    """The source cannot read this repository now, but answers about others."""


class _FormerSourceError(UnavailableError):
    """The source has the previous release, which does not know repositories by identity."""


@dataclass(frozen=True, slots=True)
class Position:
    """The end of the push log of a repository on the primary; id 0 before its first record.

    `problem` says why the primary cannot read it; then there are no numbers.
    """

    identity: str
    path: str
    id: int = 0
    hash: str = FIRST
    problem: str = ""


class SourceClient:
    """Requests to the source, each with a separate connection; for several threads."""

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.source)
        if parts.scheme != "https" or not parts.hostname:
            raise ConfigurationError(
                f"source: got {settings.source!r}, expected a URL like https://hg1:7460"
            )
        self._host, self._port = parts.hostname, parts.port or 443
        self._certificates = Certificates(settings, ssl.Purpose.SERVER_AUTH)
        # Paths by identity on a source of the previous release, and until when they are used.
        self._former: dict[str, str] = {}
        self._former_until = 0.0

    def repositories(self) -> Iterator[Position]:
        """Yield the positions of all repositories in service."""
        with self._answer("GET", "/v1/repositories") as answer:
            for number, line in enumerate(_lines(answer, _LONGEST_ENTRY)):
                if number >= MOST_LISTED:
                    raise UnavailableError(f"the source lists more than {MOST_LISTED} repositories")
                # A source of the previous release lists repositories without a push only by path.
                if (position := _position(line)) is not None:
                    yield position

    def registry_stamp(self) -> str:
        """Return the stamp of the primary's dynamic registry; raises UnavailableError."""
        try:
            with self._answer("GET", "/v1/registry") as answer:
                stamp: str = _json(answer, _stamp)
        except GoneError as error:
            # A primary of an earlier release has no such address, but is updated soon.
            raise UnavailableError(str(error)) from error
        return stamp

    def log_after(self, identity: str, after: int) -> Iterator[bytes]:
        """Yield the lines of a push log after a record, without their line feeds."""
        with self._of("GET", "/v1/log", identity, {"after": str(after)}) as answer:
            yield from _lines(answer, MAX_LINE)

    @contextlib.contextmanager
    def changegroup(self, identity: str, nodes: Sequence[str]) -> Iterator[BinaryIO]:
        """Open a changegroup (version 03, zlib) of exactly these changesets; it is complete."""
        with self.changesets(identity, Selection(nodes=tuple(nodes))) as file:
            yield file

    @contextlib.contextmanager
    def changesets(self, identity: str, selection: Selection) -> Iterator[BinaryIO]:
        """Open a changegroup (version 03, zlib) of a selection; it is complete."""
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            with self._of("POST", "/v1/changesets", identity, {}, selection.body()) as answer:
                _copy(answer, file, MOST_CHANGESETS)
            file.seek(0)
            yield file  # type: ignore[misc]  # a BinaryIO in all but name

    def digests(self, identity: str) -> Digests:
        """Return digests of the state of a repository after its last record."""
        with self._of("GET", "/v1/state", identity) as answer:
            digests: Digests = _json(answer, snapshot.digests_from_json)
        return _own(digests, identity)

    def state(self, identity: str) -> State:
        """Return the state of a repository after its last record."""
        with self._of("GET", "/v1/state", identity, {"full": "1"}) as answer:
            state: State = _json(answer, snapshot.from_json)
        return _own(state, identity)

    def documents(self, known: str = "") -> tuple[str, tuple[Document, ...] | None]:
        """Return the stamp of the list of documents, and the list; None if `known` is its stamp.

        A list without a stamp is being changed.
        """
        with self._answer("GET", "/v1/documents", {"known": known}) as answer:
            lines = _lines(answer, _LONGEST_ENTRY)
            try:
                stamp = parse_stamp(next(lines, b""))
            except ValueError as error:
                raise UnavailableError(f"the source sent {error}") from error
            listed: list[Document] = []
            for line in lines:
                if len(listed) >= MOST_LISTED:
                    raise UnavailableError(f"the source lists more than {MOST_LISTED} documents")
                try:
                    listed.append(parse_line(line))
                except ValueError as error:
                    raise UnavailableError(f"the source lists {error}") from error
            return stamp, None if stamp and stamp == known else tuple(listed)

    def document(self, name: str, file: IO[bytes], most: int = MOST_DOCUMENT) -> None:
        """Write the bytes of a document to a file; the caller compares the digest."""
        with self._answer("GET", f"/v1/documents/{quote(name, safe='')}") as answer:
            _copy(answer, file, most)

    @contextlib.contextmanager
    def _of(
        self,
        method: str,
        target: str,
        identity: str,
        more: Mapping[str, str] = MappingProxyType({}),
        body: bytes = b"",
    ) -> Iterator[_Answer]:
        """Send a request about a repository, by path to a source of the previous release."""
        if not is_identity(identity):
            raise RepositoryError(f"got {identity!r:.80}, expected the identity of a repository")
        former = self._former if time.monotonic() < self._former_until else {}
        if not former:
            try:
                with self._answer(method, target, {"repository": identity, **more}, body) as answer:
                    yield answer
                    return
            except _FormerSourceError:
                pass
        if identity not in former:
            self._former = former = {known.identity: known.path for known in self.repositories()}
            self._former_until = time.monotonic() + FORMER_S
        if identity not in former:
            raise GoneError(f"{identity}: the source lists no such repository")
        try:
            with self._answer(method, target, {"path": former[identity], **more}, body) as answer:
                yield answer
        except HgfleetError:
            # By now another repository may have this path, or the primary another release.
            self._former_until = 0.0
            raise

    @contextlib.contextmanager
    def _answer(
        self,
        method: str,
        target: str,
        query: Mapping[str, str] = MappingProxyType({}),
        body: bytes = b"",
    ) -> Iterator[_Answer]:
        """Send a request, yield its answer, and end the connection."""
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=CONNECT_S, context=self.read_certificates()
        )
        where = f"the source https://{self._host}:{self._port}"
        try:
            try:
                connection.connect()
                assert connection.sock is not None
                connection.sock.settimeout(SILENT_S)
                connection.request(
                    method, f"{target}?{urlencode(query)}" if query else target, body
                )
                answer = connection.getresponse()
                if answer.status != HTTPStatus.OK:
                    raise _refusal(where, query, answer)
            except (OSError, http.client.HTTPException) as error:
                raise UnavailableError(f"{where} does not answer ({error})") from error
            is_of_one = not query.keys().isdisjoint(("repository", "path"))
            yield _Answer(answer, where, RepositoryError if is_of_one else UnavailableError)
        finally:
            connection.close()

    def read_certificates(self) -> ssl.SSLContext:
        """Read the certificates, again if the role `base` renewed them.

        Raises ConfigurationError.
        """
        try:
            return self._certificates.context()
        except OSError as error:
            files = ", ".join(map(str, self._certificates.files))
            raise ConfigurationError(
                f"{files}: no certificates ({error}); the role `base` makes them, and the unit's "
                "group ssl-cert may read the key"
            ) from error


class _Answer:
    """The body of an answer; `error` is the class of its errors."""

    def __init__(
        self, answer: http.client.HTTPResponse, where: str, error: type[UnavailableError]
    ) -> None:
        self._answer, self._where, self._error = answer, where, error

    def read(self, size: int) -> bytes:
        """Read up to so many bytes; none at the end."""
        try:
            return self._answer.read(size)
        except http.client.HTTPException as error:
            raise self.error(f"sent an answer that is not complete ({error!r:.200})") from error
        except OSError as error:
            raise self.error(f"sends no more ({error})") from error

    def error(self, sentence: str) -> UnavailableError:
        """Return the error of an answer that cannot be used."""
        return self._error(f"{self._where} {sentence}")


def _refusal(
    where: str, query: Mapping[str, str], answer: http.client.HTTPResponse
) -> HgfleetError:
    sentence = answer.read(_LONGEST).decode("utf-8", "replace").strip()
    text = f"{where} refuses ({answer.status}): {sentence!a:.1000}"
    if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return GoneError(text)
    if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return RepositoryError(text)
    if answer.status == HTTPStatus.BAD_REQUEST and "repository" in query:
        return _FormerSourceError(text)
    return UnavailableError(text)


def _lines(answer: _Answer, longest: int) -> Iterator[bytes]:
    """Yield the lines of an answer without their line feeds. Raises UnavailableError.

    HTTPResponse.readline is not used: it takes an answer that ended early for complete.
    """
    rest = bytearray()
    while piece := answer.read(_PIECE):
        rest += piece
        *whole, last = rest.split(b"\n") if b"\n" in piece else (rest,)
        for line in whole:
            yield bytes(line)
        rest = bytearray(last)
        if len(rest) > longest:
            raise answer.error(f"sent a line of more than {longest} bytes")
    if rest:
        raise answer.error("sent a line that is not complete")


def _copy(answer: _Answer, file: IO[bytes], most: int) -> None:
    size = 0
    while piece := answer.read(_PIECE):
        size += len(piece)
        if size > most:
            raise answer.error(f"sent more than {most} bytes")
        file.write(piece)


def _json(answer: _Answer, parse: Callable[[Any], Any]) -> Any:
    body = answer.read(MOST_STATE + 1)
    if len(body) > MOST_STATE:
        raise answer.error(f"sent more than {MOST_STATE} bytes")
    try:
        return parse(json.loads(body))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise answer.error(f"sent something else ({error})") from error


def _own(state: _State, identity: str) -> _State:
    """Check that a state, if it has a record, belongs to the requested repository."""
    if state.repository not in ("", identity):
        raise RepositoryError(f"the source sent the state of {state.repository} for {identity}")
    return state


def _stamp(data: Any) -> str:
    if not is_stamp(data["stamp"]):
        raise ValueError(f"{data['stamp']!r:.80} as the stamp of its registry")
    return str(data["stamp"])


def _position(line: bytes) -> Position | None:
    """Read a line of the list; None for a repository that has no identity yet."""
    try:
        data = json.loads(line)
        # A source of the previous release only knows the identity in a push log.
        identity = data["identity"] if "identity" in data else data["repository"]
        position = Position(
            *(identity, data["path"], data["id"], data["hash"]), data.get("problem", "")[:_LONGEST]
        )
        right = (
            (is_identity(identity) or identity == "")
            and isinstance(position.path, str)
            and not path_problem(position.path)
            and type(position.id) is int
            and position.id >= 0
            and _HASH.fullmatch(position.hash)
            and isinstance(position.problem, str)
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnavailableError(f"the source lists {line!r:.200} as a repository") from error
    if not right:
        raise UnavailableError(f"the source lists {line!r:.200} as a repository")
    return position if identity else None
