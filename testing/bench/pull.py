"""Pulls: the cost for the server, with pull bundles and without.

    python -m testing.bench.pull                     # 10,000 changesets, 500 newer; with the bar
    python -m testing.bench.pull --changesets 2000 --newer 200
    python -m testing.bench.pull --repository PATH   # a real one; its last changesets are the newer

Both sides serve the same made-up repository with the same hg and differ only in
`hgfleet.pullbundles`. The clients are new clones through a clone bundle with all but the newer
changesets, clones of half the history, and full clones that get no clone bundle.

| figure                                                                   | bar     |
| ------------------------------------------------------------------------ | ------- |
| server CPU of the getbundle with 500 newer changesets, in process        | <= 20 % |

The getbundle is answered in a process that runs already (`pull_getbundle.py`), with pull bundles
and live, so neither a start nor the other requests of a pull hide the ratio. Over HTTP the server
is a `hg serve` that runs already, as the service's web workers do: its user and system time for all
requests of the clone or pull. Over SSH it is a process for each client, and its start counts. The
median of the rounds is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.plan import Refresh
from hgfleet.bundles.decide.pullbundle_chain import Limits
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core.report import Report
from hgfleet.objectstore.settings import Store
from testing.bench.bundles_clone import cpu_of
from testing.bench.bundles_site import HG, Site, environment, free_port, server
from testing.bench.repos import Size, append, generate

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]

BAR: Final = 0.2
GETBUNDLE: Final = "testing.bench.pull_getbundle"
SIDES: Final = {"live": "no", "pull bundles": "yes"}
HGRC: Final = f"""
[extensions]
pullbundles = {ROOT}/hgext/pullbundles.py
clonebundles =
[trusted]
users = *
[server]
bundle1 = no
"""


class Bench:
    """A repository with its pull bundles, and clients of it."""

    def __init__(self, root: Path, changesets: int, newer: int, given: Path | None) -> None:
        self.root, self.source, self.newer = root, root / "repos/project", newer
        (root / "hgrc").write_text(HGRC)
        for name in ("repos", "scratch", "pullbundles", "public"):
            (root / name).mkdir()
        self.env = environment(root / "hgrc") | {"PYTHONPATH": str(ROOT)}
        self.config = Config(
            stores=(Store("main", "http://unused", "bundles", "http://unused/bundles"),),
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            registry=root / "registry.json",
            dynamic=root / "dynamic/registry.json",
            repositories=root / "repos",
            manifests=root / "manifests",
            pull=Limits(least=1),
            pull_bundles=root / "pullbundles",
            access_log=root / "access.log",
            scratch=root / "scratch",
            hg=HG,
            hgrc=root / "hgrc",
        )
        if given:
            changesets = int(self.hg("-R", given, "log", "-r", "tip", "-T", "{rev}")) - newer
            heads = self.hg("-R", given, "log", "-r", f"heads(:{changesets})", "-T", "-r{node}\n")
            self.hg("clone", "-q", "-U", "--pull", *heads.split(), given, self.source)
        else:
            generate(self.source, Size(changesets=changesets, files=2000), seed=7)
        (self.repository,) = Site(self.config).repositories(["project"], (), ("staff",))
        self.run("with the first changesets")
        self.hg("clone", "-q", "-U", "--pull", self.source, root / "first")
        self.hg("-R", self.source, "bundle", "-q", "-a", "-t", "zstd-v2", root / "public/bundle.hg")
        if given:
            self.hg("-R", self.source, "pull", "-q", given)
        else:
            append(self.source, newer, seed=8)
        self.run(f"with {newer:,} more")
        half = f"-r{changesets // 2}"
        self.hg("clone", "-q", "-U", "--pull", half, self.source, root / "half")
        folder = self.config.pull_bundles / self.repository.identity
        (self.source / ".hg/pullbundles").symlink_to(folder)

    def hg(self, *words: str | Path) -> str:
        done = subprocess.run(
            [HG, *map(str, words)], env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, when: str) -> None:
        """Let the bundle jobs do their part; no store is needed for pull bundles."""
        started = time.perf_counter()
        pipeline = Pipeline(self.config, Report("text", StringIO()))
        (outcome,) = pipeline.run([self.repository])
        assert outcome.error is None, outcome.error
        chain = pipeline.pullbundles.chain(self.repository)
        took, total = time.perf_counter() - started, sum(link.size for link in chain)
        print(f"run {when}: {took:.1f} s, {len(chain)} links, {total / 1e6:.1f} MB")

    @contextlib.contextmanager
    def bundles(self) -> Iterator[None]:
        """Offer the clone bundle, from a server of its own."""
        handler = functools.partial(_Quiet, directory=str(self.root / "public"))
        public = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=public.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{public.server_port}/bundle.hg"
        manifest = self.source / ".hg/clonebundles.manifest"
        manifest.write_text(f"{url} BUNDLESPEC=zstd-v2\n")
        yield
        manifest.unlink()
        public.shutdown()
        public.server_close()

    def get(self, what: str, url: str, *words: str) -> float:
        """Clone or pull; return the seconds that the client took."""
        target = self.root / "client"
        shutil.rmtree(target, ignore_errors=True)
        command = ["clone", "-U", *words, url, str(target)]
        if what == "half":
            shutil.copytree(self.root / "half", target)
            command = ["-R", str(target), "pull", *words, url]
        started = time.perf_counter()
        said = self.hg(*command)
        took = time.perf_counter() - started
        assert ("applying clone bundle" in said) is (what == "bundle"), said
        return took

    def getbundle(self, rounds: int) -> dict[str, float]:
        """Return the CPU seconds of the answer that a clone of the bundle pulls, by side."""
        heads = self.hg("-R", self.root / "first", "log", "-r", "heads(all())", "-T", "{node} ")
        common = ",".join(heads.split())
        seconds = {}
        for side, switch in SIDES.items():
            done = subprocess.run(
                [sys.executable, "-m", GETBUNDLE, self.source, switch, str(rounds), common],
                env=self.env,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            cpu, count = done.stdout.split()
            assert int(count) == self.newer, count
            seconds[side] = float(cpu)
        return seconds

    def over_http(self, what: str, rounds: int) -> dict[str, tuple[float, float]]:
        """Return server CPU and client wall in seconds, by side."""
        medians = {}
        for side, switch in SIDES.items():
            port = free_port()
            words = ["-R", str(self.source), "serve", "-p", str(port), "-a", "127.0.0.1"]
            words += ["--config", f"hgfleet.pullbundles={switch}"]
            with server([HG, *words], port, env=self.env) as process:
                url, measured = f"http://127.0.0.1:{port}/", []
                for number in range(rounds + 1):
                    before = cpu_of(process)
                    took = self.get(what, url)
                    if number:  # the first request opens the repository
                        measured.append((cpu_of(process) - before, took))
            medians[side] = _medians(measured)
        return medians

    def over_ssh(self, what: str, rounds: int) -> dict[str, tuple[float, float]]:
        """Return the same over SSH; the shell measures hg from its start to its end."""
        medians, times = {}, self.root / "times"
        for side, switch in SIDES.items():
            hgrc = self.root / f"{switch}.hgrc"
            hgrc.write_text(f"{HGRC}[hgfleet]\npullbundles = {switch}\n")
            served = f'export HGRCPATH={hgrc}; eval "$2"; times > {times}'
            words = ["--config", f"ui.ssh=sh -c '{served}' ssh", "--config", f"ui.remotecmd={HG}"]
            measured = []
            for _ in range(rounds):
                times.unlink(missing_ok=True)
                took = self.get(what, f"ssh://localhost/{self.source}", *words)
                while not times.exists() or len(times.read_text().split()) < 4:
                    time.sleep(0.01)
                measured.append((sum(map(_seconds, times.read_text().split()[2:])), took))
            medians[side] = _medians(measured)
        return medians


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


def _medians(measured: list[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = zip(*measured, strict=True)
    return statistics.median(cpu), statistics.median(wall)


def _seconds(word: str) -> float:
    minutes, seconds = word.rstrip("s").split("m")
    return 60 * float(minutes) + float(seconds)


def main() -> int:
    """Print the table; exit with 1 if the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changesets", type=int, default=10_000)
    parser.add_argument("--newer", type=int, default=500)
    parser.add_argument("--repository", type=Path, help="a real one instead of a made-up one")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        given = options.repository and options.repository.resolve()
        bench = Bench(Path(folder), options.changesets, options.newer, given)
        names = {
            "bundle": f"clone of a bundle + {options.newer:,} newer",
            "half": "pull from half-way",
            "all": "full clone, no clone bundle",
        }
        live, stored = bench.getbundle(5 * options.rounds).values()
        ratio = stored / live
        met = ratio <= BAR
        print(f"getbundle with {options.newer:,} newer, in process: live {live:.3f} s", end=", ")
        print(f"pull bundles {stored:.3f} s, ratio {ratio:.1%}", flush=True)
        head = ("", "live CPU", "CPU", "ratio", "live wall", "wall")
        print("{:42} {:>9} {:>9} {:>7} {:>9} {:>9}".format(*head))
        for what, name in names.items():
            with bench.bundles() if what == "bundle" else contextlib.nullcontext():
                for how, measure in (("HTTP", bench.over_http), ("SSH", bench.over_ssh)):
                    (cpu, wall), (less, faster) = measure(what, options.rounds).values()
                    ratio = less / cpu
                    print(
                        f"{f'{name}, {how}':42} {cpu:7.3f} s {less:7.3f} s {ratio:7.1%}"
                        f" {wall:7.1f} s {faster:7.1f} s",
                        flush=True,
                    )
    result = "met" if met else "MISSED"
    print(f"bar: getbundle with the newer changesets, in process, <= {BAR:.0%}: {result}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
