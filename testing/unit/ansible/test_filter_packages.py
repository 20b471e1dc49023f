"""Whether apt is asked at all."""

from __future__ import annotations

import pytest

from testing.support import loading

packages = loading.module("ansible/plugins/filter/packages.py")

LISTING = """\
ii nginx
hi slapd
rc restic
iU socat
un haproxy
"""


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["nginx"], False),
        (["nginx", "slapd"], False),
        (["nginx", "restic"], True),
        (["socat"], True),
        (["haproxy"], True),
        (["nginx=1.26"], True),
        (["another"], True),
        ([], False),
    ],
)
def test_a_package_that_is_not_whole_is_missing(names: list[str], missing: bool) -> None:
    assert packages.any_missing(names, {"stdout": LISTING}) is missing


@pytest.mark.parametrize("nothing", [{}, None, {"stdout": ""}])
def test_without_a_list_every_package_is_missing(nothing: dict[str, str] | None) -> None:
    assert packages.any_missing(["nginx"], nothing)
