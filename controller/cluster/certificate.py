"""Sign a client certificate with the cluster's CA.

    python controller/cluster/certificate.py CA_FOLDER NAME FILE

FILE gets certificate and key, readable only for its owner. The controller's Python runs it: the
Python of ./cluster itself has no library for certificates.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

DAYS = 365
NOT_YET = timedelta(hours=1)
"""Clocks of hosts in virtual machines may be behind."""


def main(folder: Path, name: str, file: Path) -> None:
    """Make a key and a certificate of its owner; replace the file."""
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    ca_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'ca.key'}: expected the key that the role base makes")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - NOT_YET)
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    new.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
