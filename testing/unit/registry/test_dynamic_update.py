"""A change of the dynamic registry is whole, and no change of another process is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import generation
from hgfleet.core.errors import HostError, RegistryError, TemporaryError
from hgfleet.pushlog import term
from hgfleet.registry.dynamic import dynamic_update, missing, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from testing.support.user_repository_file import BOB, written

if TYPE_CHECKING:
    from collections.abc import Iterable

TOP = Path(__file__).resolve().parents[3]

WRITTEN = {"registry.json", ".registry-generation", ".registry-last.json", ".registry-seen"}


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
    assert {path.name for path in file.parent.iterdir()} == WRITTEN


def test_a_change_that_changes_nothing_does_not_touch_the_file(file: Path) -> None:
    written(file, people__bob__x=BOB)
    before = file.stat()
    written(file, people__bob__x=BOB)
    after = file.stat()
    # Its time of access may differ: it was read.
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
    dynamic = user_repositories.load(file)
    assert dynamic.identities == {"team/tool": "1" * 32}
    assert dynamic.repositories["people/bob/x"].identity == "2" * 32


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
    assert {path.name for path in file.parent.iterdir()} == WRITTEN


WRITER = """
import sys
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
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
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
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
    # The encoder in Python takes ten times as long; the encoder in C ignores it.
    monkeypatch.setattr(json.encoder, "_make_iterencode", None)
    for _ in range(2):
        user_repositories.load(file)
    written(file, people__bob__y=BOB)
    assert len(parsed) == 1
    # A file that has changed is parsed, however recent the change is.
    assert set(user_repositories.load(file).raw) == {"people/bob/x", "people/bob/y"}
    assert len(parsed) == 2


def test_the_file_has_a_value_in_each_line_whatever_a_description_contains(file: Path) -> None:
    odd = Entry("bob", '"},\\"{ "},', "2026-11-21T00:00:00Z", push=("staff", "team"))
    written(file, people__bob__x=odd, people__bob__y=BOB)
    assert user_repositories.load(file).repositories["people/bob/x"] == odd
    assert len(file.read_text().splitlines()) > 2 * len(BOB.to_json())


IDENTITY = "5f" * 16
OTHER = "7d" * 16


def _epoch(file: Path, number: int) -> Path:
    place = file.parent / "epoch"
    place.write_text(term.write(number, "hg1"))
    return place


def _version(file: Path) -> tuple[int, int]:
    current = generation.version(file.read_bytes()).generation
    assert current is not None
    return current


def _of_a_release_before(file: Path, paths: Iterable[str] = ()) -> None:
    """Write only the entries, as a release does that knows of nothing else."""
    raw = user_repositories.load(file).raw
    kept = {path: raw[path] for path in paths}
    file.write_text(json.dumps({"format": 1, "repositories": kept}))


def test_each_change_has_a_generation_of_its_own(file: Path) -> None:
    before: list[str] = []
    for number in (1, 2, 3):
        written(file, **{f"people__bob__r{number}": BOB})
        assert _version(file) == (1, number)
        # The text of an entry, or the whole: the same bytes.
        whole = user_repositories.load(file)
        past = json.loads(file.read_bytes())["generation"].get("past", {})
        assert past == {str(index): text for index, text in enumerate(before, 1)}
        before.append(generation.digest(file.read_bytes())[:16])
        assert list(whole.repositories) == [
            f"people/bob/r{index}" for index in range(1, number + 1)
        ]


def test_a_new_epoch_begins_a_term_without_a_change(file: Path) -> None:
    dynamic_update.renew(file)
    assert not file.exists()
    written(file, people__bob__x=BOB)
    for epoch, version in ((1, (1, 1)), (2, (2, 2)), (2, (2, 2))):
        dynamic_update.renew(file, _epoch(file, epoch))
        assert _version(file) == version
    # The host has lost its epoch.
    written(file, people__bob__y=BOB)
    assert _version(file) == (2, 3)


def test_a_registry_of_a_release_before_gets_a_generation_later_than_all(file: Path) -> None:
    written(file, people__bob__x=BOB)
    _of_a_release_before(file, ["people/bob/x"])
    dynamic_update.renew(file)
    assert _version(file) == (1, 2)
    assert list(user_repositories.load(file).repositories) == ["people/bob/x"]


@pytest.mark.parametrize("how", ["the next change", "renewal"])
def test_deletions_and_identities_that_a_release_before_dropped_are_back(
    file: Path, how: str
) -> None:
    with dynamic_update.update(file) as entries:
        entries["people/bob/x"] = BOB
        entries.note_identity("team/tool", IDENTITY)
        entries.note_purged(OTHER)
    before = user_repositories.load(file)
    _of_a_release_before(file, ["people/bob/x"])
    if how == "renewal":
        dynamic_update.renew(file)
    else:
        written(file, people__bob__y=BOB)
    after = user_repositories.load(file)
    assert (after.identities, after.purged) == (before.identities, before.purged)


