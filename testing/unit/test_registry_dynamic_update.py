"""A change of the dynamic registry is whole, and no change of another process is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hgfleet.core.errors import HostError, RegistryError, TemporaryError
from hgfleet.registry import dynamic_update, user_repositories
from hgfleet.registry.entry import Entry
from testing.unit.user_repository_file import BOB, written

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "dynamic").mkdir()
    return tmp_path / "dynamic/registry.json"


def test_what_is_written_is_read(file: Path) -> None:
    everything = Entry(
        "bob",
        "Bob's fork, ünïcode",
        "2026-11-21T00:00:00Z",
        read=("staff", "team"),
        push=("team",),
        forked_from="hgfleet",
        archived="2026-11-22T00:00:00Z",
    )
    written(file, people__bob__x=everything)
    assert user_repositories.load(file).repositories["people/bob/x"] == everything
    assert file.stat().st_mode & 0o7777 == 0o640
    assert sorted(file.parent.iterdir()) == [file.parent / user_repositories.SEEN, file]


def test_a_change_that_changes_nothing_does_not_touch_the_file(file: Path) -> None:
    written(file, people__bob__x=BOB)
    before = file.stat()
    written(file, people__bob__x=BOB)
    after = file.stat()
    # Its time of access may be another: it was read.
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_an_error_in_the_midst_of_a_change_changes_nothing(file: Path) -> None:
    written(file, people__bob__x=BOB)
    before = file.read_bytes()

    def change() -> None:
        with dynamic_update.update(file) as entries:
            entries["people/bob/y"] = BOB
            del entries["people/bob/x"]
            raise TemporaryError("the disk is full")

    with pytest.raises(TemporaryError, match="the disk"):
        change()
    assert file.read_bytes() == before


def test_what_a_later_release_keeps_in_an_entry_survives(file: Path) -> None:
    later = {**BOB.to_json(), "size_limit": 7}
    file.write_text(json.dumps({"format": 1, "repositories": {"people/bob/x": later}}))
    with dynamic_update.update(file) as entries:
        entries["people/bob/x"] = Entry("carol", "", "2026-11-21T00:00:00Z")
    entry = json.loads(file.read_text())["repositories"]["people/bob/x"]
    assert (entry["owner"], entry["size_limit"]) == ("carol", 7)


def test_identities_of_the_inventory_are_noted_and_stay(file: Path) -> None:
    with dynamic_update.update(file) as entries:
        entries.note_identity("team/tool", "1" * 32)
    with dynamic_update.update(file) as entries:
        entries["people/bob/x"] = Entry("bob", "", user_repositories.now(), identity="2" * 32)
    found = user_repositories.load(file)
    assert found.identities == {"team/tool": "1" * 32}
    assert found.repositories["people/bob/x"].identity == "2" * 32


def test_a_deletion_is_noted_for_longer_than_a_host_is_away_unseen(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time()
    for days, identity in ((0, "1" * 32), (80, "2" * 32), (91, "3" * 32)):
        monkeypatch.setattr(time, "time", lambda days=days: clock + days * 86_400)
        with dynamic_update.update(file) as entries:
            entries.note_purged(identity)
    assert set(user_repositories.load(file).purged) == {"2" * 32, "3" * 32}


def test_a_repository_that_was_restored_is_not_deleted_any_more(file: Path) -> None:
    with dynamic_update.update(file) as entries:
        for number in "123":
            entries.note_purged(number * 32)
    with dynamic_update.update(file) as entries:
        entries.note_identity("team/tool", "1" * 32)
        entries["people/bob/x"] = Entry("bob", "", user_repositories.now(), identity="2" * 32)
    assert set(user_repositories.load(file).purged) == {"3" * 32}


def test_the_remains_of_a_killed_change_are_in_nobodys_way(file: Path) -> None:
    (file.parent / ".registry.json.new").write_text("half")
    written(file, people__bob__x=BOB)
    assert sorted(file.parent.iterdir()) == [file.parent / user_repositories.SEEN, file]


WRITER = """
import sys
from hgfleet.registry import dynamic_update
from hgfleet.registry.entry import Entry
for number in range(20):
    with dynamic_update.update(sys.argv[1]) as entries:
        entries[f"people/{sys.argv[2]}/r{number}"] = Entry(sys.argv[2], "", "2026-11-21T00:00:00Z")
"""


def test_no_change_of_several_processes_is_lost(file: Path) -> None:
    people = ["bob", "carol", "alice", "mallory"]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), person], cwd=TOP)
        for person in people
    ]
    # A reader at any moment sees a whole file.
    stop = threading.Event()
    problems: list[str] = []

    def read() -> None:
        while not stop.is_set():
            try:
                problems.extend(user_repositories.load(file).problems())
            except RegistryError as error:
                problems.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    codes = [writer.wait() for writer in writers]
    stop.set()
    reader.join()
    assert codes == [0, 0, 0, 0]
    assert problems == []
    assert len(user_repositories.load(file).repositories) == 80


KILLED = """
import os, signal, sys
from hgfleet.registry import dynamic_update
from hgfleet.registry.entry import Entry
with dynamic_update.update(sys.argv[1]) as entries:
    entries["people/bob/y"] = Entry("bob", "", "2026-11-21T00:00:00Z")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_whoever_is_killed_holds_no_lock(file: Path) -> None:
    written(file, people__bob__x=BOB)
    subprocess.run([sys.executable, "-c", KILLED, str(file)], cwd=TOP, check=False)
    with dynamic_update.update(file, wait=0) as entries:
        assert list(entries) == ["people/bob/x"]


def test_a_lock_that_stays_is_a_sentence(file: Path) -> None:
    with (
        dynamic_update.locked(file),
        pytest.raises(TemporaryError, match="Another change"),
        dynamic_update.update(file, wait=0),
    ):
        pass


def test_a_host_without_the_folder_is_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(HostError, match="role `mercurial`"),
        dynamic_update.update(tmp_path / "x/y.json"),
    ):
        pass


def test_a_change_of_a_large_file_costs_one_parsing_and_one_pass_of_the_c_encoder(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session reads the file, reads it again for a command, and once more under the lock."""
    written(file, people__bob__x=BOB)
    parsed: list[str] = []
    parse = user_repositories.parse

    def counted(content: bytes, name: str) -> user_repositories.Dynamic:
        parsed.append(name)
        return parse(content, name)

    monkeypatch.setattr(user_repositories, "parse", counted)
    # The encoder in Python takes ten times as long; the C one ignores it.
    monkeypatch.setattr(json.encoder, "_make_iterencode", None)
    for _ in range(2):
        user_repositories.load(file)
    written(file, people__bob__y=BOB)
    assert len(parsed) == 1
    # A file that has changed is parsed, however short ago that was.
    assert set(user_repositories.load(file).raw) == {"people/bob/x", "people/bob/y"}
    assert len(parsed) == 2


def test_the_file_has_a_value_in_each_line_whatever_a_description_contains(file: Path) -> None:
    odd = Entry("bob", '"},\\"{ "},', "2026-11-21T00:00:00Z", push=("staff", "team"))
    written(file, people__bob__x=odd, people__bob__y=BOB)
    assert user_repositories.load(file).repositories["people/bob/x"] == odd
    assert len(file.read_text().splitlines()) > 2 * len(BOB.to_json())
