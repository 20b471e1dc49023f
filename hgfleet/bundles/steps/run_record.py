"""Record of the last run over all repositories: figures for metrics.

    {"format": 1, "started": 1795440000.1, "ended": 1795440031.7, "failed": 0, "incomplete": 0,
     "repositories": 12, "covered": 12, "oldest": 1795000000.0, "newest": 1795440020.0,
     "bytes": {"s3-1": 8120000},
     "busiest": {"team/x": {"pushes": 3, "clones": 1, "pulls": 9, "seconds": 4.1, "bytes": 91000}}}

Times are seconds since 1970. The file is for every user of the host, so no name of a private
repository is in it; such names are only in the manifests, which other users cannot read. `busiest`
is of the last day.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.bundles.decide.activity import Activity
from hgfleet.bundles.decide.manifest import locate
from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.steps.job import Outcome
    from hgfleet.registry.model.registry import Repository

NAME: Final = "last-run.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """Figures of a run. Without any bundle, `oldest` and `newest` are 0."""

    started: float
    ended: float
    failed: int
    """Repositories whose run failed."""
    incomplete: int
    """Repositories whose bundles are missing in some store."""
    repositories: int
    """Repositories that should have clone bundles."""
    covered: int
    """Repositories that have a clone bundle. No bundle is published before it is verified."""
    oldest: float = 0.0
    newest: float = 0.0
    bytes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the published bundles by store."""
    busiest: Mapping[str, Activity] = field(default_factory=dict)
    """The activity of the busiest public repositories, and of the others together."""


def of(
    outcomes: Sequence[Outcome],
    repositories: Sequence[Repository],
    published: Mapping[str, Sequence[Entry]],
    urls: Mapping[str, str],
    busiest: Mapping[str, Activity],
    *,
    started: float,
    ended: float,
) -> Record:
    """Return the record of a run out of its outcomes and the manifests after it. Pure.

    `urls` are the public URLs by store. A repository should have bundles if the plan or a manifest
    has some. A repository whose run failed has no plan, so the registry decides there.
    """
    has_kinds = {repository.path for repository in repositories if repository.bundles}
    wanted = {each.repository for each in outcomes if each.plan is not None and each.plan.kinds}
    wanted |= {each.repository for each in outcomes if each.error and each.repository in has_kinds}
    covered = {path for path, entries in published.items() if entries}
    entries = [entry for manifest in published.values() for entry in manifest]
    sizes = dict.fromkeys(urls, 0)
    for entry in entries:
        if place := locate(entry, urls):
            sizes[place[0]] += entry.size
    times = [entry.made.timestamp() for entry in entries]
    return Record(
        started=started,
        ended=ended,
        failed=sum(each.error is not None for each in outcomes),
        incomplete=sum(bool(each.missing) and each.error is None for each in outcomes),
        repositories=len(wanted | covered),
        covered=len(covered),
        oldest=min(times, default=0.0),
        newest=max(times, default=0.0),
        bytes=sizes,
        busiest=busiest,
    )


def save(record: Record, folder: Path) -> None:
    """Replace the record. Raises OSError, also where the folder is missing."""
    text = json.dumps({"format": FORMAT, **asdict(record)}, sort_keys=True) + "\n"
    files.replace(folder / NAME, text)


def parse(text: str | bytes) -> Record:
    """Read a record. Raises ValueError if it is damaged."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"got the format {data['format']!r}, expected {FORMAT}")
        return Record(
            started=float(data["started"]),
            ended=float(data["ended"]),
            failed=int(data["failed"]),
            incomplete=int(data["incomplete"]),
            repositories=int(data["repositories"]),
            covered=int(data["covered"]),
            oldest=float(data["oldest"]),
            newest=float(data["newest"]),
            bytes={str(store): int(size) for store, size in data["bytes"].items()},
            # A record of a former release has none.
            busiest={str(path): _activity(item) for path, item in data.get("busiest", {}).items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the record of a run of the bundle jobs: {error!r}") from error


def _activity(data: Mapping[str, Any]) -> Activity:
    return Activity(
        pushes=int(data["pushes"]),
        clones=int(data["clones"]),
        pulls=int(data["pulls"]),
        seconds=float(data["seconds"]),
        bytes=int(data["bytes"]),
    )
