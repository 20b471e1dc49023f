"""A backup during pushes: the state that it restores, and the newer pushes that it would lose."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e import metrics
from testing.e2e.command import wait_until
from testing.e2e.mirrors import SECONDS, log_of, mirrors_of

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone

REPOSITORY: Final = "e2e/backup"
UNIT: Final = "hgfleet-backup.service"
PRUNE: Final = "hgfleet-backup-prune.service"
HG: Final = "/opt/hgfleet/current/bin/hg"
PYTHON: Final = "/opt/hgfleet/current/bin/python"
LAST: Final = 3
"""Number of pushes after the backup."""

# Runs on the pruner: the lock of the bucket, and the statements about its writers, as JSON.
LOCKED: Final = """
import json
from pathlib import Path
from hgfleet.backup.restic.bucket_lock import Bucket
from hgfleet.backup.restic.settings import DEFAULT_PATH, load
bucket = Bucket(load(DEFAULT_PATH), Path("/etc/hgfleet/secrets/backup-s3"))
lock = bucket._call("get_object_lock_configuration")["ObjectLockConfiguration"]
policy = json.loads(bucket._call("get_bucket_policy")["Policy"])
print(json.dumps({
    "retention": lock["Rule"]["DefaultRetention"]["Mode"],
    "statements": sorted(
        one["Sid"] for one in policy["Statement"] if "hg-backup" in json.dumps(one["Principal"])
    ),
}))
"""


# Runs on the store, which prunes: flips a bit of the largest pack of a host. Prints the pack.
FLIP: Final = """
import sys
from pathlib import Path
packs = [
    file for file in Path("/srv/objectstore").rglob(f"hg-backup/{sys.argv[1]}/data/*/*")
    if file.is_file() and len(file.name) == 64
]
pack = max(packs, key=lambda file: file.stat().st_size)
with pack.open("r+b") as file:
    file.seek(200)
    byte = file.read(1)
    file.seek(200)
    file.write(bytes([byte[0] ^ 1]))
