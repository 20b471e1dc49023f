"""The figures that a run of the bundle jobs leaves for metrics."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.activity import PRIVATE, Activity
from hgfleet.bundles.decide.manifest import Entry, object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.decide.plan import Action, Plan
from hgfleet.bundles.steps import run_record
from hgfleet.bundles.steps.job import Outcome
from hgfleet.core.errors import HostError, UnavailableError
from hgfleet.registry.model.registry import Repository

if TYPE_CHECKING:
    from pathlib import Path

URLS = {"east": "https://east/bundles", "west": "https://west/bundles"}
BUSIEST = {"team/x": Activity(1, 2, 3, 4.5, 6), PRIVATE: Activity(7)}
OLD = datetime(2026, 11, 1, tzinfo=UTC)
NEW = datetime(2026, 11, 20, tzinfo=UTC)


def entry(path: str, *, store: str = "east", size: int = 10, made: datetime = NEW) -> Entry:
    url = object_url(URLS[store], make_key(path, "a" * 40, "b" * 64, "zstd"))
    return Entry(url, "zstd-v2", "b" * 64, size, 1, made)


def outcome(path: str, *kinds: str) -> Outcome:
    return Outcome(path, Plan(path, Action.KEEP, (), kinds))


def repository(path: str, *kinds: str) -> Repository:
    return Repository(path, "", "public", (), publishing=True, bundles=kinds)


def figures(
    outcomes: list[Outcome], published: dict[str, tuple[Entry, ...]], *repositories: Repository
) -> run_record.Record:
    return run_record.of(outcomes, repositories, published, URLS, BUSIEST, started=1.0, ended=3.0)


def test_a_repository_with_a_published_bundle_is_covered() -> None:
    run = figures(
        [outcome("a", "zstd"), outcome("empty"), outcome("new", "zstd")],
        {
            "a": (entry("a", size=5, made=OLD), entry("a", store="west", size=7)),
            "empty": (),
            "new": (),
        },
    )
    assert (run.repositories, run.covered) == (2, 1)
    assert run.bytes == {"east": 5, "west": 7}
    assert (run.oldest, run.newest) == (OLD.timestamp(), NEW.timestamp())
    assert (run.started, run.ended, run.failed, run.incomplete) == (1.0, 3.0, 0, 0)


def test_a_failed_repository_should_have_bundles_if_the_registry_gives_it_some() -> None:
    failed = [Outcome("a", error=HostError("no")), Outcome("none", error=HostError("no"))]
    run = figures(failed, {}, repository("a", "zstd"), repository("none"))
    assert (run.failed, run.repositories, run.covered) == (2, 1, 0)


def test_a_repository_that_another_run_has_counts_by_its_manifest() -> None:
    busy = [Outcome("a", busy=True), Outcome("b", busy=True)]
    run = figures(busy, {"a": (entry("a"),), "b": ()}, repository("a", "zstd"))
    assert (run.failed, run.repositories, run.covered) == (0, 1, 1)


def test_a_repository_that_a_store_misses_is_incomplete() -> None:
    plan = Plan("a", Action.COPY, (), ("zstd",))
    run = figures(
        [Outcome("a", plan, missing={"west": UnavailableError("down")})], {"a": (entry("a"),)}
    )
    assert (run.incomplete, run.failed, run.covered) == (1, 0, 1)


def test_a_run_without_bundles_has_no_times() -> None:
    run = figures([], {})
    assert (run.repositories, run.oldest, run.newest) == (0, 0, 0)
    assert run.bytes == {"east": 0, "west": 0}


def test_the_record_is_read_as_it_was_written_and_names_no_repository_by_itself(
    tmp_path: Path,
) -> None:
    run = figures([outcome("team/secret", "zstd")], {"team/secret": (entry("team/secret"),)})
    run_record.save(run, tmp_path)
    file = tmp_path / run_record.NAME
    assert run_record.parse(file.read_bytes()) == run
    assert run.busiest == BUSIEST
    assert "secret" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644


def test_the_record_of_a_former_release_is_read(tmp_path: Path) -> None:
    run_record.save(figures([], {}), tmp_path)
    data = json.loads((tmp_path / run_record.NAME).read_text())
    del data["busiest"]
    assert not run_record.parse(json.dumps(data)).busiest


@pytest.mark.parametrize(
    "change",
    [{"busiest": {"a": {}}}, {"format": 9}, {"ended": "x"}, {"bytes": 3}, {"failed": None}],
)
def test_a_damaged_record_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    run_record.save(figures([], {}), tmp_path)
    data = json.loads((tmp_path / run_record.NAME).read_text())
    with pytest.raises(ValueError, match=r"format|could not convert|record of a run"):
        run_record.parse(json.dumps(data | change))


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_another_file_is_no_record(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|not the record"):
        run_record.parse(text)
