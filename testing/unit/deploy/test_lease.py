"""The lock of a site while ./deploy runs: a renewal that fails is told."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from controller.bootstrap import Step
from controller.deploy import lease, run

SITE = run.Site("production", Path("production/hosts.yml"))


@pytest.mark.parametrize(
    ("answers", "problems", "reason"),
    [
        ({"hg1": {"before": ""}}, {}, ""),
        ({"hg1": {"refusal": "operator of b is at work"}}, {}, "operator of b is at work"),
        ({}, {"hg1": "no route to host"}, "no route to host"),
        # Ansible itself failed, and names no host.
        ({}, {lease.ANSIBLE: "exit code 4"}, "exit code 4"),
        ({}, {}, "no answer"),
        # Trouble of another host is not trouble of the lease.
        ({"hg1": {"before": ""}}, {"hg2": "no route to host"}, ""),
    ],
)
def test_a_lease_is_renewed_only_if_its_host_says_so(
    answers: dict[str, Any], problems: dict[str, str], reason: str
) -> None:
    assert lease.not_renewed("hg1", answers, problems) == reason


@pytest.mark.parametrize(
    ("answers", "problems", "told"),
    [
        ({"hg1": {"before": ""}}, {}, []),
        (
            {"hg1": {"refusal": "operator of b is at work"}},
            {},
            ["NOT RENEWED on hg1: operator of b is at work"],
        ),
        ({}, {"hg1": "no route to host"}, ["NOT RENEWED on hg1: no route to host"]),
    ],
)
def test_a_renewal_that_fails_is_told_while_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, Any],
    problems: dict[str, str],
    told: list[str],
) -> None:
    said: list[str] = []
    asked: list[object] = []
    second = threading.Event()

    def ask(_site: run.Site, hosts: list[str], request: object) -> Any:
        asked.append((hosts, request))
        if len(asked) == 2:
            second.set()
        return answers, problems

    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(lease, "_ask", ask)
    monkeypatch.setattr(Step, "say", lambda _step, text: said.append(text))
    renewals = lease.Lease(SITE, "hg1", {"id": "a"}, 1.0)
    renewals.start()
    assert second.wait(30), "the lease is renewed again and again"
    renewals.stop()
    assert asked[0] == (["hg1"], {"id": "a", "action": "renew"})
    assert said == told * len(asked)
