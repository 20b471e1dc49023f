"""Manifests written again from the objects in the stores, for when the manifests are lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from hgfleet.bundles.decide.manifest import Entry, object_url
from hgfleet.bundles.decide.names import parse_key
from hgfleet.bundles.decide.plan import order
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.steps import workspace
from hgfleet.core.errors import HgfleetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.bundles.decide.names import Key
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.steps.verify import Verifier
    from hgfleet.bundles.steps.workspace import Workspace
    from hgfleet.bundles.stores.stores import StoreListing
    from hgfleet.registry.model.registry import Repository

Found = tuple[str, "Key", Entry]
"""Store, key and entry of an object."""


def republish(
    job: Job, verifier: Verifier, repository: Repository, listing: Mapping[str, StoreListing]
) -> Mapping[str, HgfleetError]:
    """Publish the newest verified bundles in the stores; return the errors by store.

    Raises HgfleetError if no bundle can be published.
    """
    stores = job.stores.of(repository).urls
    if not stores or not repository.bundles:
        raise UsageError(f"{repository.path}: the registry gives it no bundles")
    stored = [
        (store, key, replace(entry, private=not repository.is_public, identity=repository.identity))
        for store, key, entry in _stored(job, {s: listing[s] for s in stores if s in listing})
        # Private objects of the release before have a key that is never signed.
        if repository.is_public or key.repository == repository.identity
    ]
    tips = {key.tip for _, key, _ in stored}
    seen = hg_side.look(job.hg, job.source(repository), tips)
    entries: dict[str, dict[str, Entry]] = {}
    with workspace.opened(job, repository, len(repository.bundles)) as work:
        for kind in repository.bundles:
            # Newest first. A bundle whose tip the repository no longer has is no candidate.
            candidates = sorted(
                (item for item in stored if item[1].kind == kind and item[1].tip in seen.covered),
                key=lambda item: (seen.covered[item[1].tip], item[2].made, item[2].sha256),
                reverse=True,
            )
            entries[kind] = _chosen(job, verifier, work, candidates)
    manifest = order(repository.bundles, list(job.stores.urls), entries)
    if not manifest:
        nothing = HgfleetError(
            "the stores hold no bundle of it that could be published; "
            "`hgfleet bundles run` makes them"
        )
        raise next(iter(work.missing.values()), nothing)
    job.publisher.publish(repository, manifest)
    job.report.step(
        "published",
        repository.path,
        f"published: {len(manifest)} entries from the objects in the stores",
        entries=len(manifest),
    )
    return work.missing


def _chosen(
    job: Job, verifier: Verifier, work: Workspace, candidates: list[Found]
) -> dict[str, Entry]:
    """Verify the candidates of a kind; return the first content that works, by store."""
    chosen: dict[str, Entry] = {}
    for store, key, entry in candidates:
        if chosen and next(iter(chosen.values())).sha256 != entry.sha256:
            continue
        try:
            verifier.verify(work, store, entry)
        except HgfleetError as error:
            work.missing[store] = error
            job.report.step(
                "missing", work.repository.path, f"{key}: {error}", store=store, error=error
            )
        else:
            chosen[store] = entry
    return chosen


def _stored(job: Job, listing: Mapping[str, StoreListing]) -> list[Found]:
    """Read back the entry of each object from its metadata."""
    result = []
    for store, stored in listing.items():
        for item in stored.objects:
            key, there = parse_key(item.key), job.stores.buckets[store].head(item.key)
            if key is None or there is None:
                continue
            sha256 = there.metadata.get("sha256", "")
            try:
                entry = Entry(
                    url=object_url(job.stores.urls[store], key),
                    bundlespec=there.metadata["bundlespec"],
                    sha256=sha256,
                    size=there.size,
                    changesets=int(there.metadata["changesets"]),
                    made=datetime.fromisoformat(there.metadata["made"]),
                    required_ram=int(there.metadata.get("required-ram", 0)),
                )
            except (KeyError, ValueError):
                continue
            if sha256.startswith(key.digest):
                result.append((store, key, entry))
    return result
