"""The programs of each host use the settings that the repository shows."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

from testing.effective.reading import FOLDER, pages

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster


@pytest.mark.alone
def test_the_effective_configuration_is_the_one_in_the_repository(cluster: Cluster) -> None:
    """A difference that is meant is accepted by `.venv/bin/python -m testing.effective`."""
    found = pages(cluster)

    shown = {str(path.relative_to(FOLDER)): path.read_text() for path in FOLDER.rglob("*.txt")}
    told = [
        line
        for name in sorted({*found, *shown})
        for line in difflib.unified_diff(
            shown.get(name, "").splitlines(),
            found.get(name, "").splitlines(),
            f"testing/effective/{name}",
            f"{name} as the host tells it",
            lineterm="",
            n=1,
        )
    ]
    assert not told, "\n".join(told)
