"""The cases of the bench of hostile requests, and its reading of HAProxy's statistics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mercurial import hg
from mercurial import ui as ui_module

from testing.bench import hostile, hostile_history
from testing.bench.hostile_cases import cases

LEAST = 150


def test_there_are_many_cases_and_each_is_another_request() -> None:
    found = cases()
    assert len(found) >= LEAST
    assert len({case.name for case in found}) == len(found)
    assert len({(case.target, case.body, case.arguments) for case in found}) == len(found)


def test_every_kind_of_request_is_tried() -> None:
    names = [case.name for case in cases()]
    for kind in ("revset", "batch", "between", "getbundle", "page", "archive", "revcount"):
        assert any(name.startswith(kind) for name in names), kind


def test_a_request_fits_http() -> None:
    for case in cases():
        target = case.target
        assert target.isascii(), case.name
        assert " " not in target, case.name
        assert "\n" not in case.arguments, case.name


def test_help_needs_no_cluster() -> None:
    script = Path(hostile.__file__)
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"--phase" in done.stdout


def test_servers_that_went_down_are_counted() -> None:
    text = (
        "# pxname,svname,status,chkdown\n"
        "web,FRONTEND,OPEN,\nweb,hg1,UP,2\nweb,hg2,UP,1\nweb,BACKEND,UP,7\n\n"
    )
    assert hostile.count_downs(text) == 3


def test_a_percentile_of_nothing_is_zero() -> None:
    assert hostile.percentile([], 0.95) == 0
    assert hostile.percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert hostile.percentile([float(n) for n in range(100)], 0.5) == 50


def test_a_case_above_a_bar_is_missed() -> None:
    assert hostile.Outcome("x", "200", 1, 2.0, 200_000_000).is_held
    assert not hostile.Outcome("x", "200", 1, 2.1, 0).is_held
    assert not hostile.Outcome("x", "200", 1, 0, 200_000_001).is_held


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A small history of the bench's shape."""
    folder = tmp_path / "history"
    hg.repository(ui_module.ui.load(), bytes(folder), create=True)
    shape = hostile_history.Shape(
        lines=30, wide_files=20, large_text_bytes=1000, large_binary_bytes=500
    )
    hostile_history.write(str(folder), 40, shape)
    return folder


def test_the_history_is_public_and_has_expensive_changesets_at_its_end(history: Path) -> None:
    found = hg.repository(ui_module.ui.load(), bytes(history))
    assert len(found) == 40
    assert {found[number].phasestr() for number in found} == {b"public"}
    assert len(found.heads()) == 1
    tip = found[b"tip"]
    assert tip[b"f"].data().endswith(b"the last line\n")
    assert len(found.file(b"f")) == 18 + 2
    assert len(found[37].files()) == 20
    assert tip[b"large.bin"].size() == 500
    for path in tip:
        tip[path].data()


def test_the_history_needs_an_empty_repository(history: Path) -> None:
    with pytest.raises(SystemExit, match="has 40 changesets, expected none"):
        hostile_history.write(str(history), 40)
