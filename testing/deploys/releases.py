"""Releases for tests of ./deploy: the release of this checkout under another version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import run

if TYPE_CHECKING:
    from pathlib import Path


def second_release(first: Path, folder: Path, name: str, change: str = "") -> Path:
    """Return an archive of the same release under another version, which ends with `name`.

    `change` is a shell script that runs in its folder.
    """
    old = version_of(first)
    # Compiled files contain the version too, as strings of a fixed length.
    version = f"{old[: -len(name) - 1]}-{name}"
    target = folder / f"hgfleet-{version}.tar.gz"
    with bootstrap.scratch_folder() as scratch:
        script = f"""
        tar -xzf {first} -C {scratch}
        mv {scratch}/{old} {scratch}/{version}
        cd {scratch}/{version}
        grep -rlF {old} . | xargs sed -i 's/{re.escape(old)}/{version}/g'
        {change}
        tar -cf - --owner 0 --group 0 -C {scratch} {version} | gzip -1 > {target}
        """
        run(["sh", "-ec", script], what=f"Making the release {version}")
    return target


def version_of(archive: Path) -> str:
    """Return the version of the release in an archive, from the archive's name."""
    return archive.name.removeprefix("hgfleet-").removesuffix(".tar.gz")
