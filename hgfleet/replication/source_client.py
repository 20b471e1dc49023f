"""Client of the source: what a mirror fetches from the primary, with bounds on time and size.

Answers are those of another host: each is checked before it is used. Errors of the network, and
answers that ended early, are UnavailableError; refusals of the source are GoneError (changesets
that it does not have) or UnavailableError with its sentence.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote, urlencode, urlsplit

from hgfleet.core.errors import ConfigurationError, HgfleetError, UnavailableError
from hgfleet.core.names import path_problem
from hgfleet.pushlog.log_file import MAX_LINE
from hgfleet.pushlog.record import FIRST
from hgfleet.replication import snapshot
from hgfleet.replication.documents import Document, parse_line, parse_stamp
from hgfleet.replication.messages import is_stamp
from hgfleet.replication.source_requests import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hgfleet.replication.settings import Settings
    from hgfleet.replication.snapshot import Digests, State

CONNECT_S: Final = 5.0
SILENT_S: Final = 60.0
"""Seconds without a byte: a large changegroup may take that long until its first one."""

MOST_CHANGESETS: Final = 64 * 2**30
"""Bytes of a compressed changegroup."""
MOST_STATE: Final = 256 * 2**20
MOST_DOCUMENT: Final = 16 * 2**30
MOST_LISTED: Final = 1_000_000
"""Repositories, or documents."""

IN_MEMORY: Final = 8 * 2**20
"""Bytes of a changegroup up to which it is kept in memory, and not in a file."""

_PIECE: Final = 256 * 1024
_LONGEST_SENTENCE: Final = 2000
_LONGEST_ENTRY: Final = 8192

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_IDENTITY: Final = re.compile(r"(?:[0-9a-f]{32})?")


class GoneError(HgfleetError):
    """The source does not have these changesets, or this repository, any more."""


@dataclass(frozen=True, slots=True)
class Position:
    """The end of the push log of a repository on the primary; id 0 before its first record."""

    path: str
    repository: str = ""
    id: int = 0
    hash: str = FIRST


class SourceClient:
    """Requests to the source, each with a connection of its own; for several threads."""

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.source)
        if parts.scheme != "https" or not parts.hostname:
            raise ConfigurationError(
                f"source: got {settings.source!r}, expected a URL like https://hg1:7460"
            )
        self._host, self._port = parts.hostname, parts.port or 443
        self._certificates = (settings.ca, settings.certificate, settings.key)
        self._read: tuple[object, ssl.SSLContext] | None = None

    def repositories(self) -> Iterator[Position]:
        """Yield the positions of all repositories in service."""
        with self._answer("GET", "/v1/repositories") as answer:
            for number, line in enumerate(_lines(answer, _LONGEST_ENTRY)):
                if number >= MOST_LISTED:
                    raise UnavailableError(f"the source lists more than {MOST_LISTED} repositories")
                yield _position(line)

    def registry_stamp(self) -> str:
        """Return the stamp of the primary's dynamic registry; raises UnavailableError."""
        try:
            found: str = self._json("/v1/registry", {}, _stamp)
        except GoneError as error:
            # A primary of an earlier release has no such address, and is updated soon.
            raise UnavailableError(str(error)) from error
        return found

    def log_after(self, path: str, after: int) -> Iterator[bytes]:
        """Yield the lines of a push log behind a record, without their line feeds."""
        with self._answer("GET", "/v1/log", {"path": path, "after": str(after)}) as answer:
            yield from _lines(answer, MAX_LINE)

    @contextlib.contextmanager
    def changegroup(self, path: str, nodes: Sequence[str]) -> Iterator[BinaryIO]:
        """Open a changegroup (version 03, zlib) of exactly these changesets; it is complete."""
        with self.changesets(path, Selection(nodes=tuple(nodes))) as file:
            yield file

    @contextlib.contextmanager
    def changesets(self, path: str, selection: Selection) -> Iterator[BinaryIO]:
        """Open a changegroup (version 03, zlib) of a selection; it is complete."""
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            with self._answer("POST", "/v1/changesets", {"path": path}, selection.body()) as answer:
                _copy(answer, file, MOST_CHANGESETS)
            file.seek(0)
            yield file  # type: ignore[misc]  # a BinaryIO in all but name

    def digests(self, path: str) -> Digests:
        """Return digests of the state of a repository after its last record."""
        found: Digests = self._json("/v1/state", {"path": path}, snapshot.digests_from_json)
        return found

    def state(self, path: str) -> State:
        """Return the state of a repository after its last record."""
        query = {"path": path, "full": "1"}
        found: State = self._json("/v1/state", query, snapshot.from_json)
        return found

    def documents(self, known: str = "") -> tuple[str, tuple[Document, ...] | None]:
        """Return the stamp of the list of documents, and the list, None where `known` is its stamp.

        A list without a stamp is one that is changing.
        """
        with self._answer("GET", "/v1/documents", {"known": known}) as answer:
            lines = _lines(answer, _LONGEST_ENTRY)
            try:
                stamp = parse_stamp(next(lines, b""))
            except ValueError as error:
                raise UnavailableError(f"the source sent {error}") from error
            found: list[Document] = []
            for line in lines:
                if len(found) >= MOST_LISTED:
                    raise UnavailableError(f"the source lists more than {MOST_LISTED} documents")
                try:
                    found.append(parse_line(line))
                except ValueError as error:
                    raise UnavailableError(f"the source lists {error}") from error
            return stamp, None if stamp and stamp == known else tuple(found)

    def document(self, name: str, file: IO[bytes], most: int = MOST_DOCUMENT) -> None:
        """Write the bytes of a document to a file; the caller compares the digest."""
        with self._answer("GET", f"/v1/documents/{quote(name, safe='')}") as answer:
            _copy(answer, file, most)

    def _json(self, target: str, query: dict[str, str], parse: Callable[[Any], Any]) -> Any:
        with self._answer("GET", target, query) as answer:
            body = answer.read(MOST_STATE + 1)
        if len(body) > MOST_STATE:
            raise UnavailableError(f"{target}: the source sent more than {MOST_STATE} bytes")
        try:
            return parse(json.loads(body))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnavailableError(f"{target}: the source sent something else ({error})") from error

    @contextlib.contextmanager
    def _answer(
        self, method: str, target: str, query: dict[str, str] | None = None, body: bytes = b""
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; yields its answer, and ends the connection."""
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=CONNECT_S, context=self.read_certificates()
        )
        where = f"https://{self._host}:{self._port}"
        try:
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(SILENT_S)
            connection.request(method, f"{target}?{urlencode(query)}" if query else target, body)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                sentence = answer.read(_LONGEST_SENTENCE).decode("utf-8", "replace").strip()
                kind = GoneError if answer.status in (404, 410) else UnavailableError
                raise kind(f"the source {where} refuses ({answer.status}): {sentence!a:.1000}")
            yield answer
        except http.client.HTTPException as error:
            raise UnavailableError(
                f"the source {where} sent an answer that is not complete ({error!r:.200})"
            ) from error
        except OSError as error:
            raise UnavailableError(f"the source {where} does not answer ({error})") from error
        finally:
            connection.close()

    def read_certificates(self) -> ssl.SSLContext:
        """Read the certificates, anew where the role `base` renewed them.

        Raises ConfigurationError.
        """
        ca, certificate, key = self._certificates
        try:
            stats = [file.stat() for file in self._certificates]
            stamp = [(found.st_ino, found.st_mtime_ns, found.st_size) for found in stats]
            if self._read is None or self._read[0] != stamp:
                context = ssl.create_default_context(cafile=str(ca))
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.load_cert_chain(certificate, key)
                self._read = stamp, context
        except OSError as error:
            raise ConfigurationError(
                f"{ca}, {certificate}, {key}: no certificates ({error}); the role `base` makes "
                "them, and the unit's group ssl-cert may read the key"
            ) from error
        return self._read[1]


def _lines(answer: http.client.HTTPResponse, longest: int) -> Iterator[bytes]:
    """Yield the lines of an answer without their line feeds. Raises UnavailableError.

    HTTPResponse.readline takes an answer that ended early for one that ended.
    """
    rest = bytearray()
    while piece := answer.read(_PIECE):
        rest += piece
        *whole, last = rest.split(b"\n") if b"\n" in piece else (rest,)
        for line in whole:
            yield bytes(line)
        rest = bytearray(last)
        if len(rest) > longest:
            raise UnavailableError(f"the source sent a line of more than {longest} bytes")
    if rest:
        raise UnavailableError("the source sent a line that is not complete")


def _copy(answer: http.client.HTTPResponse, file: IO[bytes], most: int) -> None:
    size = 0
    while piece := answer.read(_PIECE):
        size += len(piece)
        if size > most:
            raise UnavailableError(f"the source sent more than {most} bytes")
        file.write(piece)


def _stamp(data: Any) -> str:
    if not is_stamp(data["stamp"]):
        raise ValueError(f"{data['stamp']!r:.80} as the stamp of its registry")
    return str(data["stamp"])


def _position(line: bytes) -> Position:
    try:
        data = json.loads(line)
        found = Position(data["path"], data["repository"], data["id"], data["hash"])
        right = (
            isinstance(found.path, str)
            and not path_problem(found.path)
            and type(found.id) is int
            and found.id >= 0
            and _IDENTITY.fullmatch(found.repository)
            and _HASH.fullmatch(found.hash)
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnavailableError(f"the source lists {line!r:.200} as a repository") from error
    if not right:
        raise UnavailableError(f"the source lists {line!r:.200} as a repository")
    return found
