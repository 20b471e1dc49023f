"""Clone bundles: a run against a shell loop, a run with nothing to do, and what a clone costs.

    python testing/bench/bundles.py --versitygw BINARY             # everything, with the bars
    python testing/bench/bundles.py --versitygw BINARY run idle    # some of it
    python testing/bench/bundles.py --versitygw BINARY clone --repository PATH

Both sides use the same hg, the same versitygw (the object store of the cluster, here on a loopback
port) and the same made-up repositories, in one run.

| part  | what                                                            | bar        |
| ----- | --------------------------------------------------------------- | ---------- |
| run   | wall of a run over 200 small repositories against a shell loop  | <= 60 %    |
| idle  | a run over 1,000 repositories with nothing to do                | <= 3 s     |
| clone | CPU of `hg serve` for a clone with a bundle against one without | <= 1 %     |
| clone | wall of a clone of a stream bundle against `hg clone --stream` of a path | <= 1.5 x |
| kill  | what is wrong after 30 runs were killed (-9) and one was not  | 0          |

Runs are killed at random points of their work, while 15 % of the connections to the store fail.

The clones of the part `clone` are kept until its end: some 25 times the size of the repository.

The shell loop is `hg bundle` and curl for each kind, one after the other. A run does the same,
tries each bundle by a real clone, and publishes it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hgfleet.bundles.config import Config  # noqa: E402
from hgfleet.bundles.manifest import parse  # noqa: E402
from hgfleet.bundles.pipeline import Pipeline  # noqa: E402
from hgfleet.bundles.plan import Action, Refresh  # noqa: E402
from hgfleet.core.report import Report  # noqa: E402
from hgfleet.objectstore.bucket import Bucket  # noqa: E402
from hgfleet.objectstore.settings import Credentials, Store  # noqa: E402
from hgfleet.registry.compiled import dump_compiled  # noqa: E402
from hgfleet.registry.model import Registry, Repository  # noqa: E402
from testing.bench.repos import Size, append, generate, kept  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HG: Final = Path(sys.executable).with_name("hg")
KINDS: Final = ("stream", "zstd", "gzip")
TYPES: Final = {"stream": "none-v2;stream=v2", "zstd": "zstd-v2", "gzip": "gzip-v2"}
WHO: Final = Credentials("bench", "bench-secret")
PATHS: Final = (
    *("repositories", "manifests", "pull_bundles", "scratch", "scratch_ram", "hg", "hgrc", "ca"),
)
BARS: Final = {"run": 0.6, "idle": 3.0, "server CPU": 0.01, "stream": 1.5}
STARTUP_S: Final = 30
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
    """Return a port of the loopback address that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody accepts connections."""
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
        until = time.monotonic() + STARTUP_S
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


@dataclass(frozen=True)
class Site:
    """Repositories of a host, and the store they go to."""

    config: Config

    def repositories(self, names: Sequence[str], kinds: tuple[str, ...]) -> list[Repository]:
        return [Repository(name, "", "public", (), True, kinds) for name in names]

    def run(self, repositories: Sequence[Repository], action: Action) -> float:
        """Run the jobs as the timer does; return the seconds. Asserts what they did."""
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
        """Say what a killed run could have left wrong."""
        config, found = self.config, []
        (store,) = config.stores
        bucket = Bucket(store, WHO, config.ca, config.timeout_seconds)
        pipeline = Pipeline(config, Report("events", StringIO()), {store.name: bucket})
        named = set()
        for repository in repositories:
            text = pipeline.manifests.read_text(repository.path)
            entries = pipeline.manifests.read(repository.path)
            if len(text.splitlines()) != len(entries) or len(entries) != len(repository.bundles):
                found.append(f"{repository.path}: its manifest is {text!r}")
            named |= {str(entry.key(store.public_url)) for entry in entries}
            _, state = pipeline.plan(repository)
            found += [
                f"{repository.path}: {entry.url} is old"
                for entry in entries
                if entry.changesets != state.changesets
            ]
            # A clone from each URL; needs the lock, so it also finds one that was left.
            if error := pipeline.verify(repository).error:
                found.append(f"{repository.path}: {error}")
        paths = [repository.path for repository in repositories]
        bundles = {
            item.key for path in paths for item in bucket.objects(f"{path}/") if "/" in item.key
        }
        found += [f"orphan: {key}" for key in sorted(bundles - named)]
        found += [f"unfinished upload: {one.key}" for one in bucket.uploads("")]
        for folder in (config.scratch, config.scratch_ram):
            found += [f"left: {path}" for path in (folder / "work").glob("*")]
        return found


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
    """The environment of every hg that is started here."""
    return {**os.environ, "HGRCPATH": str(hgrc), "HGPLAIN": "1"}


def children() -> float:
    """Return the seconds of CPU that ended child processes used so far."""
    used = os.times()
    return used.children_user + used.children_system


def shell_loop(site: Site, names: Sequence[str], url: str, root: Path) -> float:
    """Generate and upload, and nothing else, as a script of a few lines would."""
    lines = ["set -e"]
    for name in names:
        for kind in KINDS:
            file = root / "bundle.hg"
            bundle = [HG, "-q", "-R", site.config.repositories / name, "bundle", "-a"]
            bundle += ["-t", TYPES[kind], file]
            send = ["curl", "-fsS", "--aws-sigv4", "aws:amz:us-east-1:s3", "-T", file]
            send += ["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD"]
            send += ["-u", f"{WHO.access_key_id}:{WHO.secret_access_key}"]
            send += [f"{url}/bundles/loop/{name}/{kind}.hg"]
            lines += [f"rm -f {file}", *(shlex.join(map(str, words)) for words in (bundle, send))]
    started = time.perf_counter()
    subprocess.run(
        ["sh"], input="\n".join(lines), text=True, check=True, env=environment(site.config.hgrc)
    )
    return time.perf_counter() - started


def show(part: str, what: str, value: float, bar: float | None = None, unit: str = "s") -> bool:
    """Print one figure; return whether it meets its bar."""
    verdict = "" if bar is None else f"   bar {bar:g}: {'met' if value <= bar else 'MISSED'}"
    print(f"{part:6} {what:62} {value:8.3f} {unit}{verdict}", flush=True)
    return bar is None or value <= bar


def bench_run(site: Site, url: str, root: Path, count: int) -> bool:
    """All bundles of many small repositories."""
    names = [f"small/{number:04}" for number in range(count)]
    for number, name in enumerate(names):
        (site.config.repositories / name).parent.mkdir(parents=True, exist_ok=True)
        generate(site.config.repositories / name, Size(changesets=20, files=10), seed=number)
    before = children()
    loop = shell_loop(site, names, url, root)
    loop_cpu = children() - before
    own = time.process_time()
    before = children()
    ours = site.run(site.repositories(names, KINDS), Action.GENERATE)
    ours_cpu = children() - before + time.process_time() - own
    show("run", f"shell loop over {count} repositories, 3 kinds (no check at all)", loop)
    show("run", "hgfleet bundles run, every bundle tried by a clone", ours)
    show("run", "CPU of the shell loop", loop_cpu)
    show("run", "CPU of hgfleet bundles run", ours_cpu)
    return show("run", "wall of the run / wall of the loop", ours / loop, BARS["run"], "")


def bench_idle(site: Site, count: int) -> bool:
    """A run with nothing to do."""
    names = [f"idle/{number:04}" for number in range(count)]
    first = site.config.repositories / "seed"
    generate(first, Size(changesets=5, files=5), seed=1)
    for name in names:
        shutil.copytree(first, site.config.repositories / name)
    repositories = site.repositories(names, ("zstd",))
    show(
        "idle", f"the first run over {count} repositories", site.run(repositories, Action.GENERATE)
    )
    # Remembers what hg said, once the files are old enough for their stat to be trusted.
    show("idle", "the second one", site.run(repositories, Action.KEEP))
    took = statistics.median(site.run(repositories, Action.KEEP) for _ in range(ROUNDS))
    return show("idle", f"a run with nothing to do, {count} repositories", took, BARS["idle"])


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """Return the seconds of CPU that a running process has used, all its threads together.

    What clock_getcpuclockid(3) gives for a process: /proc has no more than hundredths of a second.
    """
    return time.clock_gettime((~process.pid << 3) | 2)


@dataclass(frozen=True)
class Spent:
    """Seconds: how long the client waited, its CPU, and that of the server."""

    wall: float
    client: float
    server: float = 0.0


def clone(source: str | Path, folder: Path, env: dict[str, str], *words: str) -> Spent:
    """Clone into a new folder, and leave it there.

    For a while ext4 passes over each inode that was freed (`recently_deleted` in fs/ext4/ialloc.c):
    a clone right after the deletion of another one takes seconds longer than a person's.
    """
    target = Path(tempfile.mkdtemp(dir=folder)) / "clone"
    before, started = children(), time.perf_counter()
    done = subprocess.run(
        [HG, "clone", *words, str(source), str(target)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    if str(source).startswith("http"):
        used = "applying clone bundle" in done.stdout
        assert used is ("ui.clonebundles=no" not in words), f"{words}: {done.stdout}{done.stderr}"
    return Spent(took, children() - before)


def bench_clone(site: Site, root: Path, changesets: int, given: Path | None) -> bool:
    """What a clone costs the server, how long a client waits, and what for.

    The ways take turns, so that whatever else the machine does meets all of them.
    """
    name = "large"
    source = site.config.repositories / name
    if given:
        source.symlink_to(given)
    else:
        source.symlink_to(kept(Size(changesets=changesets, files=2000), seed=7))
    (repository,) = site.repositories([name], ("stream", "zstd"))
    show("clone", "hgfleet bundles run", site.run([repository], Action.GENERATE))
    env = environment(site.config.hgrc)
    served, port = root / "served", free_port()
    subprocess.run([HG, "clone", "-q", "-U", "--pull", source, served], env=env, check=True)
    published = (site.config.manifests / f"{name}.manifest").read_text()
    stream = next(line for line in published.splitlines() if ";stream=" in line)
    size = parse(stream)[0].size / 1e6
    ways = {
        "no bundle": (published, ["-U", "--config", "ui.clonebundles=no"]),
        "stream": (published, ["-U"]),
        "zstd": (published, ["-U", "--config", "ui.clonebundleprefers=COMPRESSION=zstd"]),
        "stream, nobody checks DIGEST": (re.sub(r" DIGEST=\S+", "", stream), ["-U"]),
        "stream, and files": (published, []),
    }
    words = ["-R", str(served), "serve", "-p", str(port), "-a", "127.0.0.1"]
    url, target = f"http://127.0.0.1:{port}/", root / "clones"
    target.mkdir()
    spent: dict[str, list[Spent]] = defaultdict(list)
    with (
        # Where no hard link to the repository can be made, as on a client that is not its server.
        tempfile.TemporaryDirectory(prefix="hgfleet-bench-", dir="/dev/shm") as ram,
        server([HG, *words], port, env=env) as process,
    ):
        elsewhere = Path(ram)
        for number in range(ROUNDS + 1):
            for way, (manifest, more) in ways.items():
                (served / ".hg/clonebundles.manifest").write_text(manifest + "\n")
                before = cpu_of(process)
                one = clone(url, target, env, *more)
                # The first time the server reads what it then has.
                if number:
                    spent[way].append(replace(one, server=cpu_of(process) - before))
            if number:
                # Copies by hard links, where it can: there is nothing faster.
                spent["a path"].append(clone(source, target, env, "-U", "--stream"))
                spent["a path, and files"].append(clone(source, target, env, "--stream"))
                # What a copy takes that is one.
                spent["a path, to RAM"].append(clone(source, elsewhere, env, "-U", "--stream"))
                (served / ".hg/clonebundles.manifest").write_text(published)
                spent["stream, to RAM"].append(clone(url, elsewhere, env, "-U"))
                for one in elsewhere.iterdir():
                    shutil.rmtree(one)
    show("clone", "size of the stream bundle", size, unit="MB")
    for way, found in spent.items():
        show("clone", f"client wall: {way}", statistics.median(one.wall for one in found))
        show("clone", f"client CPU:  {way}", statistics.median(one.client for one in found))
    cpu, wall = (
        {
            way: statistics.median(getattr(one, what) for one in found)
            for way, found in spent.items()
        }
        for what in ("server", "wall")
    )
    for way in ("no bundle", "stream", "zstd"):
        show("clone", f"server CPU: {way}", cpu[way])
    share = cpu["stream"] / cpu["no bundle"]
    met = show("clone", "server CPU, stream bundle / none", share, BARS["server CPU"], "")
    for one, other, what, bar in (
        ("stream, to RAM", "a path, to RAM", "no files, both copy", None),
        ("stream", "a path", "no files, the path by hard links", None),
        (
            "stream, and files",
            "a path, and files",
            "as people clone, by hard links",
            BARS["stream"],
        ),
    ):
        label = f"client wall, stream bundle / path: {what}"
        met = show("clone", label, wall[one] / wall[other], bar, "") and met
    return met


class Flaky:
    """Stands between a run and its store: while `share` is not 0, that share of connections fails.

    Some are refused, some get an answer of 503, some are cut in the middle.
    """

    def __init__(self, target: int, seed: int = 1) -> None:
        self.share = 0.0
        self.failed = 0
        self._target = target
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            fails = self._chance.random() < self.share
            how = self._chance.choice(("refuse", "503", "cut")) if fails else ""
            limit = self._chance.randrange(20_000) if how == "cut" else None
            self.failed += fails
            threading.Thread(target=self._serve, args=(client, how, limit), daemon=True).start()

    def _serve(self, client: socket.socket, how: str, limit: int | None) -> None:
        with client, contextlib.suppress(OSError):
            if how == "refuse":
                return
            if how == "503":
                client.recv(65536)
                client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._target)) as store:
                back = threading.Thread(target=_pump, args=(store, client, limit), daemon=True)
                back.start()
                _pump(client, store, limit)
                back.join()


def _pump(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    """Copy until the end or the limit (bytes), then end both connections."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data[:limit])
            if limit is not None:
                limit -= len(data)
                if limit <= 0:
                    break
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


