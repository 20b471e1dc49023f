"""Which requests the role objectstore keeps out of the journal, with sed itself."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from testing.unit.ansible.role_variables import of_role, refused, value

PROBER = "10.213.1.40"
READ = "s3_GetObject e2e/x.hg /private/e2e/x.hg 206 - 0 8"


def templar(*probers: str) -> Templar:
    """Return a templar of the role for a store with these probers and a private bucket."""
    buckets = [{"name": "private", "writers": ["writer"], "readers": ["reader"]}]
    given: dict[str, Any] = {"objectstore_probers": [*probers], "objectstore_buckets": buckets}
    return Templar(loader=DataLoader(), variables=of_role("objectstore") | given)


def logged(line: str, *probers: str) -> bool:
    """Return whether the journal keeps a line of the server."""
    options = shlex.split(str(value(templar(*probers), "_objectstore_unlogged")))
    done = subprocess.run(
        ["sed", "-u", "-E", *options, "-e", "p;d"],
        input=f"{line}\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout in ("", f"{line}\n")
    return bool(done.stdout)


@pytest.mark.parametrize(
    ("address", "account", "said", "kept"),
    [
        (PROBER, "-", READ, False),
        (PROBER, "reader", READ, False),
        (PROBER, "-", READ.replace("206", "200").replace("Get", "Head"), False),
        (PROBER, "-", "s3_HeadBucket - /private/ 403 AccessDenied 0", False),
        (PROBER, "writer", READ, True),
        (PROBER, "-", READ.replace("206", "404"), True),
        (PROBER, "writer", READ.replace("Get", "Put").replace("206", "200"), True),
        (PROBER, "-", "s3_ListBucket - /private/ 403 AccessDenied 0", True),
        ("10.213.1.4", "-", READ, True),
        ("10.213.1.401", "-", READ, True),
        ("10.213.1x40", "-", READ, True),
    ],
)
def test_only_what_a_prober_has_read_is_left_out(
    address: str, account: str, said: str, kept: bool
) -> None:
    line = f"root private [27/November/2026:08:00:31 +0000] {address} {account} 9CTJ {said}"

    assert logged(line, "2001:db8::7", PROBER) is kept
    assert logged(line), "without probers each request is there"


@pytest.mark.parametrize("address", ["10.0.0.1/d;w /x", '10.0.0.1" -e "d', "10.0.0.0/8", "hg1", ""])
def test_a_prober_that_is_no_address_is_refused(address: str) -> None:
    assert "expected addresses" in refused(templar(PROBER, address), "objectstore", "_probers")
    assert not refused(templar(PROBER, "2001:db8::7"), "objectstore", "_probers")
