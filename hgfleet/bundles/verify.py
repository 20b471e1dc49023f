"""The bundles as everybody sees them: anonymous, through the public URL, certificate verified."""

from __future__ import annotations

import hashlib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Final

from hgfleet.errors import HgfleetError, UnavailableError

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from pathlib import Path

    from hgfleet.bundles.manifest import Entry

CHUNK: Final = 1024 * 1024
"""Bytes read at a time."""


class VerificationError(HgfleetError):
    """What can be downloaded is not what was made."""


@dataclass(frozen=True, slots=True)
class Reader:
    """An anonymous client that trusts the certificates in the file `ca`.

    `timeout` (seconds) bounds each wait for the store, not a whole download.
    """

    ca: Path
    timeout: float

    def _open(self, url: str, method: str) -> HTTPResponse:
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
        except OSError as error:
            raise HgfleetError(f"{self.ca}: cannot read the certificates: {error}") from error
        # S310: the configuration accepts http and https only.
        request = urllib.request.Request(url, method=method)  # noqa: S310
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
        response: HTTPResponse = opener.open(request, timeout=self.timeout)
        return response

    def problem(self, entry: Entry) -> str:
        """Ask for the headers only and say what is wrong with them, or "".

        Raises UnavailableError if nobody answers: then nothing is known about the object.
        """
        try:
            with self._open(entry.url, "HEAD") as response:
                length = int(response.headers.get("Content-Length", -1))
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise UnavailableError(f"{entry.url}: {error}") from error
            return f"the answer is {error.code} {error.reason}"
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{entry.url}: {_reason(error)}") from error
        if length != entry.size:
            return f"it has {length:,} bytes instead of {entry.size:,}"
        return ""

    def check(self, entry: Entry) -> None:
        """Download everything and compare length and sha256.

        Raises VerificationError if it is something else or not there, UnavailableError if nobody
        answers.
        """
        digest, size = hashlib.sha256(), 0
        try:
            with self._open(entry.url, "GET") as response:
                while chunk := response.read(CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
        except urllib.error.HTTPError as error:
            kind = UnavailableError if error.code >= 500 else VerificationError
            raise kind(f"{entry.url}: the answer is {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{entry.url}: {_reason(error)}") from error
        if size != entry.size:
            raise VerificationError(f"{entry.url}: got {size:,} bytes, expected {entry.size:,}")
        if digest.hexdigest() != entry.sha256:
            raise VerificationError(
                f"{entry.url}: got sha256 {digest.hexdigest()}, expected {entry.sha256}"
            )


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error) or type(error).__name__
