"""Slots of the requests that compute: few per class, shared fairly between addresses.

A request runs, waits for a slot, or is refused at once. Pages leave a slot to the wire protocol,
and expensive pages leave half of the slots to all other requests. An address never has more than
half of the slots and of the places to wait, nor of the slots for expensive pages, so a second
address finds room. The free slot goes to the waiting address with the fewest running requests.
"""

from __future__ import annotations

import ipaddress
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.web.rendering.budgets import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX_OF_IPV6: Final = 64
"""Bits of an IPv6 address that count as a client: a household or host gets at least a /64."""


class BusyError(Exception):
    """A request finds neither a slot nor a place to wait; the message is for the client."""

    def __init__(self, sentence: str, *, is_share: bool) -> None:
        """`is_share`: the client's own requests take its share; otherwise the server is full."""
        super().__init__(sentence)
        self.is_share = is_share


class Limits(NamedTuple):
    """Slots of a process, and places to wait for a slot."""

    slots: int
    waiting: int

    @property
    def slots_per_address(self) -> int:
        """Slots that an address may have."""
        return max(1, self.slots // 2)

    @property
    def waiting_per_address(self) -> int:
        """Places to wait that an address may have."""
        return max(1, self.waiting // 2)

    def most(self, kinds: frozenset[Kind]) -> int:
        """Return the number of slots that requests of these classes may have together."""
        if kinds == {Kind.ARCHIVE}:
            return 1
        if Kind.PAGE in kinds:
            return max(1, self.slots - 1)
        if Kind.DEAR in kinds:
            return max(1, self.slots // 2)
        return self.slots

    def most_per_address(self, kinds: frozenset[Kind]) -> int:
        """Return the number of these slots that an address may have: half, rounded up."""
        return (self.most(kinds) + 1) // 2


_GROUPS: Final[dict[Kind, tuple[frozenset[Kind], ...]]] = {
    Kind.WIRE: (),
    Kind.PAGE: (frozenset({Kind.PAGE, Kind.DEAR, Kind.ARCHIVE}),),
    Kind.DEAR: (
        frozenset({Kind.PAGE, Kind.DEAR, Kind.ARCHIVE}),
        frozenset({Kind.DEAR, Kind.ARCHIVE}),
    ),
    Kind.ARCHIVE: (
        frozenset({Kind.PAGE, Kind.DEAR, Kind.ARCHIVE}),
        frozenset({Kind.DEAR, Kind.ARCHIVE}),
        frozenset({Kind.ARCHIVE}),
    ),
}
"""Class of a request with a slot: the groups of classes in whose limits it counts."""


@dataclass(eq=False, slots=True)
class Place:
    """A request that runs or waits."""

    address: str
    kind: Kind
    granted: threading.Event = field(default_factory=threading.Event)


class Slots:
    """The slots of a process. Safe in threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._running: list[Place] = []
        self._waiting: list[Place] = []

    def enter(self, address: str, kind: Kind) -> Place:
        """Return a place, with a slot or waiting for a slot; raises BusyError."""
        place = Place(client_of(address), kind)
        with self._lock:
            if self._has_room(place):
                self._grant(place)
                return place
            own = sum(other.address == place.address for other in self._waiting)
            if own >= self._limits.waiting_per_address:
                raise BusyError(
                    f"{own} requests of your address wait, the most that an address may "
                    "have; try again when they are answered.",
                    is_share=True,
                )
            if len(self._waiting) >= self._limits.waiting:
                raise BusyError(
                    "This server computes as many answers as it can at a time; "
                    "try again in some seconds.",
                    is_share=False,
                )
            self._waiting.append(place)
            return place

    def leave(self, place: Place) -> None:
        """Give a place back, with or without a slot; a second call does nothing."""
        with self._lock:
            if place in self._running:
                self._running.remove(place)
            elif place in self._waiting:
                self._waiting.remove(place)
            while (following := self._next()) is not None:
                self._waiting.remove(following)
                self._grant(following)

    def load(self) -> dict[str, int]:
        """Return the numbers of running and of waiting requests, and of the slots."""
        running, waiting = len(self._running), len(self._waiting)
        return {"running": running, "waiting": waiting, "slots": self._limits.slots}

    def _grant(self, place: Place) -> None:
        self._running.append(place)
        place.granted.set()

    def _next(self) -> Place | None:
        ready = [place for place in self._waiting if self._has_room(place)]
        # The first of those that have waited longest: min() keeps the order of arrival.
        return min(ready, key=self._runs_of, default=None)

    def _runs_of(self, place: Place) -> int:
        return sum(other.address == place.address for other in self._running)

    def _has_room(self, place: Place) -> bool:
        return (
            len(self._running) < self._limits.slots
            and self._runs_of(place) < self._limits.slots_per_address
            and all(self._has_room_in(group, place.address) for group in _GROUPS[place.kind])
        )

    def _has_room_in(self, group: frozenset[Kind], address: str) -> bool:
        addresses = [other.address for other in self._running if other.kind in group]
        return len(addresses) < self._limits.most(group) and addresses.count(
            address
        ) < self._limits.most_per_address(group)


class Shares:
    """The data streams that each address has under way in a process. Safe in threads.

    A stream above the share is refused at once: a request that waits takes a thread, too.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def enter(self, address: str) -> Callable[[], None]:
        """Count a stream; return the function that ends it. Raises BusyError."""
        client = client_of(address)
        with self._lock:
            count = self._counts.get(client, 0)
            if count >= self._most:
                raise BusyError(
                    f"{count} clones and pulls of your address are under way in this part of the "
                    "server, the most that an address may have; try again when one has ended.",
                    is_share=True,
                )
            self._counts[client] = count + 1
        has_left = False

        def leave() -> None:
            nonlocal has_left
            with self._lock:
                if has_left:
                    return
                has_left = True
                self._counts[client] -= 1
                if not self._counts[client]:
                    del self._counts[client]

        return leave


def client_of(address: str) -> str:
    """Return the name under which an address is counted: itself, or an IPv6 network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, PREFIX_OF_IPV6), strict=False))
    return str(parsed)
