"""The preflight of the role backup, and its files for a store that is reached by SSH."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hgfleet.backup.restic import ssh_address
from testing.unit.ansible import role_variables
from testing.unit.ansible.role_variables import of_role, value


def private_key(body: str) -> str:
    name = "OPENSSH PRIVATE KEY"
    return f"-----BEGIN {name}-----\n{body}\n-----END {name}-----\n"


HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1qmibtBmfmC9NXX3FYCSF1B2v/uYdWIcHayruA0GpX"

OVER_SSH: dict[str, Any] = {
    "backup_endpoint": "ssh://hgbackups@store.example.net/srv/hgbackups",
    "backup_password": "p" * 20,
    "backup_ssh_key": private_key("b25l"),
    "backup_ssh_host_keys": [f"{HOST_KEY} root@store"],
}
BUCKET: dict[str, Any] = {
    "backup_endpoint": "https://s3.example.net",
    "backup_password": "p" * 20,
    "backup_bucket": "hg-backup",
    "backup_access_key": "writer",
    "backup_secret_key": "secret-writer",
    "backup_prune_access_key": "pruner",
    "backup_prune_secret_key": "secret-pruner",
}


def templar(given: dict[str, Any], host: str = "hg1", **changes: Any) -> Templar:
    """Return a templar of the role for a host; `hg2` has another key."""
    own = {
        "inventory_hostname": host,
        "group_names": ["backup", "ssh"],
        "groups": {"backup": [host, "hg2"]},
        "hostvars": {host: {}, "hg2": {"backup_ssh_key": private_key("dHdv")}},
    }
    if changes.get("backup_prunes"):
        own["group_names"] = ["backup"]
    values = {**of_role("backup"), **own, **given, **changes}
    return Templar(DataLoader(), values)


refused = partial(role_variables.refused, role="backup")


@pytest.mark.parametrize("given", [BUCKET, OVER_SSH])
def test_a_bucket_and_a_machine_over_ssh_are_stores(given: dict[str, Any]) -> None:
    assert refused(templar(given)) == ""


def test_the_host_that_prunes_needs_its_key_alone() -> None:
    pruner = {"backup_prunes": True, "backup_ssh_key": ""}
    assert "backup_prune_ssh_key must be" in refused(templar(OVER_SSH, **pruner))
    key = private_key("cHJ1bmU=")
    assert refused(templar(OVER_SSH, **pruner, backup_prune_ssh_key=key)) == ""


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("backup_ssh_key", "", "backup_ssh_key must be a private key"),
        ("backup_ssh_key", HOST_KEY, "backup_ssh_key must be a private key"),
        ("backup_ssh_key", private_key("dHdv"), "backup_ssh_key is also the key of hg2"),
        ("backup_prune_ssh_key", private_key("b25l"), "are the same key"),
        ("backup_ssh_host_keys", [], "expected the public host keys"),
        ("backup_ssh_host_keys", ["store ssh-ed25519 AAAA"], "expected the public host keys"),
        ("backup_ssh_host_keys", [f"{HOST_KEY}\n* ssh-rsa AAAA"], "expected the public host keys"),
    ],
)
def test_a_wrong_variable_of_ssh_is_named(name: str, value: Any, sentence: str) -> None:
    assert sentence in refused(templar(OVER_SSH, **{name: value}))


def test_no_sentence_has_a_private_key() -> None:
    key = private_key("c2VjcmV0").replace("BEGIN", "BEGUN")
    assert "c2VjcmV0" not in refused(templar(OVER_SSH, backup_ssh_key=key))


@pytest.mark.parametrize(
    "endpoint",
    [
        "ssh://store/srv/backups",
        "ssh://backup@store",
        "ssh://backup@-oProxyCommand=id/srv",
        "ssh://-l@store/srv",
        "ssh://backup:secret@store/srv",
        "ssh://backup@store/srv/back ups",
        "ssh://backup@store/srv/'",
        'ssh://backup@store/srv/"',
        "ssh://backup@store/srv/{{ 7 }}",
        "ssh://backup@store/srv/../etc",
        "ssh://backup@store/srv/",
        "ssh://backup@store/srv\n",
        "ssh://backup@store:0/srv",
        "ssh://backup@store:65536/srv",
        "http://store",
        "sftp://backup@store/srv",
    ],
)
def test_an_address_is_refused_before_a_host_is_touched(endpoint: str) -> None:
    assert ssh_address.parse(f"{endpoint}/hg1") is None
    assert "backup_endpoint is" in refused(templar(OVER_SSH, backup_endpoint=endpoint))


def test_a_name_of_a_host_is_the_name_of_a_folder() -> None:
    assert "inventory_hostname is '-hg1'" in refused(templar(OVER_SSH, "-hg1"))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("store.example.net", "store.example.net"),
        ("store.example.net:22", "store.example.net"),
        ("192.0.2.1:2022", "[192.0.2.1]:2022"),
    ],
)
def test_a_host_key_is_pinned_by_the_name_that_ssh_looks_up(host: str, name: str) -> None:
    variables = templar(OVER_SSH, backup_endpoint=f"ssh://hgbackups@{host}/srv/hgbackups")
    text = value(variables, "_backup_known_hosts")
    assert text == f"{name} {HOST_KEY}\n"


def test_credentials_are_those_of_the_store() -> None:
    variables = templar(OVER_SSH)
    secrets = value(variables, "_backup_secrets")
    assert secrets == {
        "backup-password": f"{'p' * 20}\n",
        "backup-ssh": OVER_SSH["backup_ssh_key"],
    }
    assert value(variables, "_backup_former_credentials") == "backup-s3"
    repository = value(variables, "_backup_repository")
    assert ssh_address.parse(str(repository)) is not None
    names = set(value(templar(BUCKET), "_backup_secrets"))
    assert names == {"backup-password", "backup-s3"}
