"""The check of an ssh host opens the session that a person's key opens."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from testing.integration.selfservice.site import SESSION, SelfserviceSite
from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path

ssh_probe = loading.module("ansible/on_host/ssh_probe.py")


@pytest.fixture
def site(tmp_path: Path) -> SelfserviceSite:
    return SelfserviceSite(tmp_path)


def shell(site: SelfserviceSite) -> list[str]:
    """Return the command of a session, with the environment of the test's."""
    code = f"import sys; sys.path.insert(0, {SESSION['PYTHONPATH']!r}); {site.code()}"
    return [sys.executable, "-c", code, *site.arguments("bob")[4:]]


def test_a_session_of_no_person_reads_a_public_repository(
    site: SelfserviceSite,
) -> None:
    site.source("hgfleet")
    heads = sorted(site.hg_in("hgfleet", "log", "-r", "head()", "-T", "{node}\\n").split())
    known = {"path": "hgfleet", "heads": heads}
    assert ssh_probe.session(shell(site), known, time.time()) == ""
    # Each answer is the heads', and a repository that the session may not read is told.
    assert ssh_probe.session(shell(site), {**known, "heads": ["0" * 40]}, time.time())
    private = {"path": "staff/plans", "heads": heads}
    assert "a session of staff/plans fails (" in ssh_probe.session(
        shell(site), private, time.time()
    )
