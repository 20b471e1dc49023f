from __future__ import annotations

import errno

import pytest
from mercurial import error

from hgfleet.core.errors import PushlogError, TemporaryError, UnavailableError
from hgfleet.replication.mirror.apply import LOCK_WAIT_SECONDS
from hgfleet.replication.mirror.failures import (
    LATE_SECONDS,
    MOST_TRIES,
    PARKED_SECONDS,
    Action,
    Kind,
    action,
    classify,
    delay,
    parked_seconds,
)
from hgfleet.replication.repositories.errors import (
    CorruptionError,
    DivergedError,
    MissingError,
    RemovalError,
)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (UnavailableError("the source does not answer"), Kind.NETWORK),
        (TemporaryError("another resync is at work"), Kind.BUSY),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Kind.NETWORK),
        (TimeoutError(), Kind.NETWORK),
        (error.LockHeld(errno.EAGAIN, b"lock", b"lock", b"host:1"), Kind.BUSY),
        (error.LockUnavailable(errno.EACCES, "no", b"lock", b"lock"), Kind.BUSY),
        (OSError(errno.ENOSPC, "full"), Kind.HOST),
        (OSError(errno.EMFILE, "many"), Kind.HOST),
        (MissingError("not here"), Kind.MISSING),
        (MemoryError(), Kind.HOST),
        (OSError(errno.EIO, "disk"), Kind.CORRUPTION),
        (error.RevlogError(b"integrity check failed"), Kind.CORRUPTION),
        (error.StorageError(b"unknown"), Kind.CORRUPTION),
        (error.LookupError(b"12", b"00changelog", b"no node"), Kind.CORRUPTION),
        (CorruptionError("verify failed"), Kind.CORRUPTION),
        (DivergedError("own changesets"), Kind.DIVERGED),
        (PushlogError("the chain is broken"), Kind.DIVERGED),
        (error.CensoredNodeError(b"file", b"\0" * 20, b""), Kind.POISON),
        (error.Abort(b"anything"), Kind.POISON),
        (ZeroDivisionError(), Kind.POISON),
        (OSError(errno.ENOENT, "missing"), Kind.POISON),
    ],
)
def test_each_error_has_a_kind(problem: Exception, kind: Kind) -> None:
    assert classify(problem) is kind


@pytest.mark.parametrize("kind", [Kind.NETWORK, Kind.READERS])
def test_conditions_that_pass_are_waited_for_without_end(kind: Kind) -> None:
    assert action(kind, 1_000_000, can_repair=True) is Action.RETRY
    assert delay(kind, 1_000_000) <= 30


def test_a_poisoned_push_is_tried_twice() -> None:
    assert action(Kind.POISON, 1, can_repair=True) is Action.RETRY
    assert action(Kind.POISON, 2, can_repair=True) is Action.PARK


def test_corruption_is_repaired_where_that_is_possible() -> None:
    assert action(Kind.CORRUPTION, 1, can_repair=True) is Action.REPAIR
    assert action(Kind.CORRUPTION, 1, can_repair=False) is Action.PARK
    assert action(Kind.CORRUPTION, 3, can_repair=True) is Action.PARK


def test_a_repository_from_which_the_primary_removed_changesets_is_made_anew() -> None:
    kind = classify(RemovalError("record 7 removes changesets"))
    assert action(kind, 1, can_repair=True) is Action.REPAIR
    assert action(kind, 1, can_repair=False) is Action.PARK


def test_a_diverged_repository_is_never_repaired_by_itself() -> None:
    assert action(Kind.DIVERGED, 1, can_repair=True) is Action.PARK


def test_delays_grow() -> None:
    assert [delay(Kind.NETWORK, tries) for tries in (1, 2, 3, 9)] == [0.5, 1.0, 2.0, 15.0]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in MOST_TRIES])
def test_a_failure_of_one_repository_parks_it_before_it_takes_the_mirror_out(kind: Kind) -> None:
    most = MOST_TRIES[kind]
    assert action(kind, most, can_repair=True) is Action.PARK
    tries = LOCK_WAIT_SECONDS * most if kind is Kind.BUSY else 0
    assert tries + sum(delay(kind, number) for number in range(1, most)) < LATE_SECONDS / 2
    assert parked_seconds(kind) <= PARKED_SECONDS
