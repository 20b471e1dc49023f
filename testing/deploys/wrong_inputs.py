"""Wrong inputs of ./deploy: how to produce each, and the text of its refusal with the way out.

Each wrong input exists for a single run on a site of blank machines. It is in the folder of the
inventory, which is restored afterwards, or a shell script makes it on a machine, and another script
repairs it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controller.bootstrap import VENV, run
from controller.cluster import images
from testing.deploys.machines import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from controller.cluster.release import Release
    from testing.deploys.site import Site

ALL: Final = "group_vars/all"
DIRECTORY: Final = f"{ALL}/directory.yml"


@dataclass(frozen=True)
class Wrong:
    """A wrong input: `told` are quotes from the refusal, of which the last is the way out.

    `inventory` changes the folder of the site; `breaks` and `repairs` are scripts for the first
    host of `group`, which `is_paused` pauses. `options` are further options of ./deploy.
    """

    name: str
    told: tuple[str, ...]
    inventory: Callable[[Site], None] | None = None
    group: str = "objectstore"
    breaks: str = ""
    repairs: str = ""
    is_paused: bool = False
    options: tuple[str, ...] = ()

    def release(self, built: Release) -> tuple[str, ...]:
        """Return the options that choose a release, unless `options` do."""
        chosen = {"--release", "--rollback"}.intersection(self.options)
        return () if chosen else ("--release", str(built.archive))

    @contextlib.contextmanager
    def made(self, site: Site) -> Iterator[None]:
        """Make the input wrong, and right again afterwards."""
        host = site.first(self.group)
        kept = site.folder.with_name(f"{site.folder.name}.kept")
        shutil.copytree(site.folder, kept)
        with contextlib.ExitStack() as repaired:
            repaired.callback(_put_back, kept, site.folder)
            if self.inventory:
                self.inventory(site)
            if self.breaks:
                repaired.callback(site.on, host, self.repairs)
                site.on(host, self.breaks)
            if self.is_paused:
                repaired.enter_context(site.paused(host))
            yield


# Left out: scratch files of Ansible, logs of logins, and the state of systemd and apt.
TRACES: Final = r"""
find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp \
    -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/systemd \
    -o -path /home/deploy/.ansible -o -path /root/.ansible \) -prune \
    -o ! -type d -printf '%p %s %T@ %m %u %g %l\n' -o -printf '%p %m %u %g\n' | sort
systemctl list-units --type=service --state=running --no-legend --plain | grep -v '^user@'
"""


@contextlib.contextmanager
def without_traces(site: Site, wrong: Wrong) -> Iterator[None]:
    """Check that running hosts and the controller keep their files and services."""
    away = {site.first(wrong.group)} if wrong.is_paused else set()
    hosts = [host for host in site.machines.started() if host not in away]

    def traces() -> dict[str, set[str]]:
        with ThreadPoolExecutor() as pool:
            listed = pool.map(lambda host: set(site.on(host, TRACES).splitlines()), hosts)
            return {"the controller": _files(site.folder), **dict(zip(hosts, listed, strict=True))}

    before = traces()
    yield
    changed = [
        f"{name}: {line}" for name, lines in traces().items() for line in lines ^ before[name]
    ]
    assert not changed, "\n".join(sorted(changed))


def _files(folder: Path) -> set[str]:
    return {
        f"{path} {path.stat().st_mtime_ns}" for path in folder.rglob("*") if not path.is_symlink()
    }


def _put_back(kept: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    kept.rename(folder)


# --- changes of the inventory ---


def setting(**variables: object) -> Callable[[Site], None]:
    """Set variables for all hosts, which override the variables of the inventory."""
    return lambda site: site.write(f"{ALL}/zzz_wrong.yml", variables)


def replacing(name: str, old: str, new: str) -> Callable[[Site], None]:
    """Replace a text of a file."""
    return lambda site: site.edit(name, lambda text: text.replace(old, new))


def without_line(name: str, begin: str) -> Callable[[Site], None]:
    """Remove the lines of a file that begin with a text."""

    def change(text: str) -> str:
        return "".join(line for line in text.splitlines(True) if not line.startswith(begin))

    return lambda site: site.edit(name, change)


def _encrypt_vault(site: Site) -> None:
    password = site.folder / "password"
    password.write_text("not given to ./deploy\n")
    vault = site.inventory / ALL / "vault.yml"
    command = [str(VENV / "bin/ansible-vault"), "encrypt", "--vault-password-file", str(password)]
    run([*command, str(vault)], what="Encrypting the vault")


def _change_host_key(site: Site) -> None:
    known = site.folder / "known_hosts"
    (other,) = (site.keys / "alice.pub").read_text().splitlines()
    address = site.address(site.first("proxy"))
    lines = [line for line in known.read_text().splitlines() if f"{address}" not in line]
    known.write_text("\n".join([*lines, f"{address} {' '.join(other.split()[:2])}"]) + "\n")


def _make_ca(site: Site, begun_days_ago: int, days: int) -> Path:
    """Make a CA in the folder of the site's CA; return the folder."""
    folder = site.folder / "ca"
    folder.mkdir(mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "example.org hgfleet CA")])
    begin = datetime.now(UTC) - timedelta(days=begun_days_ago)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA384())
    )
    encoding = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "ca.key").write_bytes(key.private_bytes(*encoding))
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    return folder


