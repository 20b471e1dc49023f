"""Access keys of the cluster's first object store in an encrypted vault, as a site has them.

The cluster's own inventory makes secrets in its state folder. During a test a second inventory
takes the secrets over, so that `playbooks/rotate-s3-keys.yml` has a vault to work on.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller import bootstrap
from controller.bootstrap import ROOT
from testing.e2e.command import run

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result

SECONDS: Final = 900
INVENTORIES: Final = tuple(
    ROOT / "ansible/inventories/cluster" / name for name in ("hosts.yml", "constructed.yml")
)
EXAMPLE: Final = (
    ROOT / "ansible/inventories/production-small.example/group_vars/all/objectstore.yml"
)

WRITER, READER = "vault_bundles_store", "vault_bundles_reader"
ACCOUNTS: Final = (WRITER, READER)

_STORE: Final = """\
_store: &store
  name: "{{ inventory_hostname }}"
  location: "{{ cluster_region }}"
  endpoint: "https://{{ base_address }}:7443"
  public_url: "https://{{ base_address }}:7443/bundles"
  bucket: bundles
  access_key: "{{ vault_bundles_store_access_key }}"
  secret_key: "{{ vault_bundles_store_secret_key }}"
cluster_store: *store
cluster_private_store:
  <<: *store
  name: private
  private: true
  public_url: "https://{{ base_address }}:7443/private"
  bucket: private
  reader_access_key: "{{ vault_bundles_reader_access_key }}"
  reader_secret_key: "{{ vault_bundles_reader_secret_key }}"
"""


@dataclass(frozen=True)
class Keys:
    """The access keys of the first object store, and the playbook that replaces them."""

    cluster: Cluster
    folder: Path
    signed_url_minutes: int
    """The lifetime of a URL, for which a rotation waits."""

    @property
    def vault(self) -> Path:
        """The encrypted file."""
        return self.folder / "group_vars/all/vault.yml"

    def write(self, secrets: dict[str, str]) -> None:
        """Make the inventory, with these secrets in its vault."""
        store = self.cluster.first("objectstore").name
        lines = yaml.safe_load(EXAMPLE.read_text("utf-8"))
        short = f"mercurial_signed_url_minutes: {self.signed_url_minutes}\n"
        files = {
            "hosts.yml": yaml.safe_dump({"all": {"hosts": {store: {}}}}),
            f"host_vars/{store}.yml": _STORE
            + yaml.safe_dump({"objectstore_former_users": lines["objectstore_former_users"]}),
            "group_vars/all/signed.yml": short,
            "password": "of the vault\n",
        }
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.vault.write_text(yaml.safe_dump(secrets))
        self._run("ansible-vault", "encrypt", str(self.vault)).ok()

    def read(self) -> dict[str, Any]:
        """Return the secrets of the vault."""
        shown = self._run("ansible-vault", "view", str(self.vault)).ok().stdout
        return dict(yaml.safe_load(shown))

    def rotate(self, *options: str) -> Result:
        """Run the playbook to its end."""
        return self._run(
            "ansible-playbook",
            *(f"--inventory={path}" for path in (*INVENTORIES, self.folder / "hosts.yml")),
            f"--extra-vars=rotate_vault={self.vault}",
            *options,
            str(ROOT / "ansible/playbooks/rotate-s3-keys.yml"),
        )

    def _run(self, program: str, *words: str) -> Result:
        env = {**bootstrap.controller_environment(), **self.cluster.env, "ANSIBLE_FORCE_COLOR": "0"}
        env["ANSIBLE_VAULT_PASSWORD_FILE"] = str(self.folder / "password")
        path = Path(sys.executable).with_name(program)
        return run([str(path), *words], env=env, cwd=ROOT, seconds=SECONDS)
