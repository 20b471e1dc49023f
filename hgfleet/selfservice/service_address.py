"""The address of the service, in messages to people. Pure.

Messages are written with the placeholder HOST. Where the configuration of the host has the address
(`ssh-url` in the section `hgfleet`), every answer and refusal names that address instead.
"""

from __future__ import annotations

import re
from typing import Final

from hgfleet.core import hgrc

UNKNOWN: Final = "ssh://hg@HOST"
_COMMAND: Final = "ssh hg@HOST"

# Login names and hosts never begin with a hyphen: ssh would take them for options.
_URL: Final = re.compile(
    r"ssh://(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)


def configured(text: str) -> str:
    """Return the address in the host's hgrc, without a path; UNKNOWN if the hgrc has none."""
    return hgrc.setting(text, "ssh-url").rstrip("/") or UNKNOWN


def addressed(text: str, url: str) -> str:
    """Put the address of the service in the place of the placeholder."""
    match = _URL.fullmatch(url)
    if match is None or url == UNKNOWN:
        return text
    port = "" if match["port"] in (None, "22") else f"-p {match['port']} "
    command = f"ssh {port}{match['user']}@{match['host'].strip('[]')}"
    return text.replace(UNKNOWN, url).replace(_COMMAND, command)
