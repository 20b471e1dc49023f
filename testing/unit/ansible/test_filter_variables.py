"""Misspelt variables of an inventory."""

from __future__ import annotations

from typing import Any

import pytest

from testing.support import loading

KNOWN = {"web_title", "web_public_url", "steering_networks", "base_address"}


@pytest.fixture(scope="module")
def plugin() -> Any:
    return loading.module("ansible/plugins/filter/variables.py")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("web_tilte", "No role knows web_tilte; web_title is one."),
        ("wbe_public_url", "No role knows wbe_public_url; web_public_url is one."),
        ("steering_network", "No role knows steering_network; steering_networks is one."),
        ("stering_networks", "No role knows stering_networks; steering_networks is one."),
        ("web_zzz", "No role knows web_zzz; ansible/roles/web/README.md lists all."),
    ],
)
def test_a_misspelt_name_is_named_with_the_one_meant(plugin: Any, name: str, sentence: str) -> None:
    assert plugin.misspelt([name, *KNOWN], KNOWN) == [sentence]


@pytest.mark.parametrize(
    "name",
    [
        *("ansible_user", "cluster_network", "inventory_hostname", "group_names", "our_title"),
        *("vault_directory_keys_password", "environment", "web", "__registered", "_web_ready"),
        "__web_title",
    ],
)
def test_names_of_others_are_left_alone(plugin: Any, name: str) -> None:
    assert plugin.misspelt([name], KNOWN) == []
    assert plugin.misspelt_variables([name]) == []


def test_the_variables_of_every_role_are_known(plugin: Any) -> None:
    names = plugin.known_variables(plugin.ROLES)
    assert {"base_address", "release_version", "tls_policy", "web_title"} <= names
    assert plugin.misspelt_variables(names) == []
    assert plugin.misspelt_variables(["bundles_store"])[0].endswith("bundles_stores is one.")
