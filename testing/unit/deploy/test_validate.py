"""Mistakes in an inventory, and how ./deploy tells all problems of a site at once."""

from __future__ import annotations

import datetime
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from controller.deploy import run, survey, validate
from controller.deploy.decide import DeployError, HostState

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {
    "base",
    "release",
    "mercurial",
    "directory",
    "ssh",
    "web",
    "bundles",
    "proxy",
    "replication",
}
SMALL = {"hg1": ["all", "ssh", "web"], "ldap1": ["all", "directory"], "proxy1": ["all", "proxy"]}


def problems(
    hosts: dict[str, list[str]], variables: dict[str, dict[str, Any]] | None = None
) -> list[str]:
    return validate.inventory_problems({**SMALL, **hosts}, variables or {}, PARTS)


def test_a_right_inventory_has_no_problem() -> None:
    own = {"rack-7": ["all", "rack", "web"], "b1": ["all", "broker"]}
    assert problems(own, {"hg1": {"base_address": "192.0.2.1"}}) == []
    assert problems({}, {name: {"base_address": "{{ x }}"} for name in SMALL}) == []


@pytest.mark.parametrize(
    ("hosts", "variables", "told"),
    [
        ({"x": ["all", "prxoy", "web"]}, {}, "called prxoy; the group proxy is one"),
        ({"x": ["all", "ungrouped"]}, {}, "x is in no group of a part"),
        (
            {},
            {"hg1": {"base_address": "192.0.2.1"}, "ldap1": {"base_address": "192.0.2.1"}},
            "hg1 and ldap1 have the same base_address, 192.0.2.1",
        ),
        (
            {},
            {"hg1": {"ansible_host": "192.0.2.1"}, "ldap1": {"ansible_host": "192.0.2.1"}},
            "the same ansible_host",
        ),
        (
            {},
            {"hg1": {"replication_primary": "hg1"}, "proxy1": {"replication_primary": "hg2"}},
            "replication_primary is hg1 and hg2",
        ),
        ({"hg2": ["all", "ssh", "web"]}, {}, "hg1 and hg2 would both take pushes"),
        ({"web1": ["all", "web"], "proxy1": ["all", "bundles"]}, {}, "no proxy sends readers"),
    ],
)
def test_each_mistake_of_an_inventory_is_told_alone(
    hosts: dict[str, list[str]], variables: dict[str, dict[str, Any]], told: str
) -> None:
    (problem,) = problems(hosts, variables)
    assert told in problem


def test_what_only_looks_like_a_mistake_is_none() -> None:
    forwarded = {"hg1": {"ansible_host": "127.0.0.1", "ansible_port": 2201}}
    forwarded["ldap1"] = {"ansible_host": "127.0.0.1", "ansible_port": 2202}
    assert problems({}, forwarded) == []
    own_proxy = {"hg1": {"web_trusted_proxies": ["192.0.2.9"]}}
    assert problems({"web1": ["all", "web"], "proxy1": ["all", "bundles"]}, own_proxy) == []
    assert problems({"hg2": ["all", "ssh", "web"], "b1": ["all", "broker"]}) == []


def test_a_misspelt_group_of_the_registry_is_told_and_a_group_made_by_hand_is_not() -> None:
    registry = {
        "defaults": {"read": "public", "push": ["maintainer"]},
        "namespaces": {"people": {"create": ["by-hand"]}},
        "repositories": {"project": {"read": ["maintainers"]}},
    }
    groups = [{"name": "maintainers", "members": []}]
    (told,) = validate.group_problems(registry, groups)
    assert "group maintainer, which directory_groups does not have; maintainers is one" in told
    assert validate.group_problems(registry, []) == []


@pytest.mark.parametrize("words", list(validate.HINTS))
def test_the_words_of_ssh_get_a_way_out(words: str) -> None:
    with pytest.raises(DeployError, match="hg1: ") as caught:
        validate.require(validate.Problems(away={"hg1": f"ssh: {words}."}))
    assert validate.HINTS[words] in str(caught.value)


def test_all_problems_of_all_hosts_are_told_at_once() -> None:
    all_problems = validate.Problems(
        inventory=["x is in no group."],
        away={"hg1": "no answer"},
        unfit={"hg2": ["no sudo", "disk full"], "hg3": []},
        variables={"web_title is empty": ["hg1", "hg2", "hg1"]},
    )
    with pytest.raises(DeployError) as caught:
        validate.require(all_problems)
    told = str(caught.value)
    assert told.startswith("5 problems in the inventory or on the hosts:\n")
    assert "  | hg1 and hg2: web_title is empty\n" in told
    assert "  | hg2: no sudo\n  | hg2: disk full\n" in told
    assert "Nothing was changed" in told
    validate.require(validate.Problems(unfit={"hg1": []}))


def test_refusals_of_roles_are_read_once_with_their_hosts() -> None:
    def task(name: str, **hosts: dict[str, Any]) -> dict[str, Any]:
        return {"task": {"name": name}, "hosts": hosts}

    wrong = {"failed": True, "msg": "Task failed: Action failed:\nweb_title is empty."}
    tasks = [
        task("Variables fit", hg1=wrong, hg2=wrong, hg3={"failed": False}),
        task("Port is known", hg3={"failed": True, "unreachable": True, "msg": "no route"}),
        task("No variable is wrong", hg1={"failed": True, "msg": "web_title is empty."}),
    ]
    output = f"a warning\n{json.dumps({'plays': [{'tasks': tasks}]})}"
    assert validate.refusals(output) == {"web_title is empty.": ["hg1", "hg2"]}


# --- the CA -----------------------------------------------------------------------------------


def certificate(days: int) -> str:
    """Return a CA that ends in so many days, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a CA")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=100))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM).decode()


def test_a_controller_without_the_ca_of_a_deployed_site_is_told_what_to_bring() -> None:
    trusts = {"hg1": certificate(10), "hgweb1": certificate(10), "new": ""}
    (told,) = validate.missing_ca("/home/ann/ca", trusts, time.time())
    assert told.startswith("hg1 and hgweb1 trust a CA that is not on this controller")
    assert "bring ca.pem and ca.key" in told
    assert "to /home/ann/ca from the controller that deployed this site" in told


@pytest.mark.parametrize("text", ["", "no certificate"])
def test_a_blank_site_and_a_site_whose_ca_has_expired_get_a_new_ca(text: str) -> None:
    assert validate.missing_ca("ca", {"hg1": text, "hg2": certificate(-1)}, time.time()) == []
    # While a CA replaces another CA, hosts trust both.
    both = certificate(-1) + certificate(1)
    assert validate.missing_ca("ca", {"hg1": both}, time.time()) != []


@pytest.mark.parametrize("is_there", [True, False])
def test_all_hosts_of_a_site_are_asked_before_a_ca_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """The run is limited to a new host, which trusts no CA yet."""
    folder = tmp_path / "ca"
    folder.mkdir()
    if is_there:
        (folder / "ca.pem").touch()
    states = {"new": HostState(ca_folder=str(folder))}
    everything: dict[str, list[str]] = {"hg1": ["ssh"], "new": ["web"]}
    site = run.Site("x", tmp_path / "hosts.yml", {"new": ["web"]}, everything=everything)
    asked: list[object] = []

    def read_states(of: run.Site) -> dict[str, HostState]:
        asked.append(of.hosts)
        return states | {"hg1": HostState(trust=certificate(10), ca_folder=str(folder))}

    monkeypatch.setattr(run, "read_states", read_states)
    assert bool(survey.refused_ca(site, states)) is not is_there
    assert asked == ([] if is_there else [everything])
