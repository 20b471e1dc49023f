"""Presigned URLs: each lets a client download an object of a private bucket for some minutes.

The signature is AWS Signature Version 4 in the query of the URL, which every S3 understands
(docs.aws.amazon.com, "Authenticating Requests: Using Query Parameters"). It is computed here, in
every hg that hands out a manifest, where importing boto3 would take longer than the answer.

The key may read the private bucket and nothing else. It is in `signing.toml`, readable for the
group `hg`, whose processes may read every repository anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import read

if TYPE_CHECKING:
    from datetime import datetime

    from hgfleet.core.settings_file import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/signing.toml")

LIFETIME: Final = 600
SHORTEST: Final = 60
LONGEST: Final = 3600
"""Lifetime of a signed URL, and its bounds (seconds). A download that began in time may finish
later."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"https?://[^/?#@]+(/[A-Za-z0-9._~-]+)*")
_SIGNATURE: Final = re.compile(r"(X-Amz-(?:Signature|Credential)=)[^&\s]+")


@dataclass(frozen=True, slots=True)
class PrivateStore:
    """A private bucket: its URL, and a key that may read it."""

    name: str
    url: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)

    def object_key(self, url: str) -> str | None:
        """Return the key of the object at an unsigned URL; None if the URL is not of this store.

        A URL with unexpected escapes is refused: its signature would be for another object.
        """
        if not url.startswith(f"{self.url}/"):
            return None
        key = unquote(rest := url[len(self.url) + 1 :])
        return key if quote(key, safe="/") == rest else None


def presign(url: str, store: PrivateStore, now: datetime, lifetime: int, method: str) -> str:
    """Return the URL, signed for a method and for `lifetime` seconds from `now` on."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{_DEFAULT_PORTS.get(parts.scheme)}")
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = (stamp[:8], store.region, "s3", "aws4_request")
    query = urlencode(
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": "/".join((store.access_key, *scope)),
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(lifetime),
            "X-Amz-SignedHeaders": "host",
        },
        quote_via=quote,
        safe="",
    )
    # Of the headers only the host is signed, so a client may add headers such as a range.
    request = "\n".join((method, parts.path, query, f"host:{host}\n", "host", "UNSIGNED-PAYLOAD"))
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, "/".join(scope), digest))
    key = reduce(_hmac, scope, f"AWS4{store.secret_key}".encode())
    signature = _hmac(key, text).hex()
    return urlunsplit((parts.scheme, host, parts.path, f"{query}&X-Amz-Signature={signature}", ""))


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def unsigned(text: str) -> str:
    """Remove the signatures of URLs from a text, such as the output of hg."""
    return _SIGNATURE.sub(r"\1...", text)


@dataclass(frozen=True, slots=True)
class Signer:
    """The private stores of the site. `lifetime` is in seconds."""

    stores: tuple[PrivateStore, ...] = ()
    lifetime: int = LIFETIME

    def store(self, url: str) -> PrivateStore | None:
        """Return the private store of a URL."""
        return next((store for store in self.stores if url.startswith(f"{store.url}/")), None)

    def sign(self, url: str, now: datetime, method: str = "GET") -> str:
        """Sign the URL of an object. Raises ConfigurationError if it lies in no private store."""
        store = self.store(url)
        if store is None:
            raise ConfigurationError(
                f"{url}: no key to read it with: {DEFAULT_PATH} has none for its store; "
                "the role `mercurial` writes it from bundles_stores"
            )
        return presign(url, store, now, self.lifetime, method)


def load(path: Path = DEFAULT_PATH) -> Signer:
    """Read the private stores. Raises ConfigurationError, which shows no secret."""
    return read(
        path,
        parse,
        "the keys of the private stores",
        "the role `mercurial` writes them",
        secret=True,
    )


def parse(table: Table) -> Signer:
    """Take the settings out of the parsed file."""
    lifetime = table.integer("lifetime", LIFETIME, least=SHORTEST, most=LONGEST, unit="seconds")
    return Signer(tuple(_store(store) for store in table.tables("store")), lifetime)


def _store(table: Table) -> PrivateStore:
    values = {}
    for name in ("name", "url", "region", "access_key", "secret_key"):
        values[name] = table.text(name)
        if not re.fullmatch(r"[!-~]+", values[name]):
            raise table.error(name, values[name], "a text without blanks")
    if not _URL.fullmatch(values["url"]):
        raise table.error("url", values["url"], "a URL like https://host/path")
    return PrivateStore(**values)
