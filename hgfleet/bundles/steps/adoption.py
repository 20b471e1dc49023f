"""State that the release before named by the path of its repository, taken over once.

The repository that has the path today takes it over, with the first run or the first withdrawal
after `registry apply` gave it an identity: manifest, history of
manifests, pull bundles and snapshot get the name of its identity, and the lines of the manifest
name it. Their objects keep their keys until new bundles replace them. A manifest could outlive its
repository then, so a line is withdrawn instead

* if its object is private: URLs are signed only for objects whose key has the identity;
* if the repository is not public, or came to this path after the bundle was made.

Pull bundles are safe as they are: a link is sent only where the repository has all of its heads.
State whose path no repository has any more is withdrawn and deleted at once (`Pipeline`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.hg.scratch import remove
from hgfleet.core import files
from hgfleet.core.identity import is_identity
from hgfleet.core.stored_time import past_moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.steps.job import Job
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Repository


def adoptable(
    entries: Sequence[Entry],
    repository: Repository,
    since: datetime | None,
    urls: Mapping[str, str],
    now: datetime,
) -> list[Entry]:
    """Return the entries of a former manifest that the repository at its path takes over. Pure.

    `since` is the time at which the repository came to the path, None if it was always there;
    `urls` are the public URLs of the stores for it.
    """
    if not (repository.is_public and repository.identity):
        return []
    kept = []
    for entry in entries:
        place = locate(entry, urls)
        is_ours = place is not None and place[1].repository == repository.path
        is_later = since is None or past_moment(entry.made, now) > since
        if is_ours and not entry.private and is_later:
            kept.append(replace(entry, identity=repository.identity))
    return kept


def arrival(path: str, dynamic: Dynamic) -> datetime | None:
    """Return the time at which a user repository came to its path; None for others. Pure."""
    entry = dynamic.repositories.get(path)
    if entry is None:
        return None
    renames = (dynamic.renamed.get(old) for old in dynamic.renamed)
    arrivals = (rename.since for rename in renames if rename is not None and rename.to == path)
    times = [datetime.fromisoformat(when) for when in (entry.created, *arrivals) if when]
    return max((when.astimezone(UTC) for when in times), default=None)


def is_due(job: Job, repository: Repository) -> bool:
    """Whether the release before left clone bundles or pull bundles that clients could have."""
    path = repository.path
    # A repository that left the registry has no path.
    has_names = is_identity(repository.identity) and not is_identity(path)
    folder = job.config.pull_bundles / files.file_name(path)
    return has_names and (job.manifests.exists(path) or folder.is_dir())


def adopt(job: Job, repository: Repository) -> None:
    """Take over the state of the release before; the caller holds the lock of the repository."""
    path, name = repository.path, repository.identity
    if not is_identity(name) or is_identity(path) or job.options.dry_run:
        return
    _adopt_manifest(job, repository)
    former = job.config.pull_bundles / files.file_name(path)
    if former.is_dir():
        if (job.config.pull_bundles / name).exists():
            remove(former)
        else:
            former.rename(job.config.pull_bundles / name)
    snapshot = job.scratch.snapshot(path)
    if snapshot.is_dir():
        if job.scratch.snapshot(name).exists():
            remove(snapshot)
        else:
            snapshot.rename(job.scratch.snapshot(name))
    job.scratch.forget(path)


def _adopt_manifest(job: Job, repository: Repository) -> None:
    path, manifests = repository.path, job.manifests
    if not manifests.exists(path):
        return
    entries = manifests.read(path)
    if entries and not manifests.read(repository.identity):
        since = arrival(path, job.access.read()[1])
        kept = adoptable(
            entries, repository, since, job.stores.of(repository).urls, datetime.now(UTC)
        )
        job.publisher.publish(repository, kept)
        job.report.step(
            "adopted",
            path,
            f"took over {len(kept)} of {len(entries)} entries of the release before",
            entries=len(kept),
        )
    manifests.take_over(path, repository.identity, datetime.now(UTC))
