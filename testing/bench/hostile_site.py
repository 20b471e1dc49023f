"""The cluster's web part, for requests and measurements of the bench of hostile requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.bench.hostile_cases import Case
    from testing.e2e.host import Host

UNIT: Final = "hgfleet-web"
HG: Final = "/opt/hgfleet/current/bin/hg"
MEMORY_BYTES: Final = 160 * 2**20
"""Memory of a request, where the unit sets none."""

# Answers each line with a line: CPU in seconds since the unit began; and since the last line: the
# peak memory of all processes in bytes, the largest growth of any process, the number of requests
# in the access log, the number that renderers computed, and their longest processor time. The
# cgroup counts ended processes; memory is sampled, as the cgroup may have no memory controller.
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


# Replaces the workers, and ends when the old workers have ended. Their stored answers would make
# the cases of the next phase cheaper.
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
    hgrc: str
    """The settings of clients on this machine."""

    def request(self, case: Case, timeout: float) -> tuple[str, float]:
        """Send a request and read the answer; return its status, or the error, and seconds."""
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


@dataclass(frozen=True)
class Sample:
    """Answer of the sampler: seconds of CPU, bytes of memory, and figures of the access log."""

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
    """Sum of the requests in all answers."""

    def read(self) -> Sample:
        """Return the CPU since the unit began, and the rest since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        sample = Sample(**json.loads(self.process.stdout.readline()))
        self.requests += sample.requests
        return sample


@contextlib.contextmanager
def sampler(host: Host) -> Iterator[Sampler]:
    """Measure the web part's unit."""
    with host.start("python3", "-c", SAMPLER) as process:
        yield Sampler(process)
        assert process.stdin is not None
        process.stdin.close()


def finish(host: Host, *argv: str, stdin: str = "") -> str:
    """Run a command that may take minutes; return its output.

    Raises CalledProcessError. Even after an interrupt the command ends first, because its files on
    the host are removed afterwards.
    """
    process = host.start(*argv)
    try:
        said, _ = process.communicate(stdin)
    except BaseException:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(argv), said)
    return said


def request_memory(host: Host) -> int:
    """Return the memory of a request in the web part, in bytes."""
    shown = host.shell(f"systemctl show -P Environment {UNIT}")
    match = re.search(r"HGFLEET_WEB_REQUEST_MEMORY_BYTES=([0-9]+)", shown)
    return int(match[1]) if match else MEMORY_BYTES


def downs(proxy: Host) -> int:
    """Return how often servers of the proxy's backends went DOWN, from HAProxy's statistics."""
    script = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/haproxy/admin.sock'); "
        "s.sendall(b'show stat\\n'); print(s.makefile().read())"
    )
    return count_downs(proxy.run("python3", "-c", script).ok().stdout)


def count_downs(statistics_csv: str) -> int:
    """Return the sum of the column `chkdown` over all servers."""
    header, *lines = [line for line in statistics_csv.splitlines() if line.strip()]
    columns = header.removeprefix("# ").split(",")
    rows = [dict(zip(columns, line.split(","), strict=False)) for line in lines]
    servers = [row for row in rows if row.get("svname") not in ("FRONTEND", "BACKEND")]
    return sum(int(row.get("chkdown") or 0) for row in servers)
