"""The reasons of a plan, the pages next to the bundles, and the figures of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.bundles.steps import run_record
from hgfleet.bundles.steps.explain import explain
from hgfleet.core.errors import UnavailableError
from hgfleet.registry.model.registry import Repository

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from testing.integration.bundles.site import BundleSite


def test_explain_names_every_input_of_a_plan(regions: BundleSite, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        json.dumps(
            {
                "time": "2026-11-20T11:00:00.000Z",
                "repository": "project",
                "command": "getbundle",
                "changesets": True,
                "full": True,
                "duration": 90.5,
            }
        )
        + "\n"
    )
    regions.config = replace(regions.config, access_log=log)
    project = regions.repository("project", kinds=("zstd",))
    regions.run(project)
    regions.change("project")
    said = "\n".join(explain(regions.pipeline(), project))
    for words in (
        "project: generate",
        "zstd: 1 of 3 changesets (33.3%) are newer than the bundle (limit 1.0%)",
        "readable by everyone; bundles: zstd",
        "1.0% of the changesets, 7 days, 60 s of the server a day",
        "1 clones and 0 pulls took 90.5 s of the server in the last day",
        "3 changesets, 1 heads",
        "covers 2,",
        "zstd in us",
        "of scratch, on disk",
    ):
        assert words in said, said


def test_every_store_has_a_page_of_the_public_repositories(regions: BundleSite) -> None:
    project = regions.repository("team/project", kinds=("stream", "zstd"))
    project = replace(project, description="<script>alert(1)</script>")
    private = replace(
        regions.repository("team/confidential"), description="secret plans", read=("staff",)
    )
    regions.config = replace(regions.config, clone_url="https://hg.example")
    regions.run(project, private, everything=True)
    for store in regions.stores:
        index = store.pages["index.html"].decode()
        assert "hg clone https://hg.example/team/project" in index
        assert "<script>alert" not in index
        assert "confidential" not in index
        data = json.loads(store.pages["bundles.json"])
        assert [*data["repositories"]] == ["team/project"]
        urls = [bundle["url"] for bundle in data["repositories"]["team/project"]["bundles"]]
        assert len(urls) == 2
        assert all(url.startswith(store.url) for url in urls)


def test_a_page_that_cannot_be_uploaded_fails_no_run(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> bool:
        raise UnavailableError("connection refused")

    monkeypatch.setattr(site.store, "put_page", refuse)
    (outcome,) = site.run(site.repository("project"), everything=True)
    assert outcome.error is None
    assert "the page of main is old: connection refused" in site.said.getvalue()


def test_pages_are_renewed_after_a_run_for_some_that_published_something(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed, other = site.repository("one"), site.repository("other")

    def run() -> list[str]:
        """Run after pushes to `pushed`; return the repositories in the page."""
        pipeline = site.pipeline()
        assert [outcome.error for outcome in pipeline.run([pushed])] == [None]
        pipeline.renew_pages([pushed, other])
        return [*json.loads(site.store.pages["bundles.json"])["repositories"]]

    site.run(other)
    assert site.store.pages == {}
    assert run() == ["one", "other"]
    # Nothing was published, so no page is renewed.
    site.store.pages["bundles.json"] = b'{"repositories": []}'
    assert run() == []
    site.change("one")

    def refuse(*_arguments: object) -> bool:
        raise UnavailableError("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(site.store, "put_page", refuse)
        assert run() == []
    assert "the page of main is old: connection refused" in site.said.getvalue()
    # Pages are not made of half a registry either.
    site.change("one")
    pipeline = site.pipeline()
    pipeline.partial = True
    pipeline.run([pushed])
    pipeline.renew_pages([pushed])
    assert site.store.pages["bundles.json"] == b'{"repositories": []}'


def test_a_run_over_all_repositories_leaves_its_figures(regions: BundleSite) -> None:
    file = regions.config.state / run_record.NAME
    project, empty = regions.repository("team/project"), regions.repository("empty", commits=0)
    # The registry is ahead of the disk.
    absent = Repository("absent", "", "public", (), True, ("zstd",))
    regions.run(project)
    assert not file.exists()

    regions.run(project, empty, absent, everything=True)

    figures = run_record.parse(file.read_bytes())
    assert (figures.repositories, figures.covered) == (1, 1)
    published = regions.published("team/project")
    assert figures.bytes == {store.name: published[0].size for store in regions.stores}
    assert figures.oldest == figures.newest == published[0].made.timestamp()
    assert figures.failed == figures.incomplete == 0
    before = file.read_bytes()
    regions.run(project, everything=True, dry_run=True)
    assert file.read_bytes() == before


def test_a_run_that_cannot_leave_its_figures_goes_on(site: BundleSite) -> None:
    project = site.repository("project")
    site.config.state.rmdir()
    (outcome,) = site.run(project, everything=True)
    assert outcome.error is None
    assert site.published("project")
    assert "no figures of this run" in site.said.getvalue()
