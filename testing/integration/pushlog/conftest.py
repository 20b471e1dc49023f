"""The host of the push log's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.integration.pushlog.site import PushlogSite

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> PushlogSite:
    """A host with an empty repository, and alice's clone of it."""
    return PushlogSite(tmp_path)