FAILING: Final = 0.15
"""Share of the connections to the store that fail while runs are killed."""


def bench_kill(site: Site, root: Path, url: str, rounds: int) -> bool:
    """Kill runs at random points; after a run that is left alone nothing may be wrong.

    A round counts if the run was at work when it was killed: one that ended before is made again.
    """
    chance = random.Random(1)
    flaky = Flaky(urlsplit(url).port or 80)
    through = f"http://127.0.0.1:{flaky.port}"
    (store,) = site.config.stores
    store = replace(store, endpoint=through, public_url=f"{through}/bundles")
    site = Site(replace(site.config, stores=(store,)))
    names = [f"kill/{number}" for number in range(4)]
    for number, name in enumerate(names):
        (site.config.repositories / name).parent.mkdir(parents=True, exist_ok=True)
        generate(site.config.repositories / name, Size(changesets=50, files=10), seed=number)
    repositories = site.repositories(names, KINDS)
    found = {one.path: one for one in repositories}
    (root / "registry.json").write_text(dump_compiled(Registry(found)))
    lines = [f"{name} = {json.dumps(str(getattr(site.config, name)))}" for name in PATHS]
    lines += [f'registry = "{root}/registry.json"', "jobs = 2", "retention_days = 0"]
    lines += ["[[store]]", 'name = "main"', 'bucket = "bundles"']
    lines += [f'endpoint = "{through}"', f'public_url = "{through}/bundles"']
    lines += ["[refresh]", "share = 0"]
    (root / "bundles.toml").write_text("\n".join(lines))
    command = [sys.executable, "-m", "hgfleet", "bundles", "run"]
    command += ["--config", str(root / "bundles.toml")]
    env = environment(site.config.hgrc) | {
        "PYTHONPATH": str(ROOT),
        "AWS_ACCESS_KEY_ID": WHO.access_key_id,
        "AWS_SECRET_ACCESS_KEY": WHO.secret_access_key,
    }

    def run(limit: float | None) -> tuple[float, int, str]:
        started = time.perf_counter()
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                said, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.kill()
                said = ""
        return time.perf_counter() - started, process.returncode, said

    def alone() -> float:
        took, code, said = run(None)
        assert code == 0, said
        return took

    def push(seed: int) -> None:
        for name in names:
            append(site.config.repositories / name, 3, seed=seed)

    alone()
    push(1000)
    whole = alone()
    killed = tried = 0
    while killed < rounds:
        assert tried < 10 * rounds, "runs end before they can be killed"
        tried += 1
        push(tried)
        flaky.share = FAILING
        killed += run(chance.uniform(0.1, 1) * whole)[1] == -9
    flaky.share = 0
    show("kill", f"runs at work when they were killed, of {tried}", killed, unit="")
    show("kill", "a run that is left alone takes", whole)
    show("kill", "connections to the store that were made to fail", flaky.failed, unit="")
    alone()
    # What the run before replaced is no orphan: it stays for the retention time, here until now.
    alone()
    wrong = site.wrong(repositories)
    for what in wrong:
        print(f"kill   {what}")
    return show("kill", "things wrong after a run that was left alone", len(wrong), 0, "")


