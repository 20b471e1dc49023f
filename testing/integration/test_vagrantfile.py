"""The Vagrantfile, as Debian's vagrant reads it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

MACHINE = re.compile(r'^  "([\w-]+)" => \{ address: "([\d.]+)"', re.MULTILINE)


def vagrant(folder: Path, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run vagrant on the Vagrantfile of a folder; its own files go to `state`."""
    env = {
        **os.environ,
        "VAGRANT_CWD": str(folder),
        "VAGRANT_DOTFILE_PATH": str(state / "machines"),
        "VAGRANT_HOME": str(state / "home"),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
    }
    command = ["vagrant", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_vagrant_takes_every_setting_of_it(tmp_path: Path) -> None:
    """No provider is asked: a machine that runs tests need not have a provider."""
    done = vagrant(ROOT, tmp_path, "validate", "--ignore-provider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validated successfully" in done.stdout


def test_a_misspelt_setting_is_found(tmp_path: Path) -> None:
    text = (ROOT / "Vagrantfile").read_text()
    assert "machine.vm.hostname" in text
    (tmp_path / "Vagrantfile").write_text(text.replace("vm.hostname", "vm.hostnam"))
    done = vagrant(tmp_path, tmp_path, "validate", "--ignore-provider")
    assert done.returncode != 0
    assert "hostnam" in done.stdout + done.stderr


def test_its_machines_are_the_hosts_of_the_inventory(tmp_path: Path) -> None:
    done = vagrant(ROOT, tmp_path, "validate", "--ignore-provider")
    machines = re.findall(r"^==> ([\w-]+): ", done.stdout, re.MULTILINE)
    addresses = dict(MACHINE.findall((ROOT / "Vagrantfile").read_text()))
    inventory = yaml.safe_load((ROOT / "ansible/inventories/vagrant/hosts.yml").read_text())
    hosts = {
        host: variables["base_address"]
        for group in inventory["all"]["children"].values()
        for host, variables in group.get("hosts", {}).items()
        if variables
    }
    assert sorted(machines) == sorted(hosts)
    assert addresses == hosts
