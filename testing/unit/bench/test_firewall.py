"""Ports that a benchmark opens on a host, and closes again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testing.bench.firewall import opened


class Host:
    """A host that notes its commands; `nft list` says whether it has a firewall."""

    def __init__(self, has_firewall: bool) -> None:
        self.said: list[str] = []
        self.code = 0 if has_firewall else 1

    def run(self, *command: str) -> Any:
        if command[:2] != ("nft", "list"):
            self.said.append(" ".join(command))
        return SimpleNamespace(code=self.code, ok=lambda: None)

    def systemctl(self, *words: str) -> Any:
        return self.run("systemctl", *words)


RULE = "hgfleet-firewall add insert rule inet hgfleet input tcp dport { 22001, 22002 } accept"
BACK = "systemctl reload hgfleet-firewall.service"


def test_ports_are_open_for_the_block_however_it_ends() -> None:
    host: Any = Host(has_firewall=True)
    with opened(host, 22001, 22002):
        assert host.said == [RULE]
    assert host.said == [RULE, BACK]
    with pytest.raises(KeyError), opened(host, 22001, 22002):
        raise KeyError
    assert host.said == [RULE, BACK] * 2


def test_a_host_without_a_firewall_is_left_alone() -> None:
    host: Any = Host(has_firewall=False)
    with opened(host, 22001):
        pass
    assert host.said == []
