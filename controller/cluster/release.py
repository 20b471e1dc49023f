"""The release: built once in a container of the hosts' Debian, from inputs locked by hash."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from controller import bootstrap
from controller.bootstrap import CACHE, ROOT, Step, run
from controller.cluster import images

SOURCES = ROOT / "docker/release"
CLIENTS = ROOT / "docker/clients"
LAST = CACHE / "release/last.json"
# The controller's own way to package indexes, which a build step needs too.
PASSED_ON = (
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "GOPROXY",
    "GONOSUMDB",
)


class Release(NamedTuple):
    """The files that hosts install."""

    version: str
    archive: Path
    versitygw: Path


def project_version() -> str:
    """Return the version in pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def ensure() -> Release:
    """Return the release of this checkout's content, building the missing parts."""
    folder = CACHE / "release"
    folder.mkdir(parents=True, exist_ok=True)
    # Both parts are built in it.
    images.ensure_builder()
    # The first compiles for minutes, the second mostly waits for downloads.
    with ThreadPoolExecutor() as pool:
        compiled = pool.submit(_versitygw, folder)
        version, archive = _archive(folder)
        versitygw = compiled.result()
    built = Release(version, archive, versitygw)
    remember(built)
    return built


def _archive(folder: Path) -> tuple[str, Path]:
    """Return the version of this checkout's content, and the archive of that name."""
    wheels = _wheels(folder)
    # Units point at their runbooks; the other pages are not for hosts.
    sources = [ROOT / name for name in ("hgfleet", "hgext", "docs/runbooks", "pyproject.toml")]
    parts = images.tree_parts([*sources, SOURCES / "assemble.sh"])
    version = f"{project_version()}-{images.content_key([wheels.name.encode(), *parts])}"
    archive = folder / f"hgfleet-{version}.tar.gz"
    if not archive.exists():
        mounts = [(wheels, "/wheels"), *((s, f"/src/{s.name}") for s in sources)]
        with Step("release", f"assembling {version} (about 30 s)"):
            _build("assemble.sh", mounts, {"VERSION": version}, "release.tar.gz", archive)
    return version, archive


def remember(built: Release) -> None:
    """Record the last built release, for playbooks run by hand (ansible/plugins/lookup)."""
    text = json.dumps({name: str(value) for name, value in built._asdict().items()}, indent=2)
    fresh = LAST.with_suffix(".new")
    fresh.write_text(text + "\n")
    fresh.replace(LAST)


def _wheels(folder: Path) -> Path:
    lock = SOURCES / "requirements.txt"
    key = images.content_key(
        [images.ensure_builder().encode(), *images.tree_parts([lock, SOURCES / "wheels.sh"])]
    )
    wheels = folder / f"wheels-{key}"
    if not wheels.exists():
        with Step("release", "fetching and building the locked wheels (about 1 min)"):
            _build("wheels.sh", [(lock, "/src/requirements.txt")], {}, "", wheels)
    return wheels


def _versitygw(folder: Path) -> Path:
    module = SOURCES / "versitygw"
    key = images.content_key(
        [images.ensure_builder().encode(), *images.tree_parts([module, SOURCES / "versitygw.sh"])]
    )
    binary = folder / f"versitygw-{key}"
    if not binary.exists():
        with Step("release", "building versitygw, the S3 server (about 2 min)"):
            _build("versitygw.sh", [(module, "/src")], {}, "versitygw", binary)
    return binary


def older_clients() -> Path:
    """Return a folder with older versions of Mercurial, for tests; `5/hg` and `6/bin/hg`."""
    key = images.content_key([images.ensure_builder().encode(), *images.tree_parts([CLIENTS])])
    clients = CACHE / "release" / f"clients-{key}"
    if not clients.exists():
        clients.parent.mkdir(parents=True, exist_ok=True)
        with Step("clients", "fetching older versions of Mercurial (about 15 s)"):
            _build(CLIENTS / "fetch.sh", [(CLIENTS, "/src")], {}, "", clients)
    return clients


def _build(
    script: str | Path,
    mounts: list[tuple[Path, str]],
    variables: dict[str, str],
    product: str,
    target: Path,
) -> None:
    """Run a script in the builder; move /out/`product` (or all of /out) to `target`, last."""
    builder = images.ensure_builder()
    with bootstrap.scratch_folder() as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        command = [
            "docker",
            "run",
            "--rm",
            "--init",
            "-v",
            f"{out}:/out",
            "-v",
            f"{SOURCES / script}:/build.sh:ro",
        ]
        for source, inside in mounts:
            command += ["-v", f"{source}:{inside}:ro"]
        for name in PASSED_ON:
            if name in os.environ:
                variables[name] = os.environ[name]
        bundle = bootstrap.ca_bundle()
        if bundle is not None:
            # Behind a TLS-inspecting proxy pip and go must trust the controller's CAs; a host
            # never does.
            command += ["-v", f"{bundle.resolve()}:/run/controller-ca.crt:ro"]
            variables.update(
                SSL_CERT_FILE="/run/controller-ca.crt", PIP_CERT="/run/controller-ca.crt"
            )
        for name, value in variables.items():
            command += ["-e", f"{name}={value}"]
        owner = f"{os.getuid()}:{os.getgid()}"
        command += [builder, "sh", "-c", f"sh /build.sh && chown -R {owner} /out"]
        run(
            command,
            what=f"docker/release/{script}",
            way_out="Check that containers reach the package indexes; the locked inputs are in the"
            " folder of that script.",
        )
        (out / product if product else out).rename(target)


def prune(keep: Release) -> None:
    """Remove archives of earlier versions from the cache. Wheels and binaries stay."""
    folder = keep.archive.parent
    for archive in folder.glob("hgfleet-*.tar.gz"):
        if archive != keep.archive:
            archive.unlink()


def image_names() -> list[str]:
    """Return the names of all images that belong to hgfleet on this engine."""
    listed = subprocess.run(
        ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"{images.PREFIX}/*"],
        stdout=subprocess.PIPE,
        text=True,
    )
    return listed.stdout.split()
