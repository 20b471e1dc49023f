"""Signed URLs: whoever has one may download one object of a private bucket, for some minutes.

The signature is AWS Signature Version 4 in the query of the URL, which every S3 understands
(docs.aws.amazon.com, "Authenticating Requests: Using Query Parameters"). It is computed here, in
every hg that hands out a manifest, where importing boto3 would take longer than the answer.

The key is one that may read the private bucket and nothing else; it is in `signing.toml`, which the
group `hg` may read: those who may read every repository anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from dataclasses import dataclass, field
from datetime import UTC
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

DEFAULT_PATH: Final = Path("/etc/hgfleet/signing.toml")

LIFETIME: Final = 600
SHORTEST: Final = 60
LONGEST: Final = 3600
"""Lifetime of a signed URL, and its bounds (seconds). A download that began in time goes on."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SIGNATURE: Final = re.compile(r"(X-Amz-(?:Signature|Credential)=)[^&\s]+")


@dataclass(frozen=True, slots=True)
class PrivateStore:
    """A bucket that only signed requests may read: its URL, and the key of the one who may."""

    name: str
    url: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)

    def object_key(self, url: str) -> str | None:
        """Return the key of the object behind an unsigned URL; None outside of this store.

        A URL with other escapes than ours is refused: its signature would be for another object.
        """
        if not url.startswith(f"{self.url}/"):
            return None
        key = unquote(rest := url[len(self.url) + 1 :])
        return key if quote(key, safe="/") == rest else None


def presign(url: str, store: PrivateStore, now: datetime, lifetime: int, method: str) -> str:
    """Return the URL, signed for one method and for `lifetime` seconds from `now` on."""
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
    # Only the host is signed, so a client may add what it likes, such as the range it wants.
    request = "\n".join((method, parts.path, query, f"host:{host}\n", "host", "UNSIGNED-PAYLOAD"))
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, "/".join(scope), digest))
    key = reduce(_hmac, scope, f"AWS4{store.secret_key}".encode())
    signature = _hmac(key, text).hex()
    return urlunsplit((parts.scheme, host, parts.path, f"{query}&X-Amz-Signature={signature}", ""))


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def unsigned(text: str) -> str:
    """Take out of a text, such as what hg says, what makes the URLs in it signed ones."""
    return _SIGNATURE.sub(r"\1...", text)


@dataclass(frozen=True, slots=True)
class Signer:
    """The private stores of the site. `lifetime` is in seconds."""

    stores: tuple[PrivateStore, ...] = ()
    lifetime: int = LIFETIME

    def store(self, url: str) -> PrivateStore | None:
        """Return the private store that a URL lies in."""
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
    """Read the private stores. Raises ConfigurationError that says what is wrong, and no secret."""
    try:
        return _parse(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read the keys of the private stores ({error.strerror}); "
            "the role `mercurial` writes them"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Its message may quote the line.
        raise ConfigurationError(f"{path}: not TOML") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _parse(data: Mapping[str, Any]) -> Signer:
    lifetime, tables = data.get("lifetime", LIFETIME), data.get("store", [])
    if unknown := set(data) - {"lifetime", "store"}:
        raise ValueError(f"got unknown settings {', '.join(sorted(unknown))}")
    if type(lifetime) is not int or not SHORTEST <= lifetime <= LONGEST:
        raise ValueError(
            f"lifetime: got {lifetime!r}, expected seconds from {SHORTEST} to {LONGEST}"
        )
    names = ("name", "url", "region", "access_key", "secret_key")
    stores = []
    for table in tables if isinstance(tables, list) else [None]:
        if not isinstance(table, dict) or set(table) != set(names):
            raise ValueError(f"store: expected tables [[store]] with {', '.join(names)}")
        for name in names:
            if not isinstance(table[name], str) or not re.fullmatch(r"[!-~]+", table[name]):
                raise ValueError(f"store.{name}: expected a text without blanks")
        if not re.fullmatch(r"https?://[^/?#@]+(/[A-Za-z0-9._~-]+)*", table["url"]):
            raise ValueError(
                f"store.url: got {table['url']!r}, expected one like https://host/path"
            )
        stores.append(PrivateStore(**table))
    return Signer(tuple(stores), lifetime)
