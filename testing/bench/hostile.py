"""Anonymous requests against time and memory, on the running cluster.

    eval "$(./cluster env)"
    python testing/bench/hostile.py --make                  # 100,000 changesets, then all phases
    python testing/bench/hostile.py --phase alone           # each request alone
    python testing/bench/hostile.py --phase at-once         # each as 32 in parallel
    python testing/bench/hostile.py --phase connections     # 300 connections on one page
    python testing/bench/hostile.py --phase failing         # 100 archives that fail, beside others
    python testing/bench/hostile.py --only revset --seconds 20
    python testing/bench/hostile.py --phase at-once --every 5   # a fifth of the cases
    python testing/bench/hostile.py --phase alone --outcomes alone.json
    python testing/bench/hostile.py --phase at-once --outcomes alone.json   # tries none alone again

The history is made on the primary, past its push log, so mirrors do not have it. With mirrors
drained (`touch /etc/hgfleet/web.drain` on each), the primary serves all readers.

Prints a line for each case: status, wall time, the processor time of hgfleet-web.service a
request, ended processes included, that of the dearest request, from the access log, and by how much
memory the process grew that grew most, and all processes together. Requests at once have another
client beside them, and the times of its pages and its clones come at the end.

Each case is tried as 32 requests at once. Cases that take renderers long are sent in groups of
three, 96 requests at once, so that the phase takes some 20 minutes instead of more than an hour;
`hostile_groups.py` says why this is no weaker, and which cases are sent by themselves. Each phase
begins with new workers, which have no stored answers.

The phase `failing` fills an empty repository on the primary with changesets whose archives fail,
each in another way (`hostile_failing.py`). One host downloads 100 of them; meanwhile this machine
downloads 100 archives and 1,000 pages of healthy repositories, and compares each with the answer
before. The repository is made by `./cluster ssh alice repo create people/alice/failing`, and
HGFLEET_BENCH_READER=NAME:TOKEN reads the private one; without it the phase says that it leaves that
one out. Without `--phase` this phase is left out.

Bars: every answer beside failing archives is the same as before, to the byte. No case takes more
than 2 s of CPU a request, in the mean and of the dearest, and no process grows by more than 200 MB;
pages of the other client within 1 s (p95), and its clones succeed. Under
300 connections no server of the proxy's backends goes DOWN, and a page for the other client takes
at most 1 s.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import os
import re
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from testing.bench import hostile_failing, hostile_groups, hostile_history  # noqa: E402
from testing.bench.hostile_cases import Case, cases  # noqa: E402
from testing.bench.hostile_groups import Outcome  # noqa: E402
from testing.bench.hostile_others import ARCHIVES, Others, Reply, Target  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE_BAR_SECONDS: Final = 1.0
PARALLEL: Final = 32
CONNECTIONS: Final = 300
LOG_SECONDS: Final = 0.1
"""The access log has a request just after its answer."""
CHANGESETS: Final = 100_000

# Answers a line for each line: CPU in seconds since the unit began, and since the line before the
# peaks of memory in bytes, of all processes and of the growth of the one that grew most, the
# requests in the access log, those that renderers computed, and the processor time of the dearest.
# The cgroup counts ended processes; memory is sampled, as the cgroup may have no memory controller.
SAMPLER: Final = r"""
import json, pathlib, subprocess, sys, threading, time
unit = "hgfleet-web.service"
shown = subprocess.run(["systemctl", "show", "-P", "ControlGroup", unit], capture_output=True)
group = pathlib.Path("/sys/fs/cgroup" + shown.stdout.decode().strip())
peak = growth = 0
base = {}
def memory():
    found = {}
    for file in [group / "cgroup.procs", *group.glob("*/cgroup.procs")]:
        try:
            ids = file.read_text().split()
        except OSError:
            continue
        for one in ids:
            try:
                for line in open(f"/proc/{one}/smaps_rollup"):
                    if line.startswith("Pss:"):
                        found[one] = int(line.split()[1]) * 1024
            except OSError:
                pass
    return found
