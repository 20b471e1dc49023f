"""The way back of a host, from the record of its deploys."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from controller.deploy import ways
from controller.deploy.ways import Later, Way

FIRST = Way("0.1.0-aaaaaaaaaaaa", "tree1", "site1")
SECOND = Way("0.1.0-bbbbbbbbbbbb", "tree2", "site2")


def test_after_a_deploy_the_way_back_is_what_was_there_before() -> None:
    record = ways.done(FIRST, SECOND, 2.0)
    assert ways.present(record, SECOND.release) == SECOND
    assert ways.back(record, SECOND.release) == FIRST


def test_after_a_deploy_that_was_killed_it_is_what_the_last_finished_one_left() -> None:
    record = ways.begun(ways.done(None, FIRST, 1.0), FIRST.release, 2.0)
    for current in (FIRST.release, SECOND.release):
        assert ways.back(record, current) == FIRST
        assert ways.present(record, current) == FIRST
        # The next deploy is killed too.
        assert ways.back(ways.begun(record, current, 3.0), current) == FIRST


def test_after_a_rollback_nothing_is_known_before() -> None:
    assert ways.back(ways.done(None, FIRST, 1.0), FIRST.release) is None


def test_a_release_that_was_changed_by_hand_has_no_tree_and_goes_back_to_the_last_deploy() -> None:
    record = ways.done(None, FIRST, 1.0)
    assert ways.present(record, "0.1.0-cccccccccccc") == Way("0.1.0-cccccccccccc")
    assert ways.back(record, "0.1.0-cccccccccccc") == FIRST


def test_a_host_without_a_record_has_its_release_alone() -> None:
    assert ways.present({}, FIRST.release) == Way(FIRST.release)
    assert ways.back({}, FIRST.release) is None
    assert ways.begun({}, FIRST.release, 1.0)["now"] == ways.written(Way(FIRST.release))


def test_a_damaged_record_is_none() -> None:
    assert ways.back({"now": "x", "before": 3}, FIRST.release) is None


def last(**records: dict[str, Any]) -> list[str]:
    return ways.changed_last({name: (record, SECOND.release) for name, record in records.items()})


def test_the_last_change_is_that_of_the_hosts_that_the_last_deploy_changed() -> None:
    release = ways.done(FIRST, SECOND, 1.0)
    people = ways.done(SECOND, Way(SECOND.release, "tree2", "site3"), 2.0)
    assert last(hg1=release, ldap1=people) == ["ldap1"]
    assert last(hg1=release, ldap1=release) == ["hg1", "ldap1"]
    # The next deploy was killed on the first host.
    assert last(hg1=release, ldap1=ways.begun(people, SECOND.release, 3.0)) == ["ldap1"]


def test_a_change_that_was_taken_back_is_none_and_the_one_before_is_the_last() -> None:
    record = ways.done(FIRST, SECOND, 1.0)
    assert ways.as_it_was(record, SECOND.release) == record | {"begun": False}
    killed = ways.begun(record, SECOND.release, 2.0)
    assert ways.as_it_was(killed, FIRST.release) == record | {"begun": False}
    assert last(hg1=ways.as_it_was(killed, FIRST.release), ldap1=record) == ["hg1", "ldap1"]
    other = ways.done(FIRST, SECOND, 2.0)
    assert last(hg1=ways.as_it_was(killed, FIRST.release), ldap1=other) == ["ldap1"]


def test_a_host_with_a_release_by_hand_or_without_a_time_is_a_part_of_the_last_change() -> None:
    by_hand, done = ways.done(None, FIRST, 1.0), ways.done(FIRST, SECOND, 2.0)
    assert last(hg1=by_hand, ldap1=done) == ["hg1", "ldap1"]
    without = {key: value for key, value in done.items() if key != "at"}
    assert last(hg1=without, ldap1=without) == ["hg1", "ldap1"]
    assert last() == []


PEOPLE, REGISTRY = Later("people", "tree2", "site2"), Later("registry", "tree2", "site2")


def test_a_part_that_came_later_is_recorded_once_with_where_it_came_from() -> None:
    has = ways.with_parts(FIRST, ["people", "registry"], SECOND)
    assert has == replace(FIRST, later=(PEOPLE, REGISTRY))
    third = Way("", "tree3", "site3")
    again = ways.with_parts(has, ["people"], third)
    assert again.later == (REGISTRY, Later("people", "tree3", "site3"))
    assert "people of a later deploy" in has.said


def test_a_part_that_came_later_survives_the_way_to_the_host_and_back() -> None:
    has = replace(FIRST, later=(PEOPLE,))
    record = json.loads(json.dumps(ways.done(FIRST, has, 2.0)))
    assert ways.present(record, FIRST.release) == has
    assert ways.back(record, FIRST.release) == FIRST
    assert record["before"] == {"release": FIRST.release, "tree": "tree1", "inventory": "site1"}
    assert ways.names(record) == {"tree1", "site1", "tree2", "site2"}
    assert ways.names({}) == set()


def test_the_program_of_an_object_store_is_a_part_of_the_way() -> None:
    way = replace(FIRST, versitygw="c" * 64)
    record = json.loads(json.dumps(ways.done(way, SECOND, 2.0)))
    assert ways.back(record, SECOND.release) == way
    assert "c" * 64 in ways.names(record)
    # A host without a store has the record that earlier releases read.
    assert set(record["now"]) == {"release", "tree", "inventory"}
