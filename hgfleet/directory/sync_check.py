"""State of a directory replica, derived from the newest changes on both servers.

slapd copies the directory by itself (syncrepl), but does not notice when it is behind, and a
replica that is behind admits revoked users. So a timer runs `hgfleet replica check` (sync_cli.py),
which compares the newest change of each server, `contextCSN`. A failed service unit is the alarm.

| state | means | exit code | key lookup asks |
| --- | --- | --- | --- |
| in-sync | the replica has every change of the provider | 0 | the replica first |
| provider-unreachable | no answer; the content of the replica stays in use | 75 | as before |
| lagging | a change has not arrived within `patience` | 71 | the provider first |
| never-synchronised | the replica is still empty | 71 | the provider first |
| ahead | the replica has a change that the provider does not have | 71 | the provider first |
| other-entries | the same newest change, but different entries | 71 | the provider first |
| refused | the provider answers, and refuses this account | 77 | the provider first |
| clock | the newest change is from the future | 71 | the provider first |
| replica-unreachable | this host's slapd does not answer | 69 | the provider first |

"The provider first" is the file `stale_file`: while it exists, hgfleet-keys asks sockets of this
host last. CSNs are only compared with CSNs, both made by the provider's clock. The lag of a replica
is measured by this host's clock since boot, from the first check that noticed the missing change.

A provider that was restored from a backup is older than its replicas. The replicas keep the changes
that came after the backup, and `contextCSN` is the same again once the provider has a later change.
So the entries are compared too: their number, and a digest of `entryUUID` and `entryCSN` of each
(`Content`). That is due after each change, at most once in COMPARE_SECONDS, every
RECOMPARE_SECONDS, and in each check until there is no difference any more.

A change from the future means that the provider's clock went wrong. Once the clock is right again,
a replica takes new changes for old changes and ignores them, although both servers show the same
`contextCSN`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CLOCK_TOLERANCE: Final = timedelta(seconds=60)
"""How far the newest change may be ahead of this host's clock: more than NTP ever leaves apart."""

COMPARE_SECONDS: Final = 60.0
"""Between two comparisons of the entries while changes arrive."""

RECOMPARE_SECONDS: Final = 600.0
"""Between two comparisons while no changes arrive."""

IN_SYNC: Final = "in-sync"
LAGGING: Final = "lagging"
AHEAD: Final = "ahead"
OTHER: Final = "other-entries"
NEVER: Final = "never-synchronised"
CLOCK: Final = "clock"
REFUSED: Final = "refused"
PROVIDER_AWAY: Final = "provider-unreachable"
REPLICA_AWAY: Final = "replica-unreachable"

EXIT_CODES: Final[Mapping[str, int]] = {
    IN_SYNC: 0,
    LAGGING: 71,
    NEVER: 71,
    AHEAD: 71,
    OTHER: 71,
    CLOCK: 71,
    REFUSED: 77,
    PROVIDER_AWAY: 75,
    REPLICA_AWAY: 69,
}

# As OpenLDAP writes it: time, number within that time, server, number within an operation.
_DIGITS: Final = 16
_CSN: Final = re.compile(r"(\d{14}\.\d{6}Z)#([0-9a-f]{6})#([0-9a-f]{3})#([0-9a-f]{6})")


class UnreachableError(Exception):
    """A server does not answer."""


class RefusedError(Exception):
    """A server answers, and refuses the password or the attribute."""


