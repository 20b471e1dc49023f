"""Read and change the content of slapd on a host, as root through its socket."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testinfra.host import Host

DATABASE = "olcDatabase={1}mdb,cn=config"


def search(
    host: Host, base: str, scope: str, filter_: str, *attributes: str
) -> list[dict[str, list[str]]]:
    """Search as root through the socket; returns entries as attribute to values."""
    text = host.check_output(
        "ldapsearch -Q -LLL -o ldif-wrap=no -Y EXTERNAL -H ldapi:/// -b %s -s %s %s "
        + " ".join(attributes),
        base,
        scope,
        filter_,
    )
    entries = []
    for block in filter(None, text.split("\n\n")):
        entry: dict[str, list[str]] = {}
        for line in block.strip().splitlines():
            name, _, value = line.partition(":")
            if value.startswith(":"):
                value = base64.b64decode(value[1:]).decode()
            entry.setdefault(name, []).append(value.strip())
        entries.append(entry)
    return entries


def change(host: Host, ldif: str) -> None:
    """Apply an LDIF of changes; must succeed."""
    told = host.run("printf %%s %s | ldapmodify -Q -Y EXTERNAL -H ldapi:///", ldif)
    assert told.rc == 0, told.stderr
