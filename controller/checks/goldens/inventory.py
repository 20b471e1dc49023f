"""Texts of an inventory, rendered in a process of its own with the same values everywhere."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

import yaml

from controller.checks.goldens import results
from controller.checks.goldens.once import Host, Text

ROOT: Final = Path(__file__).resolve().parents[3]
GOLDENS: Final = ROOT / "testing/goldens"
INVENTORIES: Final = ROOT / "ansible/inventories"

NAMES: Final = {
    "production-large.example": "large",
    "production-small.example": "small",
    "cluster": "cluster",
}
"""Inventories, the slowest first, and their names in a golden."""

KEYS: Final = ("alice", "bob", "carol", "carol-second", "mallory", "probe", "admin", "user-ca")
"""Keys that `./cluster` makes for the people of the cluster."""

PRIVATE_KEY: Final = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n"

HOME: Final = "/home/operator"


def environment(state: Path) -> dict[str, str]:
    """Return the variables that the inventories look up, the same on every machine."""
    return {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(state / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(state / "tmp"),
        "HOME": HOME,
        "HGFLEET_CLUSTER_NAME": "cluster",
        "HGFLEET_CLUSTER_NETWORK": "172.31.0",
        "HGFLEET_CLUSTER_STATE": str(state),
        "HGFLEET_CLUSTER_SSH_URL": "ssh://hg@localhost:2022",
        "HGFLEET_RELEASE_VERSION": results.RELEASE,
        "HGFLEET_RELEASE_ARCHIVE": "/releases/hgfleet.tar.gz",
        "HGFLEET_VERSITYGW": "/releases/versitygw",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }


def public_key(name: str) -> str:
    """Return a public key in OpenSSH's form, without a private key."""
    parts = (b"ssh-ed25519", hashlib.sha256(name.encode()).digest())
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def secrets_of_examples() -> dict[str, str]:
    """Return the values that stand for the secrets of the examples, by name."""
    content: dict[str, str] = yaml.safe_load((GOLDENS / "secrets.yml").read_text())
    return content


def render(inventory: str) -> dict[str, dict[Host, list[Text]]]:
    """Return the texts of an inventory by part and host. Call it once in a process."""
    with tempfile.TemporaryDirectory() as name:
        return _render(inventory, Path(name).resolve() / "cluster")


def _render(inventory: str, state: Path) -> dict[str, dict[Host, list[Text]]]:
    # Ansible reads its settings when it is imported.
    os.environ.update(environment(state))
    from controller.checks.goldens import report
    from controller.checks.goldens.site import Site

    (state / "keys").mkdir(parents=True)
    for name in KEYS:
        (state / "keys" / f"{name}.pub").write_text(f"{public_key(name)} {name}\n")
    private = base64.b64encode(b"private key of probe").decode()
    (state / "keys/probe").write_text(PRIVATE_KEY.format(private))
    secrets = secrets_of_examples()
    site = Site(INVENTORIES / inventory / "hosts.yml", secrets)
    changes = site.changes()
    made = {
        f"secret {path.name}": path.read_text().split()[0]
        for folder in ("secrets", "passwords")
        for path in (state / folder).glob("*")
    }
    made["private key of probe"] = private
    replaced = {str(state): "<state>", str(ROOT): "<checkout>"}
    hosts = {name: Host(NAMES[inventory], name, site.address(name)) for name in changes}
    return {
        part: {hosts[name]: texts for name, texts in own.items()}
        for part, own in report.texts(changes, {**secrets, **made}, replaced).items()
    }
