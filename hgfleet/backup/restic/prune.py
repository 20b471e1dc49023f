"""Prune: old backups of every host are removed, from a host and with an account of its own.

A host that was taken over chooses the times of the snapshots and locks that it adds. So the host
that prunes removes nothing of a host where a time cannot be right, and says so until a person has
looked: `snapshot_times.py` has the reasons.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hgfleet.backup import record
from hgfleet.backup.restic import address, lock_removal, snapshot_times
from hgfleet.backup.restic.bucket_lock import Bucket
from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import CREDENTIALS
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import HgfleetError, HostError, TemporaryError, UsageError
from hgfleet.core.stored_time import past

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from hgfleet.backup.record import Data
    from hgfleet.backup.restic.settings import Retention, Settings
    from hgfleet.core.report import Report

PATIENCE_SECONDS: Final = 1800.0
"""For the end of the backups under way; the lock of a killed one is stale after that time."""

_PAUSE_SECONDS: Final = 20.0

_LEAST_DIGITS: Final = 8
"""Of the id of a snapshot, as messages name it."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the last prune of a host that was not refused found, and why the last one was."""

    time: float = 0.0
    """By the clock of this host; 0 before the first."""
    snapshots: frozenset[str] = frozenset()
    """The ids of all snapshots that it left."""
    refused: str = ""
    removed: int = 0
    """How many it removed; not in the record."""

    def data(self) -> Data:
        """Return the record."""
        return {"time": self.time, "snapshots": sorted(self.snapshots), "refused": self.refused}


def parse_look(data: object) -> Look:
    """Read the record of a host; a missing or damaged one is that of a host without a prune."""
    if not isinstance(data, dict):
        return Look()
    try:
        snapshots = frozenset(str(one) for one in data["snapshots"])
        return Look(float(data["time"]), snapshots, str(data["refused"]))
    except (KeyError, TypeError, ValueError):
        return Look()


class RefusedError(HostError):
    """Nothing of a host was removed: a time of its snapshots or locks cannot be right."""


def of_host(settings: Settings, host: str) -> Restic:
    """Return the restic repository of a host, which is beside that of this host."""
    store = settings.repository.rpartition("/")[0]
    return Restic(replace(settings, host=host, repository=f"{store}/{host}"))


def options(retention: Retention) -> list[str]:
    """Return the options of `restic forget`: the newest of each hour, day and month are kept.

    Backups of a part of the repositories are a group of their own.
    """
    return [
        f"--keep-hourly={retention.hours}",
        f"--keep-daily={retention.days}",
        f"--keep-monthly={retention.months}",
        "--keep-last=1",
        "--group-by=host,tags",
    ]


