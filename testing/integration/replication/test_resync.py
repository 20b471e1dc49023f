"""A mirror's repository made again from the source of its primary."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest
from mercurial import extensions

from hgfleet.bundles.decide.manifest import Entry, Manifests
from hgfleet.core import durable
from hgfleet.core import identity as identities
from hgfleet.core.durable import Disk
from hgfleet.core.errors import HgfleetError, PushlogError, TemporaryError, UnavailableError
from hgfleet.pushlog import index_step
from hgfleet.pushlog.view import View
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.replication import daemons
from hgfleet.replication.mirror import fresh_copy, resync
from hgfleet.replication.mirror.jobs import Job, Task
from hgfleet.replication.protocol import snapshot
from hgfleet.replication.source import changesets
from testing.integration.support.hosts import (
    HGRC,
    IDENTITY,
    Authority,
    Host,
    Primary,
    client,
    restrict_modes,
)
from testing.integration.support.site import HGEXT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "team/tool"
OTHER = "8e" * 16


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def primary(tmp_path: Path, authority: Authority) -> Primary:
    """A primary whose repository has all that a mirror has to have."""
    made = Primary(tmp_path / "hg1", authority)
    made.create(PATH)
    made.declare(PATH)
    made.identify(PATH)
    public = made.push(PATH, "one")
    made.hg_in(PATH, "phase", "--public", public)
    made.push(PATH, "two")
    (made.path(PATH) / "two").write_text("amended")
    made.hg_in(PATH, "commit", "--amend", "--message", "amended")
    made.hg_in(PATH, "bookmark", "--rev", ".", "mark")
    made.push(PATH, "three", "three", "--secret")
    return made


@pytest.fixture
def mirror(tmp_path: Path, authority: Authority, primary: Primary) -> Iterator[Host]:
    with primary.serving() as url:
        made = Host(tmp_path / "hgweb1", "hgweb1", authority, url)
        made.declare(PATH)
        _name(made, PATH, IDENTITY)
        yield made


def _name(mirror: Host, path: str, identity: str) -> None:
    """Have the registry of a mirror name an identity; the folder comes with the resync."""
    with dynamic_update.update(mirror.dynamic) as entries:
        entries.note_identity(path, identity)


@pytest.fixture
def said() -> list[str]:
    return []


def _resync(mirror: Host, said: list[str]) -> snapshot.State:
    source = client(mirror, mirror.settings.source)
    return resync.resync(
        mirror.settings, source, IDENTITY, say=said.append, certificates=mirror.settings.ca
    )


def _digests(host: Host) -> snapshot.Digests:
    ui = changesets.new_ui(host.hgrc)
    place = host.path(PATH)
    return snapshot.read(place, lambda: changesets.open_repository(ui, place)).digests()


def _assert_equal(primary: Primary, mirror: Host) -> None:
    assert _digests(mirror) == _digests(primary)
    assert mirror.log(PATH).read_bytes() == primary.log(PATH).read_bytes()
    mirror.hg_in(PATH, "verify")


def test_a_missing_repository_is_made(
    primary: Primary, mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    restrict_modes(monkeypatch)
    state = _resync(mirror, said)
    assert state.id == 3
    _assert_equal(primary, mirror)
    assert (mirror.path(PATH) / ".hg/hgrc").is_file()
    assert mirror.path(PATH).stat().st_mode & 0o7777 == 0o2750


def test_a_long_push_log_comes_with_its_index(
    primary: Primary, mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_step, "STEP", 1)
    _resync(mirror, said)
    _assert_equal(primary, mirror)
    control = mirror.path(PATH) / ".hg"
    assert (control / "cache" / index_step.NAME).is_file()
    with View(control / "store", control / "cache") as pushes:
        assert pushes.last_id == 3


def test_a_damaged_repository_is_replaced(primary: Primary, mirror: Host, said: list[str]) -> None:
    _resync(mirror, said)
    (mirror.path(PATH) / ".hg/store/00changelog.i").write_bytes(b"\0" * 64)
    _resync(mirror, said)
    _assert_equal(primary, mirror)


def test_changesets_of_the_mirror_alone_leave(
    primary: Primary, mirror: Host, said: list[str]
) -> None:
    _resync(mirror, said)
    mirror.hg_in(PATH, "update", "--clean", "0")
    mirror.push(PATH, "stray")
    assert _digests(mirror) != _digests(primary)
    _resync(mirror, said)
    _assert_equal(primary, mirror)


def test_an_empty_repository_is_made(primary: Primary, mirror: Host, said: list[str]) -> None:
    for host in (primary, mirror):
        host.declare(PATH, "empty")
    primary.create("empty")
    primary.identify("empty", OTHER)
    _name(mirror, "empty", OTHER)
    resync.resync(mirror.settings, client(mirror, mirror.settings.source), OTHER, say=said.append)
    assert mirror.hg_in("empty", "log") == ""
    assert identities.of(mirror.path("empty")) == OTHER


def test_readers_of_the_old_repository_go_on(
    primary: Primary, mirror: Host, said: list[str]
) -> None:
    _resync(mirror, said)
    inode = mirror.path(PATH).stat().st_ino
    primary.push(PATH, "four")
    _resync(mirror, said)
    away = mirror.repos / ".replication"
    (old,) = away.glob("old-*")
    assert old.stat().st_ino == inode
    resync.remove_old(mirror.repos)
    assert old.exists()
    resync.remove_old(mirror.repos, kept=-1)
    assert not old.exists()


def test_an_empty_repository_that_was_filled_is_not_kept(
    primary: Primary, mirror: Host, said: list[str]
) -> None:
    mirror.create(PATH)
    mirror.identify(PATH)
    _resync(mirror, said)
    _assert_equal(primary, mirror)
    assert list((mirror.repos / ".replication").iterdir()) == []


def test_a_primary_that_lost_changesets_is_not_copied(
    primary: Primary, mirror: Host, said: list[str]
) -> None:
    _resync(mirror, said)
    before = _digests(mirror)
    primary.hg_in(PATH, "strip", "--no-backup", "--hidden", "tip")
    with pytest.raises(UnavailableError, match="it lost changesets"):
        _resync(mirror, said)
    assert _digests(mirror) == before
    assert list((mirror.repos / ".replication").iterdir()) == []


class Killed(BaseException):
    """The end of the process."""


@pytest.mark.parametrize(
    "step", ["_create", "_changesets", "_log", "bring_up", "rename_exchange", "sync"]
)
def test_a_killed_resync_leaves_the_old_repository(
    primary: Primary,
    mirror: Host,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    _resync(mirror, said)
    before = _digests(mirror)
    primary.push(PATH, "four")

    def kill(*_: object) -> None:
        raise Killed

    where = fresh_copy.Rebuild if hasattr(fresh_copy.Rebuild, step) else resync.work_folder
    monkeypatch.setattr(where, step, kill)
    with pytest.raises(Killed):
        _resync(mirror, said)
    monkeypatch.undo()
    assert _digests(mirror) == before
    mirror.hg_in(PATH, "verify")
    _resync(mirror, said)
    _assert_equal(primary, mirror)


def test_a_push_that_was_applied_meanwhile_is_not_lost(
    primary: Primary, mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _resync(mirror, said)
    rounds = iter(range(10))

    def sync(_: Disk) -> None:
        # After the new repository was brought up: a push comes, and the applier applies it.
        if next(rounds) == 0:
            primary.push(PATH, "four")
            mirror.hg_in(PATH, "pull", "--rev", "tip", "--hidden", str(primary.path(PATH)))
            mirror.log(PATH).write_bytes(primary.log(PATH).read_bytes())

    monkeypatch.setattr(resync.work_folder, "sync", sync)
    assert _resync(mirror, said).id == 4
    _assert_equal(primary, mirror)


def test_a_write_that_the_disk_lost_is_heard_and_the_old_repository_stays(
    primary: Primary, mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux tells a descriptor that was open before the write; another process may hear first."""
    _resync(mirror, said)
    before = _digests(mirror)
    primary.push(PATH, "four")

    class Losing(Disk):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.hears = not any(folder.glob("new-*"))

        def sync(self) -> None:
            if self.hears:
                raise OSError(5, "a write was lost")

    monkeypatch.setattr(durable, "Disk", Losing)
    with pytest.raises(OSError, match="a write was lost"):
        _resync(mirror, said)
    monkeypatch.undo()
    assert _digests(mirror) == before
    _resync(mirror, said)
    _assert_equal(primary, mirror)


