"""A public store with a prober's settings for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.steering.order import Endpoint
from hgfleet.steering.settings import Config
from testing.integration.bundles.site import CERTIFICATES
from testing.integration.support.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.stop()


@pytest.fixture
def config(tmp_path: Path, store: Store) -> Config:
    return Config(
        endpoints=(Endpoint("one", store.url),),
        manifests=tmp_path / "manifests",
        health=tmp_path / "health.json",
        state=tmp_path,
        ca=CERTIFICATES,
        interval_seconds=0.1,
        timeout_seconds=0.5,
    )
