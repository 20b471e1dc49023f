"""The release that the inventories look up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError

from controller.cluster import release
from testing.support import loading

ROOT = Path(__file__).resolve().parents[3]

LAST = {"version": "0.1.0-bbb", "archive": "/c/b.tar.gz", "versitygw": "/c/versitygw-b"}


@pytest.fixture(scope="module")
def plugin() -> Any:
    return loading.module("ansible/plugins/lookup/built_release.py")


@pytest.fixture
def last(tmp_path: Path) -> Path:
    path = tmp_path / "last.json"
    path.write_text(json.dumps(LAST))
    return path


@pytest.mark.parametrize("part", LAST)
def test_without_a_choice_the_release_built_last_counts(plugin: Any, last: Path, part: str) -> None:
    assert plugin.find(part, {"HOME": "/root", "HGFLEET_VERSITYGW": ""}, last) == LAST[part]


def test_a_build_leaves_what_the_inventories_look_up(
    plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "last.json"
    monkeypatch.setattr(release, "LAST", last)
    release.remember(release.Release("0.1.0-bbb", Path("/c/b.tar.gz"), Path("/c/versitygw-b")))
    assert {part: plugin.find(part, {}, last) for part in LAST} == LAST
    assert plugin.LAST.relative_to(ROOT) == release.CACHE.relative_to(ROOT) / "release/last.json"


def test_a_chosen_release_is_never_mixed_with_another(plugin: Any, last: Path) -> None:
    chosen = {"HGFLEET_RELEASE_VERSION": "0.1.0-aaa", "HGFLEET_RELEASE_ARCHIVE": ""}
    assert plugin.find("version", chosen, last) == "0.1.0-aaa"
    assert plugin.find("archive", chosen, last) == ""
    assert plugin.find("versitygw", chosen, last) == ""


@pytest.mark.parametrize("content", [None, "", "[]", '{"archive": "x"}'])
def test_no_release_is_named_with_the_command_that_builds_one(
    plugin: Any, tmp_path: Path, content: str | None
) -> None:
    last = tmp_path / "last.json"
    if content is not None:
        last.write_text(content)
    with pytest.raises(AnsibleError, match=r"\./cluster build"):
        plugin.find("version", {}, last)


def test_an_unknown_part_is_refused(plugin: Any, last: Path) -> None:
    with pytest.raises(AnsibleError, match="expected one of version"):
        plugin.find("checksum", {}, last)