def sample():
    global peak, growth
    while True:
        now = memory()
        peak = max(peak, sum(now.values()))
        growth = max([growth, *(size - base.get(one, 0) for one, size in now.items())])
        time.sleep(0.1)
threading.Thread(target=sample, daemon=True).start()
log = pathlib.Path("/var/log/hgfleet/web/access.log")
place = log.stat().st_size if log.exists() else 0
def logged():
    global place
    if not log.exists():
        return {"requests": 0, "computed": 0, "dearest": 0.0}
    if log.stat().st_size < place:
        place = 0
    with log.open("rb") as file:
        file.seek(place)
        whole = file.read().rpartition(b"\n")[0]
    place += len(whole) + bool(whole)
    lines = [json.loads(line) for line in whole.splitlines()]
    spent = [line["cpu"] for line in lines if "cpu" in line]
    return {"requests": len(lines), "computed": len(spent), "dearest": max(spent, default=0.0)}
for _ in sys.stdin:
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    now = memory()
    spent = int(stat["usage_usec"]) / 1e6
    found = {"cpu": spent, "peak": max(peak, sum(now.values())), "growth": growth, **logged()}
    print(json.dumps(found), flush=True)
    base, peak, growth = now, sum(now.values()), 0
"""


# Replaces the workers, whose stored answers would make the cases of a phase cheaper than those of
# the one before; ends when the old ones have.
FRESH: Final = r"""
import pathlib, subprocess, time
unit = "hgfleet-web.service"
shown = subprocess.run(["systemctl", "show", "-P", "MainPID", unit], capture_output=True)
main = int(shown.stdout)
def workers():
    return set(pathlib.Path(f"/proc/{main}/task/{main}/children").read_text().split())
before = workers()
subprocess.run(["systemctl", "reload", unit], check=True)
until = time.monotonic() + 120
while (now := workers()) & before or not now:
    if time.monotonic() > until:
        raise SystemExit(f"{unit}: workers {sorted(now & before)} do not end after a reload")
    time.sleep(0.2)
