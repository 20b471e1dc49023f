"""When a certificate is due, and how lego is asked to renew it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgfleet.acme import renewal
from hgfleet.acme.renewal import DAY_SECONDS, Issued
from hgfleet.acme.settings import Settings

NOW = 1_795_598_185.0
SETTINGS = Settings("https://acme.example/dir", "a@example.org", ("a.example.org", "b.example.org"))


def issued(days: float, left: float) -> Issued:
    """A certificate that is valid for some days, some of which are left."""
    end = NOW + left * DAY_SECONDS
    names = frozenset(SETTINGS.names)
    return Issued(SETTINGS.directory, names, end - days * DAY_SECONDS, end)


def test_a_host_without_a_certificate_of_the_ca_needs_one() -> None:
    assert renewal.reason(SETTINGS, None, NOW) == "none is there"


@pytest.mark.parametrize(
    ("days", "left", "is_due"),
    [
        (90, 89, False),
        (90, 30.1, False),
        (90, 29.9, True),
        (90, -1, True),
        # Half of a shorter validity: 21 days before the end is the alert.
        (45, 22.6, False),
        (45, 22.4, True),
        (6, 3.1, False),
        (6, 2.9, True),
        (1826, 31, False),
    ],
)
def test_a_certificate_is_renewed_long_before_its_end(
    days: float, left: float, is_due: bool
) -> None:
    reason = renewal.reason(SETTINGS, issued(days, left), NOW)
    assert bool(reason) == is_due, reason


def test_the_order_of_names_is_no_reason_and_another_name_is_one() -> None:
    certificate = issued(90, 80)
    assert not renewal.reason(replace(SETTINGS, names=SETTINGS.names[::-1]), certificate, NOW)
    fewer = replace(SETTINGS, names=SETTINGS.names[:1])
    assert "a.example.org, b.example.org" in renewal.reason(fewer, certificate, NOW)


def test_another_ca_is_a_reason() -> None:
    other = replace(SETTINGS, directory="https://other.example/dir")
    assert "https://acme.example/dir" in renewal.reason(other, issued(90, 80), NOW)


def test_lego_listens_on_the_loopback_interface_and_has_each_value_as_one_argument() -> None:
    arguments = renewal.arguments(replace(SETTINGS, challenge_port=403), Path("/folder"))
    assert arguments[-1] == "run"
    assert "--http.port=127.0.0.1:403" in arguments
    assert [argument for argument in arguments if argument.startswith("--domains")] == [
        "--domains=a.example.org",
        "--domains=b.example.org",
    ]
    assert all(argument.startswith("--") for argument in arguments[:-1])


def test_a_certificate_of_the_future_is_renewed() -> None:
    """Clients refuse it until then."""
    ahead = replace(issued(90, 89), not_before=NOW + DAY_SECONDS)
    assert renewal.reason(SETTINGS, ahead, NOW) == (
        "the certificate in use is not valid yet by the clock of this host"
    )
