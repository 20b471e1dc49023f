"""Reader of published objects: requests them as clients do, through their public URLs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING, BinaryIO, Final

from hgfleet.core.errors import HgfleetError, HostError, UnavailableError
from hgfleet.objectstore import presign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPResponse
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry

CHUNK: Final = 1024 * 1024
"""Bytes read at a time."""


TAIL: Final = 64 * 1024
"""Bytes at the end of an object that a probe reads."""


class VerificationError(HgfleetError):
    """The object at the public URL is not the bundle that was uploaded."""


class WrongContentError(VerificationError):
    """The object came whole and differs from the bundle: not an error of the network."""


REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Answers of a private bucket without a signature; some stores hide which keys exist."""


@functools.cache
def _opener(ca: Path) -> urllib.request.OpenerDirector:
    """Return an opener; reading the certificates of a system takes 20 ms each time."""
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        raise HgfleetError(f"{ca}: cannot read the certificates: {error}") from error
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))


@dataclass(frozen=True, slots=True)
class Reader:
    """A client that trusts the certificates in the file `ca`.

    `timeout` (seconds) bounds each wait for the store, not a whole download. URLs of private
    entries are signed with the keys in the file `keys`, as for clients: a URL that works here works
    for clients.
    """

    ca: Path
    timeout: float
    keys: Path = presign.DEFAULT_PATH

    def url(self, entry: Entry, method: str = "GET") -> str:
        """Return the URL that a client would get now. Raises ConfigurationError without a key.

        The signature must not reach a log; messages show `entry.url`.
        """
        if not entry.private:
            return entry.url
        return presign.load(self.keys).sign(entry.url, datetime.now(UTC), method)

    def _open(self, url: str, method: str, headers: Mapping[str, str]) -> HTTPResponse:
        # S310: the configuration accepts http and https only.
        request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310
        response: HTTPResponse = _opener(self.ca).open(request, timeout=self.timeout)
        return response

    def problem(self, entry: Entry) -> str:
        """Request the headers; return the problem, or "".

        Raises UnavailableError if the store does not answer, which says nothing about the object.
        """
        try:
            with self._open(self.url(entry, "HEAD"), "HEAD", {}) as response:
                length = int(response.headers.get("Content-Length", -1))
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise UnavailableError(f"{entry.url}: {error}") from error
            return _answered(entry, error)
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{entry.url}: {_reason(error)}") from error
        if length != entry.size:
            return f"it has {length:,} bytes instead of {entry.size:,}"
        return ""

    def check_closed(self, url: str) -> None:
        """Request an object of a private store without a signature.

        Raises VerificationError unless the store refuses, UnavailableError if it does not answer.
        """
        try:
            with self._open(url, "GET", {"Range": "bytes=0-0"}) as response:
                said = f"{response.status} {response.reason}"
        except urllib.error.HTTPError as error:
            if error.code in REFUSED:
                return
            if error.code >= 500:
                raise UnavailableError(f"{url}: {error}") from error
            said = f"{error.code} {error.reason}"
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{url}: {_reason(error)}") from error
        raise VerificationError(
            f"{url}: open to all: without a signature the answer is {said}, expected 403; "
            "take the public access from the bucket of this private store"
        )

    def check_signed(self, url: str) -> None:
        """Request an object of a private store with a signature; raises like `check_closed`."""
        signed = presign.load(self.keys).sign(url, datetime.now(UTC), "HEAD")
        try:
            self._open(signed, "HEAD", {}).close()
        except urllib.error.HTTPError as error:
            kind = UnavailableError if error.code >= 500 else VerificationError
            raise kind(
                f"{url}: the answer to a signed request is {error.code} {error.reason}: "
                f"may the key in {self.keys} read there?"
            ) from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{url}: {_reason(error)}") from error

    def probe(self, entry: Entry, content: Path | None = None) -> None:
        """Request the headers and the last bytes; `content` is the uploaded file, if given.

        Cheaper than a clone for three faults: an object cut short, an old object in a cache, and a
        server that ignores ranges, which clients need to resume. Raises like `check`.
        """
        if problem := self.problem(entry):
            raise VerificationError(f"{entry.url}: {problem}")
        first = max(0, entry.size - TAIL)
        asked = {"Range": f"bytes={first}-{entry.size - 1}"}
        with self._answer(entry, asked) as response:
            told = response.headers.get("Content-Range", "")
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                raise VerificationError(
                    f"{entry.url}: asked for a range, got status {response.status}, expected 206"
                )
            if told != f"bytes {first}-{entry.size - 1}/{entry.size}":
                raise VerificationError(f"{entry.url}: asked for its last bytes, got {told!r}")
            got = response.read(TAIL + 1)
        if content is not None:
            with content.open("rb") as file:
                file.seek(first)
                if file.read() != got:
                    whole = len(got) == entry.size - first
                    kind = WrongContentError if whole else VerificationError
                    raise kind(f"{entry.url}: its last bytes are not those uploaded")

    def check(self, entry: Entry, target: Path | None = None) -> None:
        """Download an object, into `target` if given, and compare length and sha256.

        Raises WrongContentError for other content, VerificationError for a refusal or an answer
        that ends early, UnavailableError if the store does not answer.
        """
        digest, size = hashlib.sha256(), 0
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(target.open("wb")) if target else None
            response = stack.enter_context(self._answer(entry, {}))
            announced = response.length
            while chunk := response.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
                if file:
                    _write(file, chunk)
        if announced is not None and size < announced:
            # A store that stops during the download looks the same.
            raise VerificationError(
                f"{entry.url}: the answer ends early: got {size:,} bytes of {announced:,}"
            )
        if size != entry.size:
            raise WrongContentError(f"{entry.url}: got {size:,} bytes, expected {entry.size:,}")
        if digest.hexdigest() != entry.sha256:
            raise WrongContentError(
                f"{entry.url}: got sha256 {digest.hexdigest()}, expected {entry.sha256}"
            )

    @contextlib.contextmanager
    def _answer(self, entry: Entry, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """Download; translate errors of the network and of HTTP."""
        try:
            with self._open(self.url(entry), "GET", headers) as response:
                yield response
        except urllib.error.HTTPError as error:
            kind = UnavailableError if error.code >= 500 else VerificationError
            raise kind(f"{entry.url}: {_answered(entry, error)}") from error
        except IncompleteRead as error:
            raise VerificationError(f"{entry.url}: the answer ends early") from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{entry.url}: {_reason(error)}") from error


def _write(file: BinaryIO, chunk: bytes) -> None:
    try:
        file.write(chunk)
    except OSError as error:
        # An error of the disk, not of the network.
        raise HostError(f"{file.name}: {error.strerror}") from error


def _answered(entry: Entry, error: urllib.error.HTTPError) -> str:
    said = f"the answer is {error.code} {error.reason}"
    if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} and not entry.private:
        said += "; this public store must answer requests without a signature"
    return said


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error) or type(error).__name__
