"""Secrets of a vault while they are replaced."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from testing.support import loading

VAULT = """\
# The secrets.
---
web: "w\\"1"
keys: k1   # of cn=keys
other: o1
"""


@pytest.fixture(scope="module")
def plugin() -> Any:
    return loading.module("ansible/plugins/filter/rotation.py")


def test_new_secrets_stand_beside_the_former_ones(plugin: Any) -> None:
    text = plugin.rotation_begun(VAULT, ["web", "keys"])

    after = yaml.safe_load(text)
    assert after["former_web"] == 'w"1'
    assert after["former_keys"] == "k1"
    assert len({after["web"], after["keys"], 'w"1', "k1"}) == 4
    assert len(after["web"]) == 40
    assert after["web"].isalnum()
    assert after["other"] == "o1"
    assert text.startswith("# The secrets.\n---\n")


def test_a_rotation_that_ended_early_goes_on_with_its_secrets(plugin: Any) -> None:
    begun = plugin.rotation_begun(VAULT, ["web"])

    again = yaml.safe_load(plugin.rotation_begun(begun, ["web", "keys"]))

    assert again["web"] == yaml.safe_load(begun)["web"]
    assert again["former_web"] == 'w"1'
    assert again["former_keys"] == "k1"


def test_the_end_leaves_the_new_secrets_alone(plugin: Any) -> None:
    begun = plugin.rotation_begun(VAULT, ["web"])

    ended = yaml.safe_load(plugin.rotation_ended(begun, ["web"]))

    assert ended == {"web": yaml.safe_load(begun)["web"], "keys": "k1", "other": "o1"}


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ("bundles", "bundles-2"),
        ("bundles-2", "bundles-3"),
        ("bundles-9", "bundles-10"),
        ("bundles-east", "bundles-east-2"),
        ("AKIA0042", "AKIA0042-2"),
        ("bundles-02", "bundles-02-2"),
    ],
)
def test_the_account_of_a_new_secret_is_counted_up(plugin: Any, former: str, new: str) -> None:
    begun = yaml.safe_load(
        plugin.rotation_begun(f"id: {former}\nkey: k1\n", ["id", "key"], accounts=["id"])
    )

    assert begun["id"] == new
    assert begun["former_id"] == former
    assert len(begun["key"]) == 40
    assert begun["former_key"] == "k1"


@pytest.mark.parametrize("vault", ["web: ''\n", "keys: k1\n", "[1]\n"])
def test_a_missing_secret_is_refused(plugin: Any, vault: str) -> None:
    with pytest.raises(AnsibleFilterError, match="has no secret web"):
        plugin.rotation_begun(vault, ["web"])


def test_a_secret_of_several_lines_is_refused(plugin: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="not on one line") as refusal:
        plugin.rotation_begun("web: >-\n  k1\n  k2\n", ["web"])
    assert "k1" not in str(refusal.value)


def test_an_error_quotes_no_secret(plugin: Any) -> None:
    with pytest.raises(AnsibleFilterError) as refusal:
        plugin.rotation_begun('web: "k1\nkeys: [', ["web"])
    assert "k1" not in str(refusal.value)
