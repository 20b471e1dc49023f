"""Pushes of a mirror beyond a backup: by identity, number and hash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import hash_of
from hgfleet.replication import commands
from hgfleet.replication.promotion import promote
from hgfleet.replication.promotion.beyond import Standing, beyond, refused, sentences, standing
from hgfleet.replication.terms.losses import Known
from testing.support.pushlog_records import IDENTITY, lines

if TYPE_CHECKING:
    from pathlib import Path

TOOL, OTHER, NEW = "ab" * 16, "cd" * 16, "ef" * 16
LOG = [f"{number:064x}" for number in range(10)]
"""Hashes by number."""


def held(number: int, path: str = "tool", identity: str = TOOL, hash_: str | None = None) -> Known:
    return Known("the backup", path, identity, number, LOG[number] if hash_ is None else hash_)


def tip(number: int, hash_: str = "") -> Tip:
    return Tip(number, hash_ or LOG[number])


@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        (held(0), Tip(), Standing.EQUAL),
        (held(0), tip(1), Standing.AHEAD),
        (held(3), tip(3), Standing.EQUAL),
        (held(3), tip(5), Standing.AHEAD),
        (held(5), tip(3), Standing.BEHIND),
        (held(3), Tip(), Standing.BEHIND),
        # The same number, and a longer log, of another history.
        (held(3, hash_="aa" * 32), tip(3), Standing.DIVERGED),
        (held(3, hash_="aa" * 32), tip(5), Standing.DIVERGED),
        # A backup of a release before.
        (held(3, hash_=""), tip(3), Standing.EQUAL),
        (held(3, hash_=""), tip(5), Standing.AHEAD),
    ],
)
def test_a_log_is_compared_by_number_and_hash(there: Known, here: Tip, expected: Standing) -> None:
    assert standing(there, here, LOG.__getitem__) is expected


def compare(
    backup: list[Known],
    tips: dict[str, Tip],
    paths: dict[str, str],
    purged: set[str] | None = None,
) -> list[str]:
    losses = beyond(backup, tips, paths, purged or set(), lambda _, number: LOG[number])
    return sentences("hgweb1", losses)


def test_a_mirror_with_no_more_than_the_backup_has_nothing_beyond_it() -> None:
    paths = {TOOL: "tool", OTHER: "other"}
    assert compare([held(3), held(4, "other", OTHER)], {TOOL: tip(3), OTHER: tip(2)}, paths) == []
    # Parked or away on this mirror, and another mirror may have it.
    assert compare([held(3)], {}, {TOOL: "tool"}) == []


def test_pushes_after_the_backup_are_named_with_the_way_to_give_them_up() -> None:
    assert compare([held(3)], {TOOL: tip(4)}, {TOOL: "tool"}) == [
        "hgweb1: tool has pushes 4 after the backup; tool@4 gives it up"
    ]
    assert compare([held(3, hash_="aa" * 32)], {TOOL: tip(5)}, {TOOL: "tool"}) == [
        "hgweb1: tool has another push 3-5 than the backup; tool@3-5 gives it up"
    ]


def test_repositories_of_after_the_backup_are_named() -> None:
    paths = {TOOL: "tool", OTHER: "empty"}
    assert compare([], {TOOL: tip(2), OTHER: Tip(), NEW: tip(1)}, paths) == [
        # Set aside: the registry does not name it.
        f"hgweb1: {NEW} is not in the backup, and has 1 pushes; {NEW}@1 gives it up",
        "hgweb1: empty is not in the backup, and has 0 pushes; empty@0 gives it up",
        "hgweb1: tool is not in the backup, and has 2 pushes; tool@1-2 gives it up",
    ]
    # Created and deleted since.
    assert compare([], {TOOL: tip(2)}, {}, {TOOL}) == []


def test_a_repository_is_its_identity_and_not_its_path() -> None:
    """Renamed, deleted, or made at the path of a deleted one: none comes back as it was."""
    assert compare([held(3)], {TOOL: tip(3)}, {TOOL: "team/tool"}) == [
        "hgweb1: tool has been team/tool since the backup, and would come back under tool"
    ]
    assert compare([held(3)], {NEW: tip(1)}, {NEW: "tool"}, {TOOL}) == [
        "hgweb1: tool is not in the backup, and has 1 pushes; tool@1 gives it up",
        "hgweb1: tool was deleted after the backup, and would come back in another's place",
    ]


def test_a_backup_of_a_release_before_names_no_identity() -> None:
    backup = [held(3, identity="", hash_=""), held(1, "gone", "", "")]
    assert compare(backup, {TOOL: tip(4)}, {TOOL: "tool"}) == [
        "hgweb1: tool has pushes 4 after the backup; tool@4 gives it up"
    ]


def test_losses_can_be_accepted_and_what_would_come_back_cannot() -> None:
    backup = [held(3), held(1, "moved", OTHER)]
    paths = {TOOL: "tool", OTHER: "team/moved"}
    losses = beyond(backup, {TOOL: tip(4)}, paths, set(), lambda _, number: LOG[number])
    assert [loss.path for loss in losses] == ["moved", "tool"]
    assert [loss.path for loss in refused(losses, lambda _: True)] == ["moved"]
    assert refused(losses, lambda loss: loss.last != 4) == losses


def test_a_deletion_after_the_backup_is_told_and_refuses_no_restore() -> None:
    backup = [held(1, "gone", OTHER)]
    losses = beyond(backup, {}, {TOOL: "tool"}, {OTHER}, lambda _, number: LOG[number])
    assert refused([loss for loss in losses if loss.path == "gone"], lambda _: False) == []
    told = sentences("hgweb1", [loss for loss in losses if loss.path == "gone"])
    assert told == [f"hgweb1: gone {losses[0].said}"]
    assert "delete the folder after the restore" in losses[0].said
    # Another repository was made at its path: the folder would be in its way.
    losses = beyond(backup, {}, {TOOL: "gone"}, {OTHER}, lambda _, number: LOG[number])
    assert [loss.said for loss in refused(losses, lambda _: True)] == [
        "was deleted after the backup, and would come back in another's place"
    ]


def test_a_rename_after_the_backup_refuses_a_restore_only_where_its_folder_cannot_be_moved() -> (
    None
):
    def told(backup: list[Known], paths: dict[str, str], renamed: dict[str, str]) -> list[bool]:
        tips = {held.repository: tip(held.id) for held in backup}
        losses = beyond(backup, tips, paths, set(), lambda _, number: LOG[number], renamed)
        renames = [loss for loss in losses if loss.loss is None]
        assert refused(renames, lambda _: True) == [loss for loss in renames if not loss.is_note]
        return [loss.is_note for loss in renames]

    note = {"people/bob/x": "people/bob/y"}
    backup, paths = [held(3, "people/bob/x")], {TOOL: "people/bob/y"}
    assert told(backup, paths, note) == [True]
    assert told(backup, paths, {}) == [False]
    assert told(backup, paths, {"people/bob/x": "people/bob/z"}) == [False]
    # The backup has another repository there, or another was made at the former path.
    there = held(1, "people/bob/y", OTHER)
    assert told([*backup, there], {**paths, OTHER: "people/bob/z"}, note) == [False, False]
    assert told(backup, {**paths, OTHER: "people/bob/x"}, note) == [False]
    # Pushes since the backup are reported next to the rename.
    losses = beyond(backup, {TOOL: tip(4)}, paths, set(), lambda _, number: LOG[number], note)
    assert [loss.is_note for loss in losses] == [False, True]


def test_the_command_reads_the_points_of_a_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hgfleet.replication.protocol import settings

    class Empty:
        def __init__(self, *_: object) -> None:
            pass

        def paths(self) -> dict[str, str]:
            return {IDENTITY: "tool"}

        def purged(self) -> set[str]:
            return set()

        def renamed(self) -> dict[str, str]:
            return {}

    # Promotions, which are imported before, keep the class of the service.
    assert promote.Promotion.__module__ == promote.__name__
    monkeypatch.setattr("hgfleet.replication.repositories.served.Served", Empty)
    made = settings.Settings(
        settings.Role.MIRROR, "hgweb1", "hg1", "https://hg1:7460", (), (), repositories=tmp_path
    )
    monkeypatch.setattr(commands, "load", lambda _: made)
    monkeypatch.setattr(commands, "become", lambda _: None)
    monkeypatch.setattr(type(tmp_path), "owner", lambda _: "hg")
    store = tmp_path / "tool/.hg/store"
    store.mkdir(parents=True)
    (store / log_file.NAME).write_bytes(b"".join(line + b"\n" for line in lines(4)))
    (store / "identity").write_text(f"{IDENTITY}\n")
    points = tmp_path / "points"

    def told(hash_: str, *options: str) -> str:
        point = {"where": "b", "path": "tool", "repository": IDENTITY, "id": 2, "hash": hash_}
        points.write_text(f"{json.dumps(point)}\n")
        assert cli.main(["replication", "beyond", str(points), *options]) == 0
        return capsys.readouterr().out

    right = hash_of(lines(2)[-1])
    assert told(right) == "hgweb1: tool has pushes 3-4 after the backup; tool@3-4 gives it up\n"
    assert told(right, "--accept-loss", "tool@3-4") == ""
    assert told("aa" * 32).startswith("hgweb1: tool has another push 2-4 than the backup")
    # Its registry does not name it any more, and it was not deleted.
    (tmp_path / ".replication").mkdir()
    (tmp_path / "tool").rename(tmp_path / f".replication/aside-{IDENTITY}")
    assert told(right).startswith("hgweb1: tool has pushes 3-4 after the backup")
