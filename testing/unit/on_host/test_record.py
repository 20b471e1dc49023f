"""Files that deploys left on a host, as the program that runs there reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path

record = loading.module("ansible/on_host/record.py")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for the root of a host."""
    for name in ("RECORD", "GROUPS", "DRAIN", "CURRENT", "RELEASES", "UNFINISHED", "TRUST"):
        path = tmp_path / str(getattr(record, name))[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(record, name, path)
    return tmp_path


@pytest.mark.usefixtures("host")
def test_a_blank_host_has_nothing() -> None:
    assert not any(record.read().values())


def test_releases_come_newest_first_with_what_they_declare(host: Path) -> None:
    releases = host / "opt/hgfleet/releases"
    for number, version in enumerate(("0.1.0-old", "0.1.0-new")):
        (releases / version / "hgext").mkdir(parents=True)
        (releases / version / "hgext/access.py").touch()
        (releases / version / "formats.json").write_text(f'{{"tokens": {number}}}')
        (releases / version / "hgext/README").touch()
    (releases / "last.txt").touch()
    (host / "opt/hgfleet/current").symlink_to(releases / "0.1.0-old")
    state = record.read()
    assert state["current"] == "0.1.0-old"
    assert state["releases"] == ["0.1.0-new", "0.1.0-old"]
    assert state["formats"] == {"0.1.0-old": {"tokens": 0}, "0.1.0-new": {"tokens": 1}}
    assert sorted(map(str, state["extensions"])) == [  # type: ignore[call-overload]
        "0.1.0-new/hgext/access.py",
        "0.1.0-old/hgext/access.py",
    ]


def test_a_run_that_came_to_its_end_left_groups_and_a_record(host: Path) -> None:
    etc = host / "etc/hgfleet"
    (etc / "groups.json").write_text(json.dumps({"groups": ["web"]}))
    (etc / "deploy.json").write_text("cut off {")
    (etc / "web.drain").write_text("until=1\n")
    state = record.read()
    assert (state["provisioned"], state["groups"]) == (True, ["web"])
    assert state["record"] == {}
    assert state["drained"]
    # The drain of an operator has no time.
    (etc / "web.drain").write_text("")
    assert not record.read()["drained"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("unfinished", ""), ("web.drain", "until=1\n"), ("deploy.json", '{"begun": 1.0}')],
)
def test_what_a_run_that_broke_off_left_is_told(host: Path, name: str, content: str) -> None:
    (host / "etc/hgfleet/deploy.json").write_text('{"begun": false}')
    assert not record.read()["unfinished"]
    (host / "etc/hgfleet" / name).write_text(content)
    assert record.read()["unfinished"]
