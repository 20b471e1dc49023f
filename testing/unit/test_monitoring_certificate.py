"""The end of a certificate, compared with what a library reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from hgfleet.monitoring import certificate

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


def pem(end: datetime, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None) -> str:
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "host.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "end",
    [datetime(2027, 3, 4, 5, 6, 7, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)],
    ids=["two digits of the year", "four digits"],
)
def test_the_end_of_a_certificate_is_read(end: datetime) -> None:
    assert certificate.expiries(pem(end)) == [end.timestamp()]


def test_a_large_certificate_is_read() -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert certificate.expiries(pem(end, key)) == [end.timestamp()]


def test_every_certificate_of_a_file_counts_and_other_lines_do_not() -> None:
    first, second = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    text = f"# A note\n{pem(first)}{pem(second)}# Another one\n"
    assert certificate.expiries(text) == [first.timestamp(), second.timestamp()]


def test_a_file_without_a_certificate_has_no_end() -> None:
    assert certificate.expiries("") == []


def test_a_damaged_certificate_is_an_error() -> None:
    lines = pem(datetime(2030, 1, 1, tzinfo=UTC)).splitlines()
    with pytest.raises(ValueError, match="cut off"):
        certificate.expiries("\n".join([lines[0], lines[1], lines[-1]]))
    with pytest.raises(ValueError, match="not a certificate"):
        certificate.expiries("\n".join([lines[0], "bm8=", lines[-1]]))
