"""Settings that keep a connection to a directory safe, whichever program opens it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.directory import connection


class Module(SimpleNamespace):
    """Stands in for `ldap` or `_ldap`: every constant is its name; notes options that are set."""

    def __init__(self, *, has_certificate: bool = True) -> None:
        super().__init__(options={}, order=[], uris=[], has_certificate=has_certificate)

    def __getattr__(self, name: str) -> str:
        return name

    def initialize(self, uri: str) -> Module:
        self.uris.append(uri)
        return self

    def set_option(self, name: str, value: object) -> None:
        if name == "OPT_X_TLS_NEWCTX" and not self.has_certificate:
            raise ValueError
        self.options[name] = value
        self.order.append(name)


def connect(module: Any, uri: str) -> Any:
    return connection.connect(module, uri, ca_file="/ca.pem", timeout=2.5)


def test_a_server_is_verified_and_given_bounded_time() -> None:
    module = Module()
    assert connect(module, "ldaps://ldap1") is module
    assert module.uris == ["ldaps://ldap1"]
    assert module.options["OPT_X_TLS_REQUIRE_CERT"] == "OPT_X_TLS_DEMAND"
    assert module.options["OPT_X_TLS_CACERTFILE"] == "/ca.pem"
    assert module.options["OPT_X_TLS_PROTOCOL_MIN"] == connection.TLS_1_2
    assert module.options["OPT_NETWORK_TIMEOUT"] == module.options["OPT_TIMEOUT"] == 2.5
    assert module.options["OPT_REFERRALS"] == 0
    # libldap takes the options above into account only here.
    assert module.order[-1] == "OPT_X_TLS_NEWCTX"


def test_a_socket_needs_no_certificate() -> None:
    module = Module(has_certificate=False)
    connect(module, "ldapi://%2Frun%2Fslapd%2Fldapi")
    assert not any(name.startswith("OPT_X_TLS") for name in module.options)


@pytest.mark.parametrize(
    "uri", ["ldap://ldap1", "LDAPS://ldap1", "ldapsx://ldap1", "ldap1", "", "cldap://ldap1"]
)
def test_nothing_is_asked_in_clear(uri: str) -> None:
    module = Module()
    with pytest.raises(ConfigurationError, match="expected ldapi://PATH or ldaps://HOST"):
        connect(module, uri)
    assert module.uris == []


def test_a_file_without_certificates_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"/ca\.pem has no certificate"):
        connect(Module(has_certificate=False), "ldaps://ldap1")


def test_settings_of_the_host_and_of_people_do_not_count() -> None:
    script = (
        "import subprocess; from hgfleet.directory import connection; connection.isolate();"
        "print(subprocess.run(['env'], capture_output=True, text=True).stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "LDAPNOINIT=1\n" in done.stdout
    assert "RES_OPTIONS=timeout:1 attempts:1\n" in done.stdout
