"""The preflight of the role acme, and the hosts that forward challenges to each other."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from hgfleet.acme import settings
from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import parse_table
from testing.unit.ansible import role_variables
from testing.unit.ansible.role_variables import of_role

RIGHT: dict[str, Any] = {
    "acme_names": ["hg.example.org"],
    "acme_email": "hostmaster@example.org",
    "acme_accept_terms": True,
}


def templar(host: str = "proxy1", *, other: str = "", **given: Any) -> Templar:
    """Return a templar of the role for a host of the group `proxy` or `cdn`, by its name.

    `other` is a host that has the name hg.example.org too.
    """
    hosts = {host: {}, **({other: {"acme_names": ["hg.example.org"]}} if other else {})}
    groups = {
        group: [name for name in hosts if name.startswith(group)] for group in ("proxy", "cdn")
    }
    own = {
        "inventory_hostname": host,
        "group_names": [group for group in groups if host in groups[group]],
        "groups": groups,
        "hostvars": hosts,
    }
    return Templar(DataLoader(), {**of_role("acme"), **own, **RIGHT, **given})


refused = partial(role_variables.refused, role="acme")


def test_names_address_and_terms_are_enough_and_no_name_needs_nothing() -> None:
    assert refused(templar()) == ""
    assert refused(templar(acme_names=[], acme_email="", acme_accept_terms=False)) == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("acme_names", ["*.example.org"]),
        ("acme_names", ["HG.example.org"]),
        ("acme_names", ["localhost"]),
        ("acme_names", ["192.0.2.1"]),
        ("acme_names", ["2001:db8::1"]),
        ("acme_names", ["--csr.example.org"]),
        ("acme_names", ["../../etc/shadow"]),
        ("acme_names", ["hg.example.org\n"]),
        ("acme_names", ['hg.example.org"\nemail = "x']),
        ("acme_names", ["hg.example.org,other.example"]),
        ("acme_names", ["a" * 64 + ".example.org"]),
        ("acme_names", [f"h{number}.example.org" for number in range(101)]),
        ("acme_email", ""),
        ("acme_email", "--csr=/etc/shadow"),
        ("acme_email", "a@b@c"),
        ("acme_email", "a@example.org\n"),
        ("acme_directory", "http://acme.example/directory"),
        ("acme_directory", "https://user:word@acme.example/"),
        ("acme_directory", "https://acme.example/directory --csr=/etc/shadow"),
        ("acme_accept_terms", False),
        ("acme_renew_days", 0),
        ("acme_challenge_port", 8402),
        ("acme_challenge_port", 0),
    ],
)
def test_a_wrong_or_hostile_value_is_refused_with_its_variable(variable: str, value: Any) -> None:
    assert variable in refused(templar(**{variable: value}))
    # The program that hands it to lego does not rely on the preflight.
    data = {
        "directory": "https://acme.example/directory",
        **{name.removeprefix("acme_"): given for name, given in {**RIGHT, variable: value}.items()},
    }
    with pytest.raises(ConfigurationError):
        parse_table("acme.toml", data, settings.parse)


def test_a_name_that_is_there_twice_is_refused() -> None:
    assert "each once" in refused(templar(acme_names=["hg.example.org"] * 2))


@pytest.mark.parametrize(
    ("host", "other", "is_right"),
    [("proxy1", "proxy2", True), ("cdn1", "cdn2", False), ("proxy1", "cdn1", False)],
)
def test_only_proxies_may_have_a_name_in_common(host: str, other: str, is_right: bool) -> None:
    said = refused(templar(host, other=other))
    assert (said == "") == is_right, said
    if not is_right:
        assert f"also in acme_names of {other}" in said


@pytest.mark.parametrize(
    ("names", "folder"),
    [([], "/etc/hgfleet/tls"), (["hg.example.org"], "/var/lib/hgfleet-acme/served")],
)
def test_servers_get_the_certificate_of_the_site_or_of_the_ca(
    names: list[str], folder: str
) -> None:
    variables = templar(acme_names=names)
    wanted = "{{ [_acme_certificate, _acme_key] }}"
    assert variables.template(trust_as_template(wanted)) == [
        f"{folder}/cert.pem",
        f"{folder}/key.pem",
    ]
