"""Search filters and names of entries, with every foreign value escaped.

Key lookup imports this module twice at each login, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

DISABLED: Final = "000001010000Z"
"""pwdAccountLockedTime of a person who is disabled until an operator enables them (slapo-ppolicy).

Any other time is a lock after wrong passwords. It does not affect keys: otherwise, guessing a
password would be enough to lock a person out of pushing.
"""


def escape(value: str) -> str:
    r"""Escape a value for a search filter (RFC 4515): `*` becomes `\2a`, and so on.

    Every character but letters, digits and a few harmless signs is escaped, needed or not.
    """
    return _escape(value, ",=:/+._-")


def escape_dn(value: str) -> str:
    r"""Escape a value for the name of an entry (RFC 4514): `,` becomes `\2c`, and so on."""
    return _escape(value, "._-")


def _escape(value: str, plain: str) -> str:
    return "".join(
        chr(byte)
        if byte < 0x7F and (chr(byte).isalnum() or chr(byte) in plain)
        else f"\\{byte:02x}"
        for byte in value.encode("utf-8", "surrogateescape")
    )


def key_filter(fingerprint: str) -> str:
    """Return the filter for the enabled people with a key."""
    return (
        f"(&(objectClass=ldapPublicKey)(sshPublicKeyId={escape(fingerprint)})"
        f"(!(pwdAccountLockedTime={DISABLED})))"
    )


def name_filter(name: str) -> str:
    """Return the filter for the enabled people of a name."""
    return f"(&(uid={escape(name)})(!(pwdAccountLockedTime={DISABLED})))"


def any_name_filter(name: str) -> str:
    """Return the filter for the people of a name, enabled or not."""
    return f"(uid={escape(name)})"


def group_filter(person_dn: str) -> str:
    """Return the filter for the groups of a person."""
    return f"(&(objectClass=groupOfNames)(member={escape(person_dn)}))"
