"""The units that a run restarts or reloads after an earlier run broke off."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path

unfinished = loading.module("ansible/on_host/unfinished.py")

BEGAN = 1_000.5


@pytest.mark.parametrize(
    ("unit", "restart", "reload"),
    [
        (unfinished.Unit("hgfleet-web.service", 900, 100.0), ["hgfleet-web.service"], []),
        (unfinished.Unit("hgfleet-web.service", 1_001, 1_000.9), [], []),
        (unfinished.Unit("hgfleet-bundles.timer", 900, 950.0), ["hgfleet-bundles.timer"], []),
        (unfinished.Unit("nginx.service", 900, 100.0), [], ["nginx.service"]),
        (unfinished.Unit("nginx.service", 900, 950.0), ["nginx.service"], []),
        (unfinished.Unit("nginx.service", 1_001, 950.0), [], []),
        (unfinished.Unit("slapd.service", 900, 100.0), ["slapd.service"], []),
        (unfinished.Unit("hgfleet-web.socket", 900, 100.0), [], []),
        (
            unfinished.Unit("hgfleet-web.socket", 900, 950.0),
            ["hgfleet-web.service", "hgfleet-web.socket"],
            [],
        ),
    ],
)
def test_a_unit_older_than_the_run_is_renewed_as_its_program_needs(
    unit: Any, restart: list[str], reload: list[str]
) -> None:
    assert unfinished.renewal([unit], BEGAN) == {"restart": restart, "reload": reload}


def test_a_socket_with_new_files_takes_a_service_along_that_this_run_restarted() -> None:
    units = [unfinished.Unit("a.socket", 900, 950.0), unfinished.Unit("a.service", 1_001, 950.0)]
    assert unfinished.renewal(units, BEGAN)["restart"] == ["a.service", "a.socket"]


def test_a_run_finds_the_mark_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "MARK", tmp_path / "etc/hgfleet/unfinished")
    note = tmp_path / "etc/hgfleet/inputs.json"
    monkeypatch.setattr(unfinished, "FORMER_NOTE", note)
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    assert not unfinished.begin()
    assert not note.exists(), "./deploy of the release before would take it for the hosts' state"
    assert unfinished.begin()
    unfinished.MARK.unlink()
    assert not unfinished.begin()


SERVICE = """Id=a.service
ActiveState={state}
ActiveEnterTimestamp=@900
Type={type}
FragmentPath={file}
DropInPaths=
"""
TIMER = """Id=a.timer
ActiveState=active
ActiveEnterTimestamp=@900
FragmentPath=
DropInPaths={missing} {file}
"""


@pytest.mark.parametrize(
    ("block", "values", "expected"),
    [
        (SERVICE, {"state": "active", "type": "notify"}, unfinished.Unit("a.service", 900, 950.0)),
        (SERVICE, {"state": "active", "type": "oneshot"}, None),
        (SERVICE, {"state": "inactive", "type": "notify"}, None),
        (TIMER, {}, unfinished.Unit("a.timer", 900, 950.0)),
        ("", {}, None),
    ],
)
def test_units_are_read_from_what_systemctl_shows(
    tmp_path: Path, block: str, values: dict[str, str], expected: Any
) -> None:
    file = tmp_path / "a.service"
    file.touch()
    os.utime(file, (950, 950))
    given = block.format(file=file, missing=tmp_path / "no", **values)
    assert unfinished.unit_of(given) == expected
