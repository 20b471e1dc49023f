"""Public keys as OpenSSH writes them: strict reading, and the fingerprint.

Stricter than sshd, which accepts options before a key: a key from a directory with `command="..."`
in front would replace the forced command, the only thing that a session may run.
"""

from __future__ import annotations

import binascii

from hgfleet.core.errors import HgfleetError

# `re`, `typing` and `hashlib` would take longer to import than the rest of a login's key lookup
# takes to run; `_sha2` is the part of hashlib that does not load OpenSSL.
try:
    from _sha2 import sha256
except ImportError:  # Python 3.11
    from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Final, NoReturn

KEY_TYPES: Final = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
"""Every type that can be read here; a site allows some of them. DSA is gone from OpenSSH 10."""

MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 16384
"""The longest RSA key that OpenSSH makes (SSHBUF_MAX_BIGNUM)."""

MAX_TEXT: Final = 8192
"""Characters of a key line; an RSA key of 16384 bits has about 2,800."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")

_POINT_BYTES: Final = {"nistp256": 65, "nistp384": 97, "nistp521": 133}


class BadKeyError(HgfleetError):
    """A text that is not an acceptable public key; `reason` is a word for the log."""

    exit_code = 65

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PublicKey:
    """A key that passed every check; `blob` is base64 as it stood in the text."""

    __slots__ = ("blob", "fingerprint", "type")

    def __init__(self, key_type: str, blob: str, fingerprint: str) -> None:
        self.type = key_type
        self.blob = blob
        self.fingerprint = fingerprint

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicKey):
            return NotImplemented
        return (self.type, self.blob) == (other.type, other.blob)

    def __hash__(self) -> int:
        return hash(self.blob)

    def __repr__(self) -> str:
        return f"PublicKey({self.type!r}, {self.blob!r})"


def is_fingerprint(text: str) -> bool:
    """Whether this is a fingerprint as sshd writes it (%f): `SHA256:` and 43 base64 characters."""
    return len(text) == 50 and text.startswith("SHA256:") and _BASE64.issuperset(text[7:])


def parse(text: str, allowed: Collection[str] = KEY_TYPES) -> PublicKey:
    """Read a line `type base64 [comment]`; raise BadKeyError for everything else."""
    if len(text) > MAX_TEXT:
        raise BadKeyError("too-long", f"got a key of {len(text)} characters, at most {MAX_TEXT}")
    # Blanks are the only white space that is printable.
    if not text.isprintable():
        raise BadKeyError("not-one-line", "got a key with line breaks or control characters in it")
    parts = text.split(maxsplit=2)
    if len(parts) < 2 or parts[0] not in KEY_TYPES or not _looks_like_base64(parts[1]):
        _explain(text)
    return check(parts[0], parts[1], allowed)


def comment(text: str) -> str:
    """Return the comment after a key that `parse` accepts, or an empty text."""
    parts = text.split(maxsplit=2)
    return parts[2].strip() if len(parts) == 3 else ""


def _looks_like_base64(text: str) -> bool:
    stripped = text.rstrip("=")
    return bool(stripped) and len(text) - len(stripped) <= 2 and _BASE64.issuperset(stripped)


def _explain(text: str) -> NoReturn:
    first, *rest = text.strip().split(" ")
    if any(word in KEY_TYPES for word in rest):
        raise BadKeyError(
            "options", f"got options before the key ({first[:40]}); a key stands alone on its line"
        )
    if first not in KEY_TYPES:
        raise BadKeyError("type", f"got {first[:40]!r} where one of {', '.join(KEY_TYPES)} belongs")
    raise BadKeyError("not-a-key", f"got {first} without a key in base64 after it")


def check(key_type: str, blob: str, allowed: Collection[str] = KEY_TYPES) -> PublicKey:
    """Check a type and its base64 (sshd's %t and %k) and compute the fingerprint."""
    if key_type not in allowed or key_type not in KEY_TYPES:
        raise BadKeyError("type", f"keys of type {key_type[:60]} are not allowed here")
    if len(blob) > MAX_TEXT:
        raise BadKeyError("too-long", f"got a key of {len(blob)} characters, at most {MAX_TEXT}")
    data = decode(blob)
    _check_blob(key_type, data)
    return PublicKey(key_type, blob, fingerprint(data))


def decode(text: str) -> bytes:
    """Decode base64, canonical only: otherwise two texts would have the same fingerprint."""
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise BadKeyError("base64", f"the key is not base64 ({error})") from error
    if binascii.b2a_base64(data, newline=False).decode("ascii") != text:
        raise BadKeyError("base64", "the key is non-canonical base64")
    return data


def parts_of(key_type: str) -> int:
    """How many parts follow the type in the binary form."""
    return 1 + ("ed25519" not in key_type) + key_type.startswith("sk-")


def from_parts(
    key_type: str, parts: Iterable[bytes], allowed: Collection[str] = KEY_TYPES
) -> PublicKey:
    """Assemble a key from its parts, and check it."""
    fields = (key_type.encode("ascii"), *parts)
    data = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return check(key_type, binascii.b2a_base64(data, newline=False).decode("ascii"), allowed)


def fingerprint(data: bytes) -> str:
    """The fingerprint of a key's binary form, as `ssh-keygen -l` prints it."""
    digest = binascii.b2a_base64(sha256(data).digest(), newline=False)
    return f"SHA256:{digest.decode('ascii').rstrip('=')}"


def _check_blob(key_type: str, data: bytes) -> None:
    """Check the fields of the binary form (RFC 4253, 5656, 8709, PROTOCOL.u2f)."""
    fields = _fields(data)
    if fields[0] != key_type.encode("ascii"):
        raise BadKeyError("inner-type", f"the key says {key_type}, but is another type inside")
    kind = key_type.removeprefix("sk-").removesuffix("@openssh.com")
    is_sk = key_type.startswith("sk-")
    if kind == "ssh-ed25519":
        good = len(fields) == 2 + is_sk and len(fields[1]) == 32
    elif kind == "ssh-rsa":
        good = len(fields) == 3
        bits = int.from_bytes(fields[2], "big").bit_length() if good else 0
        if good and not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
            raise BadKeyError(
                "rsa-size", f"got an RSA key of {bits} bits, expected {MIN_RSA_BITS} or more"
            )
    else:
        curve = kind.removeprefix("ecdsa-sha2-")
        good = (
            len(fields) == 3 + is_sk
            and fields[1] == curve.encode("ascii")
            and len(fields[2]) == _POINT_BYTES[curve]
        )
    if not good:
        raise BadKeyError("malformed", f"the key is not a well-formed {key_type}")


def _fields(data: bytes) -> list[bytes]:
    """Split into the length-prefixed strings that a key is made of; nothing may remain."""
    fields: list[bytes] = []
    position = 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        end = position + 4 + length
        if end > len(data) or position + 4 > len(data) or len(fields) == 4:
            raise BadKeyError("malformed", "the key is cut off or has more parts than a key has")
        fields.append(data[position + 4 : end])
        position = end
    return fields or [b""]
