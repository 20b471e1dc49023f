"""Copies of trees and inventories, in .cache/deploy, that only the owner reads.

    trees/HASH/          site.yml, playbooks, roles, plugins, and the hgfleet that checks registries
    inventories/HASH/    the folder of the inventory, in folders of the names that were above it;
                         .hosts is a link to the file of the inventory
    versitygw/CHECKSUM   the program of an object store

A run copies this checkout and the inventory before its plan. The gate, the plan and the roll all
use the copies, so a `git pull` or an editor at work in between changes nothing. The HASH of a tree
is the beginning of git's hash, which the gate compares with the attestation.

A rollback runs the old tree on the old inventory. An inventory may name files next to its folder:
the folders above it, three levels, have links to what is there now. The folder of the CA is a link
too: a run writes to it, and the CA of now is the right one for a rollback.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller import attestation, bootstrap
from controller.bootstrap import CACHE, ROOT
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from controller.deploy.ways import Later, Way

PARTS = (
    "ansible.cfg",
    "ansible/site.yml",
    "ansible/playbooks",
    "ansible/plugins",
    "ansible/roles",
    "ansible/on_host",
    "controller/deploy/check.py",
    "hgfleet",
)
"""All that a run of a playbook reads."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "molecule", "README.md", ".git")
KEPT = 20
"""Trees and inventories that stay, besides those that a host names."""

KEPT_PROGRAMS = 3
"""Some 50 MB each, besides the programs that a host names."""

LEVELS = 3
HOSTS = ".hosts"
_INVENTORY_DIR = re.compile(r"{{\s*inventory_dir\s*}}")
NAME_LENGTH = 16
TOO_LARGE = "too large"
MOST_BYTES = 64 << 20
"""A larger inventory is not kept, and its deploy goes back only by release."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The folders of a way: the checkout, and the file of the inventory."""

    checkout: Path
    inventory: Path


@dataclass(frozen=True, slots=True)
class Taken:
    """The copies of a run: their names, `tree` and `inventory`, and where they are.

    `judged` is git's hash of the tree, empty with the `problem` that git has. `inventory` is empty
    where it is too large for a copy.
    """

    tree: str
    inventory: str
    kept: Kept
    judged: str = ""
    problem: str = ""


def take(
    inventory: Path,
    seen: str = "",
    outside: Collection[Path] = (),
    folder: Path = CACHE / "deploy",
    top: Path = ROOT,
) -> Taken:
    """Copy this tree and the inventory of this file.

    `seen` is the fingerprint of the inventory before it was read: DeployError if it changed since.
    Folders `outside` stay where they are, even if they are in the folder of the inventory.
    """
    tree, judged, problem = _take_tree(folder / "trees", top)
    checkout = folder / "trees" / tree
    if seen == TOO_LARGE or fingerprint(inventory) == TOO_LARGE:
        return Taken(tree, "", Kept(checkout, inventory), judged, problem)
    with _beside(folder / "inventories") as beside:
        home = _copy_inventory(inventory, beside, outside)
        name = _hash(home, f"{inventory}\0")
        if seen and fingerprint(inventory) != seen:
            raise DeployError(
                f"The inventory {inventory.parent} changed while it was read.",
                "Nothing was changed. Run the same command again.",
            )
        _put(beside, folder / "inventories" / name)
    hosts = folder / "inventories" / name / HOSTS
    return Taken(tree, name, Kept(checkout, hosts.resolve()), judged, problem)


def written_folders(inventory: Path, variables: Iterable[Mapping[str, Any]]) -> set[Path]:
    """Return the folders of the controller that a run writes to, as the variables name them.

    A name that needs more than `inventory_dir` is no part of the inventory's folder.
    """
    raw = {str(of.get("base_tls_ca_folder", "")) for of in variables}
    plain = {_INVENTORY_DIR.sub(lambda _: str(inventory.parent), text) for text in raw if text}
    return {Path(os.path.normpath(text)) for text in plain if "{{" not in text and text[0] == "/"}


def fingerprint(inventory: Path) -> str:
    """Return a hash of an inventory's folder, TOO_LARGE where no copy of it is made."""
    files = [path for path in _files(inventory.parent) if path.is_file()]
    if sum(path.stat().st_size for path in files) > MOST_BYTES:
        return TOO_LARGE
    return _hash(inventory.parent, f"{inventory}\0")


def _take_tree(folder: Path, top: Path) -> tuple[str, str, str]:
    """Copy a tree; return its name, git's hash, and the problem of git."""
    with _beside(folder) as beside:
        try:
            judged, problem = attestation.copy_tree(PARTS, beside, top), ""
        except bootstrap.SetupError as error:
            # Without git no tree is tested; with a reason it is deployed nevertheless.
            judged, problem = "", str(error)
            _copy_tree(top, beside)
        name = judged[:NAME_LENGTH] or _hash(beside, "")
        _put(beside, folder / name)
    return name, judged, problem


