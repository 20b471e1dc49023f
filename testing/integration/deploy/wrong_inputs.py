"""Wrong inputs of ./deploy: mistakes in a site, and the words in which ./deploy tells each.

| list | the site | needs hosts |
| --- | --- | --- |
| `IN_A_SITE` | can have all of these mistakes at once, and all are told in one run | no |
| `BEFORE_THE_SITE` | end a run before a host is asked | no |
| `OF_HOSTS` | state of a host, made by a command on it as root | yes |
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable


class Mistake(NamedTuple):
    """A mistake in a site: `make` has the folder of the inventory, `told` is in the error."""

    name: str
    make: Callable[[Path], None]
    told: str
    options: tuple[str, ...] = ()


class HostMistake(NamedTuple):
    """A wrong state of a host: commands of root that make and undo it."""

    name: str
    make: str
    undo: str
    told: str


KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPNnV7lRAv1TiiCjfUFdZYExwvFIQ7DkTqnVl0zMzFIx alice@laptop"
)


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change a YAML file."""
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def _variable(name: str, value: object) -> Callable[[Path], None]:
    return lambda site: (
        (site / f"group_vars/all/{name}.yml").write_text(yaml.safe_dump({name: value})) and None
    )


def _group(group: str, host: str, **variables: object) -> Callable[[Path], None]:
    def change(content: Any) -> None:
        hosts = content["all"]["children"].setdefault(group, {}).setdefault("hosts", {})
        hosts[host] = variables

    return lambda site: edit(site / "hosts.yml", change)


def _lost_host(site: Path) -> None:
    address = {"base_address": "192.0.2.98"}
    edit(site / "hosts.yml", lambda content: content["all"].update(hosts={"lost1": address}))


def _directory(**changes: Any) -> Callable[[Path], None]:
    def change(content: Any) -> None:
        for name, value in changes.items():
            content[name] = value

    return lambda site: edit(site / "group_vars/all/directory.yml", change)


def _expired_ca(site: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "expired CA")])
    end = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(end - datetime.timedelta(days=9)).not_valid_after(end)
    ca = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (site / "ca").mkdir()
    (site / "ca/ca.pem").write_bytes(ca)
    _variable("base_tls_ca_folder", str(site / "ca"))(site)


def _registry(old: str, new: str) -> Callable[[Path], None]:
    def change(site: Path) -> None:
        text = (site / "registry.yml").read_text()
        assert old in text
        (site / "registry.yml").write_text(text.replace(old, new))

    return change


def _encrypted(site: Path) -> None:
    (site.parent / "password").write_text("a password")
    command = [str(Path(sys.executable).with_name("ansible-vault")), "encrypt"]
    command += ["--vault-password-file", str(site.parent / "password")]
    subprocess.run([*command, str(site / "group_vars/all/vault.yml")], check=True)


def _nothing(_site: Path) -> None:
    """Leave the site as it is: the option is wrong."""


PEOPLE = [
    {"name": "alice", "full_name": "Alice", "mail": "alice@example.org", "keys": [KEY]},
    {"name": "alice", "full_name": "Alice", "mail": "alice@example.org", "keys": []},
    {"name": "bob", "full_name": "Bob", "mail": "bob@example.org", "keys": [KEY]},
]

IN_A_SITE = [
    Mistake(
        "a secret is empty",
        _variable("vault_directory_keys_password", ""),
        "directory_keys_password",
    ),
    Mistake("a variable is misspelt", _variable("web_titel", "x"), "web_titel; web_title is one"),
    Mistake("a value is wrong", _variable("web_public_url", "hg"), "web_public_url is 'hg'"),
    Mistake("a group is misspelt", _group("prxoy", "web9", base_address="192.0.2.99"), "prxoy"),
    Mistake("a host is in no group", _lost_host, "lost1 is in no group of a part"),
    Mistake(
        "two hosts have one address",
        _group("web", "web8", base_address="192.0.2.30"),
        "have the same base_address, 192.0.2.30",
    ),
    Mistake(
        "a site has two primaries",
        _group("ssh", "hg2", base_address="192.0.2.97"),
        "would both take pushes",
    ),
    Mistake(
        "mirrors have no broker",
        _group("web", "web8", base_address="192.0.2.30"),
        "mirrors need a host in the group broker",
    ),
    Mistake(
        "a user is in the directory twice",
        _directory(directory_people=PEOPLE),
        "directory_people has alice more than once",
    ),
    Mistake(
        "two users have one key",
        _directory(directory_people=PEOPLE),
        "bob has a key that alice has already",
    ),
    Mistake(
        "the registry misspells a group",
        _registry("read: [maintainers]", "read: [maintainer]"),
        "names the group maintainer",
    ),
    Mistake(
        "a public name is a wildcard",
        _variable("acme_names", ["*.example.org"]),
        "acme_names is ['*.example.org'], expected",
    ),
    Mistake(
        "the terms of a CA are not accepted",
        _variable("acme_names", ["*.example.org"]),
        "acme_accept_terms is false",
    ),
    Mistake("the CA has expired", _expired_ca, " expired at "),
    Mistake("a name does not resolve", _nothing, "set ansible_host"),
]

BEFORE_THE_SITE = [
    Mistake(
        "secrets are encrypted and no password is given",
        _encrypted,
        "ANSIBLE_VAULT_PASSWORD_FILE=FILE",
    ),
    Mistake(
        "the inventory is no YAML",
        lambda site: (site / "hosts.yml").write_text("all: [") and None,
        "Correct what Ansible names above",
    ),
    Mistake("no host is left", _nothing, "leaves no host", ("--limit", "hg9")),
    Mistake(
        "the release archive is broken",
        _nothing,
        "it is no tar file",
        ("--release", "/etc/hostname"),
    ),
    Mistake(
        "a variable is missing",
        lambda site: edit(
            site / "group_vars/all/directory.yml", lambda content: content.pop("directory_suffix")
        ),
        "directory_suffix",
    ),
    Mistake("the registry is wrong", _registry("version: 1", "version: 0"), "registry.yml:4"),
]

OF_HOSTS = [
    HostMistake(
        "sudo is refused",
        "mv /etc/sudoers.d/deploy /root/deploy.sudoers",
        "mv /root/deploy.sudoers /etc/sudoers.d/deploy",
        "no command runs as root",
    ),
    HostMistake(
        "the system is another Debian",
        "sed -i 's/^VERSION_ID=.*/VERSION_ID=\"12\"/' /etc/os-release",
        "sed -i 's/^VERSION_ID=.*/VERSION_ID=\"13\"/' /etc/os-release",
        "its system is debian 12, expected debian 13",
    ),
    HostMistake(
        "the host key has changed",
        "ssh-keygen -q -t ed25519 -N '' -f /root/other && systemctl stop ssh &&"
        " /usr/sbin/sshd -h /root/other",
        "kill $(cat /run/sshd.pid) && rm /root/other* && systemctl start ssh",
        "ssh-keygen -R HOST",
    ),
]