@dataclass(frozen=True, slots=True)
class Content:
    """The entries of a server: their number, and a digest that their order does not change."""

    entries: int
    digest: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The entries of both servers at the change `csn`, read at `boot` (seconds since the boot)."""

    replica: Content
    provider: Content
    csn: str
    boot: float


@dataclass(frozen=True, slots=True)
class Memory:
    """State that a check keeps for the next check.

    The missing changes, since when they are missing, the newest change at the last comparison of
    the entries, and the time of that comparison.
    """

    state: str = ""
    missing: Mapping[str, str] | None = None
    since: float = 0.0
    compared: str = ""
    compared_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a check. `stale` says whether `stale_file` must exist; None leaves it as it is."""

    state: str
    stale: bool | None
    detail: str = ""
    behind: float | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of a check with this verdict."""
        return EXIT_CODES[self.state]


def parse_csns(values: Sequence[str]) -> dict[str, str]:
    """Return the newest change by server (each server that takes writes has its `contextCSN`).

    Raises ValueError for any other text. The texts have a fixed width, so they sort by time.
    """
    result = {}
    for value in values:
        match = _CSN.fullmatch(value)
        if match is None:
            raise ValueError(f"contextCSN: got {value!r}, expected a change sequence number")
        result[match[3]] = value
    return result


def missing(replica: Mapping[str, str], provider: Mapping[str, str]) -> dict[str, str]:
    """Return the changes of the provider, by server, that the replica does not have."""
    return {server: csn for server, csn in provider.items() if replica.get(server, "") < csn}


def content(entries: Iterable[tuple[bytes, bytes]]) -> Content:
    """Return the content of a server; `entries` has the `entryUUID` and `entryCSN` of each."""
    number = total = 0
    for uuid, csn in entries:
        number += 1
        total += int.from_bytes(hashlib.sha256(uuid + b"\0" + csn).digest())
    return Content(number, f"{total % 2**256:064x}"[:_DIGITS])


def is_due(before: Memory, csn: str, boot: float) -> bool:
    """Whether the entries are due for a comparison, when both servers have the newest change."""
    waited = boot - before.compared_at
    if before.state != IN_SYNC or not before.compared or waited < 0:
        return True
    return waited >= (COMPARE_SECONDS if csn != before.compared else RECOMPARE_SECONDS)


def moment(csn: str) -> datetime:
    """Return the time of a change, by the clock of the server that accepted it."""
    return datetime.strptime(csn.partition("#")[0], "%Y%m%d%H%M%S.%fZ").replace(tzinfo=UTC)


def decide(
    replica: Mapping[str, str] | Exception,
    provider: Mapping[str, str] | Exception,
    before: Memory,
    *,
    wall: datetime,
    boot: float,
    contents: Contents | None = None,
) -> tuple[Verdict, Memory]:
    """Compare the answers of both servers. `boot` is in seconds since this host's boot.

    `contents` are the entries, if they were read in this check. A replica that is ahead may have
    received a change after the provider was asked: the caller asks it again.
    """
    verdict, absent = _verdict(replica, provider, wall, contents, before.state)
    if contents is not None:
        before = replace(before, compared=contents.csn, compared_at=contents.boot)
    if verdict.state == PROVIDER_AWAY:
        # Without the provider's answer, it is not known whether the missing changes have arrived.
        return verdict, replace(before, state=verdict.state)
    if not absent:
        fresh = Memory(verdict.state, compared=before.compared, compared_at=before.compared_at)
        return verdict, fresh
    # If the changes of the last check are still missing, the lag began then. If others are missing
    # now, the replica has moved, and the lag begins again.
    held = replica if isinstance(replica, dict) else {}
    stuck = bool(before.missing and missing(held, before.missing))
    since = before.since if stuck else boot
    kept = before.missing if stuck else absent
    memory = Memory(verdict.state, kept, since, before.compared, before.compared_at)
    return replace(verdict, behind=boot - since), memory


def _verdict(
    replica: Mapping[str, str] | Exception,
    provider: Mapping[str, str] | Exception,
    wall: datetime,
    contents: Contents | None,
    before: str,
) -> tuple[Verdict, dict[str, str]]:
    if isinstance(replica, Exception):
        return Verdict(REPLICA_AWAY, stale=True, detail=str(replica)), {}
    if isinstance(provider, RefusedError):
        return Verdict(REFUSED, stale=True, detail=str(provider)), {}
    if isinstance(provider, Exception):
        if not replica:
            return Verdict(NEVER, stale=True, detail=str(provider)), {}
        # The replica is the best source left, so it is trusted as before.
        return Verdict(PROVIDER_AWAY, stale=None, detail=str(provider)), {}
    absent = missing(replica, provider)
    if not replica:
        return Verdict(NEVER, stale=True), absent
    if absent:
        return Verdict(LAGGING, stale=True, detail=f"lacks {max(absent.values())}"), absent
    if extra := missing(provider, replica):
        detail = f"has {max(extra.values())}, which the provider does not have"
        return Verdict(AHEAD, stale=True, detail=detail), {}
    newest = max(provider.values())
    ahead = moment(newest) - wall
    if ahead > CLOCK_TOLERANCE:
        seconds = int(ahead.total_seconds())
        return Verdict(CLOCK, stale=True, detail=f"{newest} is {seconds} s ahead"), {}
    if contents is not None and contents.replica != contents.provider:
        here, there = contents.replica, contents.provider
        detail = (
            f"{here.entries} entries with the digest {here.digest}, the provider has "
            f"{there.entries} with {there.digest}"
        )
        return Verdict(OTHER, stale=True, detail=detail), {}
    if contents is None and before in (AHEAD, OTHER):
        detail = "not compared again: changes arrived during the comparison"
        return Verdict(OTHER, stale=True, detail=detail), {}
    return Verdict(IN_SYNC, stale=False, detail=newest), {}
