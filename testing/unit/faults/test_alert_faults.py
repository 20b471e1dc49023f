"""Faults that alerts tell of: the parts of them that need no cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testing.faults import alert_faults, alert_table

if TYPE_CHECKING:
    from pathlib import Path

UNIT = """\
# /etc/systemd/system/exporter.service
[Service]
ExecStart=/usr/bin/exporter \\
    --one \\
    --two=(a|b)
User=prometheus
"""


def test_a_command_of_a_unit_is_one_line() -> None:
    assert alert_faults.exec_start(UNIT) == "/usr/bin/exporter --one --two=(a|b)"
    with pytest.raises(ValueError, match="no ExecStart"):
        alert_faults.exec_start("[Service]\n")


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
) -> str:
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_certificate_that_ends_soon_has_the_key_and_the_names_of_the_other(
    tmp_path: Path,
) -> None:
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    (tmp_path / "ca.pem").write_text(certificate("ca", ca_key, "ca", ca_key))
    (tmp_path / "ca.key").write_bytes(
        ca_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    before = x509.load_pem_x509_certificate(certificate("s3", key, "ca", ca_key).encode())
    text = before.public_bytes(serialization.Encoding.PEM).decode()
    after = x509.load_pem_x509_certificate(alert_faults.ending(text, tmp_path, days=5).encode())
    assert after.public_key() == before.public_key()
    assert after.subject == before.subject
    assert [extension.value for extension in after.extensions] == [
        extension.value for extension in before.extensions
    ]
    assert timedelta(days=4) < after.not_valid_after_utc - datetime.now(UTC) < timedelta(days=5)
    after.verify_directly_issued_by(
        x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    )


def test_an_alert_is_provoked_by_one_fault_and_once_with_the_same_labels() -> None:
    names = [name for fault in alert_table.TABLE for name in {shown.alert for shown in fault.shown}]
    assert len(names) == len(set(names))
    assert set(names) == set(alert_table.provoked())
    for fault in alert_table.TABLE:
        labels = [
            (shown.alert, shown.place, *sorted(shown.labels.items())) for shown in fault.shown
        ]
        assert len(labels) == len(set(labels))


def test_the_gate_provokes_an_alert_of_a_broken_part_and_one_of_a_record() -> None:
    by_alert = {shown.alert: fault for fault in alert_table.TABLE for shown in fault.shown}
    kinds = [by_alert[name].kind for name in alert_table.SMOKE]
    assert kinds == [alert_table.Kind.FAULT, alert_table.Kind.RECORD]