def _expire_ca(site: Site) -> None:
    _make_ca(site, begun_days_ago=400, days=365)


def _lose_key_of_ca(site: Site) -> None:
    (_make_ca(site, begun_days_ago=1, days=365) / "ca.key").unlink()


def _break_key_of_person(site: Site) -> None:
    variables = site.read(DIRECTORY)
    variables["directory_people"][0]["keys"] = ["ssh-ed25519 AAAAC3Nza alice@laptop"]
    site.write(DIRECTORY, variables)


def _name_unknown_member(site: Site) -> None:
    variables = site.read(DIRECTORY)
    variables["directory_groups"][0]["members"].append("alicia")
    site.write(DIRECTORY, variables)


def _bring_clock_library(site: Site) -> None:
    """Copy libfaketime from the image of the tests' clients: the machines' clock is ours."""
    read = ["sh", "-c", "cat /usr/lib/*/faketime/libfaketime.so.1"]
    library = subprocess.run(
        ["docker", "run", "--rm", images.ensure_client(), *read], capture_output=True, check=True
    ).stdout
    container = site.machines.container(site.first("objectstore"))
    write = ["docker", "exec", "--interactive", container, "sh", "-c", "cat >/usr/lib/other.so"]
    subprocess.run(write, input=library, check=True)


KEYS: Final = f"/home/{ACCOUNT}/.ssh/authorized_keys"