def prune(
    settings: Settings,
    report: Report,
    hosts: Sequence[str],
    *,
    accepted: Collection[str] = (),
    patience: float = PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> list[str]:
    """Prune the backups of these hosts; return the hosts whose prune failed or was refused.

    Of the hosts in `accepted`, snapshots that were dated back count as genuine: a person has looked
    at them. Raises TemporaryError if a backup is under way all the time, UnavailableError for the
    store.
    """
    failed = []
    looks = record.load(settings.state, record.PRUNES)
    with at_rest(settings, hosts, patience=patience, sleep=sleep) as stores:
        for host in hosts:
            started = time.monotonic()
            known = parse_look(looks.get(host))
            try:
                if host not in stores:
                    _demand_never(known)
                    continue
                look = _prune(
                    stores[host], host, Look() if host in accepted else known, settings.retention
                )
            except RefusedError as error:
                report.step("prune-refused", host, str(error), error=str(error))
                failed.append(host)
                look = replace(known, refused=str(error))
            except HgfleetError as error:
                # It has not found the times right: a refusal stays.
                report.step("prune-failed", host, str(error), error=str(error))
                failed.append(host)
                continue
            else:
                seconds = time.monotonic() - started
                removed = look.removed
                text = f"{removed} old backups removed in {seconds:.1f} s"
                report.step("pruned", host, text, removed=removed, seconds=seconds)
            looks[host] = look.data()
            record.save(settings.state, record.PRUNES, looks)
    return failed


def _prune(restic: Restic, host: str, known: Look, retention: Retention) -> Look:
    """Remove what the retention does not keep; return what is left.

    Raises RefusedError, having changed nothing.
    """
    now = time.time()
    snapshots = restic.all_snapshots()
    _demand_right_locks(restic, host, now)
    if future := snapshot_times.from_future(snapshots, now):
        raise RefusedError(
            f"got {len(future)} snapshots later than the clock of this host "
            f"({snapshot_times.named(future)}), expected none: they would push out genuine ones; "
            f"nothing was removed. If the clock here is right, look who made them on {host}, then: "
            f"hgfleet backup forget {host} {_ids(future)}"
        )
    if old := snapshot_times.backdated(snapshots, known.snapshots, past(known.time, now)):
        raise RefusedError(
            f"got {len(old)} snapshots that came since the last prune and are dated before it "
            f"({snapshot_times.named(old)}), expected none; nothing was removed. Look who made "
            f"them on {host}, then: hgfleet backup forget {host} {_ids(old)}, or, if they are "
            f"yours: hgfleet backup prune --accept {host}"
        )
    groups = restic.plan(options(retention))
    if needed := snapshot_times.needed(groups, retention, now):
        raise RefusedError(
            f"restic would remove {len(needed)} snapshots that the retention needs by the clock "
            f"({snapshot_times.named(needed)}); nothing was removed. Other snapshots take their "
            f"places: look at their times (hgfleet backup list on {host}), then: hgfleet backup "
            f"forget {host} SNAPSHOT..."
        )
    removed = [str(one["id"]) for group in groups for one in group.remove]
    # By their ids: a snapshot that a host adds now does not change what is removed.
    restic.forget(removed)
    kept = frozenset(str(one["id"]) for one in snapshots) - set(removed)
    return Look(now, kept, removed=len(removed))


def _demand_never(known: Look) -> None:
    """Raise HostError for a host without a repository where an earlier prune found one."""
    if known.snapshots:
        raise HostError(
            f"no restic repository, expected the one with {len(known.snapshots)} snapshots of "
            "the last prune: the bucket or the folder of the host was deleted; find out who did it"
        )


def _demand_right_locks(restic: Restic, host: str, now: float) -> None:
    if wrong := lock_removal.wrong(restic.locks(), datetime.fromtimestamp(now, UTC)):
        raise RefusedError(
            f"got {len(wrong)} locks later than the clock of this host ({wrong[0][:19]}), expected "
            f"none; nothing was removed. Correct the clock of {host}, see that no backup of it is "
            f"under way, then remove its locks: hgfleet backup forget {host}"
        )


def _ids(snapshots: Iterable[Data]) -> str:
    return " ".join(str(one["id"])[:_LEAST_DIGITS] for one in snapshots)


def forget(settings: Settings, host: str, names: Sequence[str]) -> list[str]:
    """Remove the locks and the named snapshots of a host; return the ids that were removed.

    Each name is the begin of the id of one snapshot. Raises UsageError, having removed nothing, and
    as `at_rest` does.
    """
    with at_rest(settings, [host]) as stores:
        if host not in stores:
            raise HostError(f"{host}: no restic repository in the store")
        found = chosen([str(one["id"]) for one in stores[host].all_snapshots()], names)
        stores[host].forget(found)
    return found


def relearn(settings: Settings, host: str) -> None:
    """Forget the snapshots of a host: a repair makes new ones of the same times."""
    looks = record.load(settings.state, record.PRUNES)
    if looks.pop(host, None) is not None:
        record.save(settings.state, record.PRUNES, looks)


def chosen(ids: Collection[str], names: Sequence[str]) -> list[str]:
    """Return the ids that begin as the names do, one for each name. Pure. Raises UsageError."""
    found = []
    for name in names:
        matching = [one for one in ids if one.startswith(name)]
        if len(name) < _LEAST_DIGITS or len(matching) != 1:
            raise UsageError(
                f"got {name!r}, expected {_LEAST_DIGITS} or more digits of the id of one snapshot; "
                f"{len(matching)} begin so"
            )
        found += matching
    return found


@contextlib.contextmanager
def at_rest(
    settings: Settings,
    hosts: Sequence[str],
    *,
    patience: float = PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[dict[str, Restic]]:
    """Let no backup begin, and objects be deleted; yield the restic repositories of the hosts.

    Over SSH the key of this host may delete at any time, and restic's locks keep a backup and a
    prune apart: the store lets each host remove its locks when a backup ends.

    Raises TemporaryError if a backup is under way all the time, UnavailableError for the store.
    """
    stores = {host: of_host(settings, host) for host in hosts}
    stores = {host: restic for host, restic in stores.items() if restic.exists()}
    _wait(stores.items(), patience, sleep)
    if address.is_ssh(settings.repository):
        yield stores
        return
    credentials = systemd.credential(CREDENTIALS) or settings.secrets / CREDENTIALS
    with Bucket(settings, credentials).unlocked():
        # No host can begin one now.
        _demand_idle(stores.items())
        yield stores


def _wait(
    stores: Iterable[tuple[str, Restic]], patience: float, sleep: Callable[[float], object]
) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            _demand_idle(stores)
        except TemporaryError:
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise
            sleep(_PAUSE_SECONDS)
        else:
            return


def _demand_idle(stores: Iterable[tuple[str, Restic]]) -> None:
    now = datetime.now(UTC)
    for host, restic in stores:
        # A lock that its backup removes is of one under way, whichever backup ended last.
        ended = restic.raw_snapshots() if restic.keeps_locks else []
        found = lock_removal.running(restic.locks(), ended, now)
        if found:
            raise TemporaryError(
                f"{host}: a backup has been under way since {found[0]}; nothing was changed; "
                "try again later, as the next prune does"
            )
