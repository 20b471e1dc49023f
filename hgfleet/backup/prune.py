"""Prune: old backups of every host are removed, from a host and with an account of its own."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hgfleet.backup import address, lock_removal
from hgfleet.backup.bucket_lock import Bucket
from hgfleet.backup.restic import Restic
from hgfleet.backup.settings import CREDENTIALS
from hgfleet.core import systemd
from hgfleet.core.errors import HgfleetError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hgfleet.backup.settings import Retention, Settings
    from hgfleet.core.report import Report

PATIENCE_SECONDS: Final = 1800.0
"""For the end of the backups under way; the lock of a killed one is stale after that time."""

_PAUSE_SECONDS: Final = 20.0


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
    patience: float = PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> list[str]:
    """Prune the backups of these hosts; return the hosts whose prune failed.

    Raises TemporaryError if a backup is under way all the time, UnavailableError for the store.
    """
    failed = []
    with at_rest(settings, hosts, patience=patience, sleep=sleep) as stores:
        for host, restic in stores.items():
            started = time.monotonic()
            try:
                removed = restic.prune(options(settings.retention))
            except HgfleetError as error:
                report.step("prune-failed", host, str(error), error=str(error))
                failed.append(host)
            else:
                seconds = time.monotonic() - started
                text = f"{removed} old backups removed in {seconds:.1f} s"
                report.step("pruned", host, text, removed=removed, seconds=seconds)
    return failed


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
