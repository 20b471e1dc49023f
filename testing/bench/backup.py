"""Cost of an idle backup, and of restoring a repository as of a time, on a host of the cluster.

    ./cluster up
    python -m testing.bench.backup
    python -m testing.bench.backup --repositories 100

Made-up repositories are copied to the first host of the group `backup` that takes pushes, into a
folder of their own, and backed up to the cluster's store of backups with the host's own account,
as another host. Only the large repository has a push log. The host's own repositories are not
touched. The objects stay in the bucket, whose account cannot delete.

Bars: an idle run over 1,000 repositories takes at most 20 s and 10 s of processor time; a
repository of 10,000 changesets, as it was between two of the pushes after a backup, is restored
from the next backup and verified within 60 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from testing.bench import repos
from testing.e2e.cluster import Cluster
from testing.e2e.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.e2e.host import Host

IDLE_BAR_SECONDS: Final = 20.0
IDLE_BAR_CPU_SECONDS: Final = 10.0
RESTORE_BAR_SECONDS: Final = 60.0
SMALL: Final = repos.Size(changesets=20, files=20, tags=1)
FOLDER: Final = "/var/tmp/hgfleet-bench-backup"
LARGE: Final = "large"
PUSHES: Final = 20
"""Pushes to the large repository, between two backups."""

HGRC: Final = f"""\
[extensions]
pushlog = /opt/hgfleet/current/hgext/pushlog.py
[hgfleet]
path = {LARGE}
pushlog = yes
"""

# Runs on the host: makes so many pushes; prints the time after each (seconds since 1970).
PUSH: Final = r"""
import os, subprocess, sys, time
os.environ.update(HGRCPATH=sys.argv[1], HGFLEET_USER="operator:bench")
hg = ["/opt/hgfleet/current/bin/hg", "-R", sys.argv[2], "import", "--quiet", "--bypass"]
for number in range(int(sys.argv[3])):
    patch = f"--- /dev/null\n+++ b/new{number}\n@@ -0,0 +1 @@\n+line\n"
    words = ["--user", "bench", "--message", f"push {number}", "-"]
    subprocess.run([*hg, *words], input=patch, text=True, check=True)
    print(time.time(), flush=True)
    time.sleep(0.01)
"""

# Runs on the host: runs a command; prints its cost, children included, as JSON.
MEASURE: Final = """
import json, resource, subprocess, sys, time
begin = time.monotonic()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "code": done.returncode, "said": done.stdout + done.stderr,
    "seconds": time.monotonic() - begin, "cpu": used.ru_utime + used.ru_stime,
}))
"""


class Cost(NamedTuple):
    """Cost of a command, in seconds of wall time and of all processors."""

    seconds: float
    cpu: float
    said: str


def measured(host: Host, *command: str) -> Cost:
    """Run a command that must succeed."""
    result = json.loads(host.run("python3", "-c", MEASURE, *command).ok().stdout)
    if result["code"] != 0:
        raise SystemExit(f"{' '.join(command)} ended with {result['code']}: {result['said']}")
    return Cost(result["seconds"], result["cpu"], result["said"])


def hgfleet(host: Host, *words: str) -> Cost:
    """Run a command of `hgfleet backup` with the settings of the bench."""
    return measured(host, "hgfleet", "backup", "--config", f"{FOLDER}/backup.toml", *words)


def prepare(host: Host, repositories: int, changesets: int) -> None:
    """Put repositories and settings into the folder of the bench."""
    with tempfile.TemporaryDirectory() as name:
        repos.generate(Path(name, "small"), SMALL, 1)
        large = repos.kept(repos.Size(changesets=changesets))
        host.run("mkdir", "-p", f"{FOLDER}/repos").ok()
        for each, place in (("small", Path(name, "small")), (LARGE, large)):
            target = f"{host.container}:{FOLDER}/repos/{each}"
            subprocess.run(["docker", "cp", "--quiet", place, target], check=True)
    host.shell(
        f"cd {FOLDER}/repos; for n in $(seq 2 {repositories}); do cp -r small $n; done; "
        f"chown -R hg:hg ."
    )
    settings = tomllib.loads(host.shell("cat /etc/hgfleet/backup.toml"))
    store = settings["repository"].rpartition("/")[0]
    lines = {
        "host": "bench",
        "repository": f"{store}/bench-{uuid.uuid4()}",
        "region": settings["region"],
        "parts": ["ssh"],
        "repositories": f"{FOLDER}/repos",
        "state": f"{FOLDER}/state",
        "cache": f"{FOLDER}/cache",
    }
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
    host.run("sh", "-c", f"cat > {FOLDER}/backup.toml", stdin=text).ok()


def push(host: Host) -> list[float]:
    """Push to the large repository; return the time after each push (seconds since 1970)."""
    host.run("sh", "-c", f"cat > {FOLDER}/hgrc", stdin=HGRC).ok()
    place = f"{FOLDER}/repos/{LARGE}"
    said = host.run("python3", "-c", PUSH, f"{FOLDER}/hgrc", place, str(PUSHES)).ok().stdout
    host.run("chown", "-R", "hg:hg", place).ok()
    return [float(line) for line in said.splitlines()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repositories", type=int, default=1000)
    parser.add_argument("--changesets", type=int, default=10_000, help="of the large one")
    parser.add_argument("--rounds", type=int, default=3, help="idle runs")
    options = parser.parse_args(arguments)
    host = Cluster(environment()).first("ssh")
    try:
        begin = time.monotonic()
        prepare(host, options.repositories, options.changesets)
        print(f"prepared in {time.monotonic() - begin:.0f} s", flush=True)
        first = hgfleet(host, "run")
        print(f"first run: {first.seconds:.1f} s, {first.cpu:.1f} s of CPU")
        # A repository that was written within the last second is read once more.
        hgfleet(host, "run")
        idle = [hgfleet(host, "run") for _ in range(options.rounds)]
        seconds, cpu = min(cost.seconds for cost in idle), min(cost.cpu for cost in idle)
        print(f"idle run: {seconds:.1f} s, {cpu:.1f} s of CPU (best of {options.rounds})")
        moment = datetime.fromtimestamp(push(host)[PUSHES // 2 - 1], UTC).isoformat()
        hgfleet(host, "run")
        restored = hgfleet(host, "restore", LARGE, "--at", moment, "--to", f"{FOLDER}/restored")
        print(f"restore: {restored.seconds:.1f} s, {restored.cpu:.1f} s of CPU: {restored.said}")
        # The log begins with the record of adoption.
        wanted = f"changesets up to push {PUSHES // 2 + 1}, verified"
        if wanted not in restored.said:
            raise SystemExit(f"expected {wanted}")
    finally:
        host.run("rm", "-rf", FOLDER)
    is_met = (
        seconds <= IDLE_BAR_SECONDS
        and cpu <= IDLE_BAR_CPU_SECONDS
        and restored.seconds <= RESTORE_BAR_SECONDS
    )
    print("bars met" if is_met else "a bar is missed")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
