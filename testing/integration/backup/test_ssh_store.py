"""Backups on a machine that is reached by SSH: rights and limits of the runbook's keys."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.restic.prune import forget, prune
from hgfleet.backup.restic.restic import Restic
from hgfleet.core.errors import UnavailableError
from hgfleet.core.report import Report
from testing.integration.support.ssh_store import PRUNER, Store, make_key
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a backup of hg1 and two of hg2."""
    with Store(tmp_path_factory.mktemp("store") / "store").running() as running:
        for host in ("hg1", "hg2"):
            restic = Restic(running.settings(host))
            restic.run("init")
            for text in ("first", "second") if host == "hg2" else ("only",):
                back_up(running, restic, host, text)
        yield running


def back_up(store: Store, restic: Restic, host: str, text: str) -> None:
    (source := store.folder / f"source-{host}").mkdir(exist_ok=True)
    (source / "file").write_text(f"{text} of {host}")
    # Not `Restic.backup`: restic of Debian 12 does not know all of its options.
    restic.run("backup", str(source), f"--host={host}")


def stored(store: Store, host: str) -> dict[str, bytes]:
    folder = store.backups / host
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def first(store: Store, host: str, kind: str) -> str:
    return min(name for name in stored(store, host) if name.startswith(f"{kind}/"))


def test_a_backup_comes_back(store: Store, tmp_path: Path) -> None:
    restic = Restic(store.settings("hg1"))
    assert restic.exists()
    newest = restic.snapshots()[0]
    restic.restore(newest.id, newest.paths[0], tmp_path)
    assert (tmp_path / newest.paths[0].lstrip("/") / "file").read_text() == "only of hg1"
    # Nothing is left that a prune would have to wait for.
    assert restic.locks() == []


def test_a_host_cannot_have_its_backups_pruned_by_a_snapshot_of_the_future(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Debian 12's restic does not wait for locks.
    monkeypatch.setattr(Restic, "_patience", lambda _: [])
    own = Restic(store.settings("hg1"))
    (genuine,) = own.snapshots()
    source = str(store.folder / "source-hg1")
    own.run("backup", source, "--host=hg1", "--time=2099-01-01 00:00:00")
    pruner = store.settings("hg1", "hg1")
    pruner.state.mkdir(exist_ok=True)
    report = Report("events", part="backup")
    assert prune(pruner, report, ["hg1"]) == ["hg1"]
    assert own.snapshots() == [genuine]
    (planted,) = own.from_future()
    # A person removes it, with the key that prunes.
    assert forget(pruner, "hg1", [planted.id[:8]]) == [planted.id]
    assert prune(pruner, report, ["hg1"]) == []
    assert own.snapshots() == [genuine]
    assert own.from_future() == []


def test_restic_cannot_delete_with_the_key_of_a_host(store: Store) -> None:
    before = stored(store, "hg1")
    restic = Restic(store.settings("hg1"))
    # restic tries again for up to 15 minutes, so the first refusal ends it.
    attempt = subprocess.Popen(
        restic.command("forget", "latest", "--prune"),
        env=restic.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert attempt.stderr is not None
    refused = next((line for line in attempt.stderr if "403" in line), "")
    attempt.terminate()
    attempt.wait()
    assert "Remove(<snapshot/" in refused
    after = stored(store, "hg1")
    assert before.items() <= after.items()
    assert [name for name in after.keys() - before.keys() if not name.startswith("locks/")] == []
    restic.run("unlock", "--remove-all")


def test_no_request_deletes_or_replaces_a_file(store: Store) -> None:
    before = stored(store, "hg1")
    # Packs are in folders by the first digits of their names; requests leave them out.
    files = {kind: first(store, "hg1", kind).rpartition("/")[2] for kind in ("data", "snapshots")}
    paths = ["/config", *(f"/{kind}/{name}" for kind, name in files.items())]
    for path in paths:
        assert store.request("hg1", "DELETE", path)[0] == 403
        assert store.request("hg1", "POST", path, "--data-binary", "nothing")[0] == 403
    # A read finds the file, so the requests above were for it.
    assert store.request("hg1", "GET", paths[-1]) == (200, before[first(store, "hg1", "snapshots")])
    assert stored(store, "hg1") == before


def test_a_host_does_not_reach_the_folder_of_another(store: Store) -> None:
    before = stored(store, "hg2")
    folders = ["/..", "/%2e%2e", "/..%2f", "/data/../..", "", str(store.backups)]
    for folder in folders:
        status, content = store.request("hg1", "GET", f"{folder}/hg2/config")
        assert status >= 400, folder
        assert before["config"] not in content, folder
    lock = f"/../hg2/locks/{'0' * 64}"
    store.request("hg1", "POST", lock, "--data-binary", "of hg1")
    assert stored(store, "hg2") == before
    assert sorted(path.name for path in store.backups.iterdir()) == ["hg1", "hg2"]


def test_the_name_of_another_host_leads_to_the_own_folder(store: Store) -> None:
    settings = replace(store.settings("hg2"), host="hg1")
    (settings.secrets / "backup-ssh").write_bytes((store.folder / "hg1").read_bytes())
    # Its address names hg2.
    assert {snapshot["hostname"] for snapshot in Restic(settings).raw_snapshots()} == {"hg1"}


@pytest.mark.parametrize("key", ["hg1", PRUNER])
def test_no_key_gets_a_shell_or_a_port(store: Store, key: str) -> None:
    marker = store.folder / f"made-by-{key}"
    for options in ([], ["-tt"], ["-A"]):
        command = store.ssh(key, f"touch {marker}", options=options)
        pace.run(command, 20, b"", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert not marker.exists()
    # A channel to a port of the store: sshd says that it is prohibited.
    forward = ["-W", f"127.0.0.1:{store.port}"]
    command = store.ssh(key, options=forward)
    done = pace.run(command, 20, b"", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"prohibited" in done.stderr
    assert b"SSH-2.0" not in done.stdout


def test_sftp_is_for_the_key_that_prunes_alone(store: Store) -> None:
    # SSH_FXP_INIT of version 3; a server of SFTP answers with SSH_FXP_VERSION (2).
    hello = bytes([0, 0, 0, 5, 1, 0, 0, 0, 3])
    answers = {}
    for key in ("hg1", PRUNER):
        with subprocess.Popen(
            store.ssh(key, "sftp", options=["-s"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(hello)
            process.stdin.flush()
            answers[key] = process.stdout.read(5)
            process.stdin.close()
    assert answers[PRUNER][4] == 2
    # The first frame of HTTP/2: SETTINGS (4), no flags.
    assert answers["hg1"][3:] == bytes([4, 0])


def test_another_machine_at_the_address_gets_nothing(store: Store, tmp_path: Path) -> None:
    make_key(other := tmp_path / "other")
    try:
        store.pin(other.with_suffix(".pub"))
        with pytest.raises(UnavailableError, match="Host key verification failed"):
            Restic(store.settings("hg1")).exists()
    finally:
        store.pin(store.folder / "host.pub")


def test_the_key_that_prunes_removes_old_backups(store: Store, tmp_path: Path) -> None:
    restic = Restic(store.settings("hg2", "hg2"))
    assert len(restic.raw_snapshots()) == 2
    restic.run("forget", "--prune", "--keep-last=1", "--group-by=host")
    # The host reads the remaining backup.
    own = Restic(store.settings("hg2"))
    (kept,) = own.snapshots()
    own.restore(kept.id, kept.paths[0], tmp_path)
    assert (tmp_path / kept.paths[0][1:] / "file").read_text() == "second of hg2"
