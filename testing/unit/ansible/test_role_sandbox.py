"""Settings that units of several roles share."""

from __future__ import annotations

import re
from typing import Final

import pytest
import yaml

from controller.bootstrap import ROOT

ROLES: Final = ROOT / "ansible/roles"
SHARED: Final = yaml.safe_load((ROLES / "sandbox/vars/main.yml").read_text("utf-8"))
EVIDENCE: Final = "{{ _sandbox_evidence }}"

UNITS: Final = (
    "cdn/templates/hgfleet-cdn.service.j2",
    "directory/templates/slapd.service.j2",
    "objectstore/templates/hgfleet-objectstore.service.j2",
    "proxy/templates/haproxy.service.j2",
    "ssh/templates/hgfleet-people.service.j2",
    "ssh/templates/hgfleet-sshd.service.j2",
    "ssh/templates/ssh.service.j2",
    "web/templates/hgfleet-auth.service.j2",
)
"""Units whose lines are evidence: of logins, of requests, of the directory."""


@pytest.mark.parametrize("unit", UNITS)
def test_lines_that_are_evidence_are_kept_in_a_flood(unit: str) -> None:
    role = unit.partition("/")[0]
    lines = (ROLES / unit).read_text("utf-8").splitlines()
    section = lines[lines.index("[Service]") :]
    assert EVIDENCE in section
    dependencies = yaml.safe_load((ROLES / role / "meta/main.yml").read_text("utf-8"))
    assert {"role": "sandbox"} in dependencies["dependencies"]


def test_the_interval_is_a_second_as_0_would_be_the_limit_of_journald() -> None:
    settings = dict(line.split("=") for line in SHARED["_sandbox_evidence"].splitlines())
    assert settings["LogRateLimitIntervalSec"] == "1s"
    # journald with its own limit kept 32,500 of 90,000 lines.
    assert int(settings["LogRateLimitBurst"]) >= 90_000


def test_no_unit_has_a_limit_of_lines_of_its_own() -> None:
    own = [
        str(file.relative_to(ROLES))
        for file in ROLES.glob("*/templates/*")
        if re.search("^LogRateLimit", file.read_text("utf-8"), re.MULTILINE)
    ]
    assert own == []
