"""Terms of primaries: which host takes pushes, by the brokers and by a host's own files.

A term is a message of the stream `hgfleet-epoch`: its epoch, its primary, the address for pushes. A
promotion adds a term with the next epoch. A host that is the primary by its settings compares its
own file with the last term, whenever its relay has connected and whenever a term is added.

| last term | own file | result |
| --- | --- | --- |
| of this host | of this host, or none | confirmed |
| none, or of an earlier epoch | of this host, or none | claim: the brokers lost it, or had none |
| of another host | of an epoch that is not later | fenced |
| none, or not of a later epoch | of another host | fenced |
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.pushlog import term as term_file
from hgfleet.replication.protocol.messages import token

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings

EPOCH: Final = "epoch.json"
FENCED: Final = "fenced"
UNCONFIRMED: Final = "unconfirmed"
"""File after a boot, until the brokers confirm the term; systemd-tmpfiles makes it."""

_LONGEST_ADDRESS: Final = 300

_ADDRESS: Final = re.compile(r"^ssh-url\s*=\s*(ssh://\S{1,250})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Term:
    """A term; `address` is for pushes, without a path, `time` in milliseconds since 1970."""

    epoch: int
    primary: str
    address: str = ""
    time: int = 0

    def body(self) -> bytes:
        """Return the body of the message."""
        return json.dumps(asdict(self)).encode("ascii")


def decode(body: bytes) -> Term:
    """Read a term; raises ValueError."""
    number, primary = term_file.parse(body)
    data = json.loads(body)
    address, time = data.get("address", ""), data.get("time", 0)
    token(primary)
    if not isinstance(address, str) or len(address) > _LONGEST_ADDRESS or type(time) is not int:
        raise ValueError(f"no term of a primary: {body!r:.200}")
    return Term(number, primary, address, time)


class Standing(StrEnum):
    """Standing, by the last term, of a host that is the primary by its settings."""

    CONFIRMED = "confirmed"
    CLAIM = "claim"
    FENCED = "fenced"


def standing(last: Term | None, own: tuple[int, str], host: str) -> Standing:
    """Compare the last term with the epoch and the primary in a host's file ("" without a file)."""
    epoch, primary = own
    if primary not in ("", host) and (last is None or last.epoch <= epoch):
        return Standing.FENCED
    if last is None or last.epoch < epoch:
        return Standing.CLAIM
    return Standing.CONFIRMED if last.primary == host else Standing.FENCED


def sentence(term: Term) -> str:
    """Return why a former primary refuses pushes, and the way out."""
    where = f"push to {term.address}" if term.address else f"push to {term.primary}"
    return (
        f"{term.primary} has been the primary of this site since epoch {term.epoch}, so this host "
        f"no longer takes pushes; {where}"
    )


def operators(term: Term, host: str) -> str:
    """Return the same for operators."""
    return (
        f"{host} is no longer the primary: {term.primary} has been since epoch {term.epoch}; set "
        f"replication_primary to {term.primary} and run site.yml, or promote {host} "
        "(runbook promote)"
    )


def address_of(hgrc: Path) -> str:
    """Return the address for pushes in the configuration of this host; "" if it has none."""
    try:
        text = hgrc.read_text(errors="replace")
    except OSError:
        return ""
    match = _ADDRESS.search(text)
    return match[1].rstrip("/") if match else ""


def own(settings: Settings) -> tuple[int, str]:
    """Read the host's file; without it the primary is "". Raises OSError and ValueError."""
    try:
        return term_file.parse((settings.terms / EPOCH).read_bytes()[: term_file.MOST])
    except FileNotFoundError:
        return term_file.FIRST, ""


def confirm(settings: Settings, term: Term) -> None:
    """Record that the brokers confirm the term of this host, so that it takes pushes (I/O)."""
    remember(settings, term)
    (settings.fence / UNCONFIRMED).unlink(missing_ok=True)


def remember(settings: Settings, term: Term) -> None:
    """Write the term of the site to the host's file (I/O)."""
    try:
        before = own(settings)
    except ValueError:
        before = (0, "")
    if before != (term.epoch, term.primary):
        files.replace(settings.terms / EPOCH, term_file.write(term.epoch, term.primary))


def fence(settings: Settings, text: str) -> None:
    """Make this host refuse all pushes from now on, with this sentence (I/O)."""
    file = settings.terms / FENCED
    if not file.exists() or file.read_text() != f"{text}\n":
        files.replace(file, f"{text}\n")


def lift(settings: Settings) -> None:
    """Let this host take pushes again (I/O)."""
    (settings.terms / FENCED).unlink(missing_ok=True)
