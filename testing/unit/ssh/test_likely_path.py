"""The path that a mistyped path most likely means."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.principal import Principal
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.ssh.session import original_command
from hgfleet.ssh.session.original_command import Refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

PATHS = [f"team{number % 100}/project-{number}" for number in range(3000)]
SOME = ["hgfleet", "sandbox/playground", "mozilla/central", "people/bob/notes", "team/compiler"]


def hint(asked: str, paths: Sequence[str]) -> str:
    registry = Registry(
        {p: Repository(p, "", "public", (), publishing=True, bundles=()) for p in paths}
    )
    command = f"hg -R '{asked}' serve --stdio"
    decision = original_command.decide(command, Principal("bob", frozenset()), registry)
    assert isinstance(decision, Refuse)
    return decision.message.partition("Did you mean ")[2].removesuffix("?")


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("hgflet", "hgfleet"),
        ("hglfeet", "hgfleet"),
        ("HgFleet", "hgfleet"),
        ("playground", "sandbox/playground"),
        ("sandbox/playgruond", "sandbox/playground"),
        ("sandbox/playgrounds", "sandbox/playground"),
        ("mozila/centrall", "mozilla/central"),
        ("central", "mozilla/central"),
        ("people/bob/note", "people/bob/notes"),
        ("xteam/compiler", "team/compiler"),
    ],
)
def test_a_path_with_a_mistake_is_recognised(asked: str, path: str) -> None:
    assert hint(asked, SOME) == path
    assert hint(asked, [*PATHS, *SOME]) == path


@pytest.mark.parametrize("asked", ["x", "zzzzzzzz", "?" * 200, "x" * 3000, "/" * 50])
def test_a_path_like_no_other_has_no_likely_one(asked: str) -> None:
    assert hint(asked, SOME) == ""


def test_few_paths_are_compared_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    original = difflib.SequenceMatcher.set_seq1

    def counted(self: difflib.SequenceMatcher[str], text: str) -> None:
        compared.append(text)
        original(self, text)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", counted)

    assert hint("team7/projekt-1207", PATHS) == "team7/project-1207"
    assert len(compared) < 30
