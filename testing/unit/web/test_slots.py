from __future__ import annotations

import pytest

from hgfleet.web.rendering.budgets import Kind
from hgfleet.web.rendering.slots import BusyError, Limits, Place, Shares, Slots, client_of

LIMITS = Limits(slots=4, waiting=4)
ONE, OTHER, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"


def has_slot(place: Place) -> bool:
    return place.granted.is_set()


def test_an_address_has_half_of_the_slots_and_of_the_places_to_wait() -> None:
    slots = Slots(LIMITS)
    running = [slots.enter(ONE, Kind.PAGE) for _ in range(2)]
    waiting = [slots.enter(ONE, Kind.PAGE) for _ in range(2)]
    assert [has_slot(place) for place in running + waiting] == [True, True, False, False]
    with pytest.raises(BusyError, match="the most that an address may have") as refused:
        slots.enter(ONE, Kind.PAGE)
    assert refused.value.is_share
    assert has_slot(slots.enter(OTHER, Kind.PAGE))


def test_dear_pages_leave_slots_to_others_and_all_pages_one_to_the_protocol() -> None:
    slots = Slots(LIMITS)
    assert has_slot(slots.enter(ONE, Kind.DEAR))
    assert has_slot(slots.enter(OTHER, Kind.DEAR))
    assert not has_slot(slots.enter(THIRD, Kind.DEAR))
    assert has_slot(slots.enter(THIRD, Kind.PAGE))
    assert not has_slot(slots.enter("192.0.2.4", Kind.PAGE))
    assert has_slot(slots.enter("192.0.2.5", Kind.WIRE))


def test_an_address_has_half_of_the_slots_for_dear_pages() -> None:
    slots = Slots(LIMITS)
    first, second = (slots.enter(ONE, Kind.DEAR) for _ in range(2))
    assert (has_slot(first), has_slot(second)) == (True, False)
    assert has_slot(slots.enter(ONE, Kind.PAGE))
    assert has_slot(slots.enter(OTHER, Kind.DEAR))
    slots.leave(first)
    assert has_slot(second)


def test_one_archive_is_made_at_a_time() -> None:
    slots = Slots(LIMITS)
    assert has_slot(slots.enter(ONE, Kind.ARCHIVE))
    assert not has_slot(slots.enter(OTHER, Kind.ARCHIVE))
    assert has_slot(slots.enter(OTHER, Kind.DEAR))


def test_a_full_server_refuses_without_blame() -> None:
    slots = Slots(Limits(slots=1, waiting=1))
    slots.enter(ONE, Kind.PAGE)
    slots.enter(OTHER, Kind.PAGE)
    with pytest.raises(BusyError, match="as many answers as it can") as refused:
        slots.enter(THIRD, Kind.PAGE)
    assert not refused.value.is_share


def test_the_free_slot_goes_to_the_address_with_the_fewest() -> None:
    slots = Slots(Limits(slots=4, waiting=8))
    first = [slots.enter(address, Kind.WIRE) for address in (ONE, ONE, OTHER, THIRD)]
    again = slots.enter(OTHER, Kind.WIRE)
    fourth = slots.enter("192.0.2.4", Kind.WIRE)
    slots.leave(first[3])
    assert (has_slot(again), has_slot(fourth)) == (False, True)
    slots.leave(first[0])
    assert has_slot(again)


def test_a_waiting_request_that_leaves_gives_its_place_back() -> None:
    slots = Slots(Limits(slots=1, waiting=1))
    running = slots.enter(ONE, Kind.PAGE)
    waiting = slots.enter(OTHER, Kind.PAGE)
    slots.leave(waiting)
    slots.leave(waiting)
    later = slots.enter(THIRD, Kind.PAGE)
    slots.leave(running)
    assert has_slot(later)
    assert slots.load() == {"running": 1, "waiting": 0, "slots": 1}


def test_every_class_runs_with_a_single_slot() -> None:
    for kind in set(Kind) - {Kind.STREAM}:
        assert has_slot(Slots(Limits(slots=1, waiting=1)).enter(ONE, kind))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_a_network_of_ipv6_counts_as_one_client(address: str, expected: str) -> None:
    assert client_of(address) == expected


def test_an_address_has_its_share_of_streams_and_another_one_its_own() -> None:
    shares = Shares(2)
    leave = shares.enter(ONE)
    shares.enter(ONE)
    with pytest.raises(BusyError, match="2 clones and pulls of your address"):
        shares.enter(ONE)
    shares.enter(OTHER)
    leave()
    leave()
    shares.enter(ONE)
    with pytest.raises(BusyError):
        shares.enter(ONE)


def test_an_address_without_streams_takes_no_memory() -> None:
    shares = Shares(2)
    for number in range(100):
        shares.enter(f"192.0.2.{number}")()
    assert shares._counts == {}
