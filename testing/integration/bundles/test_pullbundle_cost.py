"""The cost of a pull with pull bundles: the part of the history that the server looks at."""

from __future__ import annotations

import importlib.util
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from mercurial import ancestor, hg
from mercurial import ui as uimod

from hgfleet.bundles.decide import pullbundle_chain
from testing.integration.support import site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGESETS = 1500


@pytest.fixture
def extension() -> Any:
    spec = importlib.util.spec_from_file_location("pullbundles", site.HGEXT / "pullbundles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Any:
    """A history whose third changeset is a head that was never merged."""
    (tmp_path / "hgrc").write_text("")
    host = site.Site(tmp_path)
    host.hgrc.write_text("[ui]\nusername = t\n")
    host.hg("init", tmp_path / "repo")
    host.hg("-R", tmp_path / "repo", "debugbuilddag", f"+2:fork +1 <fork +{CHANGESETS}")
    made = hg.repository(uimod.ui(), bytes(tmp_path / "repo"))
    assert [made.changelog.rev(node) for node in made.changelog.heads()] == [2, CHANGESETS + 2]
    return made.filtered(b"served")


def test_an_old_head_without_a_merge_does_not_make_a_pull_look_at_the_history(
    extension: Any, repository: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog = repository.changelog
    old, near, tip = (changelog.node(number) for number in (2, CHANGESETS - 10, CHANGESETS + 2))
    heads = (old.hex(), near.hex())
    link = pullbundle_chain.Link("-", (), heads, CHANGESETS - 9, 0, datetime.now(UTC))
    seen = itertools.count()
    original = ancestor._lazyancestorsiter

    def counted(*arguments: Any) -> Iterator[int]:
        for number in original(*arguments):
            next(seen)
            yield number

    monkeypatch.setattr(ancestor, "_lazyancestorsiter", counted)
    text = pullbundle_chain.render([link])
    # A client that has the old head and asks for everything, and a client of a single branch.
    for heads_asked, common in (({tip, old}, {near, old}), ({tip}, {near})):
        answer = extension._Answer(repository, heads_asked, common, tmp_path, text)
        assert answer.segments == []
        assert next(seen) < 100


def test_ancestors_are_found_across_branches(extension: Any, repository: Any) -> None:
    changelog = repository.changelog
    cases = [
        ([0, 1], {2}, True),
        ([2], {CHANGESETS}, False),
        ([2, 5], {2, CHANGESETS}, True),
        ([2, 5], {CHANGESETS}, False),
        ([7], {6}, False),
        ([7], set(), False),
        ([], set(), True),
    ]
    for revisions, tips, expected in cases:
        actual = extension.are_ancestors(changelog, revisions, tips)
        assert actual is expected, (revisions, tips)
