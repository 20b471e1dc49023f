"""What a repository's clone bundles need, decided from what it has and what is published.

Pure: everything that had to be looked up is in the arguments.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from hgfleet.bundles.manifest import Entry
    from hgfleet.registry import Repository


@dataclass(frozen=True, slots=True)
class State:
    """What hg says about a repository.

    `heads` are all heads that a client could pull (topological, not secret); empty for an empty
    repository. `tip` is the newest of them, `changesets` the number of changesets up to it.
    `covered` gives, for those tips of published bundles that the repository still has, the number
    of changesets up to them. `exists` is False where the registry is ahead of the disk.
    """

    exists: bool = True
    heads: frozenset[str] = frozenset()
    tip: str = ""
    changesets: int = 0
    covered: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refresh:
    """When a bundle that still works is worth replacing.

    At once when more than `share` (0 to 1) of the changesets are newer than it, since each client
    pulls those from the server; otherwise once it is older than `age` and anything is newer.
    """

    share: float
    age: timedelta


class Action(enum.Enum):
    """What one run does for a repository."""

    KEEP = "keep"
    GENERATE = "generate"
    REPUBLISH = "republish"
    WITHDRAW = "withdraw"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision for one repository.

    `kinds` are all kinds the manifest will have, in its order; `build` those to be generated, and
    `keep` the published entries that stay, by kind. `reasons` are sentences for people.
    """

    repository: str
    action: Action
    reasons: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    keep: Mapping[str, Entry] = field(default_factory=dict)


def plan(
    repository: Repository,
    state: State,
    published: Sequence[Entry],
    *,
    public_url: str,
    refresh: Refresh,
    now: datetime,
    dead: Mapping[str, str] | None = None,
    foreign: bool = False,
    force: bool = False,
) -> Plan:
    """Decide what to do for a repository.

    `dead` gives, for URLs of published entries that do not answer as they should, what they
    answered instead; such an entry is replaced. `foreign` says that the manifest has lines which
    are not among the published entries; they go. `force` replaces everything.
    """
    path = repository.path
    if not repository.is_public:
        # Objects in the bucket are for everybody.
        return _none(
            path, bool(published) or foreign, "not public, and the bucket is: it gets no bundles"
        )
    if not repository.bundles:
        return _none(path, bool(published) or foreign, "the registry gives it no bundles")
    if not state.exists:
        return Plan(path, Action.SKIP, ("not on this host (`hgfleet registry apply` creates it)",))
    if not state.heads:
        return _none(path, bool(published) or foreign, "empty: there is nothing to bundle")

    keep: dict[str, Entry] = {}
    reasons: list[str] = []
    for entry in published:
        key = entry.key(public_url)
        if key is not None and key.repository == path and key.kind in repository.bundles:
            keep.setdefault(key.kind, entry)
    build = []
    for kind in repository.bundles:
        reason = _stale(keep.get(kind), state, public_url, refresh, now, dead or {}, force)
        if reason:
            build.append(kind)
            keep.pop(kind, None)
            reasons.append(f"{kind}: {reason}")
    if build:
        return Plan(path, Action.GENERATE, tuple(reasons), repository.bundles, tuple(build), keep)
    wanted = [keep[kind] for kind in repository.bundles]
    if foreign or wanted != list(published):
        reason = "the manifest has other lines, or another order, than the registry wants"
        return Plan(path, Action.REPUBLISH, (reason,), repository.bundles, keep=keep)
    newer = state.changesets - min(_covered(entry, state, public_url) or 0 for entry in wanted)
    reason = f"covers all but {newer:,} of {state.changesets:,} changesets" if newer else "current"
    return Plan(path, Action.KEEP, (reason,), repository.bundles, keep=keep)


def _none(path: str, published: bool, reason: str) -> Plan:
    return Plan(path, Action.WITHDRAW if published else Action.KEEP, (reason,))


def _covered(entry: Entry, state: State, public_url: str) -> int | None:
    key = entry.key(public_url)
    return None if key is None else state.covered.get(key.tip)


def _stale(
    entry: Entry | None,
    state: State,
    public_url: str,
    refresh: Refresh,
    now: datetime,
    dead: Mapping[str, str],
    force: bool,
) -> str:
    """Say why a kind needs a new bundle, or "" if the published one will do."""
    if entry is None:
        return "no bundle is published"
    if entry.url in dead:
        return f"the published bundle cannot be downloaded ({dead[entry.url]})"
    if force:
        return "a new bundle was asked for"
    covered = _covered(entry, state, public_url)
    if covered is None:
        return "the published bundle has changesets that the repository no longer has"
    newer = state.changesets - covered
    share = newer / state.changesets
    if share > refresh.share:
        return (
            f"{newer:,} of {state.changesets:,} changesets ({share:.1%}) are newer than the bundle"
            f" (limit {refresh.share:.1%})"
        )
    age = now - entry.made
    if newer and age >= refresh.age:
        return (
            f"{newer:,} changesets are newer than the bundle, and it is {age.days} days old"
            f" (limit {refresh.age.days})"
        )
    return ""
