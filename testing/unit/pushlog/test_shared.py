"""State that extensions share: each view of a repository has the same state."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from hgfleet.pushlog import shared
from hgfleet.pushlog.facts import Facts

ROOT = Path(__file__).resolve().parents[3]


class _Repository:
    def unfiltered(self) -> _Repository:
        return self


class _View(_Repository):
    """A filtered repository: an object of its own."""

    def __init__(self, plain: _Repository) -> None:
        self._plain = plain

    def unfiltered(self) -> _Repository:
        return self._plain


def test_views_of_a_repository_have_one_state_and_two_repositories_have_two() -> None:
    plain, other = _Repository(), _Repository()
    shared.of(_View(plain)).strips = True
    assert shared.of(plain).strips
    assert shared.of(_View(plain)) is shared.of(plain)
    assert not shared.of(other).strips
    shared.of(plain).verdicts = {"title": "allow"}
    assert not shared.of(other).verdicts


def test_a_state_that_is_not_declared_is_an_error() -> None:
    state: Any = shared.of(_Repository())
    with pytest.raises(AttributeError):
        state.stripping = True


def test_an_operator_s_repair_is_told_from_a_push() -> None:
    assert not shared.Shared().is_repair
    assert shared.Shared(strips=True).is_repair
    assert shared.Shared(adopts=True).is_repair
    assert shared.Shared(given=[("strip", Facts())]).is_repair
    # The intent of a removal, and verdicts, belong to pushes too.
    assert not shared.Shared(completes=True, verdicts={"title": "allow"}).is_repair


def test_no_extension_leaves_an_attribute_of_its_own_on_a_repository() -> None:
    """Core's `__class__` is the way to wrap a repository; `hgfleet_before` is for one extension."""
    allowed = {"__class__", "hgfleet_before"}
    left = [
        f"{path.relative_to(ROOT)}: {ast.unparse(target)}"
        for folder in ("hgext", "hgfleet")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
        and re.fullmatch(r"(repo|plain|unfiltered|repo\.unfiltered\(\))", ast.unparse(target.value))
        and target.attr not in allowed
    ]
    assert not left
