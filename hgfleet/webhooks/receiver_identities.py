"""Identities of receivers, which survive a change of name, of URL or of secret. Pure.

A receiver's state is its durable consumer at the brokers: the consumer's name holds the identity,
and its description the rest. If both URL and secret of a name change, the name stands for a new
receiver: events that wait for the former receiver are not sent to it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX: Final = "webhook="
"""Prefix of the consumers' names. Consumers of hosts are named after the host, and no host has "="
in its name."""

NONE: Final = "0" * 16
"""The identity of receivers that are not set any more and that the brokers never knew."""

_IDENTITY: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Known:
    """A receiver as the brokers know it, with marks that stand for its URL and its secret."""

    identity: str
    name: str
    url: str
    secret: str

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return PREFIX + self.identity

    @property
    def description(self) -> str:
        """The description of the consumer."""
        return json.dumps({"name": self.name, "url": self.url, "secret": self.secret})


def known(identity: str, name: str, url: str, secret: bytes) -> Known:
    """Describe a receiver; its marks reveal neither the URL nor the secret."""
    return Known(identity, name, _mark(identity, url.encode()), _mark(identity, secret))


def _mark(identity: str, value: bytes) -> str:
    return hmac.new(identity.encode(), value, hashlib.sha256).hexdigest()


def parse(consumer: str, description: str | None) -> Known | None:
    """Parse a consumer's name and description; None if it belongs to no receiver."""
    identity = consumer.removeprefix(PREFIX)
    if identity == consumer or not _IDENTITY.fullmatch(identity):
        return None
    try:
        data = json.loads(description or "")
        return Known(identity, *(str(data[field]) for field in ("name", "url", "secret")))
    except (ValueError, KeyError, TypeError):
        return Known(identity, "", "", "")


def assign(receivers: Mapping[str, tuple[str, bytes]], there: Sequence[Known]) -> dict[str, Known]:
    """Give each receiver (name, URL and secret) its known identity, or a new identity.

    Known identities are matched in three steps: first by equal name, URL and secret; then by equal
    URL and secret under another name; then by equal name together with an equal URL or an equal
    secret.
    """
    assigned: dict[str, Known] = {}
    for is_named, least in ((True, 2), (False, 2), (True, 1)):
        for name, (url, secret) in receivers.items():
            taken = {receiver.identity for receiver in assigned.values()}
            for candidate in there:
                now = known(candidate.identity, name, url, secret)
                same = (now.url == candidate.url) + (now.secret == candidate.secret)
                is_it = same >= least and (candidate.name == name or not is_named)
                if name not in assigned and candidate.identity not in taken and is_it:
                    assigned[name] = now
    for name, (url, secret) in receivers.items():
        assigned.setdefault(name, known(secrets.token_hex(8), name, url, secret))
    return assigned