def main() -> int:
    """Run the parts that are asked for; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="run, idle, kill, clone (default: all)"
    )
    parser.add_argument("--versitygw", type=Path, required=True, help="the gateway's program")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--small", type=int, default=200, help="repositories of the part `run`")
    parser.add_argument("--many", type=int, default=1000, help="repositories of the part `idle`")
    parser.add_argument("--kills", type=int, default=30, help="runs of the part `kill`")
    parser.add_argument("--changesets", type=int, default=10_000, help="of the part `clone`")
    parser.add_argument("--repository", type=Path, help="a real one for the part `clone`")
    options = parser.parse_args()
    known = ("run", "idle", "kill", "clone")
    parts = options.parts or known
    if unknown := {*parts} - {*known}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    met = True
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        root = Path(folder)
        with gateway(options.versitygw.resolve(), root / "store") as url:
            for part in parts:
                folder_of_part = root / part
                folder_of_part.mkdir()
                site = make_site(folder_of_part, url, options.jobs)
                if part == "run":
                    met &= bench_run(site, url, folder_of_part, options.small)
                elif part == "idle":
                    met &= bench_idle(site, options.many)
                elif part == "kill":
                    met &= bench_kill(site, folder_of_part, url, options.kills)
                else:
                    met &= bench_clone(site, folder_of_part, options.changesets, options.repository)
    print(
        f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
