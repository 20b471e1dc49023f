"""Withdrawal: the pass over all repositories that only withdraws and deletes.

It comes before all generation, which may take hours, and takes no lock of a repository: another run
may be at work on it. A change of a manifest takes a moment, under a lock of its own. No client may
have the deleted bundles any more, so no run is about to publish them:

* entries for other readers than the repository has now, and of repositories out of service;
* entries made before changesets were removed from the repository (`hg strip`), with their objects;
* objects in a store for other readers, and all objects of a repository that was deleted for good.
"""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.plan import misplaced
from hgfleet.bundles.hg.scratch import remove
from hgfleet.bundles.steps import unfinished
from hgfleet.bundles.stores.access import is_publishable
from hgfleet.bundles.stores.stores import StoreListing
from hgfleet.core import files
from hgfleet.core.errors import TemporaryError
from hgfleet.core.stored_time import past_moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.plan import Stores
    from hgfleet.bundles.steps.job import Job, Outcome
    from hgfleet.bundles.steps.published import PublishedBundles
    from hgfleet.registry.model.registry import Repository

REMOVED = "changesets were removed from the repository since it was made"


def due(
    published: Sequence[Entry],
    repository: Repository,
    stores: Stores,
    removal: datetime | None,
    now: datetime,
) -> dict[str, str]:
    """Return the URLs of entries that clients of a repository must not get, with reasons. Pure.

    `removal` is the time at which changesets were last removed. A bundle whose time is later than
    `now` may have been made before it.
    """
    if repository.bundles and not repository.identity:
        # The registry does not name it yet, and its state has the names of the release before.
        return {}
    reasons = misplaced(published, stores)
    for entry in published:
        if not repository.bundles:
            reasons.setdefault(entry.url, "the repository has no bundles")
        elif not is_publishable(entry, repository):
            reasons.setdefault(entry.url, "it is for other readers, or of another repository")
        elif removal is not None and past_moment(entry.made, now) <= removal:
            reasons.setdefault(entry.url, REMOVED)
    return reasons


class FirstPass:
    """Withdraws the bundles that must go, by the registry as it is now."""

    def __init__(self, job: Job, published: PublishedBundles) -> None:
        self._job, self._published = job, published

    def entries(self, repositories: Sequence[Repository]) -> list[Repository]:
        """Withdraw entries that must go, without any store; return their repositories as now."""
        affected = []
        for repository in repositories:
            now = self._job.access.decide(repository)
            if dead := self._due(now):
                affected.append(now)
                if not self._job.options.dry_run:
                    # Even if this fails, the entries are withdrawn.
                    with contextlib.suppress(OSError):
                        unfinished.begin(self._job.config.state, names.of(now))
                    self._job.publisher.withdraw(now, dead)
        return affected

    def due(self, repositories: Sequence[Repository]) -> list[Outcome]:
        """Withdraw entries and objects that must go; asks the stores only if there are any."""
        affected = self.entries(repositories)
        left = set(unfinished.names(self._job.config.state)).difference(map(names.of, affected))
        # A killed run has withdrawn the entries of these repositories, and perhaps no object.
        affected += [
            self._job.access.decide(other) for other in repositories if names.of(other) in left
        ]
        if not affected:
            return []
        keys = {name for repository in affected for name in self._job.names_in_keys(repository)}
        listings = self._job.stores.listings(keys, dry_run=self._job.options.dry_run)
        return self.withdraw(affected, listings)

    def withdraw(
        self,
        repositories: Sequence[Repository],
        listings: Mapping[str, Mapping[str, StoreListing]],
    ) -> list[Outcome]:
        """Withdraw bundles that must go; return the outcomes of repositories where that fails."""
        outcomes, dry_run = [], self._job.options.dry_run
        for repository in repositories:
            started = time.monotonic()
            try:
                for now in self.entries([repository]) or [self._job.access.decide(repository)]:
                    listing = self._job.listing(now, listings)
                    self._published.prune(now, listing, urgent=True)
                    if listing.keys() == self._job.stores.buckets.keys() and not dry_run:
                        unfinished.end(self._job.config.state, names.of(now))
            except Exception as problem:
                failed = self._job.failed(repository, problem, time.monotonic() - started)
                outcomes.append(failed)
        return outcomes

    def _due(self, repository: Repository) -> dict[str, str]:
        published = self._job.manifests.read(names.of(repository))
        removal = self._job.removal(repository)
        stores = self._job.stores.of(repository)
        return due(published, repository, stores, removal, datetime.now(UTC))


class Forgetter:
    """Deletes all bundles of a repository and their traces, for content that must disappear."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def forget(self, repository: Repository) -> None:
        """Delete all bundles of a repository, and all that they are made from.

        Raises HgfleetError. Another run may be at work on it, and hold content that was removed
        from the repository: its bundles are deleted all the same, and the error says that it could
        upload more.
        """
        job, name = self._job, names.of(repository)
        self._withdraw(repository)
        with job.scratch.locked(name) as has_lock:
            if not has_lock:
                raise TemporaryError(
                    "another run is at work on it, and may publish its own bundles; stop it "
                    "(`systemctl stop hgfleet-bundles hgfleet-bundles-pushed`), and do it again"
                )
            self._withdraw(repository)
            job.manifests.delete(name)
            remove(job.config.pull_bundles / files.file_name(name))
            remove(job.scratch.snapshot(name))
            job.scratch.forget(name)
        job.report.step("forgotten", repository.path, "forgotten: the next run starts again")

    def _withdraw(self, repository: Repository) -> None:
        """Withdraw all entries and delete all objects; takes no lock."""
        job = self._job
        keys = job.names_in_keys(repository)
        job.publisher.publish(repository, ())
        for store, listing in job.stores.listings(keys, dry_run=False).items():
            for name in keys:
                stored = listing.get(name, StoreListing())
                for item in stored.objects:
                    job.delete(store, item.key)
                    said = f"deleted {item.key} of {store}"
                    job.report.step("forgotten", repository.path, said, store=store, key=item.key)
                for upload in stored.uploads:
                    job.stores.buckets[store].abort(upload)
        for error in job.stores.down.values():
            # A store that does not answer still has them.
            raise error
