"""Settings in the text of a host's hgrc, for programs that do without Mercurial. Pure."""

from __future__ import annotations


def setting(text: str, wanted: str) -> str:
    """Return the value of a setting, "" if it is missing. No name occurs in two sections."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == wanted and value.strip():
            return value.strip()
    return ""
