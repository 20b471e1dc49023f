"""Bit rot on the disk of a mirror and of the primary: found by the schedule, named, repaired."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e import metrics
from testing.e2e.command import wait_until
from testing.e2e.mirrors import SECONDS, log_of, mirrors_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone

REPOSITORY: Final = "e2e/integrity"
FILE: Final = "rot.txt"
PLACE: Final = f"/srv/hg/repos/{REPOSITORY}/.hg/store"
REVLOG: Final = f"{PLACE}/data/{FILE}.i"
PYTHON: Final = "/opt/hgfleet/current/bin/python"
UNIT: Final = "hgfleet-integrity.service"
STATE: Final = "/var/lib/hgfleet-integrity/state.json"

FLIP: Final = f"""
import os
name = "{REVLOG}"
before = os.stat(name)
with open(name, "r+b") as file:
    file.seek(-9, 2)
    byte = file.read(1)
    file.seek(-9, 2)
    file.write(bytes([byte[0] ^ 4]))
os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns))
"""

# All other repositories were verified just now, so this repository is the next night's.
TURN: Final = f"""
import json, os, time
from hgfleet.backup.point import consistency as repository
from hgfleet.core import paths
from pathlib import Path
name = "{STATE}"
now = time.time()
known = repository.find(Path(paths.REPOSITORIES))
found = {{path: {{"seen": now, "time": now}} for path, _ in known}}
found["{REPOSITORY}"] = {{"seen": now}}
Path(name).parent.mkdir(exist_ok=True)
Path(name).write_text(json.dumps({{"days": 30, "ended": 0, "repositories": found}}))
"""


@pytest.fixture
def work(cluster: Cluster, tmp_path: Path) -> Clone:
    """A clone of a repository that has a revision of a file."""
    alice = cluster.person("alice")
    clone = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    if not (clone.path / FILE).exists():
        clone.commit(FILE, uuid.uuid4().bytes * 100, "a file that rots")
        clone.hg("push").ok()
    primary = cluster.first("ssh")
    wait_until(
        "the mirrors have it",
        lambda: (
            {log_of(host, REPOSITORY) for host in mirrors_of(cluster)}
            == {log_of(primary, REPOSITORY)}
        ),
        SECONDS,
    )
    return clone


@pytest.fixture
def repaired(cluster: Cluster) -> Iterator[None]:
    """Repair the repository on all hosts afterwards."""
    yield
    for host in (cluster.first("ssh"), *mirrors_of(cluster)):
        if host.run("hgfleet", "integrity", "run", REPOSITORY).code != 0:
            host.run("hgfleet", "integrity", "repair", REPOSITORY).ok()
        host.systemctl("reset-failed", UNIT)


def run_tonight(host: Host) -> int:
    """Run the unit when it is the repository's turn; return the exit code."""
    host.run(PYTHON, "-c", TURN).ok()
    host.systemctl("start", UNIT)
    return int(host.systemctl("show", "-P", "ExecMainStatus", UNIT).ok().stdout)


def check_that_it_is_named(host: Host) -> None:
    """Check that the state file (for exporters) and the status (for operators) name it."""
    assert json.loads(host.shell(f"cat {STATE}"))["corrupt"] == [REPOSITORY]
    status = host.run("hgfleet", "integrity", "status")
    assert status.code == 65
    assert f"{REPOSITORY}: CORRUPT at " in status.stdout
    assert FILE in status.stdout
    assert f"hgfleet integrity repair {REPOSITORY}" in status.stdout


def check_that_metrics_tell(host: Host, corrupt: int) -> None:
    """Check a host's metrics: the number of corrupt repositories, and times of verification."""
    series = metrics.written([host])
    for figure in ("last_run", "oldest_verification"):
        assert metrics.total(series, f"hgfleet_integrity_{figure}_timestamp_seconds") > 0, figure
    assert metrics.total(series, "hgfleet_integrity_corrupt_repositories") == corrupt


def check_that_it_is_good(host: Host) -> None:
    """Check that the repository verifies, and that nothing is reported any more."""
    hg = "HGRCPATH= /opt/hgfleet/current/bin/hg"
    host.shell(f"runuser -u hg -- env {hg} -R /srv/hg/repos/{REPOSITORY} verify -q")
    host.run("hgfleet", "integrity", "status").ok()
    assert run_tonight(host) == 0


@pytest.mark.usefixtures("repaired")
def test_a_flipped_bit_on_a_mirror_is_found_and_repaired_from_the_primary(
    cluster: Cluster, work: Clone
) -> None:
    mirror = mirrors_of(cluster)[-1]
    assert run_tonight(mirror) == 0
    mirror.run(PYTHON, "-c", FLIP).ok()

    assert run_tonight(mirror) == 65

    assert mirror.systemctl("is-failed", UNIT).stdout.strip() == "failed"
    check_that_it_is_named(mirror)
    check_that_metrics_tell(mirror, corrupt=1)
    mirror.run("hgfleet", "integrity", "repair", REPOSITORY).ok()
    check_that_it_is_good(mirror)
    check_that_metrics_tell(mirror, corrupt=0)
    assert log_of(mirror, REPOSITORY) == log_of(cluster.first("ssh"), REPOSITORY)
    # Pushes reach the repaired repository.
    node = work.commit("other.txt", uuid.uuid4().bytes, "after the repair")
    work.hg("push").ok()
    wait_until(
        "the mirror has the push",
        lambda: node in mirror.shell(f"cat {PLACE}/pushlog"),
        SECONDS,
    )


@pytest.mark.usefixtures("repaired")
def test_a_flipped_bit_on_the_primary_is_repaired_from_backup_and_later_pushes(
    cluster: Cluster, work: Clone
) -> None:
    primary = cluster.first("ssh")
    primary.systemctl("start", "hgfleet-backup.service").ok()
    later = work.commit("other.txt", uuid.uuid4().bytes, "after the backup")
    work.hg("push").ok()
    log = log_of(primary, REPOSITORY)
    primary.run(PYTHON, "-c", FLIP).ok()
    assert run_tonight(primary) == 65
    check_that_it_is_named(primary)

    said = primary.run("hgfleet", "integrity", "repair", REPOSITORY).ok()

    assert "and 1 later pushes of the corrupt repository, which is kept as" in said.stdout
    check_that_it_is_good(primary)
    # No push is lost, and nothing has changed for mirrors.
    assert log_of(primary, REPOSITORY) == log
    assert later in cluster.remote_heads(REPOSITORY)
    work.commit("other.txt", uuid.uuid4().bytes, "after the repair")
    work.hg("push").ok()
    kept = re.search(r"kept as (/srv/hg/repos/\.restore/[\w.+@]+)", said.stdout)
    assert kept, said
    primary.run("rm", "-r", kept[1]).ok()
