from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide import manifest as module
from hgfleet.bundles.decide.manifest import Entry, Manifests, object_url, parse, render
from hgfleet.bundles.decide.names import make_key, parse_key
from hgfleet.core import files

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = "https://store.example:7443/bundles"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SHA256 = "0123456789abcdef" * 4
STREAM = "none-v2;stream=v2;requirements%3Dgeneraldelta%2Crevlogv1%2Csparserevlog"


def entry(kind: str = "stream", path: str = "team/project") -> Entry:
    url = object_url(PUBLIC, make_key(path, "a" * 40, SHA256, kind))
    return Entry(url, STREAM, SHA256, 4711, 8439, NOW)


def test_a_key_names_repository_tip_content_and_kind() -> None:
    key = make_key("team/project", "a" * 40, SHA256, "stream")
    assert str(key) == f"team/project/{'a' * 40}.0123456789abcdef.stream-v2.hg"
    assert parse_key(str(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        "index.html",
        f"{'a' * 40}.0123456789abcdef.stream-v2.hg",
        f"team/{'a' * 40}.0123456789abcdef.brotli-v2.hg",
        f"team/{'a' * 39}.0123456789abcdef.stream-v2.hg",
        f"team/{'a' * 40}.0123456789abcdef.stream-v2.hg.tmp",
        f"team/{'a' * 40}.0123456789abcdef.stream-v2.hg\n",
    ],
)
def test_other_objects_are_nobodys_bundle(text: str) -> None:
    assert parse_key(text) is None


def test_a_line_is_what_clients_read() -> None:
    assert render([entry()]) == (
        f"{PUBLIC}/team/project/{'a' * 40}.0123456789abcdef.stream-v2.hg BUNDLESPEC={STREAM}"
        f" DIGEST=sha256:{SHA256} size=4711 changesets=8439 made=2026-11-20T12:00:00Z\n"
    )


def test_a_private_entry_says_so() -> None:
    assert render([replace(entry(), private=True)]) == entry().line() + " private=yes\n"


def test_an_entry_names_its_repository() -> None:
    own = replace(entry(), identity="5f" * 16)
    assert own.line() == f"{entry().line()} identity={'5f' * 16}"
    assert parse(own.line()) == (own,)
    assert parse(f"{entry().line()} identity=5f") == ()


def test_what_takes_memory_says_how_much_and_reads_back() -> None:
    large = replace(entry(), required_ram=192 * 1024**2)
    assert " REQUIREDRAM=201326592 size=" in large.line()
    assert parse(large.line()) == (large,)


def test_a_manifest_reads_back_as_it_was_written() -> None:
    entries = (entry("stream"), entry("zstd"), replace(entry("gzip"), private=True))
    assert parse(render(entries)) == entries


def test_lines_of_others_are_left_out() -> None:
    text = f"\nhttps://elsewhere/x.hg BUNDLESPEC=gzip-v2\n# note\n{entry().line()}\n\0 size=x\n"
    assert parse(text) == (entry(),)


def test_an_entry_knows_its_key_only_below_the_public_url() -> None:
    assert entry().key(PUBLIC) == make_key("team/project", "a" * 40, SHA256, "stream")
    assert entry().key(PUBLIC + "/") == entry().key(PUBLIC)
    assert entry().key("https://store.example:7443/bundle") is None


def test_publishing_replaces_the_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    assert manifests.read("team/project") == ()
    assert manifests.publish("team/project", [entry("gzip")], NOW)
    path = tmp_path / "team/project.manifest"
    assert path.read_text() == render([entry("gzip")])
    assert path.stat().st_mode & 0o777 == 0o640
    later = NOW + timedelta(hours=1)
    assert manifests.publish("team/project", [entry("zstd")], later)
    assert manifests.read("team/project") == (entry("zstd"),)
    assert manifests.recent("team/project", NOW) == (entry("gzip"),)
    assert manifests.recent("team/project", later + timedelta(seconds=1)) == ()


def test_publishing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    manifests.publish("project", [entry()], NOW)
    before = (tmp_path / "project.manifest").stat()
    assert not manifests.publish("project", [entry()], NOW)
    assert (tmp_path / "project.manifest").stat().st_ino == before.st_ino
    assert manifests.recent("project", NOW - timedelta(days=1)) == ()


def test_withdrawing_leaves_an_empty_manifest(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    manifests.publish("project", [entry()], NOW)
    assert manifests.publish("project", [], NOW)
    assert (tmp_path / "project.manifest").read_bytes() == b""
    assert not Manifests(tmp_path).publish("never/published", [], NOW)
    assert not (tmp_path / "never").exists()


def test_a_reader_never_sees_half_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = Manifests(tmp_path)
    manifests.publish("project", [entry("gzip")], NOW)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        manifests.publish("project", [entry("zstd")], NOW)
    assert manifests.read("project") == (entry("gzip"),)
    monkeypatch.undo()
    # The file of a killed run is replaced, not extended.
    assert manifests.publish("project", [entry("zstd")], NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".history", "project.manifest"]


def test_old_copies_are_forgotten(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    for day, kind in enumerate(("stream", "zstd", "gzip")):
        manifests.publish("project", [entry(kind)], NOW + timedelta(days=day))
    manifests.forget("project", NOW + timedelta(days=1, seconds=1))
    assert manifests.recent("project", NOW) == (entry("zstd"),)
    manifests.forget("project", NOW + timedelta(days=9))
    assert manifests.recent("project", NOW) == ()


def test_histories_of_nested_names_do_not_meet(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    for path in ("a", "a/b"):
        manifests.publish(path, [entry(path=path)], NOW)
        manifests.publish(path, [], NOW)
    assert manifests.recent("a", NOW) == (entry(path="a"),)
    assert manifests.recent("a/b", NOW) == (entry(path="a/b"),)
    manifests.forget("a", NOW + timedelta(days=1))
    assert manifests.recent("a/b", NOW) == (entry(path="a/b"),)


def test_no_repository_can_have_the_name_of_the_history() -> None:
    from hgfleet.core.names import path_problem

    assert path_problem(module.HISTORY)


def test_manifests_are_closed_to_other_users_of_the_host(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    for kind in ("stream", "zstd"):
        manifests.publish("team/project", [entry(kind)], NOW)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}


def test_a_manifest_of_the_release_before_gets_another_name(tmp_path: Path) -> None:
    manifests, mine = Manifests(tmp_path), "5f" * 16
    manifests.publish("team/project", [entry()], NOW)
    manifests.publish("team/project", [entry("zstd")], NOW + timedelta(days=1))
    # A repository below it in the tree of names has a history too.
    manifests.publish("team/project/fork", [entry("gzip")], NOW)
    manifests.publish("team/project/fork", [], NOW)
    assert manifests.exists("team/project")
    assert not manifests.exists(mine)
    manifests.take_over("team/project", mine, NOW + timedelta(days=2))
    assert not manifests.exists("team/project")
    assert manifests.read(mine) == ()
    assert manifests.recent(mine) == (entry(), entry("zstd"))
    assert manifests.recent("team/project/fork") == (entry("gzip"),)
    manifests.delete("team/project/fork")
    assert manifests.all() == {mine}
    assert not (tmp_path / "team").exists()


def test_changes_of_manifests_exclude_each_other(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path / "manifests")
    with manifests.locked(), files.open_folder(tmp_path / "manifests") as other:
        assert not files.try_lock(other)
    with files.open_folder(tmp_path / "manifests") as other:
        assert files.try_lock(other)
