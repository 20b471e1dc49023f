"""The programs of each host use the settings that the repository shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks.goldens import once
from testing.effective.reading import FOLDER, pages

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster


@pytest.mark.alone
def test_the_effective_configuration_is_the_one_in_the_repository(cluster: Cluster) -> None:
    """`.venv/bin/python -m testing.effective` accepts an intended difference."""
    present = {path.name: path.read_text() for path in FOLDER.glob("*.txt")}
    told = list(once.differences(present, pages(cluster), "testing/effective"))
    assert not told, "\n".join(told)
