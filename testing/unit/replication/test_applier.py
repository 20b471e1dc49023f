"""The state that the applier writes for the health check of its mirror."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication.mirror import applier, state_file
from hgfleet.replication.mirror.applier import Applier
from hgfleet.replication.mirror.applier_parts import Parts
from hgfleet.replication.mirror.failures import LATE_SECONDS, Failure, Kind
from hgfleet.replication.mirror.jobs import Result
from hgfleet.replication.protocol.messages import Confirmed
from hgfleet.replication.repositories.registry_paths import Known

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Applier]:
    settings: Any = SimpleNamespace(host="hgweb1", state=tmp_path, lease_seconds=5.0)
    pool: Any = None

    def nothing(*_: object, **__: object) -> Any:
        return 0

    started = Applier(settings, pool, Parts(dict, list, nothing, nothing, Known, nothing))
    yield started
    started._threads.shutdown()


def test_a_state_is_written_when_it_changes(
    mirror: Applier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[float] = []
    write = state_file.write

    def noted(folder: Path, state: state_file.State) -> None:
        written.append(state.lease_until)
        write(folder, state)

    monkeypatch.setattr(applier.state_file, "write", noted)
    for until in (0.0, 0.0, 5.0, 5.0):
        mirror._lease_until = until
        mirror._write()
    assert written == [0.0, 5.0]
    told = json.loads((tmp_path / state_file.NAME).read_text())
    assert (told["host"], told["lease_until"], told["caught_up"]) == ("hgweb1", 5.0, False)


def test_why_the_mirror_is_cut_off_is_in_the_state(mirror: Applier, tmp_path: Path) -> None:
    def problems() -> tuple[str, str]:
        mirror._write()
        told = json.loads((tmp_path / state_file.NAME).read_text())
        return told["broker"], told["source"]

    mirror._source_problem = "no route to the source"
    assert problems() == ("the broker has not answered yet", "no route to the source")
    mirror._subscription.problem = ""
    mirror._source_problem = ""
    assert problems() == ("", "")
    mirror._scheduler.source_problem = "no connection"
    assert problems() == ("", "no connection")


def test_parked_repositories_are_in_the_state_by_identity(mirror: Applier, tmp_path: Path) -> None:
    known, unknown = "1" * 32, "2" * 32
    mirror._known = Known({known: "team/tool"})
    for identity in (known, unknown):
        mirror._scheduler.announce(identity, 1, 0.0)
        job = mirror._scheduler.next_job(0.0)
        assert job is not None
        mirror._scheduler.finished(job, Result(failure=Failure(Kind.DIVERGED, "it is")), 0.0)
    mirror._write()
    told = json.loads((tmp_path / state_file.NAME).read_text())
    assert state_file.named(told, "parked") == {
        known: ("team/tool", "it is"),
        unknown: (unknown, "it is"),
    }
    assert told["unserved"] == [known, unknown]


def test_what_this_mirror_does_not_follow_is_in_the_state(
    mirror: Applier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    aside = {f"aside-{number}": ("team/tool", "lost") for number in range(300)}
    held = state_file.Held({"registry": "it is older"}, aside)
    monkeypatch.setattr(mirror, "_parts", replace(mirror._parts, held=lambda: held))
    mirror._write()
    told = json.loads((tmp_path / state_file.NAME).read_text())
    assert told["refused"] == {"registry": "it is older"}
    assert told["aside_repositories"] == 300
    assert len(told["aside"]) == state_file.MOST_NAMED


def test_documents_that_cannot_be_brought_are_in_the_state(
    mirror: Applier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = state_file.Held(away={f"manifests/{number}": "500" for number in range(300)})
    monkeypatch.setattr(mirror, "_parts", replace(mirror._parts, held=lambda: held))
    mirror._first.problems["tokens"] = "no answer"
    mirror._write()
    told = json.loads((tmp_path / state_file.NAME).read_text())
    assert told["documents_away"] == 301
    assert len(told["away"]) == state_file.MOST_NAMED


def test_a_push_that_the_broker_refused_is_asked_of_the_source_and_late_after_a_while(
    mirror: Applier, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, now = "7d" * 16, 1000.0
    monkeypatch.setattr(applier.time, "monotonic", lambda: now)
    mirror._scheduler.compare([], {}, now, now)
    unsent = (f"{identity}.3.{'0f' * 32}",)

    def hear(boot: str) -> None:
        confirmed = Confirmed("hgweb1", boot, 0.0, 5.0, True, unsent)
        message: Any = SimpleNamespace(data=confirmed.body())
        asyncio.run(mirror._confirmed(message))

    hear("another boot")
    assert mirror._scheduler.status(now).behind == 0
    hear(mirror._boot)
    status = mirror._scheduler.status(now)
    assert (status.behind, status.caught_up) == (1, True)
    now += LATE_SECONDS + 1
    hear(mirror._boot)
    assert not mirror._scheduler.status(now).caught_up
    job = mirror._scheduler.next_job(now)
    assert job is not None
    assert (job.identity, job.up_to_date) == (identity, True)


def test_a_state_of_the_release_before_names_paths() -> None:
    assert state_file.named({"parked": {"a/b": "poison"}}, "parked") == {"a/b": ("a/b", "poison")}
    assert state_file.named({"parked": {"x": ["one"], "y": 5}}, "parked") == {}


def test_a_lease_of_a_clock_that_was_set_back_does_not_last(
    mirror: Applier, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1e9
    monkeypatch.setattr(applier.time, "time", lambda: now)
    mirror._extend(now)
    ahead = mirror._lease_until
    now -= 3600
    mirror._extend(now)
    assert mirror._lease_until == ahead - 3600
    # Another answer about an older heartbeat does not shorten it.
    mirror._extend(now - 2)
    assert mirror._lease_until == ahead - 3600
