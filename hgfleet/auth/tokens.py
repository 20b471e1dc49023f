"""Access tokens: secrets with which a person's scripts read over HTTPS, and nothing else.

`ssh hg@HOST token create` shows a token once; its SHA-256 is kept, with owner, description and
times. (A plain hash is enough: there are 200 random bits to guess, which no dictionary has.)

A token gives the right to read that its owner has at that moment; it ends with the owner, with
`token revoke` or at its time. Decisions only; `token_file` keeps the tokens.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import AccessDeniedError, UsageError
from hgfleet.core.stored_time import is_future

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.core.principal import Principal

READ: Final = "read"

PREFIX: Final = "hgt_"
"""Makes tokens easy to find in wrong places, by people and by scanners of secrets."""

_RANDOM_BYTES: Final = 25
ID_LENGTH: Final = 8

DAYS: Final = 90
MOST_DAYS: Final = 366
MOST_TOKENS: Final = 50
"""Of a single person."""
MOST_DESCRIPTION: Final = 100

CLOCKS_APART_SECONDS: Final = 3600.0
"""A mirror reads tokens that the primary made; their clocks are never that far apart."""

# Base32 in lower case: no letter looks like a digit, and a double click selects all of it.
_TOKEN = re.compile(r"hgt_[a-z2-7]{40}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; times are RFC 3339 in UTC, with seconds."""

    owner: str
    sha256: str
    description: str
    created: str
    expires: str
    scope: str = READ
    owner_id: str = ""
    """Person id of the owner; "" in a token of an older release, until the sweep has found it."""

    def is_valid(self, now: datetime) -> bool:
        """Whether it was made, has not expired, and this release knows its scope.

        A token that was made in the future has an end that is too late as well, so it counts as
        never made.
        """
        made = moment(self.created).timestamp()
        return self.is_kept(now) and not is_future(made, now.timestamp(), CLOCKS_APART_SECONDS)

    def is_kept(self, now: datetime) -> bool:
        """Whether it stays in the file: it has not expired, and this release knows its scope.

        A clock that is behind for a while removes no token.
        """
        return self.scope == READ and now < moment(self.expires)


Tokens = dict[str, Token]
"""By id."""


def looks_like_token(secret: str) -> bool:
    """Whether a secret begins like a token; such a secret is never tried as a password."""
    return secret.startswith(PREFIX)


def is_token(secret: str) -> bool:
    """Whether a secret has the form of a token."""
    return _TOKEN.fullmatch(secret) is not None


def digest(secret: str) -> str:
    """Return the SHA-256 of a token, which is kept in its place."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    """Make a token: 200 random bits."""
    return PREFIX + _random_text(_RANDOM_BYTES)


def _random_text(count: int) -> str:
    return base64.b32encode(os.urandom(count)).decode("ascii").lower()


def create(
    tokens: Mapping[str, Token], owner: Principal, description: str, days: int, now: datetime
) -> tuple[Tokens, str, str]:
    """Add a token; return all tokens, the new token's id, and its secret. Expired tokens go."""
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"--days: got {days}, expected a number from 1 to {MOST_DAYS}.")
    if len(description) > MOST_DESCRIPTION or not description.isprintable():
        raise UsageError(
            f"The description should be a single line of at most {MOST_DESCRIPTION} characters."
        )
    kept = {name: token for name, token in tokens.items() if token.is_kept(now)}
    if sum(owner.owns(token) for token in kept.values()) >= MOST_TOKENS:
        raise AccessDeniedError(
            f"You have {MOST_TOKENS} tokens, and more are not given: "
            '"token list" shows them, "token revoke ID" ends a token.'
        )
    secret = new_secret()
    identity = _random_text(5)[:ID_LENGTH]
    while identity in kept:
        identity = _random_text(5)[:ID_LENGTH]
    kept[identity] = Token(
        owner=owner.name,
        sha256=digest(secret),
        description=description,
        created=stamp_of(now),
        expires=stamp_of(now + timedelta(days=days)),
        owner_id=owner.person_id,
    )
    return kept, identity, secret


def revoke(tokens: Mapping[str, Token], owner: Principal, identity: str) -> Tokens:
    """Remove a token. Another person's token gets the same answer as a missing token."""
    token = tokens.get(identity)
    if token is None or not owner.owns(token):
        raise UsageError('You have no such token; "token list" shows your tokens.')
    return {name: token for name, token in tokens.items() if name != identity}


def of_owner(tokens: Mapping[str, Token], owner: Principal, now: datetime) -> Tokens:
    """Return the tokens of a person that have not expired, so that each can be revoked."""
    return {n: t for n, t in tokens.items() if owner.owns(t) and t.is_kept(now)}


def stamp_of(when: datetime) -> str:
    """Return a time as tokens have it."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(stamp: str) -> datetime:
    """Read a time of a token; raise ValueError."""
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
