"""Snapshots: converged hosts kept as images, under a hash of all that shaped them."""

from __future__ import annotations

import concurrent.futures
import subprocess
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import ROOT, STATE, Step, run
from controller.cluster import images, release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.cluster.release import Release
    from controller.cluster.settings import Settings


def key_of(cluster: Settings, built: Release) -> str:
    """Return a hash of roles, variables, release, base and secrets: all that shapes a host."""
    parts = ("site.yml", "playbooks", "plugins", "roles", "inventories/cluster")
    shaped_by = [ROOT / "ansible" / part for part in parts]
    shaped_by += [ROOT / "ansible.cfg", ROOT / "docker/containers.yml", bootstrap.REQUIREMENTS]
    if (STATE / "keys").exists():
        shaped_by += sorted((STATE / "keys").glob("*.pub"))
    words = [
        images.ensure_host(),
        built.version,
        built.versitygw.name,
        cluster.network,
        cluster.identity,
        # The web part tells people where to push.
        str(cluster.port("ssh")),
    ]
    return images.content_key([*(word.encode() for word in words), *images.tree_parts(shaped_by)])


def name_of(cluster: Settings, host: str, key: str) -> str:
    """Return the name of a host's snapshot image."""
    return f"{images.PREFIX}/snapshot-{cluster.name}-{host}:{key}"


def take(cluster: Settings, hosts: Iterable[str], key: str) -> None:
    """Commit every host as an image; drop snapshots of earlier content."""
    with Step("snapshots", "keeping converged hosts for the next start"):

        def commit(name: str) -> None:
            image = name_of(cluster, name, key)
            run(["docker", "commit", f"{cluster.name}-{name}", image], what=f"Committing {name}")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(commit, hosts))
        remove(cluster, keep=key)


def remove(cluster: Settings, keep: str = "") -> None:
    """Remove the cluster's snapshots, except with the key `keep` or in use."""
    prefix = f"{images.PREFIX}/snapshot-{cluster.name}-"
    old = [
        name
        for name in release.image_names()
        if name.startswith(prefix) and not name.endswith(f":{keep}")
    ]
    if old:
        subprocess.run(
            ["docker", "image", "rm", *old], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
