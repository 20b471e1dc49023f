"""The state that the applier writes for the health check of its mirror."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication import applier, state_file
from hgfleet.replication.applier import Applier, Parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Applier]:
    settings: Any = SimpleNamespace(host="hgweb1", state=tmp_path, lease_seconds=5.0)
    pool: Any = None

    def nothing(*_: object, **__: object) -> Any:
        return 0

    found = Applier(settings, pool, Parts(dict, list, nothing, nothing, nothing))
    yield found
    found._threads.shutdown()


def test_a_state_is_written_when_it_changes(
    one: Applier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[float] = []
    write = state_file.write

    def noted(folder: Path, state: state_file.State) -> None:
        written.append(state.lease_until)
        write(folder, state)

    monkeypatch.setattr(applier.state_file, "write", noted)
    for until in (0.0, 0.0, 5.0, 5.0):
        one._lease_until = until
        one._write()
    assert written == [0.0, 5.0]
    told = json.loads((tmp_path / state_file.NAME).read_text())
    assert (told["host"], told["lease_until"], told["caught_up"]) == ("hgweb1", 5.0, False)


def test_why_the_mirror_is_cut_off_is_in_the_state(one: Applier, tmp_path: Path) -> None:
    def problem() -> str:
        one._write()
        return str(json.loads((tmp_path / state_file.NAME).read_text())["problem"])

    one._source_problem = "no route to the source"
    assert problem() == "the broker has not answered yet"
    one._subscription.problem = ""
    assert problem() == "no route to the source"
    one._source_problem = ""
    assert problem() == ""
