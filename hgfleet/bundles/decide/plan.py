"""Plan of a repository: which clone bundles to generate, copy, keep or withdraw, with the reasons.

Pure: the state of the repository and its published entries are arguments.

`plan` decides in this order. A repository that gets no bundles now is done at once
(`_without_bundles`). Published entries count only if they are of this repository, in a store for
it, and of a kind that it should have; each answers or is dead (`_sort`). Then each kind is decided
by its newest entry, the entry that covers the most changesets. If that is missing or stale, the
kind is built. Otherwise the entries with the same content stay, and each store that can be written
to and does not have it gets a copy. If there is nothing to build or to copy, the manifest is
compared with the entries that stay, and published again if it differs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.decide.wording import newer_than
from hgfleet.core import stored_time
from hgfleet.core.text import binary_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from hgfleet.bundles.decide.demand import Demand
    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.names import Key
    from hgfleet.registry.model.registry import Repository


@dataclass(frozen=True, slots=True)
class State:
    """The state of a repository, from hg.

    `heads` are all heads that a client can pull (topological, not secret); empty for an empty
    repository. `tip` is the newest of them, `changesets` the number of changesets up to it.
    `covered` has the tips of published bundles that the repository still has, each with the number
    of changesets up to it. `exists` is False where the registry is ahead of the disk. `is_small`:
    the store is below the size from which on the registry gives the repository clone bundles.
    `clock` is the time at which the state was read, if it is known: a run that began earlier may
    have made a bundle since, and a bundle with a later time is from the future.
    """

    exists: bool = True
    heads: frozenset[str] = frozenset()
    tip: str = ""
    changesets: int = 0
    covered: Mapping[str, int] = field(default_factory=dict)
    is_small: bool = False
    clock: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refresh:
    """The limits beyond which a bundle that works is replaced.

    The bundle is replaced at once when more than `share` (0 to 1) of the changesets are newer,
    since each client pulls them from the server; within `REST`, when any changeset is newer and the
    server was busy for more than `seconds` a day with this repository's clones and pulls; otherwise
    once the bundle is older than `age` and any changeset is newer.
    """

    share: float
    age: timedelta
    seconds: float = 60.0


REST: Final = timedelta(hours=6)
"""The shortest life of a bundle that only demand makes stale: demand counts small pulls too, which
no bundle saves."""


class Action(enum.Enum):
    """The action of a run for a repository."""

    KEEP = "keep"
    GENERATE = "generate"
    COPY = "copy"
    REPUBLISH = "republish"
    WITHDRAW = "withdraw"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores for a repository, with their public URLs (`urls`, in the order of a manifest).

    `down` has the reasons why some of them take no uploads at the moment. `others` are the stores
    where its bundles must not be: private stores for a public repository, else public stores.
    """

    urls: Mapping[str, str]
    down: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def up(self) -> tuple[str, ...]:
        """Names of the stores that can be written to, in their order."""
        return tuple(name for name in self.urls if name not in self.down)


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision for a repository.

    `kinds` are all kinds the manifest will have, in its order; `build` the kinds to generate, and
    `keep` the published entries that stay, by kind and store. `copy` names, by kind, the stores to
    which a bundle that stays has to be copied. `reasons` are sentences for people.
    """

    repository: str
    action: Action
    reasons: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    copy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keep: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)


NO_IDENTITY: Final = "the registry does not say its identity (`hgfleet registry apply` gives it)"
_NO_PRIVATE_STORE: Final = "not public, and no store is private"


def misplaced(published: Sequence[Entry], stores: Stores) -> dict[str, str]:
    """Return the URLs of entries that lie where bundles of the repository must not be, and why."""
    places = {entry.url: locate(entry, stores.others) for entry in published}
    return {url: f"{place[0]} is no store for it" for url, place in places.items() if place}


def order(
    kinds: Sequence[str], stores: Sequence[str], entries: Mapping[str, Mapping[str, Entry]]
) -> list[Entry]:
    """Put entries into the order of a manifest: kinds first, then stores."""
    return [
        entries[kind][store] for kind in kinds for store in stores if store in entries.get(kind, {})
    ]


def plan(
    repository: Repository,
    state: State,
    published: Sequence[Entry],
    *,
    stores: Stores,
    refresh: Refresh,
    now: datetime,
    dead: Mapping[str, str] | None = None,
    demand: Demand | None = None,
    foreign: bool = False,
    force: bool = False,
) -> Plan:
    """Decide what to do for a repository.

    `dead` has the URLs of published entries that do not answer as they should, with the reasons;
    such an entry is replaced. `demand` is the demand of the last day. `foreign` says that the
    manifest has lines besides the published entries; they go. `force` replaces everything.
    """
    path, dead = repository.path, dead or {}
    early = _without_bundles(repository, state, stores, bool(published) or foreign)
    if early is not None:
        return early
    usable, problems = _sort(repository, state, published, stores.urls, dead)
    keep: dict[str, Mapping[str, Entry]] = {}
    copy: dict[str, tuple[str, ...]] = {}
    build: list[str] = []
    reasons: list[str] = []
    if misplaced(published, stores):
        since = "public now" if repository.is_public else "not public any more"
        reasons.append(f"{since}: its bundles in {', '.join(stores.others)} are withdrawn")
    covered = state.changesets
    for kind, here in usable.items():
        newest = max(
            here.values(), key=lambda usable: (usable.covered or 0, usable.entry.made), default=None
        )
        reason = _stale(newest, problems[kind], state, refresh, now, demand, force)
        if reason or newest is None:
            build.append(kind)
            reasons.append(f"{kind}: {reason}")
            continue
        covered = min(covered, newest.covered or 0)
        # The same content everywhere, so a client gets the same bundle from every URL.
        digest = newest.entry.sha256
        keep[kind] = {name: use.entry for name, use in here.items() if use.entry.sha256 == digest}
        missing = tuple(store for store in stores.up if store not in keep[kind])
        if missing:
            copy[kind] = missing
        for store in missing:
            said = problems[kind].get(store)
            reasons.append(f"{kind}: not in {store}" + (f" ({said})" if said else ""))
    if build or copy:
        action = Action.GENERATE if build else Action.COPY
        return Plan(path, action, tuple(reasons), repository.bundles, tuple(build), copy, keep)
    expected = order(repository.bundles, list(stores.urls), keep)
    if foreign or expected != list(published):
        reasons.append("the manifest has other lines, or another order, than it should have")
        return Plan(path, Action.REPUBLISH, tuple(reasons), repository.bundles, keep=keep)
    reasons = _reasons_to_keep(repository, state.changesets, covered, stores, keep)
    return Plan(path, Action.KEEP, tuple(reasons), repository.bundles, keep=keep)


def _reasons_to_keep(
    repository: Repository,
    changesets: int,
    covered: int,
    stores: Stores,
    keep: Mapping[str, Mapping[str, Entry]],
) -> list[str]:
    """Return the reasons of a plan that changes nothing."""
    newer = changesets - covered
    down = [
        f"not in {store}, which is down: {stores.down[store]}"
        for store in stores.urls
        if store in stores.down and any(store not in keep[kind] for kind in repository.bundles)
    ]
    return [f"covers all but {newer:,} of {changesets:,} changesets" if newer else "current", *down]


def _without_bundles(
    repository: Repository, state: State, stores: Stores, published: bool
) -> Plan | None:
    """Return the plan of a repository that gets no bundles now, None for any other repository."""
    if repository.bundles and not repository.identity:
        return Plan(repository.path, Action.SKIP, (NO_IDENTITY,))
    if stores.urls and repository.bundles and not state.exists:
        reason = "not on this host (`hgfleet registry apply` creates it)"
        return Plan(repository.path, Action.SKIP, (reason,))
    if not stores.urls:
        which = "public, and every store is private" if repository.is_public else _NO_PRIVATE_STORE
        reason = f"{which}: it gets no bundles"
    elif not repository.bundles:
        reason = "the registry gives it no bundles"
    elif state.is_small:
        least = binary_size(repository.bundles_from)
        reason = f"smaller than {least}, from which on it gets bundles"
    elif not state.heads:
        reason = "empty: there is nothing to bundle"
    else:
        return None
    return Plan(repository.path, Action.WITHDRAW if published else Action.KEEP, (reason,))


@dataclass(frozen=True, slots=True)
class _Usable:
    """A published entry that answers; `covered` as in State, None if its tip is gone."""

    entry: Entry
    covered: int | None


def _is_of(identity: str, entry: Entry, key: Key) -> bool:
    """Whether an entry and its object are of a repository; former keys have a path."""
    return entry.identity == identity and (key.is_former or key.repository == identity)


def _sort(
    repository: Repository,
    state: State,
    published: Sequence[Entry],
    urls: Mapping[str, str],
    dead: Mapping[str, str],
) -> tuple[dict[str, dict[str, _Usable]], dict[str, dict[str, str]]]:
    """Sort the usable entries, and the problems of dead entries, by kind and store."""
    identity, kinds = repository.identity, repository.bundles
    usable: dict[str, dict[str, _Usable]] = {kind: {} for kind in kinds}
    problems: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    for entry in published:
        place = locate(entry, urls)
        if place is None or not _is_of(identity, entry, place[1]) or place[1].kind not in usable:
            continue
        store, key = place
        if entry.url in dead:
            problems[key.kind][store] = dead[entry.url]
        else:
            usable[key.kind].setdefault(store, _Usable(entry, state.covered.get(key.tip)))
    return usable, problems


def _stale(
    newest: _Usable | None,
    problems: Mapping[str, str],
    state: State,
    refresh: Refresh,
    now: datetime,
    demand: Demand | None,
    force: bool,
) -> str:
    """Return the reason for a new bundle of a kind, or "" if the published bundle will do."""
    if newest is None:
        if problems:
            said = "; ".join(dict.fromkeys(problems.values()))
            return f"the published bundle cannot be downloaded ({said})"
        return "no bundle is published"
    if force:
        return "a new bundle was asked for"
    if newest.covered is None:
        return "the published bundle has changesets that the repository no longer has"
    newer = state.changesets - newest.covered
    share = newer / state.changesets
    if share > refresh.share:
        return (
            f"{newer:,} of {state.changesets:,} changesets ({share:.1%}) are newer than the bundle"
            f" (limit {refresh.share:.1%})"
        )
    age = now - stored_time.past_moment(newest.entry.made, state.clock or now)
    if newer and demand and demand.seconds > refresh.seconds and age >= REST:
        return (
            f"{newer_than('bundle', newer)}, and {demand.clones:,} clones and"
            f" {demand.pulls:,} pulls took {demand.seconds:,.0f} s of the server in the last day"
            f" (limit {refresh.seconds:,.0f} s)"
        )
    if newer and age >= refresh.age:
        return (
            f"{newer_than('bundle', newer)}, and it is {age.days} days old"
            f" (limit {refresh.age.days})"
        )
    return ""
