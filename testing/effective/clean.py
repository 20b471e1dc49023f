"""Text that commands print, without the values that differ by run, time and machine. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_RUN: Final = re.compile(
    r"^(?:entryUUID|entryCSN|contextCSN|createTimestamp|modifyTimestamp|creatorsName|modifiersName)"
    r": .*\n?",
    re.MULTILINE,
)
_DEBIAN_SCHEMA: Final = re.compile(r"^dn: cn=\{\d+\}(core|cosine|nis|inetorgperson),cn=schema,")
_CREDENTIALS: Final = re.compile(r'(credentials=)"?[^"\s]+"?|(olcRootPW:: ?)\S+')
_TABLE: Final = re.compile(r"^table (\S+ \S+) \{\n.*?^\}\n?", re.MULTILINE | re.DOTALL)
_ENGINE_TABLES: Final = ("ip nat", "ip6 nat")
"""Tables of the container engine, for its own resolver."""


def ldif(text: str) -> str:
    """Return entries without their histories, and Debian's schemas by their names only."""
    entries = []
    for entry in _RUN.sub("", text).strip().split("\n\n"):
        name, *attributes = _CREDENTIALS.sub(r"\1\2<secret>", entry).splitlines()
        # Attributes stand in the order in which they were written, which differs after an upgrade.
        entries.append(
            "\n".join([name, *([] if _DEBIAN_SCHEMA.match(name) else sorted(attributes))])
        )
    return "\n\n".join(entries)


def own_tables(text: str) -> str:
    """Return the tables of a ruleset that are not the container engine's."""
    tables = [table[0].strip() for table in _TABLE.finditer(text) if table[1] not in _ENGINE_TABLES]
    return "\n".join(tables)


def differing_sections(text: str) -> str:
    """Return the first section, and the lines of further sections that the first does not have."""
    first, *further = text.strip().split("\n\n")
    same = set(first.splitlines())
    cut = [
        "\n".join(line for line in section.splitlines() if line not in same) for section in further
    ]
    return "\n\n".join([first, *cut])


def of_any_machine(text: str) -> str:
    """Return settings of hg without the number that the role derives from the processors."""
    return re.sub(r"(?m)^(hgfleet\.admission-slots)=\d+$", r"\1=<processors>", text.strip())


def without_shares_of_memory(text: str) -> str:
    """Return properties of units without limits that are a share of the machine's memory.

    Such a limit is no whole number of MiB, or more than the 8 GiB that no limit of a part exceeds.
    """

    def shown(match: re.Match[str]) -> str:
        limit = int(match[1])
        is_share = limit % (1 << 20) or limit > 8 << 30
        return "MemoryMax=<share of the machine>" if is_share else match[0]

    return re.sub(r"(?m)^MemoryMax=(\d+)$", shown, text.strip())


def named(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the name of each value of this cluster in its place, longest first."""
    for value, name in sorted(values.items(), key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])", f"<{name}>", text)
    return text
