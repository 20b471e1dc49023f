"""Web hosts of a roll that no other host can stand in for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ansible"))

from deploy import roll, run  # noqa: E402
from deploy.decide import HostState  # noqa: E402

HOSTS = {
    "hg1": ["ssh", "web"],
    "hgweb1": ["web"],
    "hgweb2": ["web"],
    "proxy1": ["proxy"],
}


@pytest.mark.parametrize(
    ("batch", "everything", "new", "alone"),
    [
        (["hgweb1"], ["hg1", "hgweb1", "hgweb2", "proxy1"], [], False),
        # The primary serves no readers while there are mirrors, and a new host none yet.
        (["hgweb1"], ["hg1", "hgweb1", "proxy1"], [], True),
        (["hgweb1"], ["hg1", "hgweb1", "hgweb2"], ["hgweb2"], True),
        (["hgweb1", "hgweb2"], ["hg1", "hgweb1", "hgweb2"], [], True),
        (["hg1"], ["hg1", "proxy1"], [], True),
        (["hg1"], ["hg1", "hgweb1"], [], False),
        # A proxy is no web host.
        (["proxy1"], ["hg1", "proxy1"], [], False),
    ],
)
def test_the_last_web_host_has_no_peer(
    batch: list[str], everything: list[str], new: list[str], alone: bool
) -> None:
    known = {name: HOSTS[name] for name in everything}
    site = run.Site("production", Path("production/hosts.yml"), known, everything=known)
    states = dict.fromkeys(everything, HostState(True, primary="hg1"))
    assert roll.Roll(site, states, {}, new)._has_no_peer(batch) is alone
