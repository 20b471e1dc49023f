"""Prune: removal of old backups of every host, by a separate host with its own account.

An attacker on a host chooses the times of the snapshots and locks that the host adds. So the host
that prunes removes nothing of a host where a time cannot be right, and reports it until a person
has looked: `snapshot_times.py` has the reasons.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hgfleet.backup import run_records
from hgfleet.backup.restic import lock_removal, snapshot_times, ssh_address
from hgfleet.backup.restic.bucket_lock import Bucket
from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import CREDENTIALS
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import HgfleetError, HostError, TemporaryError, UsageError
from hgfleet.core.stored_time import past

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from hgfleet.backup.restic.settings import Retention, Settings
    from hgfleet.backup.run_records import Data
    from hgfleet.core.report import Report

PATIENCE_SECONDS: Final = 1800.0
"""Wait for running backups to end; by then the lock of a killed backup is stale."""

_PAUSE_SECONDS: Final = 20.0

_LEAST_DIGITS: Final = 8
"""Digits of the id of a snapshot, as messages name it."""


@dataclass(frozen=True, slots=True)
class Look:
    """The snapshots that the last successful prune of a host left, and a refusal since then."""

    time: float = 0.0
    """Time of that prune by the clock of this host; 0 before the first prune."""
    snapshots: frozenset[str] = frozenset()
    """The ids of all snapshots that the prune left."""
    refused: str = ""
    removed: int = 0
    """Number of snapshots that the prune removed; not in the record."""

    def data(self) -> Data:
        """Return the record."""
        return {"time": self.time, "snapshots": sorted(self.snapshots), "refused": self.refused}


def parse_look(data: object) -> Look:
    """Read the record of a host; a missing or damaged record stands for a host without a prune."""
    if not isinstance(data, dict):
        return Look()
    try:
        snapshots = frozenset(map(str, data["snapshots"]))
        return Look(float(data["time"]), snapshots, str(data["refused"]))
    except (KeyError, TypeError, ValueError):
        return Look()


class RefusedError(HostError):
    """Nothing of a host was removed: a time of its snapshots or locks cannot be right."""


def of_host(settings: Settings, host: str) -> Restic:
    """Return the restic repository of a host, which is next to this host's own."""
    store = settings.repository.rpartition("/")[0]
    return Restic(replace(settings, host=host, repository=f"{store}/{host}"))


def options(retention: Retention) -> list[str]:
    """Return the options of `restic forget`: the newest of each hour, day and month are kept.

    Backups of only some repositories form a separate group.
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

    Backdated snapshots of the hosts in `accepted` count as genuine: a person has looked at them.
    Raises TemporaryError if a backup is under way all the time, UnavailableError for the store.
    """
    failed = []
    looks = run_records.load(settings.state, run_records.PRUNES)
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
                # Only a prune that succeeds shows that the times are right: a refusal stays.
                report.step("prune-failed", host, str(error), error=str(error))
                failed.append(host)
                continue
            else:
                seconds = time.monotonic() - started
                removed = look.removed
                text = f"{removed} old backups removed in {seconds:.1f} s"
                report.step("pruned", host, text, removed=removed, seconds=seconds)
            looks[host] = look.data()
            run_records.save(settings.state, run_records.PRUNES, looks)
    return failed


def _prune(restic: Restic, host: str, known: Look, retention: Retention) -> Look:
    """Remove the snapshots that the retention does not keep; return the snapshots that are left.

    Raises RefusedError, having changed nothing.
    """
    now = time.time()
    snapshots = restic.all_snapshots()
    _demand_right_locks(restic, host, now)
    if future := snapshot_times.from_future(snapshots, now):
        raise RefusedError(
            f"got {len(future)} snapshots later than the clock of this host "
            f"({snapshot_times.named(future)}), expected none: genuine snapshots would go instead; "
            f"nothing was removed. If the clock here is right, find out who made them on {host}, "
            f"then: hgfleet backup forget {host} {_ids(future)}"
        )
    if old := snapshot_times.backdated(snapshots, known.snapshots, past(known.time, now)):
        raise RefusedError(
            f"got {len(old)} snapshots that came since the last prune and are dated before it "
            f"({snapshot_times.named(old)}), expected none; nothing was removed. Find out who made "
            f"them on {host}, then: hgfleet backup forget {host} {_ids(old)}, or, if they are "
            f"yours: hgfleet backup prune --accept {host}"
        )
    groups = restic.plan(options(retention))
    if needed := snapshot_times.needed(groups, retention, now):
        raise RefusedError(
            f"restic would remove {len(needed)} snapshots that the retention needs by the clock "
            f"({snapshot_times.named(needed)}); nothing was removed. Other snapshots take their "
            f"places: look at the times of all (hgfleet backup list on {host}), then: hgfleet "
            f"backup forget {host} SNAPSHOT..."
        )
    removed = [str(snapshot["id"]) for group in groups for snapshot in group.remove]
    # By their ids: a snapshot that a host adds now does not change what is removed.
    restic.forget(removed)
    kept = frozenset(str(snapshot["id"]) for snapshot in snapshots) - set(removed)
    return Look(now, kept, removed=len(removed))


