"""The web part against Mercurial's own hgwebdir, under the same WSGI server, in the same run.

    python -m testing.bench.web                      # made-up repository, both sides, the bars
    python -m testing.bench.web --url https://127.0.0.1:8443/hgfleet --ca ca.pem   # a running site

Both sides get the same gunicorn command line, the same unix socket, the same configuration of
Mercurial and the same clients: processes that write requests to sockets and read the answers. Each
measurement starts a new server and counts from the first request on; any answer but the right bytes
with status 200 fails the run. Sides take turns, so that a busy machine hurts both.

Bars: `cmd=heads` 10 times and `json-log` twice as many requests a second as hgwebdir.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from testing.bench.http_load import Count, Endpoint, load

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
BARS: Final = {"heads": 10.0, "json-log": 2.0}
TARGETS: Final = {"heads": "?cmd=heads", "json-log": "/json-log"}
REPOSITORY: Final = "bench/main"
STARTUP_S: Final = 30

# The settings of a host's /etc/hgfleet/hgrc that could affect speed.
HGRC: Final = """
[extensions]
clonebundles =
[web]
allow-archive =
encoding = UTF-8
guessmime = false
style = paper
[server]
bundle1 = no
validate = true
"""

STOCK: Final = """
from mercurial.hgweb import hgwebdir
application = hgwebdir({config!r})
"""


@contextlib.contextmanager
def server(
    application: str, folder: Path, environment: dict[str, str], workers: int, threads: int
) -> Iterator[Endpoint]:
    """Run gunicorn on a unix socket until the block ends; no request has been sent to it yet."""
    path = folder / "http.sock"
    path.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "gunicorn", "--worker-class", "gthread",
        "--workers", str(workers), "--threads", str(threads), "--backlog", "2048",
        "--bind", f"unix:{path}", "--chdir", str(folder), "--log-level", "warning",
        "--no-control-socket", application,
    ]  # fmt: skip
    with (folder / "gunicorn.log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + STARTUP_S
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                text = (folder / "gunicorn.log").read_text(errors="replace")
                raise SystemExit(f"gunicorn did not start:\n{text[-4000:]}")
            time.sleep(0.02)
        yield Endpoint(socket_path=str(path), prefix=f"/{REPOSITORY}")
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def prepare(folder: Path, changesets: int, seed: int) -> dict[str, dict[str, str]]:
    """Make repositories and configuration; return each side's application and environment."""
    (folder / "hgrc").write_text(HGRC)
    repositories = folder / "repos"
    made = {REPOSITORY: changesets, "bench/small": 50, "other": 50}
    for number, (name, size) in enumerate(made.items()):
        destination = repositories / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                sys.executable,
                *("-m", "testing.bench.repos"),
                str(destination),
                "--changesets",
                str(size),
                "--seed",
                str(seed + number),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "HGRCPATH": ""},
        )
    (folder / "hgweb.config").write_text(f"[paths]\n/ = {repositories}/**\n")
    (folder / "stock.py").write_text(STOCK.format(config=bytes(folder / "hgweb.config")))
    entry = {"description": "made up", "read": "public", "push": [], "publishing": True}
    compiled = {
        "format": 2,
        "read_only": None,
        "defaults": {},
        "namespaces": {},
        "repositories": {name: {**entry, "bundles": []} for name in made},
    }
    (folder / "registry.json").write_text(json.dumps(compiled))
    common = {"HGRCPATH": str(folder / "hgrc"), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    return {
        "hgwebdir": {"application": "stock:application", **common},
        "hgfleet": {
            "application": "hgfleet.web.app:application",
            "HGFLEET_WEB_REGISTRY": str(folder / "registry.json"),
            "HGFLEET_WEB_ROOT": str(repositories),
            "HGFLEET_WEB_ACCESS_LOG": str(folder / "access.log"),
            **common,
        },
    }


def compare(options: argparse.Namespace) -> int:
    """Measure both sides, print the table, return the exit code."""
    rates: dict[tuple[str, str], list[float]] = {}
    totals: dict[tuple[str, str], Count] = {}
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as name:
        folder = Path(name)
        started = time.perf_counter()
        sides = prepare(folder, options.changesets, options.seed)
        print(
            f"{options.changesets} changesets, seed {options.seed}, made in "
            f"{time.perf_counter() - started:.0f} s; {options.clients} clients, gunicorn gthread "
            f"{options.workers} workers x {options.threads} threads, "
            f"{'keep-alive' if options.keepalive else 'a connection per request'}, "
            f"{options.rounds} x {options.seconds:g} s each",
            flush=True,
        )
        for number in range(options.rounds):
            for what, target in TARGETS.items():
                for side, settings in sides.items():
                    environment = {k: v for k, v in settings.items() if k != "application"}
                    with server(
                        settings["application"],
                        folder,
                        environment,
                        options.workers,
                        options.threads,
                    ) as endpoint:
                        count = load(
                            endpoint, target, options.clients, options.seconds, options.keepalive
                        )
                    rates.setdefault((what, side), []).append(count.good / options.seconds)
                    totals.setdefault((what, side), Count()).add(count)
                    print(
                        f"  round {number + 1} {what} {side}: {count.good / options.seconds:.0f}/s",
                        file=sys.stderr,
                        flush=True,
                    )
    return report(rates, totals)


def report(rates: dict[tuple[str, str], list[float]], totals: dict[tuple[str, str], Count]) -> int:
    """Print the measurements and whether the bars are met."""
    failed = False
    print(
        f"\n{'request':<10}{'hgwebdir/s':>12}{'hgfleet/s':>12}{'factor':>9}{'bar':>6}"
        f"{'answers':>10}{'not 200':>9}{'slowest':>10}"
    )
    for what, bar in BARS.items():
        stock = statistics.median(rates[what, "hgwebdir"])
        ours = statistics.median(rates[what, "hgfleet"])
        factor = ours / stock if stock else float("inf")
        mine = totals[what, "hgfleet"]
        print(
            f"{what:<10}{stock:>12.0f}{ours:>12.0f}{factor:>8.1f}x{bar:>5.0f}x"
            f"{mine.good:>10}{mine.bad:>9}{mine.slowest * 1000:>8.0f}ms"
        )
        failed = failed or factor < bar
    for (what, side), count in totals.items():
        if count.bad:
            failed = True
            print(f"{what} from {side}: {count.bad} failed, the first: {count.first_problem}")
        if len(count.digests) > 1:
            failed = True
            print(f"{what} from {side}: {len(count.digests)} different answers")
    both = totals["heads", "hgwebdir"].digests | totals["heads", "hgfleet"].digests
    if len(both) != 1:
        failed = True
        print("the two sides gave different heads")
    print("FAILED" if failed else "bars met")
    return int(failed)


def measure(options: argparse.Namespace) -> int:
    """Measure a running site, given the URL of a repository."""
    url = urlsplit(options.url)
    if url.hostname not in ("localhost", "127.0.0.1"):
        print("load goes to this machine only: https://127.0.0.1:PORT/...", file=sys.stderr)
        return 2
    if url.scheme == "https" and not options.ca:
        print("--ca FILE is needed for https", file=sys.stderr)
        return 2
    endpoint = Endpoint(
        host=options.host or url.hostname,
        port=url.port or (443 if url.scheme == "https" else 80),
        ca=options.ca if url.scheme == "https" else "",
        prefix=url.path.rstrip("/"),
    )
    failed = False
    for what, target in TARGETS.items():
        count = load(endpoint, target, options.clients, options.seconds, options.keepalive)
        failed = failed or bool(count.bad) or not count.good
        print(
            f"{what:<10}{count.good / options.seconds:>10.0f}/s{count.bad:>8} failed"
            f"{count.slowest * 1000:>8.0f} ms slowest  {count.first_problem}"
        )
    return int(failed)


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="the web part against hgwebdir")
    parser.add_argument("--changesets", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keepalive", action="store_true")
    parser.add_argument("--url", default="", help="measure a running site on 127.0.0.1 instead")
    parser.add_argument("--ca", default="", help="the CA of its certificate")
    parser.add_argument("--host", default="", help="the host name to ask for, if not the URL's")
    options = parser.parse_args()
    return measure(options) if options.url else compare(options)


if __name__ == "__main__":
    sys.exit(main())