CASES: Final = (
    # Variables and secrets.
    Wrong(
        "a secret is empty",
        ("directory_keys_password must have 16 to 200", "Nothing was changed. Repair them"),
        setting(vault_directory_keys_password=""),
    ),
    Wrong(
        "a secret is weak",
        ("s3-1.example.org: A secret of the object store must have 16 to 128",),
        setting(vault_objectstore_root_secret="changeme"),
    ),
    Wrong(
        "the vault is encrypted and no password given",
        ("Reading the inventory failed", "ANSIBLE_VAULT_PASSWORD_FILE=FILE ./deploy"),
        _encrypt_vault,
    ),
    Wrong(
        "a variable is missing",
        ("ldap1.example.org and hg1.example.org: 'directory_suffix' is undefined",),
        without_line(DIRECTORY, "directory_suffix"),
    ),
    Wrong(
        "a variable is misspelt",
        ("web_titel", "web_title"),
        setting(web_titel="Repositories"),
    ),
    Wrong(
        "a variable has a former name",
        ("proxy_client_timeout is now proxy_client_timeout_seconds",),
        setting(proxy_client_timeout=30),
    ),
    Wrong(
        "a variable is of another type",
        ("proxy1.example.org: ", "proxy_https_port is 'https', expected a port"),
        setting(proxy_https_port="https"),
    ),
    Wrong(
        "a person's key is cut off",
        ("alice", "key"),
        _break_key_of_person,
    ),
    Wrong(
        "a group has a member who is no person",
        ("alicia",),
        _name_unknown_member,
    ),
    Wrong(
        "the firewall would shut the controller out",
        ("which the firewall would close", "base_firewall_administrators"),
        setting(base_firewall_administrators=["203.0.113.0/24"]),
    ),
    Wrong(
        "the CA has expired",
        ("expired at ", "Move ca.pem and ca.key away"),
        _expire_ca,
    ),
    Wrong(
        "the key of the CA is lost",
        ("ca.key", "backup"),
        _lose_key_of_ca,
    ),
    # The registry.
    Wrong(
        "the registry is no YAML",
        ("registry.yml:",),
        replacing("registry.yml", "defaults:\n", "defaults: [\n"),
    ),
    Wrong(
        "the registry has an unknown key",
        ("registry.yml:", "publishin", "publishing"),
        replacing("registry.yml", "publishing: true", "publishin: true"),
    ),
    Wrong(
        "the registry names a misspelt group",
        ("The registry names the group maintainer,", "maintainers is one"),
        replacing("registry.yml", "push: [maintainers]", "push: [maintainer]"),
    ),
    Wrong(
        "the registry is missing",
        ("registry.yml", "Nothing was changed"),
        lambda site: (site.inventory / "registry.yml").unlink(),
    ),
    # The hosts of the inventory.
    Wrong(
        "the inventory is no YAML",
        ("Reading the inventory failed",),
        replacing("hosts.yml", "all:\n", "all: [\n"),
    ),
    Wrong(
        "a group is misspelt",
        ("No part of the service is called prxoy; the group proxy is one",),
        replacing("hosts.yml", "\n    proxy:\n      hosts:", "\n    prxoy:\n      hosts:"),
    ),
    Wrong(
        "two hosts have one address",
        ("have the same base_address", "a host has its own"),
        lambda site: site.edit(
            "hosts.yml",
            lambda text: text.replace(
                site.address(site.first("proxy")), site.address(site.first("ssh"))
            ),
        ),
    ),
    Wrong(
        "the name of a host does not resolve",
        ("proxy1.example.org: ", "Could not resolve hostname", "or set ansible_host"),
        lambda site: site.write(
            "host_vars/proxy1.example.org.yml", {"ansible_host": "proxy1.example.invalid"}
        ),
    ),
    Wrong(
        "--limit names no host",
        ("--limit hg9.example.org leaves no host", "Nothing was changed"),
        options=("--limit", "hg9.example.org"),
    ),
    # The way to the hosts.
    Wrong(
        "a host is away",
        ("s3-1.example.org: ", "timed out", "--limit 'all:!HOST'"),
        is_paused=True,
    ),
    Wrong(
        "no SSH server answers",
        ("s3-1.example.org: ", "Connection refused", "ansible_port of the inventory"),
        breaks="systemctl stop ssh.socket ssh.service",
        repairs="systemctl start ssh.service",
    ),
    Wrong(
        "the host takes no key of the account",
        ("s3-1.example.org: ", "the host takes no key of this user", "authorized_keys"),
        breaks=f"mv {KEYS} {KEYS}.away",
        repairs=f"mv {KEYS}.away {KEYS}",
    ),
    Wrong(
        "a host has another host key",
        ("proxy1.example.org: ", "compare it on its console"),
        _change_host_key,
    ),
    # The hosts themselves.
    Wrong(
        "sudo is refused",
        ("s3-1.example.org: no command runs as root", "ANSIBLE_BECOME_PASSWORD_FILE"),
        breaks=f"sed -i 's/NOPASSWD: //' /etc/sudoers.d/{ACCOUNT}",
        repairs=f"sed -i 's/(ALL) ALL/(ALL) NOPASSWD: ALL/' /etc/sudoers.d/{ACCOUNT}",
    ),
    Wrong(
        "a host has no Python",
        ("s3-1.example.org: ", "python3", "apt-get install python3"),
        breaks="mv /usr/bin/python3 /usr/bin/python3.away",
        repairs="mv /usr/bin/python3.away /usr/bin/python3",
    ),
    Wrong(
        "a host has another system",
        ("s3-1.example.org: its system is debian 12, expected debian 13",),
        breaks="sed -i 's/^VERSION_ID=.*/VERSION_ID=\"12\"/' /usr/lib/os-release",
        repairs="sed -i 's/^VERSION_ID=.*/VERSION_ID=\"13\"/' /usr/lib/os-release",
    ),
    Wrong(
        "a disk is full",
        ("s3-1.example.org: /opt has 64 MiB free, expected 1024 MiB",),
        breaks="mount -t tmpfs -o size=64m none /opt",
        repairs="umount /opt",
    ),
    Wrong(
        "a clock is off",
        ("s3-1.example.org: its clock is ", "s ahead of the controller's: set it"),
        _bring_clock_library,
        breaks="echo +10m >/etc/faketimerc; echo /usr/lib/other.so >/etc/ld.so.preload",
        repairs="rm /etc/ld.so.preload /etc/faketimerc /usr/lib/other.so",
    ),
    Wrong(
        "a host cannot resolve the names of the others",
        ("s3-1.example.org: no address for ", "DNS, or its /etc/hosts"),
        breaks="cp /etc/resolv.conf /root/resolv.conf; echo nameserver 127.0.0.1 >/etc/resolv.conf",
        repairs="cat /root/resolv.conf >/etc/resolv.conf; rm /root/resolv.conf",
    ),
    # The release.
    Wrong(
        "the archive is no release",
        ("is not an archive of a release", "A build leaves one in .cache/release"),
        options=("--release", "/etc/hostname"),
    ),
    Wrong(
        "the release to go back to is on no host",
        ("0.0.1-aaaaaaaaaaaa is not on", "install it again from its archive"),
        options=("--rollback", "0.0.1-aaaaaaaaaaaa"),
    ),
)
