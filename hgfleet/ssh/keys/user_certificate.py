"""User certificates of OpenSSH, read strictly (PROTOCOL.certkeys of OpenSSH).

sshd has verified the signature and trusts the CA before it asks for principals. This module reads
the principals and the restrictions of a certificate, so that a person can be looked up.
"""

from __future__ import annotations

from hgfleet.directory import publickey
from hgfleet.directory.publickey import BadKeyError, PublicKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Final

SUFFIX: Final = "-cert-v01@openssh.com"
MAX_TEXT: Final = 32768
"""Characters of base64. With an RSA key and an RSA CA of 16384 bits each, there are about 9,000."""

_IN_COMMANDS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@:+=/-"
)
"""Characters of an id that mean nothing to a shell, nor inside quotes of authorized_keys."""

_USER: Final = 1
_HOST: Final = 2


class Certificate:
    """The fields of a certificate. Times are seconds since 1970; `key` is the key it certifies."""

    key: PublicKey
    authority: str
    """Fingerprint of the CA."""
    serial: int
    is_user: bool
    key_id: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical: tuple[str, ...]
    """Names of its critical options."""

    def short_id(self) -> str:
        """Return the id for a command line: the id itself if it is harmless, else the serial."""
        if 0 < len(self.key_id) <= 128 and _IN_COMMANDS.issuperset(self.key_id):
            return self.key_id
        return f"serial={self.serial}"

    def fields(self) -> dict[str, object]:
        """Return the fields for the log."""
        return {
            "fingerprint": self.key.fingerprint,
            "serial": self.serial,
            "key_id": self.key_id,
            "ca": self.authority,
        }


def plain_type(certificate_type: str) -> str | None:
    """Return the plain key type that a certificate type stands for, or None."""
    if not certificate_type.endswith(SUFFIX):
        return None
    base = certificate_type.removesuffix(SUFFIX)
    # Types with a domain lose it: sk-ssh-ed25519@openssh.com, sk-ssh-ed25519-cert-v01@openssh.com.
    return next((t for t in publickey.KEY_TYPES if t.partition("@")[0] == base), None)


def parse(
    certificate_type: str, text: str, allowed: Collection[str] = publickey.KEY_TYPES
) -> Certificate:
    """Read sshd's %t and %k; raise BadKeyError. `allowed` are types of plain keys."""
    key_type = plain_type(certificate_type)
    if key_type is None or key_type not in allowed:
        raise BadKeyError("type", f"certificates {certificate_type[:60]} are not allowed here")
    if len(text) > MAX_TEXT:
        raise BadKeyError("too-long", f"got {len(text)} characters, at most {MAX_TEXT}")
    reader = _Reader(publickey.decode(text))
    if reader.string() != certificate_type.encode("ascii"):
        raise BadKeyError("inner-type", f"it says {certificate_type}, but is another type inside")
    reader.string()  # nonce
    parts = [reader.string() for _ in range(publickey.parts_of(key_type))]
    certificate = Certificate()
    certificate.key = publickey.from_parts(key_type, parts, allowed)
    certificate.serial = reader.number(8)
    kind = reader.number(4)
    if kind not in (_USER, _HOST):
        raise BadKeyError("malformed", f"got a certificate of kind {kind}, expected 1 or 2")
    certificate.is_user = kind == _USER
    certificate.key_id = reader.string().decode("utf-8", "backslashreplace")
    names = _Reader(reader.string())
    principals = []
    while names.rest:
        principals.append(names.string().decode("utf-8", "backslashreplace"))
    certificate.principals = tuple(principals)
    certificate.valid_after = reader.number(8)
    certificate.valid_before = reader.number(8)
    certificate.critical = _options(reader.string())
    _options(reader.string())  # extensions: permissions, of which `restrict` leaves none
    reader.string()  # reserved
    certificate.authority = publickey.fingerprint(reader.string())
    reader.string()  # signature
    if reader.rest:
        raise BadKeyError("malformed", "something follows the certificate")
    return certificate


def _options(data: bytes) -> tuple[str, ...]:
    reader = _Reader(data)
    names = []
    while reader.rest:
        names.append(reader.string().decode("utf-8", "backslashreplace"))
        reader.string()
    # "in lexical order by name, and each only once"
    if names != sorted(set(names)):
        raise BadKeyError("malformed", "the options are not in order, or twice")
    return tuple(names)


class _Reader:
    """Takes fields off the front of binary data (RFC 4251, section 5)."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def string(self) -> bytes:
        return self._take(self.number(4))

    def _take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise BadKeyError("malformed", "the certificate is cut off")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken
