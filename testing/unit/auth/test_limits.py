"""How often a secret may be tried."""

from __future__ import annotations

import pytest

from hgfleet.auth import limits
from hgfleet.auth.limits import Attempt, Buckets, Limits, Rate, source


def guess(limited: Limits, person: str, address: str, now: float = 0.0) -> bool:
    """Try a wrong password; say whether it was looked at."""
    return isinstance(limited.begin(person, address, now), Attempt)


def enter(limited: Limits, person: str, address: str, now: float = 0.0) -> bool:
    """Try the right password."""
    attempt = limited.begin(person, address, now)
    if isinstance(attempt, Attempt):
        limited.succeeded(attempt, now)
        return True
    return False


def flood(limited: Limits, person: str, now: float = 0.0) -> None:
    """Guess at a person from many addresses until no more is looked at."""
    for number in range(100):
        guess(limited, person, f"198.51.100.{number}", now)
    assert not guess(limited, person, "203.0.113.9", now)


def test_a_bucket_gives_its_burst_and_then_one_at_a_time() -> None:
    bucket = Buckets(Rate(burst=3, seconds=10))
    for _ in range(3):
        assert bucket.wait("a", 100.0) == 0
        bucket.take("a", 100.0)

    assert bucket.wait("a", 100.0) == 10
    assert bucket.wait("a", 104.0) == 6
    assert bucket.wait("a", 110.0) == 0
    assert bucket.wait("b", 100.0) == 0


def test_a_bucket_is_full_again_and_never_fuller() -> None:
    bucket = Buckets(Rate(burst=2, seconds=10))
    bucket.take("a", 0.0)
    for _ in range(2):
        assert bucket.wait("a", 1000.0) == 0
        bucket.take("a", 1000.0)
    assert bucket.wait("a", 1000.0) == 10


def test_a_charge_given_back_may_be_taken_again() -> None:
    bucket = Buckets(Rate(burst=1, seconds=10))
    bucket.take("a", 0.0)
    bucket.give_back("a")
    bucket.give_back("never taken")
    assert bucket.wait("a", 0.0) == 0


def test_buckets_are_bounded_and_those_in_use_stay() -> None:
    bucket = Buckets(Rate(burst=1, seconds=10), most=3)
    bucket.take("a", 0.0)
    for key in ("b", "c"):
        bucket.take(key, 0.0)
    bucket.take("a", 0.0)
    bucket.take("d", 0.0)

    assert len(bucket) == 3
    assert bucket.wait("a", 0.0) > 0
    assert bucket.wait("b", 0.0) == 0, "the least recently used one is forgotten"


def test_right_passwords_are_never_throttled() -> None:
    limited = Limits()
    assert all(enter(limited, "bob", "192.0.2.7") for _ in range(1000))


def test_one_address_is_throttled_whomever_it_tries() -> None:
    limited = Limits()
    tried = [guess(limited, f"person{number}", "192.0.2.7") for number in range(100)]

    assert tried.count(True) == limits.ADDRESS.burst
    assert guess(limited, "alice", "192.0.2.8"), "others are not concerned"


def test_one_person_is_guessed_at_slowly_from_however_many_addresses() -> None:
    limited = Limits()
    tried = [guess(limited, "bob", f"198.51.{n // 250}.{n % 250}") for n in range(1000)]

    assert tried.count(True) == limits.PERSON.burst
    assert guess(limited, "alice", "198.51.100.1")


def test_a_flood_does_not_lock_a_person_out_of_where_they_work() -> None:
    limited = Limits()
    assert enter(limited, "bob", "192.0.2.7", 0.0)
    flood(limited, "bob", 10.0)

    assert guess(limited, "bob", "192.0.2.7", 10.0), "a typing mistake"
    assert enter(limited, "bob", "192.0.2.7", 10.0)
    assert not enter(limited, "bob", "192.0.2.99", 10.0), "a new address has to wait"


def test_a_colleagues_broken_script_costs_familiar_people_nothing() -> None:
    limited = Limits()
    assert enter(limited, "alice", "192.0.2.7")
    while guess(limited, "bob", "192.0.2.7"):
        pass

    assert enter(limited, "alice", "192.0.2.7")


def test_also_where_a_person_works_guessing_is_slow() -> None:
    limited = Limits()
    assert enter(limited, "bob", "192.0.2.7")
    tried = [guess(limited, "bob", "192.0.2.7") for _ in range(100)]

    assert tried.count(True) == limits.FAMILIAR.burst
    assert enter(limited, "bob", "192.0.2.7", limits.FAMILIAR.seconds)


def test_an_address_is_familiar_for_a_month_and_eight_are_remembered() -> None:
    limited = Limits()
    for number in range(limits.MOST_ADDRESSES + 1):
        assert enter(limited, "bob", f"192.0.2.{number}", float(number))

    assert not limited.is_familiar("bob", "192.0.2.0", 10.0)
    assert limited.is_familiar("bob", "192.0.2.1", 10.0)
    assert not limited.is_familiar("bob", "192.0.2.1", limits.FAMILIAR_S + 1.0)
    assert not limited.is_familiar("alice", "192.0.2.1", 10.0)


def test_wrong_tokens_count_for_the_address_alone() -> None:
    limited = Limits()
    for _ in range(limits.ADDRESS.burst):
        assert isinstance(limited.begin_token("192.0.2.7", 0.0), Attempt)

    assert limited.begin_token("192.0.2.7", 0.0) == pytest.approx(limits.ADDRESS.seconds)
    assert isinstance(limited.begin_token("192.0.2.8", 0.0), Attempt)


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("", "unknown"),
        ("x" * 1000, "unknown"),
    ],
)
def test_addresses_of_one_customer_count_as_one(address: str, counts_as: str) -> None:
    assert source(address) == counts_as