def _demand_never(known: Look) -> None:
    """Raise HostError if an earlier prune found the repository of a host that has none now."""
    if known.snapshots:
        raise HostError(
            f"no restic repository, expected the repository with {len(known.snapshots)} snapshots "
            "that the last prune left: the bucket or the folder of the host was deleted; find out "
            "who deleted it"
        )


def _demand_right_locks(restic: Restic, host: str, now: float) -> None:
    if wrong := lock_removal.wrong(restic.locks(), datetime.fromtimestamp(now, UTC)):
        raise RefusedError(
            f"got {len(wrong)} locks later than the clock of this host ({wrong[0][:19]}), expected "
            f"none; nothing was removed. Correct the clock of {host}, make sure that no backup of "
            f"it is under way, then remove its locks: hgfleet backup forget {host}"
        )


def _ids(snapshots: Iterable[Data]) -> str:
    return " ".join(str(snapshot["id"])[:_LEAST_DIGITS] for snapshot in snapshots)


def forget(settings: Settings, host: str, names: Sequence[str]) -> list[str]:
    """Remove the locks and the named snapshots of a host; return the ids that were removed.

    Each name is the start of the id of exactly one snapshot. Raises UsageError, having removed
    nothing, and the errors of `at_rest`.
    """
    with at_rest(settings, [host]) as stores:
        if host not in stores:
            raise HostError(f"{host}: no restic repository in the store")
        ids = chosen([str(snapshot["id"]) for snapshot in stores[host].all_snapshots()], names)
        stores[host].forget(ids)
    return ids


def relearn(settings: Settings, host: str) -> None:
    """Forget the recorded snapshots of a host: a repair replaces them, with the same times."""
    looks = run_records.load(settings.state, run_records.PRUNES)
    if looks.pop(host, None) is not None:
        run_records.save(settings.state, run_records.PRUNES, looks)


def chosen(ids: Collection[str], names: Sequence[str]) -> list[str]:
    """Return the id that begins with each of the names. Pure. Raises UsageError."""
    picked = []
    for name in names:
        matching = [known for known in ids if known.startswith(name)]
        if len(name) < _LEAST_DIGITS or len(matching) != 1:
            raise UsageError(
                f"got {name!r}, expected {_LEAST_DIGITS} or more digits of the id of one snapshot; "
                f"{len(matching)} ids begin so"
            )
        picked += matching
    return picked


@contextlib.contextmanager
def at_rest(
    settings: Settings,
    hosts: Sequence[str],
    *,
    patience: float = PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[dict[str, Restic]]:
    """Hold back backups and allow deletion; yield the restic repositories of the hosts.

    Over SSH the key of this host may delete at any time, and restic's locks keep backups and prunes
    apart: the store lets each host remove its locks when a backup ends.

    Raises TemporaryError if a backup is under way all the time, UnavailableError for the store.
    """
    stores = {host: of_host(settings, host) for host in hosts}
    stores = {host: restic for host, restic in stores.items() if restic.exists()}
    _wait(stores.items(), patience, sleep)
    if ssh_address.is_ssh(settings.repository):
        yield stores
        return
    credentials = systemd.credential(CREDENTIALS) or settings.secrets / CREDENTIALS
    with Bucket(settings, credentials).unlocked():
        # No host can begin a backup now.
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
        # Where backups remove their locks, each lock belongs to a backup that is under way.
        ended = restic.raw_snapshots() if restic.keeps_locks else []
        running = lock_removal.running(restic.locks(), ended, now)
        if running:
            raise TemporaryError(
                f"{host}: a backup has been under way since {running[0]}; nothing was changed; "
                "try again later, as the next prune does"
            )
