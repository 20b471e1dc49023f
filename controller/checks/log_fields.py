"""Writes the table of fields of log lines into docs/logs.md.

python -m controller.checks.log_fields           write it
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hgfleet.logs import schema

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs/logs.md"

BEGIN: Final = (
    "<!-- Generated from hgfleet/logs/schema.py by `python -m controller.checks.log_fields`. -->\n"
)
END: Final = "<!-- End of the generated table. -->\n"


def put(document: str) -> str:
    """Return the document with the table between its two marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"got no {(END if begin else BEGIN).strip()!r}, expected both marks")
    return f"{before}{BEGIN}\n{schema.table()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(put(DOCUMENT.read_text("utf-8")), "utf-8")