def find(way: Way | Later, folder: Path = CACHE / "deploy") -> Kept | None:
    """Return the folders of a way, None if it names none. DeployError if they are gone."""
    if not (way.tree and way.inventory):
        return None
    hosts = folder / "inventories" / way.inventory / HOSTS
    kept = Kept(folder / "trees" / way.tree, hosts.resolve())
    for path in (kept.checkout / "ansible/site.yml", kept.inventory):
        if not path.is_file():
            raise DeployError(
                f"The tree and inventory of {way.said} are not on this controller ({path}).",
                "Roll back from the controller that deployed them, or name the release:"
                " ./deploy INVENTORY --rollback VERSION changes only the release.",
            )
    return kept


def keep_program(program: Path | None, folder: Path = CACHE / "deploy") -> str:
    """Keep the program of an object store; return its checksum, empty without a program."""
    if program is None or not program.is_file():
        return ""
    checksum = _checksum(program)
    place = folder / "versitygw" / checksum
    if not place.is_file():
        with _beside(place.parent) as beside:
            shutil.copy2(program, beside / checksum)
            (beside / checksum).rename(place)
    os.utime(place)
    return checksum


def find_program(checksum: str, folder: Path = CACHE / "deploy") -> Path:
    """Return the program of this checksum; DeployError if it is gone, or another one by now."""
    place = folder / "versitygw" / checksum
    if not place.is_file() or _checksum(place) != checksum:
        raise DeployError(
            f"The object store's program of then, versitygw {checksum[:NAME_LENGTH]}, is not on"
            f" this controller ({place}).",
            "Roll back from the controller that deployed it, or name the release: ./deploy"
            " INVENTORY --rollback VERSION changes only the release.",
        )
    return place


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differing(before: Path, now: Path) -> list[str]:
    """Return the files of two folders of inventories that differ, by their names below them."""
    names = {path.relative_to(folder) for folder in (before, now) for path in _files(folder)}
    return sorted(str(name) for name in names if _content(before / name) != _content(now / name))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def prune(named: Collection[str], folder: Path = CACHE / "deploy") -> None:
    """Remove the oldest trees, inventories and programs that no host names."""
    for kind, kept in (("trees", KEPT), ("inventories", KEPT), ("versitygw", KEPT_PROGRAMS)):
        paths = sorted(
            (folder / kind).glob("*"), key=lambda path: path.stat().st_mtime, reverse=True
        )
        for path in paths[kept:]:
            if path.name in named:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for root, folders, names in os.walk(path, followlinks=True):
        ignored = LEFT_OUT(root, [*folders, *names])
        folders[:] = sorted(set(folders) - ignored)
        yield from (Path(root) / name for name in sorted(set(names) - ignored))


def _hash(folder: Path, begin: str) -> str:
    """Return a hash of the files below a folder, by their names below it."""
    digest = hashlib.sha256(begin.encode())
    for path in _files(folder):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:NAME_LENGTH]


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a new folder in a folder, for a copy that is not whole yet."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".new.", dir=folder))
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _put(beside: Path, place: Path) -> None:
    """Give a whole copy its name, unless there is one of the same content."""
    if not place.is_dir():
        try:
            beside.rename(place)
        except OSError:
            # A run on another inventory may have been faster with the same tree.
            if not place.is_dir():
                raise
    os.utime(place)


def _copy_tree(top: Path, place: Path) -> None:
    for part in PARTS:
        source, target = top / part, place / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=LEFT_OUT, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)


def _copy_inventory(inventory: Path, place: Path, outside: Collection[Path]) -> Path:
    """Copy the folder of an inventory, with links to its neighbours; return the copy."""
    home = inventory.parent
    names = home.parts[-LEVELS:]
    (place / HOSTS).symlink_to(Path(*names, inventory.name))
    target = place
    above = Path(*home.parts[: len(home.parts) - len(names)])
    for level, name in enumerate(names):
        is_last = level == len(names) - 1
        # A folder that a run makes is a link before it is there, or it would be in the copy.
        made = {path.relative_to(above).parts[0] for path in outside if path.is_relative_to(above)}
        for sibling in sorted(made | {path.name for path in above.iterdir()}):
            if sibling != name:
                (target / sibling).symlink_to(above / sibling)
        above, target = above / name, target / name
        if not is_last:
            target.mkdir()
    inside = [path for path in outside if path.is_relative_to(home) and path != home]

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name == ".git" or Path(folder, name) in inside}

    shutil.copytree(home, target, ignore=left_out)
    for path in inside:
        link = target / path.relative_to(home)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    return target
