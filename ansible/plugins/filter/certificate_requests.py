"""The filter that compares a certificate request with the host that it came from.

The CA signs the content of a request. A host that an attacker controls may return any request.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

EXTENSIONS: Final = frozenset(
    {
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
    }
)
USES: Final = frozenset({ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH})

DIGITAL_SIGNATURE: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _names(extensions: x509.Extensions) -> set[str]:
    """Return the names in Ansible's notation: DNS:hg1.example.org, IP:192.0.2.1."""
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    kinds = {x509.DNSName: "DNS", x509.IPAddress: "IP"}
    return {f"{kinds.get(type(name), type(name).__name__)}:{name.value}" for name in names}


def _normal(name: str) -> str:
    kind, _, value = name.partition(":")
    return f"IP:{ip_address(value)}" if kind == "IP" else name


def certificate_request_problems(
    request: str, common_name: str, names: Collection[str]
) -> list[str]:
    """Return a sentence for each thing that a request (PEM) asks for and its host may not have.

    `names` are in Ansible's notation. A host is a server and a client, and nothing else: a request
    may ask for a CA, or for the name of another host.
    """
    try:
        asked = x509.load_pem_x509_csr(request.encode("ascii", "replace"))
        extensions = {extension.oid: extension.value for extension in asked.extensions}
        asked_names = _names(asked.extensions)
        is_signed = asked.is_signature_valid
    except (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return ["It is no valid request."]
    problems = []
    if not is_signed:
        problems.append("Its key did not make its signature.")
    subject = [(attribute.oid, attribute.value) for attribute in asked.subject]
    if subject != [(NameOID.COMMON_NAME, common_name)]:
        shown = asked.subject.rfc4514_string()
        problems.append(f"Its subject is '{shown}', expected 'CN={common_name}'.")
    expected = {_normal(name) for name in names}
    if asked_names != expected:
        problems.append(f"It has the names {sorted(asked_names)}, expected {sorted(expected)}.")
    problems += [
        f"It has the extension {oid.dotted_string}, which no certificate of a host has."
        for oid in extensions
        if oid not in EXTENSIONS
    ]
    usage = extensions.get(ExtensionOID.KEY_USAGE)
    uses = extensions.get(ExtensionOID.EXTENDED_KEY_USAGE)
    if (
        usage != DIGITAL_SIGNATURE
        or not isinstance(uses, x509.ExtendedKeyUsage)
        or set(uses) != USES
    ):
        problems.append("It is not for signatures of only a server and a client.")
    return problems


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"certificate_request_problems": certificate_request_problems}
