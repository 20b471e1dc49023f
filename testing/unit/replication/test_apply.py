"""The comparison of a mirror's repository with a record that was applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hgfleet.pushlog.record import Heads
from hgfleet.replication.mirror import apply
from hgfleet.replication.repositories.errors import DivergedError

ONE, TWO = "11" * 20, "22" * 20


class Repository:
    """A repository with heads; its changesets have the same phase."""

    def __init__(self, *heads: str, phase: bytes = b"public") -> None:
        self.changelog = SimpleNamespace(heads=lambda: [bytes.fromhex(head) for head in heads])
        self.phase = phase

    def __getitem__(self, _node: bytes) -> Any:
        return SimpleNamespace(phasestr=lambda: self.phase)


def record(digest: str, *phases: tuple[str, str, str]) -> Any:
    return SimpleNamespace(id=7, phases=phases, heads=SimpleNamespace(digest=digest))


def test_a_mirror_with_the_heads_of_the_record_is_right() -> None:
    digest = Heads.digest_of([ONE, TWO])
    apply._check(Repository(TWO, ONE), record(digest))
    # A record of before digests were recorded.
    apply._check(Repository(ONE), record(""))


@pytest.mark.parametrize("heads", [[], [ONE], [ONE, TWO, "33" * 20]])
def test_a_mirror_with_other_heads_has_diverged(heads: list[str]) -> None:
    expected = record(Heads.digest_of([ONE, TWO]))
    with pytest.raises(DivergedError, match=rf"other heads \({len(heads)}\) after record 7"):
        apply._check(Repository(*heads), expected)


def test_a_mirror_with_another_phase_has_diverged() -> None:
    published = record("", (ONE, "draft", "public"))
    apply._check(Repository(ONE), published)
    with pytest.raises(DivergedError, match="is draft after the push, expected public"):
        apply._check(Repository(ONE, phase=b"draft"), published)
