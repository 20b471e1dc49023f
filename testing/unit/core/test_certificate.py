"""The validity of a certificate, compared with the values that a library reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from hgfleet.core import certificate
from testing.support.certificates import BEGIN, pem


@pytest.mark.parametrize(
    "end",
    [datetime(2027, 3, 4, 5, 6, 7, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)],
    ids=["two digits of the year", "four digits"],
)
def test_the_validity_of_a_certificate_is_read(end: datetime) -> None:
    assert certificate.validities(pem(end)) == [(BEGIN.timestamp(), end.timestamp())]


def test_a_large_certificate_is_read() -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert certificate.validities(pem(end, key)) == [(BEGIN.timestamp(), end.timestamp())]


def test_every_certificate_of_a_file_counts_and_other_lines_do_not() -> None:
    first, second = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    text = f"# A note\n{pem(first)}{pem(second)}# Another one\n"
    ends = [end for _, end in certificate.validities(text)]
    assert ends == [first.timestamp(), second.timestamp()]


def test_a_file_without_a_certificate_has_no_validity() -> None:
    assert certificate.validities("") == []


def test_a_damaged_certificate_is_an_error() -> None:
    lines = pem(datetime(2030, 1, 1, tzinfo=UTC)).splitlines()
    with pytest.raises(ValueError, match="cut off"):
        certificate.validities("\n".join([lines[0], lines[1], lines[-1]]))
    with pytest.raises(ValueError, match="not a certificate"):
        certificate.validities("\n".join([lines[0], "bm8=", lines[-1]]))
