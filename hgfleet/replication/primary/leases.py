"""Membership of mirrors by lease. Pure.

Times are seconds of a monotonic clock, given by the caller. A mirror sends a heartbeat every third
of a lease. It becomes a member with the first heartbeat that says that it has caught up. It leaves
when its lease ends, when its applier restarts, or when it has not been caught up for the length of
a lease. Pushes wait only for members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hgfleet.replication.protocol.messages import token

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hgfleet.replication.protocol.messages import Lease


@dataclass
class _Heard:
    lease: Lease
    until: float
    caught_up_at: float | None


class Members:
    """The mirrors of the site, and which of them are alive."""

    def __init__(self, mirrors: Iterable[str], lease_seconds: float) -> None:
        self._mirrors = tuple(sorted(set(mirrors)))
        self._seconds = lease_seconds
        self._heard: dict[str, _Heard] = {}
        self._members: set[str] = set()

    @property
    def mirrors(self) -> tuple[str, ...]:
        """All mirrors of the site."""
        return self._mirrors

    def refusal(self, subject: str, host: str) -> str | None:
        """Return why a message of a mirror does not count; None if it counts.

        The broker lets a mirror publish only to its own subject, so the subject is the evidence.
        """
        if host not in self._mirrors:
            return f"{host!r:.80} is not among the mirrors {', '.join(self._mirrors)}"
        if subject.rpartition(".")[2] != token(host):
            return f"a message of {host} arrived on the subject {subject!r:.80}"
        return None

    def hear(self, lease: Lease, now: float) -> None:
        """Take over a heartbeat that was not refused."""
        before = self._heard.get(lease.host)
        caught_up_at = None
        if before is not None and before.lease.boot == lease.boot and before.until > now:
            caught_up_at = before.caught_up_at
        if lease.caught_up:
            caught_up_at = now
        self._heard[lease.host] = _Heard(lease, now + self._seconds, caught_up_at)

    def is_member(self, host: str, now: float) -> bool:
        """Whether a push waits for this mirror."""
        heard = self._heard.get(host)
        return (
            heard is not None
            and heard.until > now
            and heard.caught_up_at is not None
            and heard.caught_up_at + self._seconds > now
        )

    def live(self, now: float) -> tuple[str, ...]:
        """Return the mirrors that a push waits for."""
        return tuple(host for host in self._mirrors if self.is_member(host, now))

    def change(self, now: float) -> tuple[list[str], list[str]]:
        """Return the mirrors that joined and the mirrors that left since the last call."""
        live = set(self.live(now))
        joined, left = sorted(live - self._members), sorted(self._members - live)
        self._members = live
        return joined, left

    def report(self, now: float, clock: float) -> dict[str, dict[str, object]]:
        """Describe each mirror, for the state file; `clock` is now in seconds since 1970."""
        mirrors: dict[str, dict[str, object]] = {}
        for host in self._mirrors:
            heard = self._heard.get(host)
            mirrors[host] = {"live": self.is_member(host, now)}
            if heard is not None:
                mirrors[host] |= {
                    "lease_until": round(clock + heard.until - now, 1),
                    "caught_up": heard.lease.caught_up,
                    "waiting": heard.lease.waiting,
                    "parked": heard.lease.parked,
                    "clock_ahead_seconds": round(heard.lease.sent - clock, 1),
                }
        return mirrors
