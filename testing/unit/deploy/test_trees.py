"""Trees and inventories that are kept for rollbacks."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from controller import attestation, bootstrap
from controller.deploy import trees
from controller.deploy.decide import DeployError
from controller.deploy.ways import Way

ROOT = Path(__file__).resolve().parents[3]


def test_a_copy_has_each_file_of_the_controller_that_a_playbook_starts() -> None:
    texts = [path.read_text() for path in (ROOT / "ansible/playbooks").rglob("*.yml")]
    started = {name for text in texts for name in re.findall(r"/(controller/[\w/]+\.py)", text)}
    assert started
    assert started <= set(trees.PARTS)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "checkout"
    for name in ("ansible/playbooks", "ansible/plugins", "ansible/on_host", "hgfleet"):
        (top / name).mkdir(parents=True)
    (top / "ansible/roles/web/molecule").mkdir(parents=True)
    (top / "controller/deploy").mkdir(parents=True)
    (top / "controller/deploy/check.py").write_text("")
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


def way(inventory: Path, folder: Path, top: Path) -> Way:
    """Return the way of a run that takes copies now."""
    taken = trees.take(inventory, folder=folder, top=top)
    return Way("r1", taken.tree, taken.inventory)


def without_git(*_: object) -> str:
    raise bootstrap.SetupError("git is not installed")


def test_an_earlier_tree_and_inventory_are_found_after_both_changed(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    first = way(inventory, folder, top)
    (top / "ansible/site.yml").write_text("second")
    inventory.write_text("all: {}")
    second = way(inventory, folder, top)
    assert first != second
    kept = trees.find(first, folder)
    assert kept is not None
    assert (kept.checkout / "ansible/site.yml").read_text() == "first"
    assert kept.inventory.read_text() == "all:"
    assert (kept.inventory.parent / "group_vars/vault.yml").read_text() == "secret"
    # As the inventory names it: {{ inventory_dir }}/../pki/ca.pem
    assert (kept.inventory.parent / "../pki/ca.pem").read_text() == "CA"


def test_the_same_content_is_kept_once_and_what_configures_no_host_does_not_count(
    top: Path, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git; the hash of git is of all files."""
    monkeypatch.setattr(trees.attestation, "copy_tree", without_git)
    folder = tmp_path / "kept"
    first = way(inventory, folder, top)
    (top / "ansible/roles/web/README.md").write_text("changed")
    (top / "ansible/roles/web/molecule/molecule.yml").write_text("changed")
    assert way(inventory, folder, top) == first


def test_secrets_of_an_inventory_are_for_the_owner_alone(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    name = trees.take(inventory, folder=tmp_path / "kept", top=top).inventory
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


# --- the copies of a run ----------------------------------------------------------------------


def test_the_copy_of_a_tree_is_what_the_gate_judges(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    """An ignored file is in no hash, so it is not in the copy either."""
    (top / ".gitignore").write_text("*.swp\n")
    (top / "ansible/roles/web/edited.swp").write_text("half a task")
    taken = trees.take(inventory, folder=tmp_path / "kept", top=top)
    assert taken.judged == attestation.tree_of(top)
    assert taken.tree == taken.judged[: trees.NAME_LENGTH]
    assert (taken.kept.checkout / "ansible/site.yml").read_text() == "first"
    assert not (taken.kept.checkout / "ansible/roles/web/edited.swp").exists()
    (top / "ansible/site.yml").write_text("second")
    assert (taken.kept.checkout / "ansible/site.yml").read_text() == "first"
    assert trees.take(inventory, folder=tmp_path / "kept", top=top).judged != taken.judged


def test_a_tree_without_git_is_copied_and_was_not_judged(
    top: Path, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees.attestation, "copy_tree", without_git)
    taken = trees.take(inventory, folder=tmp_path / "kept", top=top)
    assert (taken.judged, taken.problem) == ("", "git is not installed")
    assert (taken.kept.checkout / "ansible/site.yml").read_text() == "first"


def test_an_inventory_that_changes_while_it_is_read_is_refused(
    top: Path, inventory: Path, tmp_path: Path
) -> None:
    seen = trees.fingerprint(inventory)
    trees.take(inventory, seen, folder=tmp_path / "kept", top=top)
    (inventory.parent / "group_vars/vault.yml").write_text("another")
    with pytest.raises(DeployError, match=r"changed while it was read[\s\S]*Nothing was changed"):
        trees.take(inventory, seen, folder=tmp_path / "kept", top=top)


def test_an_inventory_that_is_too_large_is_used_where_it_is(
    top: Path, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MOST_BYTES", 3)
    taken = trees.take(inventory, trees.fingerprint(inventory), folder=tmp_path / "kept", top=top)
    assert (taken.inventory, taken.kept.inventory) == ("", inventory)


@pytest.mark.parametrize("place", ["{{ inventory_dir }}/ca", "{{inventory_dir}}/../new/ca"])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_ca_that_a_run_makes_is_in_its_own_folder_and_not_in_a_copy(
    top: Path, inventory: Path, tmp_path: Path, place: str, is_there: bool
) -> None:
    written = trees.written_folders(inventory, [{"base_tls_ca_folder": place}, {}])
    folder = Path(os.path.normpath(inventory.parent / place.split("}}/")[1]))
    assert written == {folder}
    if is_there:
        folder.mkdir(parents=True)
        (folder / "ca.key").write_text("key")
    taken = trees.take(inventory, "", written, tmp_path / "kept", top)
    copied = taken.kept.inventory.parent / place.split("}}/")[1]
    if not is_there:
        # As the role base makes it.
        Path(os.path.realpath(copied)).mkdir(parents=True)
    (copied / "ca.pem").write_text("made")
    assert (folder / "ca.pem").read_text() == "made"


@pytest.mark.parametrize("text", ["{{ lookup('ansible.builtin.env', 'HOME') }}/ca", "", "ca"])
def test_a_folder_whose_name_needs_more_than_the_inventory_is_left_alone(
    inventory: Path, text: str
) -> None:
    assert trees.written_folders(inventory, [{"base_tls_ca_folder": text}]) == set()


# --- the program of an object store -----------------------------------------------------------


def test_a_program_is_found_by_its_checksum_after_its_file_changed(tmp_path: Path) -> None:
    program, folder = tmp_path / "versitygw-1", tmp_path / "kept"
    program.write_bytes(b"then")
    checksum = trees.keep_program(program, folder)
    assert trees.keep_program(program, folder) == checksum
    program.write_bytes(b"now")
    assert trees.find_program(checksum, folder).read_bytes() == b"then"
    assert trees.keep_program(None, folder) == trees.keep_program(tmp_path / "none", folder) == ""


def test_a_program_that_is_gone_or_another_one_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    program, folder = tmp_path / "versitygw-1", tmp_path / "kept"
    program.write_bytes(b"then")
    checksum = trees.keep_program(program, folder)
    (folder / "versitygw" / checksum).write_bytes(b"cut")
    for wrong in (checksum, "0" * 64):
        with pytest.raises(DeployError, match="Roll back from the controller that deployed it"):
            trees.find_program(wrong, folder)


def test_the_newest_programs_and_those_that_hosts_name_stay(tmp_path: Path) -> None:
    for number in range(trees.KEPT_PROGRAMS + 3):
        path = tmp_path / f"versitygw/program{number}"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (number, number))
    trees.prune({"program0"}, tmp_path)
    left = {path.name for path in (tmp_path / "versitygw").iterdir()}
    assert left == {"program0", "program3", "program4", "program5"}