def test_another_log_than_that_of_the_state_is_refused(
    mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hgfleet.replication.source.answers.lines_after", lambda *_: iter([b"{}\n"])
    )
    with pytest.raises(PushlogError):
        _resync(mirror, said)
    assert not mirror.path(PATH).exists()


def test_without_its_source_a_repository_stays(mirror: Host, said: list[str]) -> None:
    _resync(mirror, said)
    before = _digests(mirror)
    with pytest.raises(UnavailableError, match="does not answer"):
        resync.resync(mirror.settings, client(mirror, "https://127.0.0.1:1"), IDENTITY)
    assert _digests(mirror) == before


def test_the_applier_repairs_a_repository_that_refuses_writers(
    primary: Primary, mirror: Host, said: list[str]
) -> None:
    _resync(mirror, said)
    mirror.hg_in(PATH, "bookmark", "--rev", "tip", "stray")
    pushlog = str(HGEXT / "pushlog.py")
    mirror.hgrc.write_text(
        f"{HGRC}[extensions]\npushlog = {pushlog}\n"
        f"[hgfleet]\nreplica-of = hg1\npath = {mirror.registry}\n"
    )
    mirror.hg_in(PATH, "bookmark", "--rev", "tip", "refused", code=255)
    # As in a worker, which has the extension loaded for the repositories that it writes to.
    ui = changesets.new_ui(mirror.hgrc)
    ui.setconfig(b"extensions", b"pushlog", os.fsencode(pushlog))
    extensions.loadall(ui)
    worker = daemons.make_worker(mirror.settings)
    worker.run(Job(IDENTITY, task=Task.REPAIR))
    assert _digests(mirror) == _digests(primary)
    assert mirror.log(PATH).read_bytes() == primary.log(PATH).read_bytes()


def test_hooks_of_the_host_do_not_run(primary: Primary, mirror: Host, said: list[str]) -> None:
    # Also in a repository that is exchanged, and in a repository that begins from a clone bundle.
    with mirror.hgrc.open("a") as hgrc:
        hgrc.write(
            "[hooks]\npretxnclose.refuse = false\npretxnopen.refuse = false\n"
            "pretxnclose-bookmark.refuse = false\nprechangegroup.refuse = false\n"
        )
    for _number in range(2):
        _resync(mirror, said)
    assert _digests(mirror) == _digests(primary)
    assert mirror.log(PATH).read_bytes() == primary.log(PATH).read_bytes()


def test_two_resyncs_of_a_repository_do_not_run_at_once(
    mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: object) -> None:
        with pytest.raises(TemporaryError, match="another resync"):
            _resync(mirror, said)
        raise Killed

    monkeypatch.setattr(fresh_copy.Rebuild, "make", again)
    with pytest.raises(Killed):
        _resync(mirror, said)


def test_a_lock_that_another_resync_removed_is_none(
    mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended between the open of the file and its lock; a third resync may have a new file."""
    lock, original = mirror.repos / f".replication/lock-{IDENTITY}", resync.files.try_lock

    def try_lock(descriptor: int) -> bool:
        lock.unlink()
        return original(descriptor)

    monkeypatch.setattr(resync.files, "try_lock", try_lock)
    with pytest.raises(TemporaryError, match="another resync"):
        _resync(mirror, said)
    monkeypatch.undo()
    _resync(mirror, said)


# --- from a clone bundle ------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder that a web server serves, its URL, and the paths that were requested."""
    folder = tmp_path / "store"
    folder.mkdir()
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            requests.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    with server:
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}", requests
        server.shutdown()
        thread.join()


def _publish(
    primary: Primary, mirror: Host, store: tuple[Path, str, list[str]], type_: str = "zstd-v2"
) -> Path:
    folder, url, _ = store
    file = folder / "bundle.hg"
    raw = ("--config", "server.uncompressedallowsecret=yes")
    raw += ("--config", "experimental.evolution.bundle-obsmarker=yes")
    primary.hg_in(PATH, "bundle", "--all", "--type", type_, file, *raw)
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    now = datetime.now(UTC)
    entry = Entry(f"{url}/bundle.hg", "zstd-v2", digest, len(content), 3, now, identity=IDENTITY)
    with dynamic_update.update(mirror.dynamic) as entries:
        entries.note_identity(PATH, IDENTITY)
    Manifests(mirror.settings.manifests).publish(IDENTITY, [entry], now)
    return file


