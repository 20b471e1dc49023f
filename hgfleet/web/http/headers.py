"""Response headers of every answer and of pages; entity tags."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

Headers = tuple[tuple[str, str], ...]

ALWAYS: Final[Headers] = (("X-Content-Type-Options", "nosniff"),)

FOR_PAGES: Final[Headers] = (
    ("Referrer-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)

FOR_FILES: Final[Headers] = (("Content-Security-Policy", "default-src 'none'; sandbox"),)
"""For files that committers wrote: no script in them may run as this site."""

PLAIN_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")
HTML: Final = ("Content-Type", "text/html; charset=utf-8")
JSON: Final = ("Content-Type", "application/json")
REVALIDATE: Final = ("Cache-Control", "no-cache")
KEEP_NOWHERE: Final = ("Cache-Control", "no-store")
DEPENDS_ON_WHO: Final = ("Vary", "Authorization")
PERSONAL: Final[Headers] = (("Cache-Control", "private, no-store"), DEPENDS_ON_WHO)
"""For answers to a single client, and for answers about its password."""


def personal(final: Headers) -> Headers:
    """The headers of an answer that only this client may keep or get."""
    replaced = {name for name, _ in PERSONAL} | {"ETag"}
    return (*(item for item in final if item[0] not in replaced), *PERSONAL)


def is_page(content_type: str) -> bool:
    """Whether a browser runs scripts in an answer of this type."""
    return content_type.startswith(("text/html", "application/xhtml"))


def is_wire(content_type: str) -> bool:
    """Whether Mercurial's wire protocol is spoken."""
    return content_type.startswith(("application/mercurial-", "application/hg-"))


def etag(body: bytes) -> str:
    """A strong entity tag, made of the content and of nothing else."""
    digest = hashlib.blake2b(body, digest_size=15).digest()
    return f'"{base64.urlsafe_b64encode(digest).decode()}"'


def etag_matches(condition: str, tag: str) -> bool:
    """Whether If-None-Match holds the tag (RFC 9110, 13.1.2: compared weakly).

    nginx makes a tag weak when it compresses the body.
    """
    if condition.strip() == "*":
        return True
    return any(item.strip().removeprefix("W/") == tag for item in condition.split(","))