def test_a_deletion_that_an_operator_takes_back_is_taken_back(file: Path) -> None:
    with dynamic_update.update(file) as entries:
        entries.note_purged(IDENTITY)
    back = replace(BOB, identity=IDENTITY).to_json()
    file.write_text(json.dumps({"format": 1, "repositories": {"people/bob/x": back}}))
    dynamic_update.renew(file)
    assert not user_repositories.load(file).purged


def test_an_entry_that_another_program_lost_is_noted_until_it_is_back(file: Path) -> None:
    mine = replace(BOB, identity=IDENTITY)
    written(file, people__bob__x=mine)
    _of_a_release_before(file)
    dynamic_update.renew(file)
    (note,) = missing.load(file).values()
    assert (note.path, note.entry) == ("people/bob/x", mine.to_json())
    # It is not put back: an operator may have taken it out.
    assert not user_repositories.load(file).raw
    _of_a_release_before(file)
    written(file, people__bob__y=mine)
    _of_a_release_before(file, ["people/bob/y"])
    dynamic_update.renew(file)
    assert not missing.load(file)


def test_an_older_registry_in_the_place_of_the_newest_is_changed_by_nobody(file: Path) -> None:
    written(file, people__bob__x=BOB)
    older = file.read_bytes()
    written(file, people__bob__y=BOB)
    newest = file.read_bytes()
    file.write_bytes(older)
    # Older by one version: a killed writer leaves no such file, for it has written the new one.
    with pytest.raises(RegistryError, match=r"got generation 1.1, expected 1.2"):
        dynamic_update.renew(file)
    file.write_bytes(newest)
    written(file, people__bob__z=BOB)
    file.write_bytes(older)
    for change in (lambda: written(file, people__bob__a=BOB), lambda: dynamic_update.renew(file)):
        with pytest.raises(RegistryError, match=r"got generation 1.1, expected 1.3"):
            change()
    assert file.read_bytes() == older
    dynamic_update.begin_term(file)
    assert _version(file) > (1, 3)
    assert list(user_repositories.load(file).repositories) == ["people/bob/x"]
    written(file, people__bob__a=BOB)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_an_older_registry_lacks_is_noted_as_an_operator_lets_it_count(
    file: Path, is_killed: bool
) -> None:
    written(file, people__bob__x=BOB)
    older = file.read_bytes()
    with dynamic_update.update(file) as entries:
        entries["people/bob/y"] = replace(BOB, identity=IDENTITY)
        entries.note_purged(OTHER)
    file.write_bytes(older)
    if is_killed:
        # Between the term and the registry: the relay goes on.
        with dynamic_update.locked(file) as folder:
            here = generation.version(older)
            generation.begin_term(folder, file.name, here, 1)
        dynamic_update.renew(file)
    else:
        dynamic_update.begin_term(file)
    after = user_repositories.load(file)
    assert list(after.repositories) == ["people/bob/x"]
    assert list(after.purged) == [OTHER]
    assert [note.path for note in missing.load(file).values()] == ["people/bob/y"]
    # A term of the newest registry loses nothing.
    dynamic_update.begin_term(file)
    assert list(missing.load(file)) == [IDENTITY]


def test_deletions_are_bounded_and_an_operator_forgets_old_ones(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_update, "MOST_PURGED", 2)
    clock = time.time()
    with dynamic_update.update(file) as entries:
        for number in "123":
            entries[f"people/bob/r{number}"] = replace(BOB, identity=number * 32)

    def delete(number: str) -> None:
        with dynamic_update.update(file) as entries:
            entries.note_purged(number * 32)
            del entries[f"people/bob/r{number}"]

    delete("1")
    monkeypatch.setattr(time, "time", lambda: clock + 40 * 86_400)
    delete("2")
    with pytest.raises(TemporaryError, match="registry forget-deletions"):
        delete("3")
    assert "people/bob/r3" in user_repositories.load(file).repositories
    with dynamic_update.update(file) as entries:
        assert entries.forget_purged(user_repositories.ago(30 * 86_400)) == 1
    delete("3")
    assert set(user_repositories.load(file).purged) == {"2" * 32, "3" * 32}


def test_a_registry_that_no_reader_would_read_is_not_written(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(file, people__bob__x=replace(BOB, identity=IDENTITY), people__bob__y=BOB)
    monkeypatch.setattr(dynamic_update, "LARGEST", file.stat().st_size - 100)
    before = file.read_bytes()
    with pytest.raises(TemporaryError, match="repo delete"):
        written(file, people__bob__z=BOB)
    assert file.read_bytes() == before
    # The advice of the sentence is possible.
    with dynamic_update.update(file) as entries:
        entries.note_purged(IDENTITY)
        del entries["people/bob/x"]


def test_a_deletion_of_the_future_was_now(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time()
    for days, identity in ((1000, IDENTITY), (0, OTHER)):
        monkeypatch.setattr(time, "time", lambda days=days: clock + days * 86_400)
        with dynamic_update.update(file) as entries:
            entries.note_purged(identity)
    purged = user_repositories.load(file).purged
    assert purged[IDENTITY] == purged[OTHER]
