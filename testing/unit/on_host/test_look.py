"""Which units of a host have to be active after a change."""

from __future__ import annotations

import pytest

from testing.support import loading

look = loading.module("ansible/on_host/look.py")


def test_units_of_the_service_and_debians_that_serve_it_are_needed() -> None:
    names = ["ssh.service", "cron.service", "hgfleet-web.socket", "prometheus.service"]
    assert look.needed(names) == ["hgfleet-web.socket", "ssh.service"]


def test_a_monitoring_host_that_is_away_takes_no_deploy_back() -> None:
    assert look.needed(["hgfleet-journal-upload.service", "nginx.service"]) == ["nginx.service"]


class Host:
    """Units that answer look by look, and a clock that goes a second at each pause."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: list[str]) -> None:
        self.looks, self.now = list(looks), 0.0
        monkeypatch.setattr(look, "enabled", lambda: ["hgfleet-web.socket"])
        monkeypatch.setattr(look, "inactive", self.inactive)
        monkeypatch.setattr(look, "releases_of", lambda _units: {})
        monkeypatch.setattr(look.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(look.time, "sleep", self.sleep)

    def inactive(self, _units: list[str]) -> list[str]:
        return self.looks.pop(0)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


DOWN = ["hgfleet-web.socket is failed"]


@pytest.mark.parametrize(
    ("looks", "problems"),
    [
        # Three good looks in a row, and no fourth.
        ([[], [], [], DOWN], []),
        # It died again, and came back.
        ([[], DOWN, [], [], []], []),
        # It does not come back in time: 5 looks fit into 5 s.
        ([DOWN] * 6, DOWN),
        # It came at the last moment, so it is looked at until it has been well for long enough.
        ([DOWN] * 4 + [[], [], []], []),
        ([DOWN] * 4 + [[], DOWN, []], DOWN),
    ],
)
def test_units_are_well_after_three_looks_in_a_row(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[str]], problems: list[str]
) -> None:
    Host(monkeypatch, *looks)
    assert look.look(5.0)["inactive"] == problems


def test_units_that_are_not_active_are_named_with_their_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look, "_systemctl", lambda *_: ["active", "failed", "activating"])
    names = ["hgfleet-a.service", "hgfleet-b.service", "hgfleet-c.socket"]
    assert look.inactive(names) == [
        "hgfleet-b.service is failed",
        "hgfleet-c.socket is activating",
    ]
    assert look.inactive([]) == []


def test_units_that_have_to_be_active_are_the_enabled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["hgfleet-web.socket enabled enabled", "", "cron.service enabled enabled"]
    monkeypatch.setattr(look, "_systemctl", lambda *_: lines)
    assert look.enabled() == ["hgfleet-web.socket"]
