"""Feeds: documents that every reader of XML takes, with any content of a repository.

Core's templates escape `<` and `&`, and let characters pass that XML 1.0 forbids, such as the ESC
of a terminal's colour in a description. A reader then refuses the whole feed.
"""

from __future__ import annotations

import re
from typing import Final

TYPES: Final = ("application/atom+xml", "text/xml", "application/rss+xml")

MOST_CHARACTERS: Final = 0x10FFFF

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may contain (the production Char of the standard)."""


_REFERENCE = re.compile("&#(x[0-9a-fA-F]{1,8}|[0-9]{1,8});")
"""A character by its number; core writes addresses of e-mail in this form."""


def printable(text: str) -> str:
    """Return a text with U+FFFD in the place of each character that XML forbids."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def as_xml(content_type: str, parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the parts of a body; the parts of a feed lose the characters that XML forbids."""
    if not content_type.startswith(TYPES):
        return parts
    return tuple(_document(part.decode("utf-8", "replace")).encode() for part in parts)


def _document(text: str) -> str:
    return _REFERENCE.sub(_allowed, printable(text))


def _allowed(reference: re.Match[str]) -> str:
    digits = reference[1]
    number = int(digits[1:], 16) if digits.startswith("x") else int(digits)
    is_character = number <= MOST_CHARACTERS and not _FORBIDDEN.match(chr(number))
    return reference[0] if is_character else "\N{REPLACEMENT CHARACTER}"
