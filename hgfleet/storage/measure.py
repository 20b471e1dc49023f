"""Time that a server needs to bundle and to read a repository; the same sample of each store."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from mercurial import changegroup, discovery

CHANGESETS: Final = 5000
"""Only the newest changesets are bundled; a whole Firefox takes a quarter of an hour, twice."""

FILES: Final = 2000
MANIFESTS: Final = 200


class Times(NamedTuple):
    """Seconds.

    `bundle` is for making the changegroup of the newest changesets, `read` for reading manifests
    all over the history, and files of the newest manifest.
    """

    bundle: float
    read: float


def measure(repository: Any) -> Times:
    """Measure with warm caches of the file system, as on a server in use."""
    _read(repository)
    repository.invalidate(clearfilecache=True)
    return Times(_bundle(repository), _read(repository))


def _bundle(repository: Any) -> float:
    changelog = repository.changelog
    if not len(changelog):
        return 0.0
    first = max(0, len(changelog) - CHANGESETS)
    common = [changelog.node(first - 1)] if first else [repository.nullid]
    outgoing = discovery.outgoing(repository, common, changelog.heads())
    started = time.perf_counter()
    for _ in changegroup.makestream(repository, outgoing, b"02", b"bundle"):
        pass
    return time.perf_counter() - started


def _read(repository: Any) -> float:
    changelog = repository.changelog
    count = len(changelog)
    started = time.perf_counter()
    for number in range(0, count, max(1, count // MANIFESTS)):
        repository[number].manifest()
    if count:
        newest = repository[changelog.tip()]
        names = sorted(newest.manifest())
        for name in names[:: max(1, len(names) // FILES)]:
            newest[name].data()
    return time.perf_counter() - started
