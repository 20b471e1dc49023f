"""The plan of a repository with all its inputs, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.hg.budget import room_needed
from hgfleet.core.files import file_name
from hgfleet.core.text import size
from hgfleet.hg import store_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.bundles.decide.plan import State
    from hgfleet.bundles.steps.pipeline import Pipeline
    from hgfleet.registry.model.registry import Repository


def explain(pipeline: Pipeline, repository: Repository) -> list[str]:
    """Return the lines; changes nothing. Raises HgError for a repository that hg cannot read."""
    decision, state = pipeline.plan(repository)
    lines = [f"{repository.path}: {decision.action.value}"]
    lines += [f"    {reason}" for reason in decision.reasons]
    lines += [f"  {name:18}{value}" for name, value in _facts(pipeline, repository, state)]
    pulls = pipeline.plan_pullbundles(repository, decision, state)
    lines += [f"  pull bundles: {pulls.move.value}", f"    {pulls.reason}"]
    lines += [f"  {name:18}{value}" for name, value in _chain(pipeline, repository)]
    return lines


def _chain(pipeline: Pipeline, repository: Repository) -> Iterator[tuple[str, str]]:
    limits = pipeline.config.pull
    said = f"from {limits.least:,} changesets on; {limits.step:,} new changesets for a link"
    yield "limits", said if limits.enabled else "switched off on this host"
    chain = pipeline.pullbundles.chain(repository)
    problems = pipeline.pullbundles.problems(repository, chain)
    for link in chain:
        length = size(link.size) if link.on_disk else "not on disk: the chain begins after them"
        made = f"made {link.made:%Y-%m-%d %H:%M} UTC"
        dead = f"; DEAD: {problems[link.name]}" if link.name in problems else ""
        yield link.name[:16], f"{link.changesets:,} changesets, {length}, {made}{dead}"


def _facts(pipeline: Pipeline, repository: Repository, state: State) -> Iterator[tuple[str, str]]:
    config = pipeline.config
    readers = "everyone" if repository.is_public else "some users only"
    yield "identity", repository.identity or "none yet; `hgfleet registry apply` gives it"
    yield "registry", f"readable by {readers}; bundles: {', '.join(repository.bundles) or 'none'}"
    stores = pipeline.job.stores.of(repository)
    yield (
        "stores",
        f"{', '.join(stores.urls) or 'none'}; not for it: {', '.join(stores.others) or 'none'}",
    )
    limits = config.refresh
    share, days, seconds = f"{limits.share:.1%}", limits.age.days, f"{limits.seconds:,.0f} s"
    yield "limits", f"{share} of the changesets, {days} days, {seconds} of the server a day"
    asked = pipeline.job.demand.get(repository.path)
    if asked:
        said = f"{asked.clones:,} clones and {asked.pulls:,} pulls took {asked.seconds:,.1f} s"
        yield "demand", f"{said} of the server in the last day"
    else:
        yield "demand", "no clone and no pull from the server in the last day"
    if state.heads:
        yield "repository", f"{state.changesets:,} changesets, {len(state.heads):,} heads"
        yield "tip", state.tip
        store = store_size.size(f"{pipeline.job.source(repository)}/.hg/store")
        room = room_needed(store, len(repository.bundles))
        where = "in RAM" if room <= config.scratch_ram_bytes else "on disk"
        yield "store", f"{size(store)}; new bundles take up to {size(room)} of scratch, {where}"
        name = file_name(names.of(repository))
        for check, times in (
            ("hg verify", pipeline.job.schedule.clones),
            ("read whole", pipeline.job.schedule.reads),
        ):
            last = times.last(name)
            done = f"counts as done on {last:%Y-%m-%d}" if last else "not yet"
            yield check, "the next run: a bundle is wrong" if times.is_requested(name) else done
    for entry in pipeline.manifests.read(names.of(repository)):
        place = locate(entry, config.public_urls)
        if place is None:
            yield "published", f"{entry.url}, which is in no store of ours"
            continue
        store_name, key = place
        covered = state.covered.get(key.tip)
        covers = "has removed history" if covered is None else f"covers {covered:,}"
        made = f"made {entry.made:%Y-%m-%d %H:%M} UTC"
        yield f"{key.kind} in {store_name}", f"{covers}, {size(entry.size)}, {made}"
