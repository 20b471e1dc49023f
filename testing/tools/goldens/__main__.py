"""Compare the goldens of inventories with a fresh rendering of `site.yml`, or update them.

    python -m testing.tools.goldens [--update] INVENTORY...

INVENTORY is a folder of ansible/inventories. Exit code 1 means differences; they are printed.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from testing.tools.goldens import results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[3]
GOLDENS: Final = ROOT / "testing/goldens"
INVENTORIES: Final = ROOT / "ansible/inventories"

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
    """Return a key in OpenSSH's form, of which no private half exists."""
    parts = (b"ssh-ed25519", hashlib.sha256(name.encode()).digest())
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def secrets_of_examples() -> dict[str, str]:
    """Return the values that stand for the secrets of the examples, by name."""
    content: dict[str, str] = yaml.safe_load((GOLDENS / "secrets.yml").read_text())
    return content


def render(inventory: str, state: Path) -> dict[str, str]:
    """Return the pages of an inventory, by their path HOST/PART.txt."""
    # Ansible reads its settings when it is imported.
    os.environ.update(environment(state))
    from testing.tools.goldens import report
    from testing.tools.goldens.site import Site

    (state / "keys").mkdir(parents=True)
    for name in KEYS:
        (state / "keys" / f"{name}.pub").write_text(f"{public_key(name)} {name}\n")
    private = base64.b64encode(b"private key of probe").decode()
    (state / "keys/probe").write_text(PRIVATE_KEY.format(private))
    secrets = secrets_of_examples()
    site = Site(INVENTORIES / inventory / "hosts.yml", secrets)
    hosts = site.changes()
    made = {
        f"secret {path.name}": path.read_text().split()[0]
        for folder in ("secrets", "passwords")
        for path in (state / folder).glob("*")
    }
    made["private key of probe"] = private
    replaced = {str(state): "<state>", str(ROOT): "<checkout>"}
    addresses = {host: site.address(host) for host in hosts}
    return report.pages(hosts, addresses, {**secrets, **made}, replaced)


def differences(folder: Path, wanted: Mapping[str, str]) -> Iterator[str]:
    """Yield a unified diff for each golden that differs, is missing or is of no host."""
    present = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}
    for name in sorted({*present, *wanted}):
        before, after = present.get(name, ""), wanted.get(name, "")
        if before != after:
            path = (folder / name).relative_to(ROOT)
            lines = difflib.unified_diff(
                before.splitlines(),
                after.splitlines(),
                f"{path}",
                f"{path} (rendered)",
                "",
                "",
                2,
                "",
            )
            yield "\n".join(lines)


def update(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write the goldens, and remove those of hosts and parts that are gone."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in wanted.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: Sequence[str]) -> int:
    """Compare or update; see the docstring of the module."""
    parser = argparse.ArgumentParser(prog="python -m testing.tools.goldens")
    parser.add_argument("inventory", nargs="+")
    parser.add_argument("--update", action="store_true", help="write the goldens")
    options = parser.parse_args(arguments)
    code = 0
    for inventory in options.inventory:
        folder = GOLDENS / inventory
        with tempfile.TemporaryDirectory() as name:
            pages = render(inventory, Path(name).resolve() / "cluster")
        found = list(differences(folder, pages))
        if options.update:
            update(folder, pages)
            print(f"{inventory}: {len(pages)} goldens, of which {len(found)} are new")
        elif found:
            code = 1
            print("\n".join(found), flush=True)
            print(
                f"\n{inventory}: {len(found)} of {len(pages)} goldens differ from what site.yml"
                " writes now. If the change is meant: ./run-tests goldens --update, and commit"
                " testing/goldens with it.",
                file=sys.stderr,
            )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
