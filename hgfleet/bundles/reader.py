"""The bundles as clients see them: through the URL that they get, and no other credential."""

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

    from hgfleet.bundles.manifest import Entry

CHUNK: Final = 1024 * 1024
"""Bytes read at a time."""


TAIL: Final = 64 * 1024
"""Bytes of the range that is read to probe an object."""


class VerificationError(HgfleetError):
    """What can be downloaded is not what was made."""


class WrongContentError(VerificationError):
    """It came whole, and it is not what was made: no matter of the network or the moment."""


REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""What a private bucket may answer to who has no signature; some stores hide what is there."""


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
    entries are signed with the keys in the file `keys`, which those of clients are signed with too:
    what works here works for them.
    """

    ca: Path
    timeout: float
    keys: Path = presign.DEFAULT_PATH

    def url(self, entry: Entry, method: str = "GET") -> str:
        """Return the URL that a client would be told now. Raises ConfigurationError without a key.

        Nothing that is logged may have it: `entry.url` is the one to show.
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
        """Ask for the headers only and say what is wrong with them, or "".

        Raises UnavailableError if nobody answers: then nothing is known about the object.
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
        """Ask for an object of a private store without a signature, like a stranger would.

        Raises VerificationError unless that is refused, UnavailableError if nobody answers.
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
            f"{url}: open to everybody: without a signature the answer is {said}, expected 403; "
            "take the public access from the bucket of this private store"
        )

    def check_signed(self, url: str) -> None:
        """Ask for an object of a private store with a signature; raises like `check_closed`."""
        signed = presign.load(self.keys).sign(url, datetime.now(UTC), "HEAD")
        try:
            self._open(signed, "HEAD", {}).close()
        except urllib.error.HTTPError as error:
            kind = UnavailableError if error.code >= 500 else VerificationError
            raise kind(
                f"{url}: the answer to a signed request is {error.code} {error.reason}: "
                f"is the key in {self.keys} one that may read there?"
            ) from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{url}: {_reason(error)}") from error

    def probe(self, entry: Entry, content: Path | None = None) -> None:
        """Ask for the headers and read the last bytes; `content` is the file they come from.

        Cheap, and finds what a real clone finds late: an object cut short, an old one in a cache, a
        server that ignores ranges, which a client that resumes would need.
        Raises like `check`.
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
        """Download everything, into `target` if given, and compare length and sha256.

        Raises WrongContentError if it is something else, VerificationError if it is refused or ends
        early, UnavailableError if nobody answers.
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
            # A store that was stopped meanwhile looks like this too.
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
        """Download; what is wrong with the network or the answer gets our own errors."""
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
        # Not to be taken for trouble with the network.
        raise HostError(f"{file.name}: {error.strerror}") from error


def _answered(entry: Entry, error: urllib.error.HTTPError) -> str:
    said = f"the answer is {error.code} {error.reason}"
    if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} and not entry.private:
        said += "; the bucket of a store that is not private has to answer everybody"
    return said


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error) or type(error).__name__
