"""A broker and a primary for tests of replication."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from hgfleet.webhooks import attempts, consumers
from hgfleet.webhooks import cli as webhooks_cli
from testing.integration.replication.primary import Primary
from testing.integration.replication.webhook_host import Host, Server, serving
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


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Two receivers."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serving()) for _ in range(2)]


@pytest.fixture
def host(
    tmp_path: Path, broker: Broker, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> Host:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(consumers, "ACK_SECONDS", 2.0)
    # This process would have the rights of the daemon's user for good.
    monkeypatch.setattr(webhooks_cli, "become", lambda _user: None)
    (tmp_path / "host").mkdir()
    return Host(tmp_path / "host", broker, servers)
