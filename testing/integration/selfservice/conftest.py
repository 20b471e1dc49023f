"""A host where people create repositories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.integration.selfservice.site import SelfserviceSite

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> SelfserviceSite:
    return SelfserviceSite(tmp_path)
