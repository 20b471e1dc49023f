"""Images: Debian 13 with systemd as the base of every host, and the builder's on top of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import ROOT, Step, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SUITE = "trixie"
REGISTRY_IMAGE = f"debian:{SUITE}-slim"
# A registry that answers delivers the 30 MB slim image well within this time; a registry that does
# not answer usually fails at once.
SECONDS_FOR_PULL = 120
PREFIX = "hgfleet"
# Raise it when the way an image is made changes, so that old images are not used.
RECIPE = b"4"
AS_IN_DEBIANS_IMAGE = (
    '--aptopt=Acquire::Languages "none"',
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/man/*",
)
"""Files that debian:trixie-slim leaves out as well: `apt-get update` takes 1.4 s, not 1.8 s."""


def content_key(parts: Iterable[bytes]) -> str:
    """Return 12 hex digits that identify the parts and their borders."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def tree_parts(paths: Iterable[Path]) -> list[bytes]:
    """Return name and content of every file below `paths`, in a fixed order, for `content_key`."""
    parts: list[bytes] = []
    for top in paths:
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                parts.append(str(file.relative_to(ROOT)).encode())
                parts.append(b"x" if os.access(file, os.X_OK) else b"-")
                parts.append(file.read_bytes())
    return parts


def read_packages(file: Path) -> list[str]:
    """Return the package names of a list with a name on each line and # comments."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def exists(image: str) -> bool:
    """Tell whether the engine holds the image."""
    done = subprocess.run(
        ["docker", "image", "inspect", image], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return done.returncode == 0


def ensure_base() -> str:
    """Return the base image's name; Debian is pulled, else made from its packages."""
    packages = ROOT / "docker/packages.txt"
    image = f"{PREFIX}/base:{content_key([RECIPE, SUITE.encode(), packages.read_bytes()])}"
    if exists(image):
        return image
    names = read_packages(packages)
    if _pull():
        with Step("image", f"adding systemd and python3 to {REGISTRY_IMAGE}"):
            _commit_with_packages(REGISTRY_IMAGE, names, image)
        return image
    if shutil.which("mmdebstrap") is None:
        bootstrap.ensure_debian_packages(
            ["mmdebstrap", "debian-archive-keyring"], "making the base image"
        )
    with (
        Step("image", f"no registry answers: making Debian {SUITE} from its packages (about 30 s)"),
        bootstrap.scratch_folder() as scratch,
    ):
        archive = Path(scratch) / "base.tar"
        run(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                *AS_IN_DEBIANS_IMAGE,
                f"--include={','.join(names)}",
                SUITE,
                str(archive),
            ],
            what="mmdebstrap",
            way_out="Check that the package mirror answers (apt-get update), then run this again.",
            env={**os.environ, "TMPDIR": scratch},
        )
        # Tagged last: an interrupted import leaves no image of this name.
        run(["docker", "import", str(archive), image], what="Importing the base image")
    return image


def _pull() -> bool:
    with Step("image", f"asking a registry for {REGISTRY_IMAGE}"):
        try:
            done = subprocess.run(
                ["docker", "pull", "--quiet", REGISTRY_IMAGE],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS_FOR_PULL,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def _commit_with_packages(parent: str, packages: Sequence[str], image: str) -> None:
    """Install Debian packages on top of `parent` and name the result `image`."""
    script = (
        "set -e; export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; "
        'apt-get -qq install --yes --no-install-recommends "$@" >/dev/null; apt-get clean; '
        "rm -rf /var/lib/apt/lists/*"
    )
    container = run(
        ["docker", "create", parent, "sh", "-c", script, "sh", *packages],
        what="Creating a container",
    ).strip()
    try:
        run(
            ["docker", "start", "--attach", container],
            what="Installing packages into the image",
            way_out="Check that containers reach the package mirror, then run this again.",
        )
        run(["docker", "commit", container, image], what="Committing the image")
    finally:
        subprocess.run(["docker", "rm", "--force", container], stdout=subprocess.DEVNULL)


def ensure_host() -> str:
    """Return the name of the image of the cluster's hosts: the base image with common packages."""
    return _ensure_with_packages(
        "host",
        "docker/host-packages.txt",
        "adding packages that most hosts have to the base image",
    )


def ensure_builder() -> str:
    """Return the builder image's name: the base image with compilers."""
    return _ensure_with_packages(
        "builder",
        "docker/release/packages.txt",
        "adding compilers to the base image for the builder (about 1 min)",
    )


def ensure_client() -> str:
    """Return the name of the image of the tests' client host: the base image with other clients."""
    return _ensure_with_packages(
        "client",
        "docker/client-packages.txt",
        "adding other SSH clients to the base image for tests (about 1 min)",
    )


def ensure_blank() -> str:
    """Return the name of the image of blank machines: the base image with sshd and sudo."""
    return _ensure_with_packages(
        "blank",
        "docker/blank-packages.txt",
        "adding sshd and sudo to the base image for tests of ./deploy",
    )


def _ensure_with_packages(name: str, listed: str, said: str) -> str:
    """Return the name of the base image with the packages that a file lists."""
    base = ensure_base()
    packages = ROOT / listed
    image = f"{PREFIX}/{name}:{content_key([base.encode(), packages.read_bytes()])}"
    if not exists(image):
        with Step("image", said):
            _commit_with_packages(base, read_packages(packages), image)
    return image


def of_containers(cluster: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return the image of each host's container, as the engine knows it."""
    containers = [f"{cluster}-{name}" for name in hosts]
    words = ["docker", "inspect", "--format", "{{.Config.Image}}", *containers]
    output = run(words, what="Reading the containers' images")
    return dict(zip(hosts, output.split(), strict=False))
