"""The client certificate that the cluster's Prometheus asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from controller.cluster import certificate

if TYPE_CHECKING:
    from pathlib import Path


def make_ca(folder: Path) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test CA")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "ca.key").write_bytes(private)
    return made


def test_a_client_gets_a_certificate_of_the_ca_with_its_key(tmp_path: Path) -> None:
    ca, file = make_ca(tmp_path), tmp_path / "client.pem"
    file.write_text("former")
    certificate.main(tmp_path, "cluster", file)
    issued = x509.load_pem_x509_certificate(file.read_bytes())
    issued.verify_directly_issued_by(ca)
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    assert key.public_key() == issued.public_key()
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["cluster"]


def test_the_file_with_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    make_ca(tmp_path)
    certificate.main(tmp_path, "cluster", tmp_path / "client.pem")
    assert (tmp_path / "client.pem").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "client.new").exists()
