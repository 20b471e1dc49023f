"""`hgfleet pushlog index` on a host's folder of repositories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import index_step
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository
from testing.support.pushlog_lines import Chain, node_of

if TYPE_CHECKING:
    from pathlib import Path

PATHS = ("team/one", "team/two", "team/new")


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    repositories = {path: Repository(path, "", "public", (), True, ()) for path in PATHS}
    (tmp_path / "registry.json").write_text(dump_compiled(Registry(repositories, {})))
    for path in PATHS:
        (tmp_path / path / ".hg/store").mkdir(parents=True)
    for path in PATHS[:2]:
        Chain(tmp_path / path / ".hg/store/pushlog").push(node_of(1))
    places = ("--registry", "registry.json"), ("--dynamic", "dynamic.json"), ("--root", "")
    return [word for name, value in places for word in (name, str(tmp_path / value))]


@pytest.fixture
def run(options: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("hgfleet.registry.owned_files.become", lambda _user: None)
    return ["pushlog", "index", *options]


def test_all_repositories_with_a_log_get_an_index(
    run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(run) == 0
    assert capsys.readouterr().out.splitlines() == [
        "team/one: the index is new, with 1 pushes",
        "team/two: the index is new, with 1 pushes",
    ]
    assert not (tmp_path / "team/new/.hg/cache").exists()
    assert cli.main(run) == 0
    assert capsys.readouterr().out == ""
    assert cli.main([*run, "team/two"]) == 0
    assert capsys.readouterr().out == "team/two: 0 pushes added\n"


def test_a_damaged_log_is_named_and_the_others_are_indexed(
    run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team/one/.hg/store/pushlog").write_bytes(b"{}\n")
    assert cli.main(run) == PushlogError.exit_code
    printed = capsys.readouterr()
    assert "team/one: " in printed.err
    assert "byte 0" in printed.err
    assert (tmp_path / "team/two/.hg/cache" / index_step.NAME).exists()


def test_an_unknown_repository_is_refused(
    run: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*run, "team/none"]) == 2
    assert "not in the registry: team/none" in capsys.readouterr().err
    assert cli.main([*run, "team/new"]) == 0
    assert "its first push begins the log" in capsys.readouterr().err
