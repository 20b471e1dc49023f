"""The question of sshd: a public key or a certificate, checked before the directory is asked."""

from __future__ import annotations

from hgfleet.core.names import is_person
from hgfleet.directory import publickey
from hgfleet.directory.entries import DeniedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hgfleet.ssh.keys.user_certificate import Certificate


def check_key(arguments: Sequence[str], allowed: Iterable[str]) -> publickey.PublicKey:
    """Check sshd's %f %t %k: three arguments that describe the same allowed key."""
    if len(arguments) != 3 or not publickey.is_fingerprint(arguments[0]):
        raise DeniedError("question")
    fingerprint, key_type, blob = arguments
    try:
        key = publickey.check(key_type, blob, frozenset(allowed))
    except publickey.BadKeyError as error:
        raise DeniedError("type" if error.reason == "type" else "question", error.reason) from error
    if key.fingerprint != fingerprint:
        raise DeniedError("question", "fingerprint")
    return key


def principal_of(certificate: Certificate, now: float) -> str:
    """Return the only person that a certificate is for; sshd has checked its CA and signature.

    Restrictions that sshd applies by itself are allowed. `force-command` is not: sshd refuses a
    login whose certificate forces another command than ours.
    """
    if not certificate.is_user:
        raise DeniedError("host-certificate")
    unknown = [n for n in certificate.critical if n not in ("source-address", "verify-required")]
    if unknown:
        raise DeniedError("critical-option", ",".join(unknown[:5]))
    if now < certificate.valid_after:
        raise DeniedError("not-yet-valid")
    if now >= certificate.valid_before:
        raise DeniedError("expired")
    # sshd accepts a certificate without principals for every name.
    if len(certificate.principals) != 1:
        raise DeniedError("principals", f"{len(certificate.principals)}, expected 1")
    name = certificate.principals[0]
    if not is_person(name):
        raise DeniedError("name", name)
    return name


def check_certificate(arguments: Sequence[str], allowed: Iterable[str]) -> Certificate:
    """Check sshd's %t %k: two arguments that describe a certificate of an allowed type."""
    from hgfleet.ssh.keys import user_certificate

    if len(arguments) != 2:
        raise DeniedError("question")
    try:
        return user_certificate.parse(arguments[0], arguments[1], frozenset(allowed))
    except publickey.BadKeyError as error:
        raise DeniedError("type" if error.reason == "type" else "question", error.reason) from error
