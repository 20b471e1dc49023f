"""Filters for host keys: the two forms in which clients can learn them first, and their rotation.

`known_hosts` is what a person or a machine appends to its own file; SSHFP records (RFC 4255) are
for the site's zone, where a client looks with `VerifyHostKeyDNS yes` if the zone is signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from typing import TYPE_CHECKING

from ansible.errors import AnsibleFilterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ALGORITHMS = {"ssh-rsa": 1, "ssh-ed25519": 4}
"""Of the host keys that the role makes, by IANA's registry of SSHFP algorithms."""

SHA256 = 2
"""Type of the fingerprint. Type 1 is SHA-1, which no client needs any more."""

_SECONDS_OF_A_DAY = 86400

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")


def known_hosts(keys: Iterable[str], names: Iterable[str], port: int | str = 22) -> list[str]:
    """Return a line for each key: under which names, and on which port, a client meets it."""
    hosts = ",".join(_host(name, int(port)) for name in names)
    return [f"{hosts} {kind} {blob}" for kind, blob in map(_parts, keys)]


def sshfp(keys: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the records of a zone, a line for each name and key; they know no ports."""
    parts = [_parts(key) for key in keys]
    return [
        f"{_checked(name)}. IN SSHFP {ALGORITHMS[kind]} {SHA256} {_digest(blob)}"
        for name in names
        # An address has no SSHFP records.
        if not re.fullmatch(r"[0-9.]+|.*:.*", name)
        for kind, blob in parts
    ]


def rotation_step(
    files: Mapping[str, float], kind: str, now: float, days: int | str
) -> dict[str, str | int]:
    """Return the next step of a rotation on a host, from its files: name to time of change.

    `begin` makes `next_KIND` and publishes it, `finish` lets it take the place of `host_KIND`.
    In between, `wait` lasts until it has been in `known_hosts` for that many days, so that clients
    learn it. A run that broke off is continued: a key is made and not published, or half moved.
    """
    made, published = files.get(f"next_{kind}"), files.get("known_hosts")
    if made is None:
        return {"step": "finish" if f"next_{kind}.pub" in files else "begin", "days_left": 0}
    if published is None or published < made:
        return {"step": "begin", "days_left": 0}
    left = math.ceil(int(days) - (now - published) / _SECONDS_OF_A_DAY)
    return {"step": "wait" if left > 0 else "finish", "days_left": max(left, 0)}


def _parts(key: str) -> tuple[str, str]:
    words = key.split()
    if len(words) < 2 or words[0] not in ALGORITHMS:
        raise AnsibleFilterError(
            f"got {key[:40]!r}, expected a public host key of a type of {', '.join(ALGORITHMS)}"
        )
    return words[0], words[1]


def _digest(blob: str) -> str:
    try:
        return hashlib.sha256(base64.b64decode(blob, validate=True)).hexdigest()
    except binascii.Error as error:
        raise AnsibleFilterError(f"got a host key that is not base64 ({error})") from error


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise AnsibleFilterError(f"got {name[:80]!r}, expected the name or address of a host")
    return name


def _host(name: str, port: int) -> str:
    return _checked(name) if port == 22 else f"[{_checked(name)}]:{port}"


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "hostkeys_known_hosts": known_hosts,
            "hostkeys_rotation_step": rotation_step,
            "hostkeys_sshfp": sshfp,
        }