def test_a_clone_bundle_is_the_beginning(
    primary: Primary, mirror: Host, said: list[str], store: tuple[Path, str, list[str]]
) -> None:
    _publish(primary, mirror, store)
    primary.push(PATH, "four")
    _resync(mirror, said)
    assert store[2] == ["/bundle.hg"]
    assert said == []
    _assert_equal(primary, mirror)
    sent = [line for line in primary.said if "/v1/changesets" in line]
    assert len(sent) == 1


def test_a_corrupt_clone_bundle_is_passed_over(
    primary: Primary, mirror: Host, said: list[str], store: tuple[Path, str, list[str]]
) -> None:
    file = _publish(primary, mirror, store)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    _resync(mirror, said)
    assert "sha256" in said[0]
    _assert_equal(primary, mirror)


def test_raw_files_in_the_place_of_a_clone_bundle_are_passed_over(
    primary: Primary, mirror: Host, said: list[str], store: tuple[Path, str, list[str]]
) -> None:
    _publish(primary, mirror, store, "none-streamv2")
    _resync(mirror, said)
    assert "cannot be applied" in said[0]
    assert "stream2" in said[0]
    _assert_equal(primary, mirror)


def test_a_clone_bundle_brings_no_cache_of_tags(
    primary: Primary, mirror: Host, said: list[str], store: tuple[Path, str, list[str]]
) -> None:
    primary.hg_in(PATH, "tag", "v1")
    primary.hg_in(PATH, "tags")
    primary.record(PATH)
    _publish(primary, mirror, store)
    _resync(mirror, said)
    assert said == []
    assert not (mirror.path(PATH) / ".hg/cache/hgtagsfnodes1").exists()
    _assert_equal(primary, mirror)


def test_a_clone_bundle_with_changesets_that_were_stripped_is_passed_over(
    primary: Primary, mirror: Host, said: list[str], store: tuple[Path, str, list[str]]
) -> None:
    _publish(primary, mirror, store)
    primary.hg_in(PATH, "strip", "--no-backup", "--hidden", "tip")
    primary.record(PATH)
    _resync(mirror, said)
    assert "all is read from the source" in said[0]
    _assert_equal(primary, mirror)


def test_readers_that_change_meanwhile_are_those_of_the_new_repository(
    mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry is not locked then: the documents bring it, and make many folders."""
    _resync(mirror, said)
    original = resync.work_folder.rename_exchange

    def exchange(place: Path, other: Path) -> None:
        # The documents bring new readers, and write them to the folder that is there.
        declared = Repository(PATH, "", ("staff",), (), publishing=False, bundles=())
        mirror.register(Registry(repositories={PATH: declared}))
        original(place, other)

    monkeypatch.setattr(resync.work_folder, "rename_exchange", exchange)
    with dynamic_update.locked(mirror.dynamic):
        _resync(mirror, said)
    assert "read = staff" in (mirror.path(PATH) / ".hg/hgrc").read_text()


def test_a_repository_that_is_not_registered_is_not_made(mirror: Host, said: list[str]) -> None:
    mirror.declare()
    with pytest.raises(HgfleetError, match="names no repository in service"):
        _resync(mirror, said)
    assert not mirror.path(PATH).exists()


def test_a_folder_of_another_repository_is_not_exchanged(mirror: Host, said: list[str]) -> None:
    mirror.create(PATH)
    (mirror.path(PATH) / identities.FILE).write_text(identities.text(OTHER))
    with pytest.raises(TemporaryError, match=f"repository {OTHER} is still there"):
        _resync(mirror, said)
    assert identities.of(mirror.path(PATH)) == OTHER
    assert mirror.hg_in(PATH, "log") == ""


def test_a_repository_that_moves_meanwhile_is_made_where_it_is_then(
    mirror: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = resync.work_folder.sync

    def sync(disk: Disk) -> None:
        original(disk)
        mirror.declare("team/moved")
        _name(mirror, "team/moved", IDENTITY)

    monkeypatch.setattr(resync.work_folder, "sync", sync)
    _resync(mirror, said)
    assert not mirror.path(PATH).exists()
    assert identities.of(mirror.path("team/moved")) == IDENTITY
