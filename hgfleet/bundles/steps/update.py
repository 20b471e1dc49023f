"""The steps of a run for a repository: plan, generate, publish, prune.

Each step leaves a state that the next run accepts or completes, so a run may be killed anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.decide.plan import Action, State, misplaced, order
from hgfleet.bundles.decide.pullbundle_chain import Move
from hgfleet.bundles.hg.scratch import remove
from hgfleet.bundles.steps.job import Outcome
from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.plan import Plan
    from hgfleet.bundles.decide.pullbundle_chain import ChainPlan
    from hgfleet.bundles.steps.generate import BundleGenerator
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.steps.published import PublishedBundles
    from hgfleet.bundles.steps.pullbundle_store import PullbundleStore
    from hgfleet.bundles.steps.survey import Planner
    from hgfleet.bundles.steps.verify import Verifier
    from hgfleet.bundles.stores.stores import StoreListing
    from hgfleet.registry.model.registry import Repository

    Listing = Mapping[str, StoreListing]


class Updater:
    """Brings a repository up to date; the caller holds its lock."""

    def __init__(
        self,
        job: Job,
        planner: Planner,
        generator: BundleGenerator,
        verifier: Verifier,
        published: PublishedBundles,
        pullbundles: PullbundleStore,
    ) -> None:
        self._job, self._planner = job, planner
        self._generator, self._verifier = generator, verifier
        self._published, self._pullbundles = published, pullbundles

    def update(self, repository: Repository, listing: Listing) -> Outcome:
        """Do everything that a repository needs. Raises HgfleetError."""
        job = self._job
        self._pullbundles.delete_corrupt(repository)
        dead = self._published.dead(repository, listing)
        result = self._published.read(repository, dead)
        dead |= {entry.url: problem for entry, problem in result.wrong.items()}
        try:
            decision, state = self._planner.plan(
                repository, dead=dead, remember=not job.options.dry_run
            )
        except HgfleetError:
            if dead and not job.options.dry_run:
                job.publisher.withdraw(repository, dead)
            raise
        chain_plan = self._planner.plan_pullbundles(repository, decision, state)
        self._report(repository, decision, chain_plan)
        missing: dict[str, HgfleetError] = {}
        if not job.options.dry_run:
            if dead:
                job.publisher.withdraw(repository, dead)
            missing.update(self._published.delete_wrong(repository, result))
            if removed := self._planner.removed(repository, decision, state):
                gone = dict.fromkeys((entry.url for entry in removed), "its tip was removed")
                job.publisher.withdraw(repository, gone)
                missing.update(self._published.delete(removed))
            try:
                if decision.build and not job.stores.of(repository).up:
                    # No store takes the bundles, so none are made.
                    raise next(iter(job.stores.problems(repository).values()))
                missing.update(self._carry_out(repository, decision))
            except HgfleetError:
                # Pull bundles need no store.
                self._pullbundles.carry_out(repository, chain_plan)
                raise
            self._pullbundles.carry_out(repository, chain_plan)
        if decision.action is not Action.SKIP:
            self._published.prune(repository, listing)
            self._pullbundles.prune(repository)
        if decision.kinds:
            missing = {**job.stores.problems(repository), **missing}
        return Outcome(repository.path, decision, missing=missing)

    def prune(self, repository: Repository, listing: Listing) -> Outcome:
        """Delete outdated objects and pull bundles, and generate nothing."""
        job = self._job
        decision, stores = None, job.stores.of(repository)
        if not (stores.urls and repository.bundles):
            decision = self._planner.plan(repository)[0]
            if not job.options.dry_run:
                self._carry_out(repository, decision)
        elif not job.options.dry_run:
            wrong = misplaced(job.manifests.read(names.of(repository)), stores)
            if wrong:
                job.publisher.withdraw(repository, wrong)
        self._published.prune(repository, listing)
        if not (job.options.dry_run or self._pullbundles.wanted(repository)):
            chain_plan = self._pullbundles.plan(repository, State())
            self._pullbundles.carry_out(repository, chain_plan)
        self._pullbundles.prune(repository)
        return Outcome(repository.path, decision)

    def _report(self, repository: Repository, decision: Plan, chain_plan: ChainPlan) -> None:
        reasons = "; ".join(decision.reasons)
        self._job.report.step(
            "plan",
            repository.path,
            f"{decision.action.value}: {reasons}",
            action=decision.action.value,
            reason=reasons,
        )
        if chain_plan.move is not Move.KEEP:
            self._job.report.step(
                "pull-plan",
                repository.path,
                f"pull bundles: {chain_plan.move.value}: {chain_plan.reason}",
                action=chain_plan.move.value,
                reason=chain_plan.reason,
            )

    def _carry_out(self, repository: Repository, decision: Plan) -> Mapping[str, HgfleetError]:
        """Carry out a plan; return the errors of stores that do without some bundle."""
        entries = {kind: dict(kept) for kind, kept in decision.keep.items()}
        missing: dict[str, HgfleetError] = {}
        match decision.action:
            case Action.KEEP:
                self._verifier.verify_history(repository, decision)
                if not decision.kinds:
                    self._forget(repository)
                return missing
            case Action.SKIP:
                return missing
            case Action.GENERATE | Action.COPY:

                def done(kind: str, new: Mapping[str, Entry]) -> None:
                    self._publish_kind(repository, decision, kind, new)

                made = self._generator.carry_out(repository, decision, missing, done)
                for kind, new in made.items():
                    entries.setdefault(kind, {}).update(new)
            case Action.WITHDRAW:
                pass
        if not decision.kinds:
            self._forget(repository)
        manifest = order(decision.kinds, list(self._job.stores.urls), entries)
        if self._job.publisher.publish(repository, manifest):
            self._job.report.step(
                "published",
                repository.path,
                f"published: {', '.join(decision.kinds) or 'no bundles'}",
                kinds=",".join(decision.kinds),
                entries=len(manifest),
            )
        return missing

    def _publish_kind(
        self, repository: Repository, decision: Plan, kind: str, new: Mapping[str, Entry]
    ) -> None:
        """Publish a verified kind, with the published bundles of the other kinds."""
        stores = self._job.stores.urls

        def with_new(published: Sequence[Entry]) -> Sequence[Entry]:
            entries: dict[str, dict[str, Entry]] = {}
            for entry in published:
                if place := locate(entry, stores):
                    entries.setdefault(place[1].kind, {})[place[0]] = entry
            entries[kind] = {**decision.keep.get(kind, {}), **new}
            return order(decision.kinds, list(stores), entries)

        if self._job.publisher.change(repository, with_new):
            self._job.report.step(
                "published-kind", repository.path, f"published: {kind}, others follow", kind=kind
            )

    def _forget(self, repository: Repository) -> None:
        """Delete scratch files of a repository that no longer has clone bundles or pull bundles."""
        has_readers = self._pullbundles.wanted(repository)
        if not (has_readers and self._pullbundles.chain(repository)):
            remove(self._job.scratch.snapshot(names.of(repository)))
        if not has_readers:
            self._job.scratch.forget(names.of(repository))
