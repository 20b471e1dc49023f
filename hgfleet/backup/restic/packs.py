"""Check of the packs in the store of backups, a part each day, and repair of corrupt packs.

A drill reads only the packs that the newest backups of its sample need. This check reads every
pack within `PARTS` days. It runs on the host that prunes, after the prune.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.backup import run_records
from hgfleet.backup.restic import prune
from hgfleet.core.errors import HgfleetError, HostError
from hgfleet.core.stored_time import past

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hgfleet.backup.restic.restic import Check
    from hgfleet.backup.restic.settings import Settings
    from hgfleet.backup.run_records import Data
    from hgfleet.core.report import Report

PARTS: Final = 28


@dataclass(frozen=True, slots=True)
class Checked:
    """The checks of the packs of a host."""

    time: float
    """Time of the last check; 0 before the first check."""
    oldest: float
    """The earliest time at which a part was read, or since which it waits; 0 before any check."""
    broken: int
    """Packs that are corrupt, and not repaired yet."""
    errors: int
    """Errors that the last check found, in packs or elsewhere."""


def checked(known: Data, now: float) -> Checked:
    """Return the figures of a host's record. Pure. Raises ValueError for a damaged record."""
    try:
        last = past(float(known.get("time", 0)), now)
        since, read = past(float(known.get("since", last)), now), known.get("read", {})
        times = (float(read.get(str(part), since)) for part in range(1, PARTS + 1))
        return Checked(
            time=last,
            oldest=min(past(when, now) for when in times),
            broken=len(known.get("broken", ())),
            errors=int(known.get("errors", 0)),
        )
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not the record of a check of packs: {error!r}") from error


def next_part(known: Data | None) -> int:
    """Return the part of the packs that is read next, 1 to PARTS. Pure."""
    part = (known or {}).get("part", 0)
    return part % PARTS + 1 if isinstance(part, int) else 1


def after(known: Data | None, part: int, result: Check, now: float) -> Data:
    """Return the record of a host after a check. Pure.

    A corrupt pack stays in the record until it is repaired, because its part is only read again
    weeks later. `read` has the time at which each part was read, `since` the time of the first
    check.
    """
    known = known or {}
    return {
        "part": part,
        "time": now,
        "broken": sorted({*known.get("broken", []), *result.packs}),
        "errors": result.errors,
        "since": known.get("since", now),
        "read": {**known.get("read", {}), str(part): now},
    }


def corrupt(checks: Mapping[str, Data]) -> dict[str, list[str]]:
    """Return the corrupt packs of each host that has any. Pure."""
    return {host: known["broken"] for host, known in sorted(checks.items()) if known.get("broken")}


def check(settings: Settings, report: Report, hosts: Iterable[str]) -> list[str]:
    """Check the next part of each host's packs; return the hosts with errors."""
    failed = []
    checks = run_records.load(settings.state, run_records.PACKS)
    for host in hosts:
        restic = prune.of_host(settings, host)
        part = next_part(checks.get(host))
        started = time.monotonic()
        try:
            if not restic.exists():
                if host not in checks:
                    continue
                raise HostError("no restic repository where the last check found one")
            result = restic.check(part, PARTS)
        except HgfleetError as error:
            report.step("check-failed", host, str(error), error=str(error))
            failed.append(host)
            continue
        checks[host] = after(checks.get(host), part, result, time.time())
        run_records.save(settings.state, run_records.PACKS, checks)
        if broken := checks[host]["broken"]:
            text = (
                f"CORRUPT packs: {', '.join(name[:8] for name in broken)}; to repair them: hgfleet "
                f"backup repair {host}"
            )
            report.step("corrupt", host, text, packs=",".join(broken))
        elif result.errors:
            text = (
                f"{result.errors} errors, none in a pack; to remove lost data from old backups, "
                f"once a new backup is made: hgfleet backup repair {host}"
            )
            report.step("check-errors", host, text, errors=result.errors)
        if broken or result.errors:
            failed.append(host)
            continue
        seconds = time.monotonic() - started
        text = f"part {part} of {PARTS} of its packs is good, read in {seconds:.1f} s"
        report.step("checked", host, text, part=part, seconds=seconds)
    return failed


def repair(settings: Settings, report: Report, hosts: Sequence[str]) -> list[str]:
    """Repair the backups of hosts with errors; return the hosts whose repair failed.

    The first repair removes corrupt packs: the next backup of the host notices that parts are
    missing, and stores them again. A second repair removes parts that the host no longer has from
    the backups that need them. Raises TemporaryError and UnavailableError.
    """
    checks = run_records.load(settings.state, run_records.PACKS)
    wanted = [host for host in hosts if is_wrong(checks.get(host, {}))]
    if not wanted:
        return []
    failed = []
    folder = settings.state / "corrupt-packs"
    folder.mkdir(mode=0o700, exist_ok=True)
    with prune.at_rest(settings, wanted) as stores:
        for host, restic in stores.items():
            broken = checks[host]["broken"]
            try:
                if broken:
                    restic.repair_packs(broken, folder)
                    text = (
                        f"{len(broken)} packs removed, copies in {folder}; to store their data "
                        f"again: systemctl start hgfleet-backup on {host}"
                    )
                else:
                    restic.repair_snapshots()
                    prune.relearn(settings, host)
                    text = "lost data was removed from old backups"
            except HgfleetError as error:
                report.step("repair-failed", host, str(error), error=str(error))
                failed.append(host)
                continue
            checks[host] |= {"broken": [], "errors": 0}
            run_records.save(settings.state, run_records.PACKS, checks)
            report.step("repaired", host, text, packs=",".join(broken))
    return failed


def is_wrong(known: Data) -> bool:
    """Whether the last checks of a host found an error. Pure."""
    return bool(known.get("broken") or known.get("errors"))
