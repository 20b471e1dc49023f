"""Trees and inventories of deploys, kept for rollbacks: in .cache/deploy, for the owner alone.

    trees/HASH/          site.yml, playbooks, roles, plugins, and the hgfleet that checks registries
    inventories/HASH/    the folder of the inventory, in folders of the names that were above it;
                         .hosts is a link to the file of the inventory

A rollback runs the old tree on the old inventory. An inventory may name files beside its folder:
the folders above it, three levels, have links to what is there now.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controller.bootstrap import CACHE, ROOT
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from controller.deploy.ways import Later, Way

PARTS = (
    "ansible.cfg",
    "ansible/site.yml",
    "ansible/playbooks",
    "ansible/plugins",
    "ansible/roles",
    "ansible/on_host",
    "hgfleet",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "molecule", "README.md", ".git")
KEPT = 20
"""Trees and inventories that stay, beside those that a host names."""

LEVELS = 3
HOSTS = ".hosts"
MOST_BYTES = 64 << 20
"""An inventory above that is not kept, and its deploy goes back by release alone."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The folders of a way: the checkout, and the file of the inventory."""

    checkout: Path
    inventory: Path


def keep(inventory: Path, folder: Path = CACHE / "deploy", top: Path = ROOT) -> tuple[str, str]:
    """Keep this tree and the inventory of this file; return their names.

    An inventory that is too large has the name "".
    """
    tree = _hash(path for part in PARTS for path in _files(top / part))
    _copy_once(folder / "trees" / tree, lambda place: _copy_tree(top, place))
    home = inventory.parent
    files = list(_files(home))
    if sum(path.stat().st_size for path in files) > MOST_BYTES:
        return tree, ""
    name = _hash(iter(files))
    _copy_once(folder / "inventories" / name, lambda place: _copy_inventory(inventory, place))
    return tree, name


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
                " ./deploy INVENTORY --rollback VERSION changes the release alone.",
            )
    return kept


def differing(before: Path, now: Path) -> list[str]:
    """Return the files of two folders of inventories that differ, by their names below them."""
    names = {path.relative_to(folder) for folder in (before, now) for path in _files(folder)}
    return sorted(str(name) for name in names if _content(before / name) != _content(now / name))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def prune(named: Collection[str], folder: Path = CACHE / "deploy") -> None:
    """Remove the oldest trees and inventories that no host names."""
    for kind in ("trees", "inventories"):
        found = sorted(
            (folder / kind).glob("*"), key=lambda path: path.stat().st_mtime, reverse=True
        )
        for path in found[KEPT:]:
            if path.name not in named:
                shutil.rmtree(path)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for root, folders, names in os.walk(path, followlinks=True):
        ignored = LEFT_OUT(root, [*folders, *names])
        folders[:] = sorted(set(folders) - ignored)
        yield from (Path(root) / name for name in sorted(set(names) - ignored))


def _hash(files: Iterator[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        if path.is_file():
            digest.update(f"{path}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _copy_once(place: Path, copy: Callable[[Path], None]) -> None:
    if place.is_dir():
        os.utime(place)
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside.mkdir(mode=0o700)
    copy(beside)
    beside.rename(place)


def _copy_tree(top: Path, place: Path) -> None:
    for part in PARTS:
        source, target = top / part, place / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=LEFT_OUT)
        else:
            shutil.copy2(source, target)


def _copy_inventory(inventory: Path, place: Path) -> None:
    home = inventory.parent
    names = home.parts[-LEVELS:]
    (place / HOSTS).symlink_to(Path(*names, inventory.name))
    target = place
    above = Path(*home.parts[: len(home.parts) - len(names)])
    for level, name in enumerate(names):
        is_last = level == len(names) - 1
        for sibling in above.iterdir():
            if sibling.name != name:
                (target / sibling.name).symlink_to(sibling)
        above, target = above / name, target / name
        if not is_last:
            target.mkdir()
    shutil.copytree(home, target, ignore=shutil.ignore_patterns(".git"))
