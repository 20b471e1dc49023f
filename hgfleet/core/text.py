"""Text for people: foreign text on one line, sizes, lists of names.

Imports nothing: refusals at login use it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SHOWN = 100
"""Characters of a path, a name or a message in a sentence."""


def shown(text: str, limit: int = MAX_SHOWN) -> str:
    """Show text of unknown origin on one line, with nothing in it that a terminal acts on.

    Characters that cannot be printed are escaped; a long text loses its middle, because the end
    tells long paths apart.
    """
    if len(text) > limit:
        head = limit * 3 // 5
        text = f"{text[:head]}...{text[head + 3 - limit :]}"
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # an undecodable byte, see PEP 383
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def size(count: int) -> str:
    """Render a number of bytes in decimal units, as storage is sold: 812 B, 10.3 MB."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def binary_size(count: int) -> str:
    """Render a number of bytes in the units of the registry's limits: 10 MiB, 10.3 MiB, 12 bytes.

    Rounded up, so that a file just over a limit is never shown as large as the limit.
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            tenths = -(-count * 10 // factor)
            return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''} {unit}"
    return f"{count} byte{'' if count == 1 else 's'}"


def alternatives(names: Sequence[str]) -> str:
    """Join names in a sentence: "a", "a or b", "a, b or c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} or {names[-1]}"
