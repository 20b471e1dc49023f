"""Trees and inventories that are kept for rollbacks."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from controller.deploy import trees
from controller.deploy.decide import DeployError
from controller.deploy.ways import Way

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "checkout"
    for name in ("ansible/playbooks", "ansible/plugins", "ansible/on_host", "hgfleet"):
        (top / name).mkdir(parents=True)
    (top / "ansible/roles/web/molecule").mkdir(parents=True)
    (top / "ansible.cfg").write_text("[defaults]\n")
    (top / "ansible/site.yml").write_text("first")
    (top / "ansible/roles/web/README.md").write_text("about")
    return top


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    home = tmp_path / "sites/north/production"
    (home / "group_vars").mkdir(parents=True)
    (home / "hosts.yml").write_text("all:")
    (home / "group_vars/vault.yml").write_text("secret")
    (tmp_path / "sites/north/pki").mkdir()
    (tmp_path / "sites/north/pki/ca.pem").write_text("CA")
    return home / "hosts.yml"


def test_an_earlier_tree_and_inventory_are_found_after_both_changed(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    first = Way("r1", *trees.keep(inventory, folder, top))
    (top / "ansible/site.yml").write_text("second")
    inventory.write_text("all: {}")
    second = Way("r1", *trees.keep(inventory, folder, top))
    assert first != second
    kept = trees.find(first, folder)
    assert kept is not None
    assert (kept.checkout / "ansible/site.yml").read_text() == "first"
    assert kept.inventory.read_text() == "all:"
    assert (kept.inventory.parent / "group_vars/vault.yml").read_text() == "secret"
    # As the inventory names it: {{ inventory_dir }}/../pki/ca.pem
    assert (kept.inventory.parent / "../pki/ca.pem").read_text() == "CA"


def test_the_same_content_is_kept_once_and_what_configures_no_host_does_not_count(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    first = trees.keep(inventory, folder, top)
    (top / "ansible/roles/web/README.md").write_text("changed")
    (top / "ansible/roles/web/molecule/molecule.yml").write_text("changed")
    assert trees.keep(inventory, folder, top) == first


def test_secrets_of_an_inventory_are_for_the_owner_alone(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    _tree, name = trees.keep(inventory, tmp_path / "kept", top)
    assert (tmp_path / "kept/inventories" / name).stat().st_mode & 0o077 == 0


def test_a_tree_of_another_controller_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="Roll back from the controller"):
        trees.find(Way("r1", "tree", "site"), tmp_path)
    assert trees.find(Way("r1"), tmp_path) is None


def test_the_newest_trees_and_those_that_hosts_name_stay(tmp_path: Path) -> None:
    for number in range(trees.KEPT + 3):
        path = tmp_path / f"trees/tree{number}"
        path.mkdir(parents=True)
        os.utime(path, (number, number))
    trees.prune({"tree0"}, tmp_path)
    left = {path.name for path in (tmp_path / "trees").iterdir()}
    assert left == {"tree0", *(f"tree{number}" for number in range(3, trees.KEPT + 3))}


def test_files_of_an_inventory_that_differ_are_named(inventory: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(inventory.parent, before)
    assert trees.differing(before, inventory.parent) == []
    (inventory.parent / "group_vars/vault.yml").write_text("another")
    (inventory.parent / "registry.yml").write_text("version: 1")
    (before / "gone.yml").write_text("gone")
    assert trees.differing(before, inventory.parent) == [
        *("gone.yml", "group_vars/vault.yml", "registry.yml"),
    ]
