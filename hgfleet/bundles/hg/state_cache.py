"""State cache: answers of hg, reused while the files of the repository keep their fingerprint.

A question to hg costs a process, 0.2 s; a stat of the files costs microseconds. So a run over a
thousand repositories with a few pushes costs as much as a run over those few.

A state follows from the files that `hgfleet.hg.fingerprint` watches and from the published tips in
the question. Both are stored with the state, and any difference makes the entry useless. The folder
can be deleted at any time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.plan import State
from hgfleet.core.files import replace

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from hgfleet.hg import fingerprint

FORMAT: Final = 2
"""Raised with each change of `State`, or of the question to hg that gives it."""


@dataclass(frozen=True, slots=True)
class StateCache:
    """The folder of the cache, with a file for each repository."""

    folder: Path

    def get(self, name: str, seen: fingerprint.Fingerprint, tips: Collection[str]) -> State | None:
        """Return the state that was stored for exactly these files and tips, or None."""
        try:
            stored = json.loads((self.folder / name).read_text("utf-8"))
            if stored["for"] != _question(seen, tips):
                return None
            return State(
                heads=frozenset(stored["heads"]),
                tip=stored["tip"],
                changesets=stored["changesets"],
                covered=stored["covered"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            # Never stored, not readable, or cut off by a power failure.
            return None

    def put(
        self, name: str, seen: fingerprint.Fingerprint, tips: Collection[str], state: State
    ) -> None:
        """Store an answer of hg; `seen` is the fingerprint from before the question.

        A change during the question is in the answer already, or changes the next fingerprint. Only
        a change within a tick of the clock before the question would go unnoticed, so a fingerprint
        with files that young is not stored.
        """
        if not seen.is_settled() or not state.exists:
            return
        self.folder.mkdir(exist_ok=True)
        stored = {
            "for": _question(seen, tips),
            "heads": sorted(state.heads),
            "tip": state.tip,
            "changesets": state.changesets,
            "covered": dict(state.covered),
        }
        replace(self.folder / name, json.dumps(stored), mode=0o640, durable=False)


def _question(seen: fingerprint.Fingerprint, tips: Collection[str]) -> list[object]:
    """Return the key of an answer, in the form that it has after a round trip through JSON."""
    signatures = [None if signature is None else list(signature) for signature in seen.signatures]
    return [FORMAT, signatures, sorted(tips)]