print(pack.name)
"""

# Runs on a host with state: makes a snapshot of the year 2099, as a taken-over host could.
PLANT: Final = """
from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import DEFAULT_PATH, load
settings = load(DEFAULT_PATH)
options = (f"--host={settings.host}", "--tag=all", "--time=2099-01-01 00:00:00")
Restic(settings).run("backup", *options, "/etc/hostname", accepted=(0, 3))
(planted,) = Restic(settings).from_future()
print(planted.id)
"""

# Makes the part of a pack the next to be read; otherwise its turn comes within 28 days.
DUE: Final = """
import sys
from hgfleet.backup import run_records
from hgfleet.backup.restic.packs import PARTS
from hgfleet.backup.restic.settings import DEFAULT_PATH, load
state = load(DEFAULT_PATH).state
checks = run_records.load(state, run_records.PACKS)
checks.setdefault(sys.argv[1], {})["part"] = int(sys.argv[2][:2], 16) % PARTS
run_records.save(state, run_records.PACKS, checks)
"""


def push(work: Clone) -> str:
    """Push a changeset on top of the last; return its node."""
    node = work.commit("file.txt", uuid.uuid4().bytes * 100, "one of many")
    work.hg("push").ok()
    return node


class Pushes:
    """Pushes without pause, in a thread; `nodes` are the heads that the repository had."""

    def __init__(self, work: Clone) -> None:
        self._work = work
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._push)
        self.nodes: list[str] = []
        self.error: BaseException | None = None

    def __enter__(self) -> Pushes:
        self.nodes.append(push(self._work))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _push(self) -> None:
        try:
            while not self._end.is_set():
                self.nodes.append(push(self._work))
        except AssertionError as error:
            self.error = error


@pytest.fixture
def primary(cluster: Cluster) -> Host:
    """The host that takes pushes."""
    return cluster.first("ssh")


@pytest.fixture
def pruner(cluster: Cluster) -> Host:
    """The host that removes old backups."""
    pruners = [
        host for host in cluster.all("backup") if host.run("systemctl", "cat", PRUNE).code == 0
    ]
    assert len(pruners) == 1
    return pruners[0]


@pytest.fixture
def work(cluster: Cluster, tmp_path: Path) -> Clone:
    """A clone to push from."""
    alice = cluster.person("alice")
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


def test_a_backup_beside_pushes_restores_to_a_state_that_the_repository_had(
    primary: Host, work: Clone
) -> None:
    cursor = primary.journal_cursor()
    with Pushes(work) as pushes:
        before = len(pushes.nodes)
        primary.systemctl("start", UNIT).ok()
    ended = datetime.now(UTC)
    assert pushes.error is None
    assert len(pushes.nodes) > before, "no push came during the backup"
    done = [
        line for line in primary.journal_after(cursor, f"--unit={UNIT}") if "backup.done" in line
    ]
    assert len(done) == 1, done
    assert " failed=0 " in done[0]
    later = [push(work) for _ in range(LAST)]

    said = primary.run("hgfleet", "repo", "restore", REPOSITORY, "--at", ended.isoformat()).ok()
    folder = said.stdout.partition(":")[0]
    try:
        heads = primary.run(
            HG, "-R", folder, "log", "--hidden", "-r", "heads(all())", "-T", "{node}\n"
        ).ok()
        assert heads.stdout.split() == [
            node for node in pushes.nodes[before - 1 :] if node in heads.stdout
        ], f"{heads}\nis no state at or after the begin of the backup: {pushes.nodes}"
        # The diff of heads names the heads of the running repository.
        assert f"+ {later[-1]}  a head of the running repository only" in said.stdout
        assert "verified, from the backup of" in said.stdout
        assert f"later pushes: {LAST}" in said.stdout
        owner = primary.shell(f"stat -c %U:%G {folder} {folder}/.hg/store/00changelog.i")
        assert owner.split() == ["hg:hg"] * 2
    finally:
        primary.run("rm", "-r", folder).ok()

    primary.run("hgfleet", "backup", "verify", REPOSITORY).ok()
    status = primary.run("hgfleet", "backup", "status", "--json")
    lost = json.loads(status.stdout)["lost"][REPOSITORY]
    unsaved = len(pushes.nodes) + LAST - pushes.nodes.index(heads.stdout.strip()) - 1
    assert lost["reason"] == ""
    assert lost["site"] == unsaved
    # The mirrors have every push.
    assert lost["host"] == 0


@pytest.mark.whole
def test_a_time_between_two_backups_is_met_to_the_push(primary: Host, work: Clone) -> None:
    primary.systemctl("start", UNIT).ok()
    pushes = [(push(work), datetime.now(UTC).isoformat()) for _ in range(LAST)]
    primary.systemctl("start", UNIT).ok()

    for number, (node, at) in enumerate(pushes, 1):
        said = primary.run("hgfleet", "repo", "restore", REPOSITORY, "--at", at).ok().stdout
        folder = said.partition(":")[0]
        try:
            heads = primary.run(HG, "-R", folder, "log", "-r", "heads(all())", "-T", "{node}\n")
            assert heads.ok().stdout.split() == [node]
            assert f"the copy misses: 0; later pushes: {LAST - number}" in said
            assert "passed over" not in said
        finally:
            primary.run("rm", "-r", folder).ok()


def test_a_repository_gets_an_earlier_state_back_and_mirrors_follow(
    cluster: Cluster, primary: Host, work: Clone
) -> None:
    good = push(work)
    primary.systemctl("start", UNIT).ok()
    ended = datetime.now(UTC).isoformat()
    bad = push(work)

    said = primary.run("hgfleet", "repo", "restore", REPOSITORY, "--at", ended, "--in-place").ok()

    assert f"+ {bad}  a head of the running repository only" in said.stdout
    assert "changesets added: 0, removed: 1" in said.stdout
    folder = said.stdout.partition(":")[0]
    assert primary.run("test", "-e", folder).code == 1
    wait_until(
        "every mirror has the earlier state",
        lambda: cluster.remote_heads(REPOSITORY) == {good} and same_logs(cluster),
        SECONDS,
    )
    work.hg("update", "--clean", good).ok()
    after = work.commit("file.txt", uuid.uuid4().bytes, "after the restore")
    work.hg("push", "--rev", after).ok()
    wait_until("readers see the push", lambda: after in cluster.remote_heads(REPOSITORY), SECONDS)
    # A later backup cannot undo the removal; a backup from before the removal has that state.
    primary.systemctl("start", UNIT).ok()
    again = primary.run("hgfleet", "repo", "restore", REPOSITORY, "--at", ended).ok().stdout
    primary.run("rm", "-r", again.partition(":")[0]).ok()
    assert "is no push but strip" in again
    assert "the copy misses: 0; " in again
    assert f"+ {after}  a head of the running repository only" in again


def same_logs(cluster: Cluster) -> bool:
    """Tell whether all hosts have the push log of the primary, strip included."""
    logs = {log_of(host, REPOSITORY) for host in (cluster.first("ssh"), *mirrors_of(cluster))}
    return len(logs) == 1


def test_a_prune_removes_old_backups_from_another_host(primary: Host, pruner: Host) -> None:
    """The account of the primary can neither delete objects nor remove its locks."""
    # The newest backup of an hour is kept: of two runs, at most the first ends in the hour before.
    for _ in range(3):
        primary.systemctl("start", UNIT).ok()
    before = primary.run("hgfleet", "backup", "list").ok().stdout.splitlines()

    pruner.systemctl("start", PRUNE).ok()

    after = primary.run("hgfleet", "backup", "list").ok().stdout.splitlines()
    assert after[0] == before[0]
    assert set(after) < set(before)
    # After the prune writers are let in again, and new objects are locked again.
    primary.systemctl("start", UNIT).ok()
    locked = json.loads(pruner.run(PYTHON, "-c", LOCKED).ok().stdout)
    assert locked == {"retention": "GOVERNANCE", "statements": ["WritersCreate", "WritersList"]}


@pytest.mark.whole
def test_a_snapshot_of_the_future_ends_the_prune_of_its_host_until_a_person_has_looked(
    primary: Host, pruner: Host
) -> None:
    def refused() -> float:
        series = metrics.written([pruner])
        return metrics.total(series, "hgfleet_backup_prune_refused")

    for _ in range(3):
        primary.systemctl("start", UNIT).ok()
    planted = primary.run(PYTHON, "-c", PLANT).ok().stdout.strip()
    # A pruner takes its lock for a backup under way, until a genuine backup has ended.
    primary.systemctl("start", UNIT).ok()
    listed = primary.run("hgfleet", "backup", "list").ok().stdout.splitlines()
    before = [line for line in listed if not line.startswith(planted[:8])]
    cursor = pruner.journal_cursor()
    try:
        assert pruner.systemctl("start", PRUNE).code != 0

        said = "\n".join(pruner.journal_after(cursor, f"--unit={PRUNE}"))
        assert f"event=backup.prune-refused repository={primary.name} " in said
        assert f"hgfleet backup forget {primary.name} {planted[:8]}" in said
        assert refused() == 1
        after = primary.run("hgfleet", "backup", "list").ok().stdout.splitlines()
        assert after[0].startswith(planted[:8])
        assert "LATER THAN THE CLOCK OF THIS HOST" in after[0]
        assert after[1:] == before
        # No restore uses that snapshot.
        primary.run("hgfleet", "backup", "verify", REPOSITORY).ok()
    finally:
        pruner.run("hgfleet", "backup", "forget", primary.name, planted[:8]).ok()

    pruner.systemctl("start", PRUNE).ok()
    assert refused() == 0
    kept = primary.run("hgfleet", "backup", "list").ok().stdout.splitlines()
    assert kept[0] == before[0]
    assert set(kept) < set(before)


def test_a_corrupt_pack_is_found_named_and_repaired(primary: Host, pruner: Host) -> None:
    def are_told(wanted: bool) -> None:
        series = metrics.written([pruner])
        for figure in ("corrupt_packs", "check_errors"):
            count = metrics.total(series, f"hgfleet_backup_{figure}")
            assert (count > 0) == wanted, f"{figure}: {count}"
        assert metrics.total(series, "hgfleet_backup_packs_oldest_read_timestamp_seconds") > 0

    primary.systemctl("start", UNIT).ok()
    pack = pruner.run(PYTHON, "-c", FLIP, primary.name).ok().stdout.strip()
    pruner.run(PYTHON, "-c", DUE, primary.name, pack).ok()
    cursor = pruner.journal_cursor()

    assert pruner.systemctl("start", PRUNE).code != 0

    said = "\n".join(pruner.journal_after(cursor, f"--unit={PRUNE}"))
    assert f"event=backup.corrupt repository={primary.name} packs={pack}" in said
    are_told(True)
    pruner.run("hgfleet", "backup", "repair", primary.name).ok()
    # The next backup stores the contents of the pack again.
    primary.systemctl("start", UNIT).ok()
    pruner.run(PYTHON, "-c", DUE, primary.name, pack).ok()
    if pruner.systemctl("start", PRUNE).code != 0:
        # Older backups miss parts that the host no longer has.
        pruner.run("hgfleet", "backup", "repair", primary.name).ok()
        pruner.systemctl("start", PRUNE).ok()
    primary.run("hgfleet", "backup", "verify", REPOSITORY).ok()
    are_told(False)
