"""Give the state of a host the form that the release before identities gave it.

It runs on the host, as root, with the Python of its release; the units that write the state are
stopped. An update from that release finds this state: only push logs identify repositories, no
person has an id, and bundles are named by paths.

* the registry's entries, notes and tokens have no ids, and repositories no file of identity;
* manifests are named by paths, and their lines name no identity; so are pull bundles;
* the relay's positions are by path.

`MOVE` moves the objects on the host of the store. The program prints the identity of each
repository, by its path.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final

from hgfleet.core import identity, paths
from hgfleet.core.files import file_name
from hgfleet.registry.model.compiled import load_compiled

ROOT: Final = Path("/")

MOVE: Final = """
cd /srv/objectstore
for bucket in data/bundles data/private metadata/bundles metadata/private; do
    if [ -d "$bucket/{own}" ]; then
        mkdir -p "$bucket/$(dirname {path})"
        chown --reference="$bucket" "$bucket/$(dirname {path})"
        mv "$bucket/{own}" "$bucket/{path}"
    fi
done
"""
"""Give the objects of a repository the keys of that release, on the host of the store."""


def below(root: Path, path: str) -> Path:
    """Return the place of a host's path below another root, for tests of this program."""
    return root / path.lstrip("/")


def make_folders(above: Path, folder: Path) -> None:
    """Make a folder and the missing folders above it, with the owner and mode of `above`."""
    if not folder.exists():
        make_folders(above, folder.parent)
        folder.mkdir()
        stat = above.stat()
        os.chown(folder, stat.st_uid, stat.st_gid)
        folder.chmod(stat.st_mode & 0o7777)


def strip_registry(file: Path) -> dict[str, Any]:
    """Take all ids out of the registry of user repositories; return it as it was."""
    before: dict[str, Any] = json.loads(file.read_text("utf-8"))
    after = json.loads(file.read_text("utf-8"))
    for entry in after["repositories"].values():
        entry.pop("identity", None)
        entry.pop("owner_id", None)
    for note in after.get("renamed", {}).values():
        note.pop("owner_id", None)
    for name in ("identities", "purged"):
        after.pop(name, None)
    # Written in place, so that owner and mode stay.
    file.write_text(json.dumps(after), "utf-8")
    return before


def strip_tokens(file: Path) -> None:
    """Take the person ids out of the file of tokens."""
    if file.exists():
        data = json.loads(file.read_text("utf-8"))
        data.pop("owner_ids", None)
        file.write_text(json.dumps(data), "utf-8")


def strip_repository(root: Path, path: str, own: str) -> None:
    """Take the identity out of a repository, and out of the names of its bundles."""
    place = below(root, paths.REPOSITORIES) / path
    (place / identity.FILE).unlink(missing_ok=True)
    manifests = below(root, paths.MANIFESTS)
    now, then = manifests / f"{own}.manifest", manifests / f"{path}.manifest"
    if now.exists():
        make_folders(manifests, then.parent)
        text = re.sub(r" identity=[0-9a-f]{32}", "", now.read_text("utf-8"))
        now.write_text(text.replace(f"/{own}/", f"/{path}/"), "utf-8")
        now.rename(then)
    history = manifests / ".history" / own
    if history.is_dir():
        make_folders(manifests, (manifests / ".history" / path).parent)
        history.rename(manifests / ".history" / path)
    pulls = below(root, paths.PULL_BUNDLES)
    if (pulls / own).is_dir():
        (pulls / own).rename(pulls / file_name(path))
    for link, target in (
        ("clonebundles.manifest", f"{paths.MANIFESTS}/{path}.manifest"),
        ("pullbundles", f"{paths.PULL_BUNDLES}/{file_name(path)}"),
    ):
        if (place / ".hg" / link).is_symlink():
            (place / ".hg" / link).unlink()
            (place / ".hg" / link).symlink_to(target)


def strip_positions(file: Path, by_identity: dict[str, str]) -> None:
    """Name the relay's positions by path."""
    with sqlite3.connect(file) as database:
        database.executescript(
            "create table positions_1 (path text primary key, repository text, id integer, "
            "hash text, end integer, epoch integer, inode integer, size integer, "
            "changed integer, sequence integer);"
        )
        for row in database.execute("select * from positions_2").fetchall():
            if row[0] in by_identity:
                database.execute(
                    "insert into positions_1 values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (by_identity[row[0]], *row),
                )
        database.execute("drop table positions_2")


def main(root: Path = ROOT) -> dict[str, str]:
    """Convert the state of this host; return the identity of each repository by its path."""
    dynamic = below(root, paths.DYNAMIC)
    before = strip_registry(dynamic)
    strip_tokens(dynamic.parent / "tokens/tokens.json")
    declared = load_compiled(below(root, paths.COMPILED)).repositories
    named = {
        **{path: entry.get("identity") for path, entry in before["repositories"].items()},
        **{path: before.get("identities", {}).get(path) for path in declared},
    }
    identities = {path: own for path, own in sorted(named.items()) if own}
    for path, own in identities.items():
        strip_repository(root, path, own)
    for file in root.glob("var/lib/*/positions.sqlite"):
        strip_positions(file, {own: path for path, own in identities.items()})
    return identities


if __name__ == "__main__":
    json.dump(main(), sys.stdout)
