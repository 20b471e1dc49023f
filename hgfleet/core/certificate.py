"""Validity of certificates, read from their DER encoding (RFC 5280, section 4.1). Pure.

The release has no library for certificates, and metrics and renewals need this one field.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

SEQUENCE: Final = 0x30
VERSION: Final = 0xA0
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
BEGIN: Final = "-----BEGIN CERTIFICATE-----"
END: Final = "-----END CERTIFICATE-----"


def validities(pem: str) -> list[tuple[float, float]]:
    """Return the begin and the end of each certificate of a PEM file, in seconds since 1970.

    Raises ValueError for a damaged certificate.
    """
    periods = []
    for block in pem.split(BEGIN)[1:]:
        body = block.partition(END)[0]
        periods.append(_validity(ssl.PEM_cert_to_DER_cert(f"{BEGIN}{body}{END}\n")))
    return periods


def _validity(der: bytes) -> tuple[float, float]:
    certificate, _ = _element(der, SEQUENCE)
    fields, _ = _element(certificate, SEQUENCE)
    if fields[:1] == bytes([VERSION]):
        _, fields = _element(fields)
    for _ in ("serial number", "signature", "issuer"):
        _, fields = _element(fields)
    validity, _ = _element(fields, SEQUENCE)
    begin, rest = _element(validity)
    end, _ = _element(rest)
    return _moment(validity[0], begin.decode("ascii")), _moment(rest[0], end.decode("ascii"))


def _moment(tag: int, text: str) -> float:
    if tag == UTC_TIME:
        # A year of two digits: 50 to 99 stand for 1950 to 1999.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError(f"got a time of type {tag:#x}, expected one of RFC 5280")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(data: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """Return the content of the first element, and the bytes after the element."""
    if len(data) < 2 or (tag is not None and data[0] != tag):
        raise ValueError("not a certificate")
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if start + size > len(data):
        raise ValueError("a certificate that is cut off")
    return data[start : start + size], data[start + size :]
