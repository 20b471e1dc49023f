"""A host with repositories, and the store for bundles, for benchmarks of bundles and pulls."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.bundles.decide.plan import Action, Refresh
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core import identity
from hgfleet.core.report import Report
from hgfleet.objectstore.bucket import Bucket
from hgfleet.objectstore.settings import Credentials, Store
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hgfleet.registry.model.registry import Read

ROOT: Final = Path(__file__).resolve().parents[2]
HG: Final = Path(sys.executable).with_name("hg")
KINDS: Final = ("stream", "zstd", "gzip")
TYPES: Final = {"stream": "none-v2;stream=v2", "zstd": "zstd-v2", "gzip": "gzip-v2"}
WHO: Final = Credentials("bench", "bench-secret")
STARTUP_SECONDS: Final = 30
ROUNDS: Final = 3

HGRC: Final = f"""
[extensions]
bundle_verify = {ROOT}/hgext/bundle_verify.py
clonebundles =
[trusted]
users = *
[server]
bundle1 = no
[web]
allow-push =
"""

POLICY: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::bundles/*",
        }
    ],
}


def free_port() -> int:
    """Return a port of the loopback address that is free."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a server accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def server(
    command: Sequence[str | Path], port: int, **more: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more
    )
    try:
        until = time.monotonic() + STARTUP_SECONDS
        while not answers(port):
            assert process.poll() is None, f"{command[0]} ended"
            assert time.monotonic() < until, f"{command[0]} does not answer"
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def gateway(binary: Path, root: Path) -> Iterator[str]:
    """Run a versitygw with a public bucket `bundles`; give its URL."""
    import boto3

    port = free_port()
    for name in ("data", "metadata"):
        (root / name).mkdir(parents=True)
    words = ["--port", f"127.0.0.1:{port}", "--region", "us-east-1", "--quiet"]
    words += ["--access", WHO.access_key_id, "--secret", WHO.secret_access_key]
    words += ["posix", "--sidecar", str(root / "metadata"), str(root / "data")]
    with server([binary, *words], port):
        url = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=WHO.access_key_id,
            aws_secret_access_key=WHO.secret_access_key,
        )
        client.create_bucket(Bucket="bundles")
        client.put_bucket_policy(Bucket="bundles", Policy=json.dumps(POLICY))
        yield url


def identity_of(name: str) -> str:
    """Return the identity of a repository of a bench."""
    return hashlib.sha256(name.encode()).hexdigest()[: identity.LENGTH]


@dataclass(frozen=True)
class Site:
    """Repositories of a host, and the store for their bundles."""

    config: Config

    def repositories(
        self, names: Sequence[str], kinds: tuple[str, ...], read: Read = "public"
    ) -> list[Repository]:
        """Declare these existing repositories, as the inventory does."""
        made = [
            Repository(name, "", read, (), True, kinds, identity=identity_of(name))
            for name in names
        ]
        self.config.registry.write_text(
            dump_compiled(Registry({repository.path: repository for repository in made}))
        )
        self.config.dynamic.parent.mkdir(exist_ok=True)
        with dynamic_update.update(self.config.dynamic) as entries:
            for repository in made:
                entries.note_identity(repository.path, repository.identity)
                file = self.config.repositories / repository.path / identity.FILE
                file.write_text(identity.text(repository.identity))
        return made

    def run(self, repositories: Sequence[Repository], action: Action) -> float:
        """Run the jobs as the timer does, and check the action of each plan; return the seconds."""
        started = time.perf_counter()
        buckets = {
            store.name: Bucket(store, WHO, self.config.ca, self.config.timeout_seconds)
            for store in self.config.stores
        }
        report = Report("events", StringIO())
        outcomes = Pipeline(self.config, report, buckets).run(repositories, everything=True)
        took = time.perf_counter() - started
        for outcome in outcomes:
            assert outcome.error is None, outcome.error
            assert outcome.plan is not None
            assert outcome.plan.action is action, outcome.plan
            assert not outcome.missing
        return took

    def wrong(self, repositories: Sequence[Repository]) -> list[str]:
        """Return the faults that a killed run could have left."""
        config, faults = self.config, []
        (store,) = config.stores
        bucket = Bucket(store, WHO, config.ca, config.timeout_seconds)
        pipeline = Pipeline(config, Report("events", StringIO()), {store.name: bucket})
        named = set()
        for repository in repositories:
            text = pipeline.manifests.read_text(repository.path)
            entries = pipeline.manifests.read(repository.path)
            if len(text.splitlines()) != len(entries) or len(entries) != len(repository.bundles):
                faults.append(f"{repository.path}: its manifest is {text!r}")
            named |= {str(entry.key(store.public_url)) for entry in entries}
            _, state = pipeline.plan(repository)
            faults += [
                f"{repository.path}: {entry.url} is old"
                for entry in entries
                if entry.changesets != state.changesets
            ]
            # Clones from each URL. This needs the lock, so it also finds a lock that was left
            # behind.
            if error := pipeline.verify(repository).error:
                faults.append(f"{repository.path}: {error}")
        paths = [repository.path for repository in repositories]
        bundles = {
            item.key for path in paths for item in bucket.objects(f"{path}/") if "/" in item.key
        }
        faults += [f"orphan: {key}" for key in sorted(bundles - named)]
        faults += [f"unfinished upload: {upload.key}" for upload in bucket.uploads("")]
        for folder in (config.scratch, config.scratch_ram):
            faults += [f"left: {path}" for path in (folder / "work").glob("*")]
        return faults


def make_site(root: Path, url: str, jobs: int) -> Site:
    """Lay out a host below a folder."""
    hgrc = root / "hgrc"
    hgrc.write_text(HGRC)
    ram = root / "ram"
    for folder in ("scratch", "manifests", "ram", "repos"):
        (root / folder).mkdir()
    return Site(
        Config(
            stores=(Store("main", url, "bundles", f"{url}/bundles"),),
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            registry=root / "registry.json",
            dynamic=root / "dynamic/registry.json",
            repositories=root / "repos",
            manifests=root / "manifests",
            pull_bundles=root / "pullbundles",
            scratch=root / "scratch",
            scratch_ram=ram,
            scratch_ram_bytes=256 * 1024**2,
            hg=HG,
            hgrc=hgrc,
            ca=Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")),
            jobs=jobs,
        )
    )


def environment(hgrc: Path) -> dict[str, str]:
    """Return the environment of every hg that is started here."""
    return {**os.environ, "HGRCPATH": str(hgrc), "HGPLAIN": "1"}


def children() -> float:
    """Return the seconds of CPU that ended child processes used so far."""
    used = os.times()
    return used.children_user + used.children_system


def show(part: str, what: str, value: float, bar: float | None = None, unit: str = "s") -> bool:
    """Print a figure; return whether it meets its bar."""
    verdict = "" if bar is None else f"   bar {bar:g}: {'met' if value <= bar else 'MISSED'}"
    print(f"{part:6} {what:62} {value:8.3f} {unit}{verdict}", flush=True)
    return bar is None or value <= bar
