from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.web.http import worker_health

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = Repository("open/one", "", "public", (), True, ())
OTHER = Repository("open/two", "", "public", (), True, ())
PRIVATE = Repository("closed/one", "", ("staff",), (), True, ())
REGISTRY = Registry({entry.path: entry for entry in (PUBLIC, OTHER, PRIVATE)}, {})
MANY = Registry(
    {
        path: Repository(path, "", "public", (), True, ())
        for path in (f"open/{number}" for number in range(10_000))
    },
    {},
)
ALL = worker_health.Found(2, ())


@pytest.fixture(autouse=True)
def always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_health, "HEALTH_S", 0.0)


def test_a_worker_that_serves_is_healthy() -> None:
    status, document = worker_health.assess(ALL, is_draining=False)
    assert status == 200
    assert document == {"status": "ok", "repositories": 2, "unreadable": 0}


def test_one_unreadable_repository_is_told_and_takes_no_server_out() -> None:
    status, document = worker_health.assess(
        worker_health.Found(2, ("open/one",)), is_draining=False
    )
    assert status == 200
    assert document["unreadable"] == 1


def test_a_worker_that_can_read_none_fails_also_while_it_drains() -> None:
    for is_draining in (False, True):
        seen = worker_health.Found(2, ("open/one", "open/two"))
        status, document = worker_health.assess(seen, is_draining=is_draining)
        assert status == 503
        assert document["problem"] == "no repository can be read"


def test_a_worker_without_a_registry_fails() -> None:
    status, document = worker_health.assess(None, is_draining=True)
    assert status == 503
    assert json.dumps(document) == '{"status": "failing", "problem": "no registry"}'


def test_a_worker_that_can_start_no_renderer_fails() -> None:
    status, document = worker_health.assess(ALL, is_draining=True, has_renderers=False)
    assert status == 503
    assert document["problem"] == "no renderer can be started"


@pytest.mark.parametrize(
    ("free_bytes", "free_inodes", "problem"),
    [
        (1000, worker_health.LEAST_INODES, ""),
        (1000, None, ""),
        (999, None, "the disk for answers has 999 bytes free, expected 1,000"),
        (5000, 0, "the disk for answers has 0 inodes free, expected 1,000"),
    ],
)
def test_a_worker_whose_answers_have_no_room_on_the_disk_fails(
    free_bytes: int, free_inodes: int | None, problem: str
) -> None:
    assert worker_health.spool_problem(free_bytes, free_inodes, least_bytes=1000) == problem
    status, document = worker_health.assess(ALL, is_draining=False, spool_problem=problem)
    assert (status, document.get("problem", "")) == (503 if problem else 200, problem)


def test_a_draining_worker_takes_no_new_clients() -> None:
    status, document = worker_health.assess(ALL, is_draining=True)
    assert status == 404
    assert document["problem"] == "draining"


@pytest.mark.parametrize("waiting", [0, 12])
def test_an_overloaded_worker_is_healthy_and_says_so(waiting: int) -> None:
    load = {"running": 4, "waiting": waiting, "slots": 4}
    status, document = worker_health.assess(ALL, is_draining=False, load=load)
    assert status == 200
    assert document["overloaded"] is (waiting > 0)
    assert document["load"] == load


def test_unreadable_repositories_are_looked_up_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_health, "HEALTH_S", 3600.0)
    readable = {"open/one", "open/two"}
    readability = worker_health.Readability(readable.__contains__)
    assert readability.look(REGISTRY) == (2, ())
    readable.clear()
    assert readability.look(REGISTRY) == (2, ())
    readability.forget()
    assert readability.look(REGISTRY) == (2, ("open/one", "open/two"))


def test_a_look_reads_few_of_many_repositories_and_each_in_its_turn() -> None:
    asked: list[str] = []

    def is_readable(path: str) -> bool:
        asked.append(path)
        return path != "open/9999"

    readability = worker_health.Readability(is_readable)
    looks = len(MANY.repositories) // worker_health.SAMPLE
    answers = [readability.look(MANY) for _ in range(looks)]
    assert answers[0] == (10_000, ())
    assert answers[-1] == (10_000, ("open/9999",))
    assert len(asked) == len(set(asked)) == 10_000


def test_a_disk_that_is_gone_shows_at_once() -> None:
    readability = worker_health.Readability(lambda _: False)
    seen = readability.look(MANY)
    assert worker_health.assess(seen, is_draining=False).status == 503


NOW = 1_000_000.0


def state(**changed: object) -> bytes:
    values = {"role": "mirror", "caught_up": True, "lease_until": NOW + 5, "waiting": 0}
    return json.dumps({**values, **changed}).encode()


def test_a_mirror_that_has_caught_up_and_a_lease_is_healthy() -> None:
    assert worker_health.mirror_problem(state(), now=NOW) == ""
    assert worker_health.assess(ALL, is_draining=False, mirror_problem="").status == 200


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "replication has written no state"),
        (b"", "the state of replication cannot be read"),
        (b"\xff\xfe", "the state of replication cannot be read"),
        (b"[" * 100_000, "the state of replication cannot be read"),
        (b'{"caught_up": 1, "lease_until": 9}', "the state of replication cannot be read"),
        (b'{"caught_up": true, "lease_until": "9"}', "the state of replication cannot be read"),
        (state(lease_until=float("inf")), "the lease of this mirror ends in the far future"),
        (state(lease_until=10**400), "the lease of this mirror ends in the far future"),
        (b'{"caught_up": true, "lease_until": NaN}', "the state of replication cannot be read"),
        (b'{"caught_up": true, "lease_until": true}', "the state of replication cannot be read"),
        (b'{"caught_up": true}', "the state of replication cannot be read"),
        (state(caught_up=False, waiting=7), "replication has not caught up"),
        (
            state(lease_until=NOW + 1.9),
            "neither the primary nor the broker has confirmed this mirror's lease",
        ),
        (
            state(lease_until=NOW - 60),
            "neither the primary nor the broker has confirmed this mirror's lease",
        ),
        # A clock that was set back must not keep an old state valid.
        (state(lease_until=NOW + 3600), "the lease of this mirror ends in the far future"),
    ],
)
def test_a_mirror_that_may_be_behind_takes_no_clients(content: bytes | None, problem: str) -> None:
    assert worker_health.mirror_problem(content, now=NOW) == problem
    status, document = worker_health.assess(ALL, is_draining=True, mirror_problem=problem)
    assert status == 503
    assert document["problem"] == problem
    assert document["behind"] is True


def test_the_state_of_a_mirror_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert worker_health.mirror_problem_of(None) == ""
    assert worker_health.mirror_problem_of(path) == "replication has written no state"
    path.write_bytes(state(lease_until=time.time() + 100))
    assert worker_health.mirror_problem_of(path) == ""
    path.write_bytes(b" " * worker_health.STATE_BYTES + state(lease_until=time.time() + 100))
    assert worker_health.mirror_problem_of(path) == "the state of replication cannot be read"


@pytest.mark.parametrize(
    ("content", "draining"),
    [
        ("", True),
        ("until=1000\n", True),
        ("until=999\n", False),
        ("until=later\n", True),
        ("for a new disk\n", True),
    ],
)
def test_a_drain_of_a_deploy_ends_and_any_other_stays(
    tmp_path: Path, content: str, draining: bool
) -> None:
    drain = tmp_path / "web.drain"
    assert not worker_health.is_draining(drain, now=999.5)
    drain.write_text(content)
    assert worker_health.is_draining(drain, now=999.5) is draining
