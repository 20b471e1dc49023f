"""Plans of repositories: reads a repository and its manifests, and lets pure code decide."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.manifest import locate, render
from hgfleet.bundles.decide.plan import Plan, State, plan
from hgfleet.bundles.decide.pullbundle_chain import heads_to_look_up
from hgfleet.bundles.hg import hg_side, scratch
from hgfleet.bundles.hg.state_cache import StateCache
from hgfleet.core.files import file_name
from hgfleet.hg import fingerprint, store_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.pullbundle_chain import ChainPlan
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.steps.pullbundle_store import PullbundleStore
    from hgfleet.registry.model.registry import Repository


class Planner:
    """Plans the clone bundles and pull bundles of a repository."""

    def __init__(self, job: Job, pullbundles: PullbundleStore) -> None:
        self._job, self._pullbundles = job, pullbundles

    def plan(
        self,
        repository: Repository,
        *,
        dead: Mapping[str, str] | None = None,
        remember: bool = False,
    ) -> tuple[Plan, State]:
        """Decide about the clone bundles; reads only, unless `remember` stores the state."""
        job, name = self._job, names.of(repository)
        published, stores = job.manifests.read(name), job.stores.of(repository)
        state = State()
        is_small = self._is_small(repository)
        if (stores.urls and repository.bundles and not is_small) or self._pullbundles.wanted(
            repository
        ):
            state = self._look(repository, self._tips(repository), remember)
        state = replace(state, is_small=is_small, clock=datetime.now(UTC))
        decision = plan(
            repository,
            state,
            published,
            stores=stores,
            refresh=job.config.refresh,
            now=job.options.now,
            dead=dead,
            demand=job.demand.get(repository.path),
            foreign=render(published) != job.manifests.read_text(name),
            force=job.options.force,
        )
        return decision, state

    def _is_small(self, repository: Repository) -> bool:
        """Whether the store is below the size from which on the registry gives it bundles."""
        least = repository.bundles_from if repository.bundles else 0
        store = self._job.source(repository) / ".hg/store"
        # A repository that is missing on this host does not count as small: its bundles stay.
        return least > 0 and store.is_dir() and not store_size.reaches(str(store), least)

    def plan_pullbundles(self, repository: Repository, decision: Plan, state: State) -> ChainPlan:
        """Decide about the pull bundles; `decision` and `state` are from `plan`."""
        tips, aligned = self._tips(repository), bool(decision.build)
        return self._pullbundles.plan(repository, state, tips=tips, aligned=aligned)

    def removed(self, repository: Repository, decision: Plan, state: State) -> list[Entry]:
        """Return the published entries whose tip was removed from the repository, or is secret.

        `decision` and `state` are from `plan`. An obsolete tip is neither: its bundle stays until
        another bundle replaces it.
        """
        if not decision.kinds:
            return []
        urls = self._job.stores.urls
        published = self._job.manifests.read(names.of(repository))
        tips = {entry: place[1].tip for entry in published if (place := locate(entry, urls))}
        lost = {entry: tip for entry, tip in tips.items() if tip not in state.covered}
        source = self._job.source(repository)
        hidden = hg_side.hidden(self._job.hg, source, frozenset(lost.values()))
        return [entry for entry, tip in lost.items() if tip not in hidden]

    def _tips(self, repository: Repository) -> set[str]:
        """Return the tips of the published bundles."""
        published = self._job.manifests.read(names.of(repository))
        places = [locate(entry, self._job.stores.urls) for entry in published]
        return {place[1].tip for place in places if place}

    def _look(self, repository: Repository, tips: set[str], remember: bool) -> State:
        """Get the state, with the heads that the plan of the pull bundles needs."""
        chain = self._pullbundles.chain(repository)
        heads = heads_to_look_up(chain)
        state = self._ask(repository, tips | heads, remember)
        if state.exists and not heads <= {*state.covered}:
            # History was removed: any link may have lost its heads.
            every = {head for link in chain for head in link.heads}
            state = self._ask(repository, tips | every, remember)
        return state

    def _ask(self, repository: Repository, tips: set[str], remember: bool) -> State:
        """Get the state from the cache, or from hg."""
        cache = StateCache(self._job.config.scratch / scratch.STATES)
        name, source = file_name(names.of(repository)), self._job.source(repository)
        seen = fingerprint.read_repository(fingerprint.paths(source / ".hg"))
        state = cache.get(name, seen, tips)
        if state is None:
            state = hg_side.look(self._job.hg, source, tips)
            if remember:
                cache.put(name, seen, tips, state)
        return state
