"""Worker processes of the applier: after a defect a worker does no other job."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from hgfleet.replication.mirror.failures import ENDS_WORKER, Failure, Kind
from hgfleet.replication.mirror.jobs import Job, Result
from hgfleet.replication.mirror.worker_pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator


class Telling:
    """Work that fails as the path of its job says, and tells the process that did it."""

    def run(self, job: Job) -> Result:
        kind = Kind(job.identity) if job.identity else Kind.NETWORK
        return Result(failure=Failure(kind, str(os.getpid())))


class Stale:
    """Work that answers with the results of another job."""

    def run(self, job: Job) -> int:
        return len(job.identity)


@pytest.fixture(scope="module", autouse=True)
def _path() -> Iterator[None]:
    """Have the processes import this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ":".join(sys.path))
        yield


def process_of(pool: Pool, path: str) -> int:
    failure = pool.run(Job(path)).failure
    assert failure is not None
    return int(failure.reason)


def test_a_worker_ends_after_a_failure_that_nobody_foresaw() -> None:
    pool = Pool(1, Telling, "hgfleet.replication.mirror.jobs")
    try:
        for kind in Kind:
            before, again = process_of(pool, "network"), process_of(pool, kind)
            assert before == again, "the failure is that of the first process"
            assert (process_of(pool, "network") != before) is (kind in ENDS_WORKER), kind
    finally:
        pool.close()


def test_a_result_that_is_none_ends_the_worker() -> None:
    pool = Pool(1, Stale, "hgfleet.replication.mirror.jobs")
    try:
        failure = pool.run(Job("x")).failure
        assert failure is not None
        assert failure.kind is Kind.POISON
        assert "got the result of job 1" in failure.reason
        assert pool._all == set()
    finally:
        pool.close()
