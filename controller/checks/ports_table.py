"""Writes the table of ports into docs/architecture.md, from the data that the firewall is made of.

python -m controller.checks.ports_table            write it, if it is not up to date
python -m controller.checks.ports_table --check    say whether it is, write nothing; exit code 1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = ROOT / "ansible/roles/base/files/ports.yml"
DOCUMENT: Final = ROOT / "docs/architecture.md"

COMMAND: Final = "python -m controller.checks.ports_table"
BEGIN: Final = f"<!-- Generated from ansible/roles/base/files/ports.yml by `{COMMAND}`. -->\n"
END: Final = "<!-- End of the generated table. -->\n"


def ports(row: Mapping[str, Any]) -> str:
    """Return the default ports of a row, or its words for a service that is not the site's."""
    if "elsewhere" in row:
        return str(row["elsewhere"])
    values: list[int] = []
    for value in row["ports"].values():
        values += value if isinstance(value, list) else [value]
    return ", ".join(str(value) for value in values if value)


def render(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the table, in Markdown."""
    lines = ["| from | to | port | purpose |", "| --- | --- | --- | --- |"]
    lines += [f"| {row['from']} | {row['to']} | {ports(row)} | {row['purpose']} |" for row in rows]
    return "\n".join(lines) + "\n"


def put(document: str, table: str) -> str:
    """Return the document with the table between its two marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"got no {(END if begin else BEGIN).strip()!r}, expected both marks")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(arguments: Sequence[str] | None = None, document: Path = DOCUMENT) -> int:
    """Write or check; the exit code is 1 if something is (or stays) wrong."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    options = parser.parse_args(arguments)
    text = document.read_text("utf-8")
    try:
        wanted = put(text, render(yaml.safe_load(TABLE.read_text("utf-8"))))
    except ValueError as error:
        print(f"{document}: {error}", file=sys.stderr)
        return 1
    if wanted == text:
        return 0
    if options.check:
        print(f"{document} is not up to date; {COMMAND} writes it", file=sys.stderr)
        return 1
    document.write_text(wanted, "utf-8")
    print(f"{document} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
