"""Keys are keys that ssh-keygen made, or they are refused; nothing in between."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import textwrap
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from hgfleet.directory import publickey
from hgfleet.directory.publickey import BadKeyError

if TYPE_CHECKING:
    from pathlib import Path


def text(*fields: bytes) -> str:
    return base64.b64encode(b"".join(len(f).to_bytes(4, "big") + f for f in fields)).decode()


ED25519 = text(b"ssh-ed25519", bytes(range(32)))
SK = text(b"sk-ssh-ed25519@openssh.com", bytes(range(32)), b"ssh:")


def rsa(size: int) -> str:
    return text(b"ssh-rsa", b"\x01\x00\x01", b"\x00" + b"\xc5" * size)


RSA = rsa(384)
P256 = text(b"ecdsa-sha2-nistp256", b"nistp256", b"\x04" + bytes(64))
SK_P256 = text(b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\x04" + bytes(64), b"ssh:")

GOOD = {
    "ssh-ed25519": ED25519,
    "sk-ssh-ed25519@openssh.com": SK,
    "ssh-rsa": RSA,
    "ecdsa-sha2-nistp256": P256,
    "ecdsa-sha2-nistp384": text(b"ecdsa-sha2-nistp384", b"nistp384", b"\x04" + bytes(96)),
    "ecdsa-sha2-nistp521": text(b"ecdsa-sha2-nistp521", b"nistp521", b"\x04" + bytes(132)),
    "sk-ecdsa-sha2-nistp256@openssh.com": SK_P256,
}


@pytest.mark.parametrize("kind", publickey.KEY_TYPES)
def test_every_type_can_be_read(kind: str) -> None:
    key = publickey.parse(f"{kind} {GOOD[kind]} alice@laptop")
    assert (key.type, key.blob) == (kind, GOOD[kind])
    assert publickey.is_fingerprint(key.fingerprint)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_fingerprint_is_that_of_ssh_keygen(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", f"{path}.pub"], check=True, capture_output=True, text=True
    )
    key = publickey.parse((tmp_path / "key.pub").read_text().rstrip("\n"))
    assert key.fingerprint == shown.stdout.split()[1]


@pytest.mark.parametrize("comment", ["", " alice@laptop", " two words", " José", '  "quoted"'])
def test_a_comment_may_be_anything_on_one_line(comment: str) -> None:
    assert publickey.parse(f"ssh-ed25519 {ED25519}{comment}").blob == ED25519


HOSTILE = {
    "nothing": ("", "type"),
    "a blank": (" ", "type"),
    "only a type": ("ssh-ed25519", "not-a-key"),
    "no type": (ED25519, "type"),
    "command": (f'command="sh" ssh-ed25519 {ED25519}', "options"),
    "option without value": (f"no-pty ssh-ed25519 {ED25519}", "options"),
    "environment": (f'environment="A=b" ssh-ed25519 {ED25519}', "options"),
    "cert-authority": (f"cert-authority ssh-ed25519 {ED25519}", "options"),
    "option after a tab": (f'command="sh"\tssh-ed25519 {ED25519}', "not-one-line"),
    "second line": (f"ssh-ed25519 {ED25519}\nssh-ed25519 {ED25519}", "not-one-line"),
    "carriage return": (f"ssh-ed25519 {ED25519}\r\nssh-rsa x", "not-one-line"),
    "unicode line break": (f"ssh-ed25519 {ED25519} a\u2028b", "not-one-line"),
    "NUL": (f"ssh-ed25519 {ED25519}\0", "not-one-line"),
    "escape sequence": (f"ssh-ed25519 {ED25519} \x1b[2J", "not-one-line"),
    "right-to-left": (f"ssh-ed25519 {ED25519} \u202e", "not-one-line"),
    "comment sign": (f"#ssh-ed25519 {ED25519}", "type"),
    "DSA": (f"ssh-dss {text(b'ssh-dss', b'x')}", "type"),
    "certificate": (f"ssh-ed25519-cert-v01@openssh.com {ED25519}", "type"),
    "capitals": (f"SSH-ED25519 {ED25519}", "type"),
    "another type inside": (f"ssh-ed25519 {RSA}", "inner-type"),
    "RSA that is ed25519": (f"ssh-rsa {ED25519}", "inner-type"),
    "cut off": (f"ssh-ed25519 {ED25519[:40]}", "malformed"),
    "too short a key": (f"ssh-ed25519 {text(b'ssh-ed25519', bytes(31))}", "malformed"),
    "too long a key": (f"ssh-ed25519 {text(b'ssh-ed25519', bytes(33))}", "malformed"),
    "a field too many": (f"ssh-ed25519 {text(b'ssh-ed25519', bytes(32), b'')}", "malformed"),
    "many fields": (f"ssh-ed25519 {text(b'ssh-ed25519', *[b''] * 100)}", "malformed"),
    "a length that lies": (
        "ssh-ed25519 " + base64.b64encode(b"\xff\xff\xff\xff" + bytes(40)).decode(),
        "malformed",
    ),
    "rest after the key": (
        "ssh-ed25519 " + base64.b64encode(base64.b64decode(ED25519) + b"\0\0").decode(),
        "malformed",
    ),
    "security key without application": (
        f"sk-ssh-ed25519@openssh.com {text(b'sk-ssh-ed25519@openssh.com', bytes(32))}",
        "malformed",
    ),
    "wrong curve": (
        f"ecdsa-sha2-nistp256 {text(b'ecdsa-sha2-nistp256', b'nistp384', bytes(65))}",
        "malformed",
    ),
    "RSA of 1024 bits": (
        f"ssh-rsa {rsa(128)}",
        "rsa-size",
    ),
    "RSA of 32768 bits": (
        f"ssh-rsa {rsa(4096)}",
        "rsa-size",
    ),
    "not base64": ("ssh-ed25519 AAAA!!!!", "not-a-key"),
    "base64 with a gap": (f"ssh-ed25519 {ED25519[:20]}\\{ED25519[20:]}", "not-a-key"),
    "padding in the middle": (f"ssh-ed25519 AAAA=={ED25519}", "not-a-key"),
    "padding missing": ("ssh-ed25519 AAAAC", "base64"),
    "64 KiB": ("ssh-ed25519 " + "A" * 65536, "too-long"),
    "64 KiB of comment": (f"ssh-ed25519 {ED25519} " + "x" * 65536, "too-long"),
    "spelled with loose bits": (
        "ssh-ed25519 " + base64.b64encode(base64.b64decode(ED25519) + b"\0").decode()[:-3] + "B==",
        "base64",
    ),
}


@pytest.mark.parametrize(("line", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_everything_else_is_refused_with_a_reason(line: str, reason: str) -> None:
    with pytest.raises(BadKeyError) as caught:
        publickey.parse(line)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 300, "the sentence is for a person"


def test_a_site_can_allow_fewer_types() -> None:
    with pytest.raises(BadKeyError) as caught:
        publickey.parse(f"ssh-rsa {RSA}", {"ssh-ed25519"})
    assert caught.value.reason == "type"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "SHA256:",
        "SHA256:" + "a" * 42,
        "SHA256:" + "a" * 44,
        "sha256:" + "a" * 43,
        "MD5:" + "a" * 43,
        "SHA256:" + "a" * 42 + "*",
        "SHA256:" + "a" * 42 + "=",
        "SHA256:" + "a" * 43 + "\n",
        "SHA256:" + "é" * 43,
    ],
)
def test_what_is_not_a_fingerprint(wrong: str) -> None:
    assert not publickey.is_fingerprint(wrong)


def test_a_security_key_made_in_software_signs_what_openssh_accepts(tmp_path: Path) -> None:
    """OpenSSH verifies signatures with the key that is read here (PROTOCOL.u2f, .sshsig)."""

    def packed(*fields: bytes) -> bytes:
        return b"".join(len(field).to_bytes(4, "big") + field for field in fields)

    kind, application, namespace, message = (
        b"sk-ssh-ed25519@openssh.com",
        b"ssh:",
        b"file",
        b"hello",
    )
    private = ed25519.Ed25519PrivateKey.generate()
    blob = packed(kind, private.public_key().public_bytes_raw(), application)
    key = publickey.parse(f"{kind.decode()} {base64.b64encode(blob).decode()} token")
    # The data that OpenSSH signs, inside the data of a token: application, presence, counter.
    wrapped = b"SSHSIG" + packed(namespace, b"", b"sha512", hashlib.sha512(message).digest())
    presence = b"\x01" + (7).to_bytes(4, "big")
    signed = hashlib.sha256(application).digest() + presence + hashlib.sha256(wrapped).digest()
    signature = packed(kind, private.sign(signed)) + presence
    whole = b"SSHSIG" + (1).to_bytes(4, "big")
    whole += packed(blob, namespace, b"", b"sha512", signature)
    lines = textwrap.wrap(base64.b64encode(whole).decode(), 70)
    begin, end = (f"-----{word} SSH SIGNATURE-----" for word in ("BEGIN", "END"))
    (tmp_path / "signature").write_text("\n".join([begin, *lines, end, ""]))
    (tmp_path / "signers").write_text(f"carol {key.type} {key.blob}\n")

    done = subprocess.run(
        [
            *("ssh-keygen", "-Y", "verify", "-f", tmp_path / "signers", "-I", "carol"),
            *("-n", "file", "-s", tmp_path / "signature"),
        ],
        input=message,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert key.fingerprint.encode() in done.stdout
