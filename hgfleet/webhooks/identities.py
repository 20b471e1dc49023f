"""Which receiver is which: its identity stays when its name, its URL or its secret changes. Pure.

A receiver is its durable consumer at the brokers: the consumer's name has the identity, and its
description the rest. A receiver that has both another URL and another secret than the former one of
its name is another receiver: what waits for the former one is not sent to it.
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
"""Of the names of consumers. No host has "=" in its name, and consumers of hosts have theirs."""

NONE: Final = "0" * 16
"""The identity of a receiver that is not set any more, and that the brokers never knew."""

_IDENTITY: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Known:
    """A receiver as the brokers know it, with marks of its URL and its secret instead of those."""

    identity: str
    name: str
    url: str
    secret: str

    @property
    def consumer(self) -> str:
        """The name of its consumer."""
        return PREFIX + self.identity

    @property
    def description(self) -> str:
        """The description of its consumer."""
        return json.dumps({"name": self.name, "url": self.url, "secret": self.secret})


def known(identity: str, name: str, url: str, secret: bytes) -> Known:
    """Describe a receiver; the marks tell nothing to who does not know the URL and the secret."""
    return Known(identity, name, _mark(identity, url.encode()), _mark(identity, secret))


def _mark(identity: str, value: bytes) -> str:
    return hmac.new(identity.encode(), value, hashlib.sha256).hexdigest()


def parse(consumer: str, description: str | None) -> Known | None:
    """Read a consumer's name and description; None for one that is of no receiver."""
    identity = consumer.removeprefix(PREFIX)
    if identity == consumer or not _IDENTITY.fullmatch(identity):
        return None
    try:
        data = json.loads(description or "")
        return Known(identity, *(str(data[field]) for field in ("name", "url", "secret")))
    except (ValueError, KeyError, TypeError):
        return Known(identity, "", "", "")


def assign(receivers: Mapping[str, tuple[str, bytes]], there: Sequence[Known]) -> dict[str, Known]:
    """Give each receiver, by its name with URL and secret, the identity that it has, or a new one.

    First those of which name, URL and secret are the same; then those of which URL and secret are,
    under any name; then those of which the name is, and one of the others.
    """
    found: dict[str, Known] = {}
    for is_named, least in ((True, 2), (False, 2), (True, 1)):
        for name, (url, secret) in receivers.items():
            taken = {one.identity for one in found.values()}
            for one in there:
                now = known(one.identity, name, url, secret)
                same = (now.url == one.url) + (now.secret == one.secret)
                is_it = same >= least and (one.name == name or not is_named)
                if name not in found and one.identity not in taken and is_it:
                    found[name] = now
    for name, (url, secret) in receivers.items():
        found.setdefault(name, known(secrets.token_hex(8), name, url, secret))
    return found
