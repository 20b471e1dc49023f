"""Which units of a host have to be active after a change."""

from __future__ import annotations

from deploy import look


def test_units_of_the_service_and_debians_that_serve_it_are_needed() -> None:
    names = ["ssh.service", "cron.service", "hgfleet-web.socket", "prometheus.service"]
    assert look.needed(names) == ["hgfleet-web.socket", "ssh.service"]


def test_a_monitoring_host_that_is_away_takes_no_deploy_back() -> None:
    assert look.needed(["hgfleet-journal-upload.service", "nginx.service"]) == ["nginx.service"]
