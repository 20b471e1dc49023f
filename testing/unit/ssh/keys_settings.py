"""The settings of keys.toml that tests of the key lookup begin with."""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, Any] = {
    "uris": ["ldaps://near", "ldaps://far"],
    "people_base": "ou=people,dc=x",
    "groups_base": "ou=groups,dc=x",
    "bind_dn": "cn=keys,ou=services,dc=x",
    "bind_password_file": "/nonexistent",
    "ca_file": "/nonexistent",
    "shell": "/opt/hgfleet/current/bin/hgfleet-shell",
    "timeout": 2.0,
    "key_types": ["ssh-ed25519", "sk-ssh-ed25519@openssh.com"],
}
