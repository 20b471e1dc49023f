"""The filter that compares a request with its host: requests of openssl, and refusals."""

from __future__ import annotations

import base64
import subprocess
from typing import TYPE_CHECKING

import pytest

from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path

certificate_requests = loading.module("ansible/plugins/filter/certificate_requests.py")

NAMES = ["DNS:hg1.example.org", "DNS:192.0.2.1", "IP:192.0.2.1", "IP:2001:db8:0:0::1"]
RIGHT = {
    "subjectAltName": "DNS:hg1.example.org, DNS:192.0.2.1, IP:192.0.2.1, IP:2001:db8::1",
    "keyUsage": "critical, digitalSignature",
    "extendedKeyUsage": "serverAuth, clientAuth",
}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key of a host."""
    path = tmp_path_factory.mktemp("key") / "key.pem"
    words = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path)]
    subprocess.run(["openssl", *words], check=True)
    return path


def request(key: Path, subject: str = "/CN=hg1.example.org", **changed: str) -> str:
    """Return a request with the right extensions, but for those in `changed`; "" omits one."""
    extensions = {name: value for name, value in {**RIGHT, **changed}.items() if value}
    words = ["openssl", "req", "-new", "-key", str(key), "-subj", subject]
    for name, value in extensions.items():
        words += ["-addext", f"{name}={value}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def problems(text: str) -> list[str]:
    """Return the sentences about a request of hg1.example.org."""
    texts: list[str] = certificate_requests.certificate_request_problems(
        text, "hg1.example.org", NAMES
    )
    return texts


def test_the_request_that_a_host_was_told_to_make_has_no_problem(key: Path) -> None:
    assert problems(request(key)) == []


@pytest.mark.parametrize(
    ("subject", "changed", "words"),
    [
        ("/CN=hg2.example.org", {}, "Its subject is 'CN=hg2.example.org'"),
        ("/CN=hg1.example.org/CN=hg2.example.org", {}, "Its subject is"),
        ("/O=hg2/CN=hg1.example.org", {}, "Its subject is"),
        (None, {"subjectAltName": ""}, "It has the names []"),
        (None, {"subjectAltName": "DNS:hg1.example.org"}, "It has the names"),
        (None, {"subjectAltName": RIGHT["subjectAltName"] + ", DNS:hg2"}, "It has the names"),
        (None, {"subjectAltName": RIGHT["subjectAltName"] + ", DNS:*.example.org"}, "'DNS:*."),
        (None, {"subjectAltName": RIGHT["subjectAltName"] + ", URI:spiffe://x"}, "the names"),
        (None, {"subjectAltName": RIGHT["subjectAltName"] + ", email:a@b.c"}, "It has the names"),
        (None, {"basicConstraints": "critical, CA:TRUE"}, "It has the extension 2.5.29.19"),
        (None, {"nameConstraints": "permitted;DNS:x"}, "It has the extension 2.5.29.30"),
        (None, {"keyUsage": "critical, digitalSignature, keyCertSign"}, "It is not for signatures"),
        (None, {"keyUsage": ""}, "It is not for signatures"),
        (None, {"extendedKeyUsage": ""}, "It is not for signatures"),
        (None, {"extendedKeyUsage": "serverAuth, clientAuth, codeSigning"}, "It is not for"),
    ],
)
def test_a_request_for_anything_else_is_named(
    key: Path, subject: str | None, changed: dict[str, str], words: str
) -> None:
    (problem,) = problems(request(key, subject or "/CN=hg1.example.org", **changed))
    assert words in problem


@pytest.mark.parametrize(
    "text", ["", "(request)", "\x00\u20ac", "-----BEGIN CERTIFICATE REQUEST-----"]
)
def test_what_is_no_request_is_named(text: str) -> None:
    assert problems(text) == ["It is no valid request."]


def test_a_request_that_was_changed_after_it_was_signed_is_refused(key: Path) -> None:
    lines = request(key).splitlines()
    content = bytearray(base64.b64decode("".join(lines[1:-1])))
    # The last byte is of the signature.
    content[-1] ^= 1
    text = "\n".join([lines[0], base64.b64encode(content).decode(), lines[-1]])
    assert problems(text) in (
        ["Its key did not make its signature."],
        ["It is no valid request."],
    )
