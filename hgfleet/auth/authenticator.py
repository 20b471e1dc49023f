"""The decision about a sign-in, by tokens, passwords, limits and short caches.

Two answers are cached for a moment:

- that a person exists, is enabled and has these groups: for 1 s, so a disabled person is refused
  from the first request after that;
- that a password was right: for 60 s, so a clone, which is several requests, costs a single bind. A
  replaced password stays valid that long, unless another person has got the name.

A right password is cached as an HMAC under a key that this process made and never writes down.
A wrong password is not cached: it costs the same each time.

A refusal takes as long whether the person exists or not: the directory is asked to bind in both
cases, and the answer says how long the worker has to wait until a fixed time has passed. The worker
waits without a slot, so refusals do not keep others from signing in.
"""

from __future__ import annotations

import hmac
import math
import os
import re
import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from hgfleet.auth import limits, protocol, token_file, tokens
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Directory(Protocol):
        """People and their passwords."""

        def person(self, name: str) -> Entry | None:
            """Find an enabled person; raise UnavailableError."""

        def is_password(self, entry: Entry | None, password: str) -> bool:
            """Check a password, also for a name without an entry; raise UnavailableError."""

    class TokenStore(Protocol):
        """The store of the tokens."""

        def find(self, secret: str) -> tuple[str, tokens.Token] | None:
            """Find id and token of a secret; raise TokensError."""


PERSON_S: Final = 1.0
PASSWORD_S: Final = 60.0
REFUSAL_S: Final = 0.3
"""How long a refusal takes at least; more than the directory normally needs."""

MOST_REMEMBERED: Final = 10_000
"""Cached people, and cached right passwords."""

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,31}")
K = TypeVar("K")
V = TypeVar("V")


class Entry(NamedTuple):
    """An enabled person of the directory."""

    name: str
    dn: str
    groups: frozenset[str]
    person_id: str = ""
    """The entryUUID; "" if the directory does not give it."""


class Decision(NamedTuple):
    """The answer for the worker, and details for the log only."""

    answer: protocol.Answer
    reason: str
    person: str | None = None
    token: str | None = None


class Authenticator:
    """Answers questions. Safe in threads."""

    def __init__(
        self,
        directory: Directory,
        store: TokenStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._directory = directory
        self._store = store
        self._clock = clock
        self._today = today
        self._limits = limits.Limits()
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._people: OrderedDict[str, tuple[float, Entry | None]] = OrderedDict()
        self._passwords: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def answer(self, question: protocol.Question) -> Decision:
        """Decide. Neither a client's question nor a failure of the directory makes it raise."""
        started = self._clock()
        try:
            decision = self._decide(question)
        except UnavailableError as error:
            return Decision(protocol.Unavailable(), f"directory: {error}")
        except token_file.TokensError as error:
            return Decision(protocol.Unavailable(), f"tokens: {error}")
        if isinstance(decision.answer, protocol.Refused):
            left = max(0.0, REFUSAL_S - (self._clock() - started))
            return decision._replace(answer=protocol.Refused(left))
        return decision

    def _decide(self, question: protocol.Question) -> Decision:
        address = limits.source(question.client)
        if tokens.looks_like_token(question.secret):
            return self._by_token(question, address)
        return self._by_password(question, address)

    # Tokens

    def _by_token(self, question: protocol.Question, address: str) -> Decision:
        match = self._store.find(question.secret)
        if match is not None:
            identity, token = match
            if hmac.compare_digest(token.owner.encode(), question.user.encode("utf-8", "replace")):
                if not token.is_valid(self._today()):
                    return self._invalid("expired", address, token.owner, identity)
                entry = self._person(token.owner)
                if entry is None:
                    return self._invalid("disabled", address, token.owner, identity)
                if token.owner_id and not entry.person_id:
                    raise UnavailableError(
                        f"no entryUUID of {entry.name}, and token {identity} is of a person with "
                        "an entryUUID; let this account read it"
                    )
                if not Principal(entry.name, person_id=entry.person_id).owns(token):
                    return self._invalid("another-person", address, token.owner, identity)
                answer = protocol.Person(entry.name, entry.groups, "token", entry.person_id)
                return Decision(answer, "ok", entry.name, identity)
        with self._lock:
            attempt = self._limits.begin_token(address, self._clock())
        if isinstance(attempt, float):
            return _throttled(attempt)
        return Decision(protocol.Refused(), "token")

    def _invalid(
        self, reason: str, address: str, person: str, token: str | None = None
    ) -> Decision:
        """Refuse a secret that was right once; too many such tries are throttled."""
        key = f"token:{token}" if token else f"person:{person}"
        with self._lock:
            attempt = self._limits.begin_invalid(key, address, self._clock())
        if isinstance(attempt, float):
            return _throttled(attempt, person)
        return Decision(protocol.Refused(), reason, person, token)

    # Passwords

    def _by_password(self, question: protocol.Question, address: str) -> Decision:
        name, password = question.user, question.secret
        remembered = hmac.digest(
            self._key, f"{name}\0{password}".encode("utf-8", "surrogatepass"), "sha256"
        )
        person_id = self._was_right(remembered)
        if person_id is not None:
            entry = self._person(name)
            if entry is None:
                return self._invalid("disabled", address, name)
            if entry.person_id == person_id:
                return _is(entry)
        with self._lock:
            attempt = self._limits.begin(name, address, self._clock())
        if isinstance(attempt, float):
            return _throttled(attempt, self._existing(name))
        try:
            # Every name of a person has this form, so the directory need not see any other text.
            entry = self._person(name) if _NAME.fullmatch(name) else None
            # Not even an empty password reaches a bind: it would be anonymous, and succeed.
            is_right = bool(password) and self._directory.is_password(entry, password)
        except UnavailableError:
            with self._lock:
                self._limits.undone(attempt)
            raise
        if entry is None or not is_right:
            # Unknown names are not logged: people type passwords there.
            return Decision(protocol.Refused(), "password", entry.name if entry else None)
        now = self._clock()
        with self._lock:
            self._limits.succeeded(attempt, now)
            _remember(self._passwords, remembered, (now, entry.person_id))
        return _is(entry)

    def _was_right(self, remembered: bytes) -> str | None:
        """Return the id of the person whose password was right a moment ago, or None."""
        with self._lock:
            when, person_id = self._passwords.get(remembered, (0.0, None))
            if person_id is not None and self._clock() - when > PASSWORD_S:
                del self._passwords[remembered]
                return None
            return person_id

    # People

    def _person(self, name: str) -> Entry | None:
        now = self._clock()
        with self._lock:
            cached = self._people.get(name)
        if cached is not None and now - cached[0] <= PERSON_S:
            return cached[1]
        entry = self._directory.person(name)
        with self._lock:
            # The age counts from before the question.
            _remember(self._people, name, (now, entry))
        return entry

    def _existing(self, name: str) -> str | None:
        """Return the name if the directory has lately found a person of that name."""
        with self._lock:
            cached = self._people.get(name)
        return name if cached is not None and cached[1] is not None else None


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    memory.pop(key, None)
    memory[key] = value
    while len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)


def _is(entry: Entry) -> Decision:
    answer = protocol.Person(entry.name, entry.groups, "password", entry.person_id)
    return Decision(answer, "ok", entry.name)


def _throttled(wait: float, person: str | None = None) -> Decision:
    return Decision(protocol.Throttled(max(1, math.ceil(wait))), "throttled", person)
