"""Workers of the applier: made when a job needs one, replaced when their process ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication.mirror import worker_pool
from hgfleet.replication.mirror.failures import Kind
from hgfleet.replication.mirror.jobs import Job, Result

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = Job("a")


class Member:
    """A worker without a process. The job `ends` ends it."""

    made = 0

    def __init__(self, _context: object, _make: Callable[[], Any]) -> None:
        type(self).made += 1
        self.number, self.jobs, self.ended = type(self).made, 0, False
        self.process = SimpleNamespace(exitcode=-9)
        self.pipe = SimpleNamespace(close=lambda: None)

    def run(self, job: Job) -> Result:
        self.jobs += 1
        if job.identity == "ends":
            raise EOFError
        if job.identity == "interrupted":
            raise KeyboardInterrupt
        return Result()

    def end(self, _seconds: float) -> None:
        self.ended = True


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> worker_pool.Pool:
    monkeypatch.setattr(worker_pool, "_Member", Member)
    monkeypatch.setattr(Member, "made", 0)
    for name in ("HGFLEET_USER", "HGPLAIN", "HGENCODING"):
        monkeypatch.setenv(name, "")
    return worker_pool.Pool(1, dict, "json")


def test_a_worker_is_made_for_the_first_job_and_kept(pool: worker_pool.Pool) -> None:
    assert Member.made == 0
    assert [pool.run(JOB).failure for _ in range(3)] == [None] * 3
    assert Member.made == 1


def test_a_job_that_ends_its_worker_fails_alone(pool: worker_pool.Pool) -> None:
    failure = pool.run(Job("ends")).failure
    assert failure is not None
    assert failure.kind is Kind.POISON
    assert "the worker ended with -9" in failure.reason
    assert pool.run(JOB).failure is None
    assert Member.made == 2


def test_a_worker_is_replaced_after_so_many_jobs(
    pool: worker_pool.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "JOBS_PER_WORKER", 2)
    for _ in range(3):
        pool.run(JOB)
    assert Member.made == 2


def test_an_interrupted_job_leaves_a_place_for_the_next_one(pool: worker_pool.Pool) -> None:
    with pytest.raises(KeyboardInterrupt):
        pool.run(Job("interrupted"))
    assert pool.run(JOB).failure is None


def test_all_workers_end_with_the_pool(pool: worker_pool.Pool) -> None:
    pool.run(JOB)
    (member,) = pool._all
    pool.close()
    assert member.ended  # type: ignore[attr-defined]
    assert pool._all == set()
