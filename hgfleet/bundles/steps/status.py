"""Published bundles of repositories, and whether clients can download them, for operators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.manifest import locate
from hgfleet.core.errors import HgfleetError
from hgfleet.core.text import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.names import Key
    from hgfleet.bundles.decide.pullbundle_chain import Link
    from hgfleet.bundles.steps.pipeline import Pipeline
    from hgfleet.registry.model.registry import Repository


def show(pipeline: Pipeline, repositories: Sequence[Repository], *, as_json: bool) -> int:
    """Print the published bundles; return 1 if clients cannot download some of them."""
    worst = 0
    shown: dict[str, list[dict[str, object]]] = {}
    pulls: dict[str, list[dict[str, object]]] = {}
    for repository in repositories:
        entries = pipeline.manifests.read(names.of(repository))
        listed = shown[repository.path] = []
        if not as_json:
            print(f"{repository.path}: {len(entries) or 'no'} bundles published")
        for entry in entries:
            try:
                problem = pipeline.job.stores.reader.problem(entry)
            except HgfleetError as error:
                problem = str(error)
            if problem:
                worst = 1
            place = locate(entry, pipeline.config.public_urls)
            if as_json:
                listed.append(_entry(entry, place, problem))
                continue
            print(
                f"    {entry.bundlespec.split(';requirements')[0]:20} {size(entry.size):>9}"
                f"  {entry.changesets:,} changesets  made {entry.made:%Y-%m-%d %H:%M} UTC"
                f"  {'DEAD: ' + problem if problem else 'answers'}\n        {entry.url}"
            )
        chain = pipeline.pullbundles.chain(repository)
        problems = pipeline.pullbundles.problems(repository, chain)
        if problems:
            worst = 1
        if as_json:
            pulls[repository.path] = [_link(link, problems.get(link.name)) for link in chain]
        elif chain:
            said = "; ".join(f"DEAD: {name}: {problem}" for name, problem in problems.items())
            print(
                f"    {len(chain)} pull bundles{size(sum(link.size for link in chain)):>17}"
                f"  {sum(link.changesets for link in chain):,} changesets"
                f"  made {chain[-1].made:%Y-%m-%d %H:%M} UTC  {said or 'whole'}"
            )
    if as_json:
        print(json.dumps({"format": 1, "repositories": shown, "pull_bundles": pulls}, indent=1))
    return worst


def _link(link: Link, problem: str | None) -> dict[str, object]:
    """Return a pull bundle for the JSON output."""
    return {
        "file": link.name if link.on_disk else None,
        "bases": link.bases,
        "heads": link.heads,
        "changesets": link.changesets,
        "size": link.size,
        "made": link.made.isoformat(),
        "problem": problem,
    }


def _entry(entry: Entry, place: tuple[str, Key] | None, problem: str) -> dict[str, object]:
    """Return an entry for the JSON output; `problem` is null if it answers."""
    return {
        "url": entry.url,
        "store": place[0] if place else None,
        "kind": place[1].kind if place else None,
        "bundlespec": entry.bundlespec,
        "sha256": entry.sha256,
        "size": entry.size,
        "changesets": entry.changesets,
        "made": entry.made.isoformat(),
        "problem": problem or None,
    }
