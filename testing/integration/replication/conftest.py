"""A broker and a primary for tests of replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.integration.replication.primary import Primary
from testing.integration.support.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running nats-server with JetStream and no streams, without TLS and users."""
    made = Broker(tmp_path / "broker")
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def primary(tmp_path: Path, broker: Broker) -> Primary:
    """A primary with two repositories, which knows two mirrors."""
    made = Primary(tmp_path / "hg1", broker, ("hgweb1", "hgweb2"))
    made.add("team/tool", "team/other")
    return made
