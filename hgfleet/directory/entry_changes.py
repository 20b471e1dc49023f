"""Changes to entries as data: made by pure functions, shown as a diff, applied by `client`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SHOWN: Final = 120
"""Characters of a value in a diff; a key of 4096 bits has 700, and its end is its comment."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A step of a change: values to add, to delete, or to put in the place of all others."""

    do: Literal["add", "delete", "replace"]
    attribute: str
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """The addition, modification or deletion of a single entry, in one LDAP operation."""

    dn: str
    kind: Literal["add", "modify", "delete"]
    edits: tuple[Edit, ...] = ()

    def lines(self) -> list[str]:
        """Return the change as a diff. Passwords are not shown."""
        sign = {"add": "+ ", "delete": "- ", "modify": "  "}[self.kind]
        shown = [f"{sign}dn: {self.dn}"]
        for edit in self.edits:
            mark = {"add": "+", "delete": "-", "replace": "="}[edit.do]
            values = edit.values or ((b"(all values)",) if edit.do == "delete" else (b"(none)",))
            if edit.attribute.lower() == "userpassword":
                values = (b"(not shown)",)
            shown += [f"{mark} {edit.attribute}: {printable(value)}" for value in values]
        return shown


def printable(value: bytes) -> str:
    """Return a value as a single line without terminal control characters, not too long."""
    text = value.decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = text.encode("unicode_escape", "backslashreplace").decode("ascii")
    if len(text) > SHOWN:
        text = f"{text[: SHOWN * 3 // 4]}...{text[-SHOWN // 4 :]}"
    return text
