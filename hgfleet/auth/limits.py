"""How often a secret may be tried: arithmetic with times that the caller reads.

Only refused secrets count: a try is charged before the directory is asked, so that many tries at
once cannot slip through, and the charge is undone if the secret was right.

- A person at an address where their password was right in the last 30 days: charged to that person
at that address. - Another person, or another address: charged to the address, and to the person. -
An expired token, a token or password of a disabled person: charged to that secret at that address.

So a flood of guesses against a person, from however many addresses, only uses up that person's
tries from unfamiliar addresses. The person still gets in from their usual addresses, and from
everywhere with a token, because a right token is never throttled (200 random bits cannot be
guessed, and checking a token costs nothing). The cost: during such a flood, a person at a new
address needs a token.

The same holds for an address that many people share: a colleague's broken script uses up the tries
of people who are new at the address. People who usually work there do not need those.

A bucket is a single number, the time at which it will be full again (the generic cell rate
algorithm). The least recently used buckets are forgotten: to have a name's bucket forgotten, an
attacker has to try ten thousand other names, each of which is charged to an address.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable


class Rate(NamedTuple):
    """`burst` tries at once, then a further try every `seconds`."""

    burst: int
    seconds: float


ADDRESS: Final = Rate(burst=20, seconds=6)
"""Unfamiliar people at an address: enough for an office where some people mistype."""

PERSON: Final = Rate(burst=20, seconds=30)
"""A person, tried from all unfamiliar addresses: 2,900 guesses a day."""

FAMILIAR: Final = Rate(burst=10, seconds=15)
"""A person at a familiar address."""

MOST_BUCKETS: Final = 10_000
"""Buckets of each kind; 10,000 take about 2 MB."""

MOST_PEOPLE: Final = 20_000
MOST_ADDRESSES: Final = 8
"""Familiar addresses that are remembered for each person; MOST_PEOPLE people are remembered."""

FAMILIAR_S: Final = 30 * 86400.0


class Buckets:
    """Buckets of a rate, by key. Not safe in threads."""

    def __init__(self, rate: Rate, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until a try may be taken; 0: at once."""
        full_at = self._full_at.get(key, now)
        return max(0.0, full_at - now - (self._rate.burst - 1) * self._rate.seconds)

    def take(self, key: Hashable, now: float) -> None:
        """Charge a try."""
        full_at = max(self._full_at.pop(key, now), now)
        self._full_at[key] = full_at + self._rate.seconds
        while len(self._full_at) > self._most:
            self._full_at.popitem(last=False)

    def give_back(self, key: Hashable) -> None:
        """Undo a charge."""
        if key in self._full_at:
            self._full_at[key] -= self._rate.seconds

    def __len__(self) -> int:
        return len(self._full_at)


class Attempt(NamedTuple):
    """A try that was charged."""

    person: str
    address: str
    charged: tuple[tuple[Buckets, Hashable], ...]


class Limits:
    """All limits of the daemon. Not safe in threads: the caller holds a lock."""

    def __init__(self) -> None:
        self._addresses = Buckets(ADDRESS)
        self._people = Buckets(PERSON)
        self._pairs = Buckets(FAMILIAR)
        self._invalid = Buckets(FAMILIAR)
        self._familiar: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()

    def begin(self, person: str, address: str, now: float) -> Attempt | float:
        """Charge a try of a password, or return the seconds until a try may be made."""
        if self.is_familiar(person, address, now):
            charged: tuple[tuple[Buckets, Hashable], ...] = ((self._pairs, (person, address)),)
        else:
            charged = ((self._addresses, address), (self._people, person))
        return _charge(Attempt(person, address, charged), now)

    def begin_token(self, address: str, now: float) -> Attempt | float:
        """Charge a token that is not right: only to the address, because it names no person."""
        return _charge(Attempt("", address, ((self._addresses, address),)), now)

    def begin_invalid(self, secret: str, address: str, now: float) -> Attempt | float:
        """Charge a secret that was right once: expired, or of a disabled person.

        The charge is to that secret at that address. Such a try cannot be a guess, and other people
        at the address have nothing to do with it: a forgotten job on a build host, for instance.
        """
        return _charge(Attempt("", address, ((self._invalid, (secret, address)),)), now)

    def succeeded(self, attempt: Attempt, now: float) -> None:
        """Undo the charge, and remember the address as familiar."""
        self.undone(attempt)
        addresses = self._familiar.pop(attempt.person, OrderedDict())
        addresses.pop(attempt.address, None)
        addresses[attempt.address] = now
        while len(addresses) > MOST_ADDRESSES:
            addresses.popitem(last=False)
        self._familiar[attempt.person] = addresses
        while len(self._familiar) > MOST_PEOPLE:
            self._familiar.popitem(last=False)

    def undone(self, attempt: Attempt) -> None:
        """Undo the charge: the try was not decided."""
        for buckets, key in attempt.charged:
            buckets.give_back(key)

    def is_familiar(self, person: str, address: str, now: float) -> bool:
        """Whether the person's password was right from this address lately."""
        addresses = self._familiar.get(person)
        last = None if addresses is None else addresses.get(address)
        return last is not None and now - last < FAMILIAR_S


def _charge(attempt: Attempt, now: float) -> Attempt | float:
    wait = max(buckets.wait(key, now) for buckets, key in attempt.charged)
    if wait > 0:
        return wait
    for buckets, key in attempt.charged:
        buckets.take(key, now)
    return attempt


def source(address: str) -> str:
    """The unit of counting: an IPv4 address, or an IPv6 /64 (a single customer's network).

    All texts that are not an address count together.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)