"""


@dataclass
class Site:
    """The cluster's web part as anonymous clients reach it."""

    url: str
    ca: str
    repository: str

    def request(self, case: Case, timeout: float) -> tuple[str, float]:
        """Send one request and read the answer; return its status, or the error, and seconds."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        started = time.perf_counter()
        context = ssl.create_default_context(cafile=self.ca)
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout, context=context
        )
        try:
            method = "POST" if case.body else "GET"
            target = f"/{self.repository}{case.target}"
            connection.request(method, target, body=case.body or None, headers=case.headers())
            answer = connection.getresponse()
            while answer.read(1 << 20):
                pass
            status = str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
        finally:
            connection.close()
        return status, time.perf_counter() - started


class Host:
    """A host of the cluster, through `./cluster exec`."""

    def __init__(self, name: str) -> None:
        self._command = [str(ROOT / "cluster"), "exec", name, "--"]

    def run(self, *argv: str, source: Path = Path(os.devnull)) -> str:
        """Run a command that reads a file; return its output."""
        with source.open("rb") as file:
            done = subprocess.run(
                [*self._command, *argv], stdin=file, capture_output=True, check=False
            )
        if done.returncode:
            sys.stderr.write(done.stderr.decode(errors="replace"))
        done.check_returncode()
        return done.stdout.decode()

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command; its output is a pipe."""
        command = [*self._command, *argv]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    @contextlib.contextmanager
    def sampler(self) -> Iterator[Sampler]:
        """Measure the web part's unit."""
        with subprocess.Popen(
            [*self._command, "python3", "-c", SAMPLER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield Sampler(process)
            assert process.stdin is not None
            process.stdin.close()


@dataclass(frozen=True)
class Sample:
    """Answer of the sampler: seconds of CPU and bytes of memory; what the access log has."""

    cpu: float
    peak: int
    growth: int
    requests: int
    computed: int
    dearest: float


@dataclass
class Sampler:
    """The processor time and the memory of the unit, and its access log."""

    process: subprocess.Popen[str]
    requests: int = 0
    """Requests that the access log had in all answers."""

    def read(self) -> Sample:
        """Return the CPU since the unit began, and the rest since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = Sample(**json.loads(self.process.stdout.readline()))
        self.requests += found.requests
        return found


@dataclass
class Neighbour:
    """Another client: pages all the time, and clones; runs until stopped."""

    site: Site
    pages: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    clones: int = 0
    broken_clones: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Request a page every 0.1 s."""
        while not self._over.wait(0.1):
            status, seconds = self.site.request(Case("page", "/shortlog"), 60)
            self.pages.append(seconds)
            if status != "200":
                self.failed.append(status)

    def clone(self) -> None:
        """Clone again and again."""
        while not self._over.is_set():
            with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
                done = subprocess.run(
                    ["hg", "clone", "-q", "-U", f"{self.site.url}/{self.site.repository}", "c"],
                    cwd=folder,
                    env={**os.environ, "HGRCPATH": os.environ.get("HGFLEET_HGRC", "")},
                    capture_output=True,
                    check=False,
                )
            self.clones += 1
            self.broken_clones += done.returncode != 0
            self._over.wait(2)

    def bars(self) -> list[tuple[str, bool]]:
        """Print the times of the pages; return the bars, and whether each was held."""
        p95 = percentile(self.pages, 0.95)
        if self.pages:
            print(
                f"pages of the other client: p50 {statistics.median(self.pages):.2f} s, "
                f"p95 {p95:.2f} s, slowest {max(self.pages):.2f} s"
            )
        return [
            (f"other client's pages p95 {p95:.2f} s <= 1 s", 0 < p95 <= PAGE_BAR_SECONDS),
            (f"other client's pages answered, {len(self.failed)} failed", not self.failed),
            (
                f"other client's clones: {self.clones}, broken {self.broken_clones}",
                bool(self.clones) and not self.broken_clones,
            ),
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[Neighbour]:
        """Have the client run meanwhile."""
        threads = [threading.Thread(target=one, daemon=True) for one in (self.look, self.clone)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of them lies; 0 without values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def attack(
    site: Site, sampler: Sampler, group: Sequence[Case], count: int, timeout: float
) -> list[Outcome]:
    """Send each case of a group `count` times, all at once."""
    before = sampler.read()
    with ThreadPoolExecutor(count * len(group)) as pool:
        # In turn, as all renderers and places to wait would be those of the first case.
        rounds = [
            [pool.submit(site.request, case, timeout) for case in group] for _ in range(count)
        ]
        answers = [[one.result() for one in requests] for requests in zip(*rounds, strict=True)]
    time.sleep(LOG_SECONDS)
    after = sampler.read()
    return [
        Outcome(
            case.name,
            ",".join(sorted({status for status, _ in found})),
            max(seconds for _, seconds in found),
            (after.cpu - before.cpu) / (count * len(group)),
            after.growth,
            after.computed,
            after.dearest,
            max(0, after.peak - before.peak),
        )
        for case, found in zip(group, answers, strict=True)
    ]


def tried_alone(
    site: Site, host: Host, chosen: Sequence[Case], timeout: float
) -> dict[str, Outcome]:
    """Send each case once, and print nothing of it; return the outcomes by name."""
    print(f"{len(chosen)} cases are tried alone first, to make groups of them", flush=True)
    with host.sampler() as sampler:
        found = [attack(site, sampler, [case], 1, timeout)[0] for case in chosen]
    return {one.name: one for one in found}


def phase(
    site: Site, host: Host, groups: Sequence[Sequence[Case]], count: int, timeout: float, label: str
) -> tuple[bool, list[Outcome]]:
    """Run all groups and print the table; return whether all bars were held, and the outcomes.

    Requests that are alone have no neighbour: its clones would count in every case.
    """
    host.run("python3", "-c", FRESH)
    neighbour = Neighbour(site) if count > 1 else None
    outcomes: list[Outcome] = []
    with host.sampler() as sampler, neighbour.running() if neighbour else contextlib.nullcontext():
        waiting = list(groups)
        while waiting:
            group = waiting.pop(0)
            found = attack(site, sampler, group, count, timeout)
            repeated = hostile_groups.again(group, found)
            waiting[:0] = repeated
            names = {case.name for again in repeated for case in again}
            for one in found:
                show(one, "  in a group: sent again" if one.name in names else "")
            outcomes += [one for one in found if one.name not in names]
    if not sampler.requests:
        raise SystemExit("no request reached this web host: name the one that serves, with --web")
    missed = [one.name for one in outcomes if not one.is_held]
    print(f"all processes together at most {max(one.unit for one in outcomes) / 1e6:.0f} MB more")
    bars = [(f"{len(outcomes)} cases below 2 s of CPU and 200 MB a request", not missed)]
    held = report(label, [*bars, *(neighbour.bars() if neighbour else [])])
    return held, outcomes


def show(one: Outcome, mark: str) -> None:
    """Print the line of a case."""
    mark = mark or ("" if one.is_held else "  MISSED")
    print(
        f"{one.name[:60]:60} {one.statuses[:16]:16} {one.wall:7.2f} s "
        f"{one.cpu:6.2f} s CPU {one.dearest:6.2f} s dearest {one.memory / 1e6:7.0f} MB "
        f"of {one.unit / 1e6:4.0f}{mark}",
        flush=True,
    )


def report(label: str, bars: Sequence[tuple[str, bool]]) -> bool:
    """Print the bars of a phase; return whether all were held."""
    print(f"--- {label}")
    for text, is_held in bars:
        print(f"{'held  ' if is_held else 'MISSED'}  {text}")
    return all(is_held for _, is_held in bars)


def downs(proxy: Host) -> int:
    """Return how often servers of the proxy's backends went DOWN, from HAProxy's statistics."""
    script = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/haproxy/admin.sock'); "
        "s.sendall(b'show stat\\n'); print(s.makefile().read())"
    )
    return count_downs(proxy.run("python3", "-c", script))


def count_downs(statistics_csv: str) -> int:
    """Return the sum of the column `chkdown` over all servers."""
    header, *lines = [line for line in statistics_csv.splitlines() if line.strip()]
    columns = header.removeprefix("# ").split(",")
    rows = [dict(zip(columns, line.split(","), strict=False)) for line in lines]
    servers = [row for row in rows if row.get("svname") not in ("FRONTEND", "BACKEND")]
    return sum(int(row.get("chkdown") or 0) for row in servers)


PRESS: Final = r"""
import http.client, ssl, sys, threading, time
target, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
context = ssl._create_unverified_context()
deadline = time.monotonic() + seconds
def press():
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPSConnection("proxy1", timeout=60, context=context)
            connection.request("GET", target)
            connection.getresponse().read()
            connection.close()
        except OSError:
            pass
threads = [threading.Thread(target=press, daemon=True) for _ in range(count)]
for thread in threads:
    thread.start()
print("pressing", flush=True)
time.sleep(seconds)
"""

# Downloads archives that fail, in turn; says how each ended.
FAILING: Final = r"""
import collections, http.client, json, ssl, sys
host, path, nodes, count, gone = sys.argv[1:]
nodes = json.loads(nodes)
context = ssl._create_unverified_context()
ended = collections.Counter()
print("downloading", flush=True)
for number in range(int(count)):
    way = list(nodes)[number % len(nodes)]
    suffix = ("zip", "tar.gz")[number // len(nodes) % 2]
    connection = http.client.HTTPSConnection(host, timeout=60, context=context)
    try:
        connection.request("GET", f"/{path}/archive/{nodes[way]}.{suffix}")
        answer = connection.getresponse()
        if way == gone:
            answer.read(1)
            how = "left"
        else:
            answer.read()
            how = str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        how = type(error).__name__
    connection.close()
    ended[f"{way}: {how}"] += 1
print(json.dumps(ended), flush=True)
"""


def fetch(site: Site, reader: str, target: Target, query: str) -> Reply:
    """Download a target; a private one as the reader."""
    given = {}
    if target.is_private:
        given["Authorization"] = "Basic " + base64.b64encode(reader.encode()).decode()
    parts = urlsplit(site.url)
    assert parts.hostname is not None
    context = ssl.create_default_context(cafile=site.ca)
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=60, context=context
    )
    with contextlib.closing(connection):
        try:
            connection.request("GET", f"/{target.path}?{query}", headers=given)
            answer = connection.getresponse()
            return Reply.of(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            return Reply(0, "")


def failing(site: Site, primary: Host, attacker: Host, options: argparse.Namespace) -> bool:
    """Have archives fail for one host, and compare the downloads of this machine meanwhile."""
    memory = primary.run("systemctl", "show", "-P", "Environment", "hgfleet-web")
    found = re.search(r"HGFLEET_WEB_REQUEST_MEMORY_BYTES=([0-9]+)", memory)
    path = f"/srv/hg/repos/{options.failing}"
    as_hg = ("runuser", "-u", "hg", "--", "env", "HGRCPATH=", "/opt/hgfleet/current/bin/python")
    script = Path(hostile_failing.__file__)
    said = primary.run(*as_hg, "-", path, found[1] if found else "167772160", source=script)
    reader = os.environ.get("HGFLEET_BENCH_READER", "")
    if not reader:
        print("HGFLEET_BENCH_READER is not set: no answer of a private repository is compared")
    healthy = [(options.healthy, False)] + ([(options.private, True)] if reader else [])
    others = Others(
        lambda target, query: fetch(site, reader, target, query),
        [
            Target(f"{one}/archive/tip.{form}", private)
            for one, private in healthy
            for form in ("zip", "tar.gz")
        ],
        [
            Target(f"{one}/{page}", private)
            for one, private in healthy
            for page in ("json-log", "raw-rev/tip", "json-branches")
        ],
    )
    others.learn()
    arguments = ("proxy1", options.failing, said.strip(), str(ARCHIVES), hostile_failing.GONE)
    with attacker.start("python3", "-c", FAILING, *arguments) as process:
        assert process.stdout is not None
        process.stdout.readline()
        others.run()
        ended = json.loads(process.stdout.readline())
    for how, count in sorted(ended.items()):
        print(f"{count:4} {how}")
    for one in others.wrong:
        print(one)
    p95 = percentile(others.seconds, 0.95)
    return report(
        f"{ARCHIVES} archives that fail beside others",
        [
            (f"archives that were asked for: {sum(ended.values())}", bool(ended)),
            (f"others' answers that are not as before: {len(others.wrong)}", not others.wrong),
            (f"others' pages p95 {p95:.2f} s <= 1 s", 0 < p95 <= PAGE_BAR_SECONDS),
        ],
    )


PAGE: Final = (
    "import ssl, sys, time, urllib.request as u; t = time.perf_counter(); "
    "c = ssl._create_unverified_context(); "
    "u.urlopen(sys.argv[1], context=c, timeout=60).read(); print(time.perf_counter() - t)"
)


def connections(
    site: Site, proxy: Host, attacker: Host, other: Host, target: str, seconds: float
) -> bool:
    """Keep 300 connections of one host on a page, and time pages for another host.

    Both are hosts of the cluster: the address of clients outside of it has no limits.
    """
    before = downs(proxy)
    path = f"/{site.repository}"
    pages: list[float] = []
    failed = 0
    press = attacker.start("python3", "-c", PRESS, path + target, str(CONNECTIONS), str(seconds))
    with press:
        assert press.stdout is not None
        press.stdout.readline()
        while press.poll() is None:
            try:
                pages.append(
                    float(other.run("python3", "-c", PAGE, f"https://proxy1{path}/shortlog"))
                )
            except subprocess.CalledProcessError:
                failed += 1
    went_down = downs(proxy) - before
    slowest = max(pages, default=0.0)
    text = f"other address: {len(pages)} pages, {failed} failed, slowest {slowest:.2f} s <= 1 s"
    return report(
        f"{CONNECTIONS} connections on {target}",
        [
            (f"servers that went DOWN: {went_down}", went_down == 0),
            (text, bool(pages) and not failed and slowest <= PAGE_BAR_SECONDS),
        ],
    )


def make(host: Host, repository: str, changesets: int) -> None:
    """Give the repository this many changesets, unless it has them."""
    path = f"/srv/hg/repos/{repository}"
    as_hg = ("runuser", "-u", "hg", "--", "env", "HGRCPATH=")
    program = "/opt/hgfleet/current/bin"
    there = host.run(*as_hg, f"{program}/hg", "-R", path, "log", "-r", "tip", "-T", "{rev}").strip()
    if there and int(there) + 1 >= changesets:
        return
    if there and int(there) >= 0:
        raise SystemExit(
            f"{repository}: {int(there) + 1:,} changesets, expected none or {changesets:,}; "
            "name an empty one with --repository"
        )
    argv = (*as_hg, f"{program}/python", "-", path, str(changesets))
    print(host.run(*argv, source=Path(hostile_history.__file__)), end="", flush=True)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--phase", choices=["alone", "at-once", "connections", "failing"])
    parser.add_argument("--repository", default="sandbox/playground", help="default: %(default)s")
    parser.add_argument("--failing", default="people/alice/failing", help="default: %(default)s")
    parser.add_argument("--healthy", default="sandbox/smoke", help="of phase failing: %(default)s")
    parser.add_argument("--private", default="e2e/private", help="of that phase: %(default)s")
    parser.add_argument("--make", action="store_true", help="make its history first")
    parser.add_argument("--changesets", type=int, default=CHANGESETS)
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    parser.add_argument("--every", type=int, default=1, help="try every Nth case alone")
    parser.add_argument(
        "--outcomes", type=Path, help="file of phase alone, from which at-once makes its groups"
    )
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a request")
    parser.add_argument("--seconds", type=float, default=40, help="of the phase connections")
    parser.add_argument("--page", default="/graph?revcount=1000", help="of that phase")
    parser.add_argument("--web", default="hg1", help="host of the web part")
    parser.add_argument("--proxy", default="proxy1", help="host of the proxy")
    parser.add_argument("--attacker", default="s3-2", help="host with the 300 connections")
    parser.add_argument("--other", default="ldap1", help="host that is the other address")
    return parser


def main() -> int:
    """Measure and print; the exit code is 1 if a bar is missed."""
    options = arguments().parse_args()
    environment: Any = os.environ
    if "HGFLEET_HTTP_URL" not in environment:
        raise SystemExit('no cluster: HGFLEET_HTTP_URL is not set; run: eval "$(./cluster env)"')
    site = Site(environment["HGFLEET_HTTP_URL"], environment["HGFLEET_CA_CERT"], options.repository)
    host = Host(options.web)
    if options.make:
        make(host, options.repository, options.changesets)
    chosen = [case for case in cases() if case.name.startswith(options.only)][:: options.every]
    held = True
    alone: dict[str, Outcome] = {}
    if options.phase in (None, "alone"):
        singles = [[case] for case in chosen]
        held, found = phase(site, host, singles, 1, options.timeout, "alone")
        alone = {one.name: one for one in found}
        if options.outcomes:
            options.outcomes.write_text(json.dumps([one.to_json() for one in found], indent=1))
    if options.phase in (None, "at-once"):
        if not alone and options.outcomes and options.outcomes.exists():
            kept = [Outcome(**one) for one in json.loads(options.outcomes.read_text())]
            alone = {one.name: one for one in kept}
        alone = alone or tried_alone(site, host, chosen, options.timeout)
        groups = hostile_groups.plan(chosen, alone)
        held &= phase(site, host, groups, PARALLEL, options.timeout, "at-once")[0]
    if options.phase in (None, "connections"):
        proxy, attacker, other = (
            Host(one) for one in (options.proxy, options.attacker, options.other)
        )
        held &= connections(site, proxy, attacker, other, options.page, options.seconds)
    if options.phase == "failing":
        held &= failing(site, host, Host(options.attacker), options)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
