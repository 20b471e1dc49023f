"""Promotion: how long a site that has lost its primary accepts no push.

    eval "$(./cluster env)"
    python -m testing.bench.promotion

Stops the primary of the running cluster while clients push, promotes the standby, and pushes there
until a push is accepted. Then it looks for every push that a client was told is recorded, starts
the former primary, pushes to it, and makes it the primary again.

Bars: a push is accepted within 60 s after the start of the playbook; no acknowledged push is lost;
the former primary refuses a push when it is back.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testing.e2e.cluster import Cluster
from testing.e2e.command import Result, run, wait_until
from testing.e2e.conftest import environment
from testing.e2e.mirrors import SECONDS, mirrors_of, wait_for_use
from testing.faults.mirrors import number_of
from testing.faults.promotion import promote, towards
from testing.faults.support import has_booted

if TYPE_CHECKING:
    from testing.e2e.host import Host
    from testing.e2e.people import Clone, Person

BAR_SECONDS: Final = 60.0
PUSHES: Final = 20
RETRY_SECONDS: Final = 0.5


Row = tuple[str, bool, str]


def made(person: Person, reader: Person, folder: Path) -> Clone:
    """Return a clone of a new repository, with the reader's address."""
    path = f"people/{person.name}/promotion-{uuid.uuid4().hex[:8]}"
    person.ssh("repo", "create", path).ok()
    return reader.clone(reader.ssh_url(path), folder / path)


def push(work: Clone) -> Result:
    """Commit and push a changeset."""
    work.commit("file.txt", os.urandom(512), "around a promotion")
    return work.hg("push")


def push_until_refused(work: Clone, acknowledged: list[str]) -> None:
    """Push changesets until the host is gone; collect the acknowledged changesets."""
    while (done := push(work)).code == 0:
        number_of(done.output)
        acknowledged.append(work.hg("log", "-r", ".", "-T", "{node}").ok().stdout)


def seconds_until_accepted(work: Clone, ends: threading.Event) -> float:
    """Push until a push is accepted, or the event is set; return how long that took."""
    began = time.monotonic()
    while push(work).code != 0 and not ends.is_set():
        time.sleep(RETRY_SECONDS)
    return time.monotonic() - began


def measure(cluster: Cluster, folder: Path) -> list[Row]:
    """Promote the standby, and return rows of the table. The former primary runs at the end."""
    former, standby = cluster.all("ssh")[:2]
    alice = cluster.person("alice")
    there = towards(alice, standby, folder)
    before, after = made(alice, alice, folder), made(alice, there, folder)
    acknowledged: list[str] = []
    ends = threading.Event()
    with ThreadPoolExecutor() as pool:
        pushing = pool.submit(push_until_refused, before, acknowledged)
        wait_until("pushes are recorded", lambda: len(acknowledged) >= PUSHES, SECONDS)
        run(["docker", "kill", former.container]).ok()
        try:
            pushing.result()
            accepting = pool.submit(seconds_until_accepted, after, ends)
            began = time.monotonic()
            promote(cluster, standby)
            whole = time.monotonic() - began
        finally:
            ends.set()
            run(["docker", "start", former.container]).ok()
        taken = accepting.result()
    wait_until(f"{former.name} has booted", lambda: has_booted(former), SECONDS)
    path = before.path.relative_to(folder)
    identified = there.hg("identify", "--debug", "-r", acknowledged[-1], there.ssh_url(str(path)))
    refused = push(before)
    told = [line for line in refused.output.splitlines() if line.startswith("remote: ")]
    return [
        ("a push is accepted after", taken <= BAR_SECONDS, f"{taken:.1f} s"),
        ("the whole playbook", True, f"{whole:.1f} s"),
        (
            "acknowledged pushes",
            identified.code == 0,
            f"{len(acknowledged)}, on top of each other; the last one is there",
        ),
        ("the former primary refuses", refused.code != 0, " ".join(told)),
    ]


def follows(host: Host) -> bool:
    """Tell whether a host is a mirror that has caught up."""
    return "this mirror has caught up" in host.run("hgfleet", "replication", "status").output


def put_back(cluster: Cluster) -> None:
    """Make the first ssh host the primary again."""
    former, standby = cluster.all("ssh")[:2]
    promote(cluster, standby)
    wait_until(f"{former.name} has every push", lambda: follows(former), SECONDS)
    promote(cluster, former)
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)


def main() -> int:
    """Run as the command says."""
    cluster = Cluster(environment())
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder, ExitStack() as stack:
        stack.callback(put_back, cluster)
        rows = measure(cluster, Path(folder))
    for name, held, measured in rows:
        print(f"{name:28} {'held' if held else 'MISSED':7} {measured}")
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    return 0 if all(held for _, held, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
