"""How refusals show what strangers wrote: on one line, printable, not too long."""

from __future__ import annotations

MAX_SHOWN = 100
"""Characters of a path or a name; its end is what tells long paths apart."""


def shown(text: str) -> str:
    """Quote a path, a name or a message so that a terminal survives it."""
    if len(text) > MAX_SHOWN:
        text = f"{text[:60]}...{text[-(MAX_SHOWN - 63) :]}"
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, see PEP 383
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def amount(number: int) -> str:
    """Write a number of bytes for a person: 10 MiB, 10.3 MiB, 12 bytes."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            # Rounded up: a file just over the limit must not look as if it kept it.
            tenths = -(-number * 10 // size)
            return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''} {unit}"
    return f"{number} byte{'' if number == 1 else 's'}"
