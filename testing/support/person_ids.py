"""Person ids as OpenLDAP makes them, for tests of names that are given again."""

from __future__ import annotations

from typing import Final

OPENLDAP_S: Final = 0x1B21DD2138140 / 10_000_000


def entry_uuid(now: float, number: int) -> str:
    """Return an id as OpenLDAP makes it at a time, in seconds since 1970."""
    digits = f"{int((now + OPENLDAP_S) * 10_000_000):015x}"
    return f"{digits[-8:]}-{digits[-12:-8]}-1{digits[:3]}-8000-{number:012x}"
