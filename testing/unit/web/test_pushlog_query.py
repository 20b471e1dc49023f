from __future__ import annotations

import pytest

from hgfleet.web.pushlog import query as pushlog_query
from hgfleet.web.pushlog.query import Query, QueryError, is_cheap, parse, seconds_of

NODE = "91826025c77c6a8e5711735adaa9766dd4eac7fc"
OTHER = "25f2a69ac7ac2919ef35c0b937b862fbb9e7e1f7"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", Query()),
        ("startID=5", Query(start_id=5)),
        ("startID=5&endID=9", Query(start_id=5, end_id=9)),
        ("startID=0&version=2", Query(start_id=0, version=2)),
        ("startdate=1227196396", Query(start_time=1227196396)),
        (
            "startdate=2008-11-20&enddate=2008-11-21",
            Query(start_time=1227139200, end_time=1227225600),
        ),
        ("startdate=2008-11-20+10:50:56", Query(start_time=1227178256)),
        (f"fromchange={NODE}&tochange={OTHER}", Query(from_change=NODE, to_change=OTHER)),
        (f"fromchange={NODE}&endID=15", Query(from_change=NODE, end_id=15)),
        (f"startID=5&tochange={OTHER}", Query(start_id=5, to_change=OTHER)),
        ("startdate=7&fromchange=x&startID=5", Query(start_time=7)),
        ("startID=5&fromchange=x", Query(from_change="x")),
        ("enddate=7&tochange=x&endID=5", Query(end_time=7)),
        ("endID=5&tochange=x", Query(to_change="x")),
        (f"changeset={NODE}", Query(changesets=(NODE,))),
        (f"changeset={NODE}&changeset={OTHER}&changeset={NODE}", Query(changesets=(NODE, OTHER))),
        ("user=a%40b.c&user=d", Query(users=("a@b.c", "d"))),
        ("tipsonly=1", Query(tips_only=True)),
        ("tipsonly=0", Query()),
        ("tipsonly=2", Query()),
        ("full", Query(full=True)),
        ("full=0", Query(full=True)),
        ("empty=1&version=2", Query(with_empty=True, version=2)),
        ("full=1&version=1", Query(full=True)),
        ("branch=default&nodetail=1&cb=f", Query()),
        ("startID=3&startID=4", Query(start_id=4)),
        ("endID=999999999999999999", Query(end_id=999999999999999999)),
    ],
)
def test_a_query_is_read_as_documented(query: str, expected: Query) -> None:
    assert parse(query) == expected


HOSTILE = [
    "version=0",
    "version=3",
    "version=",
    "version=1.0",
    "version=%D9%A1",
    "version=two",
    "startID=",
    "startID=-1",
    "startID=+1",
    "startID=1e3",
    "startID=0x10",
    "startID=1_000",
    "startID=%D9%A1",
    "startID= 1",
    "startID=1%00",
    "startID=" + "9" * 19,
    "startID=" + "9" * 5000,
    "endID=NaN",
    "endID=inf",
    "endID=true",
    "endID=1;DROP+TABLE+pushes",
    "startdate=",
    "startdate=yesterday",
    "startdate=1+week+ago",
    "startdate=-1",
    "startdate=1.5",
    "startdate=1e9",
    "startdate=" + "9" * 13,
    "startdate=2008-13-01",
    "startdate=2008-02-30",
    "startdate=2008-11-20+25:00",
    "startdate=2008-11-20+10:60",
    "startdate=2008-11-20T10:00:00.5",
    "startdate=2008-11-20%0010:00",
    "startdate=0000-01-01",
    "startdate=20081120T10",
    "startdate=2008-W01-1",
    "startdate=2008-11-20Z",
    "startdate=2008-11-20+10:00%2B99:00",
    "enddate=now",
    "enddate=%F0%9F%93%85",
    "fromchange=",
    "fromchange=%00",
    "fromchange=a%0Ab",
    "tochange=" + "a" * 257,
    "changeset=",
    "changeset=%1b[2J",
    "changeset=" + "0" * 300,
    "&".join(f"changeset={number:040x}" for number in range(101)),
    "user=",
    "user=a%00b",
    "user=%ff",
    "user=" + "u" * 257,
    "&".join(f"user=u{number}" for number in range(101)),
    "&".join(f"x{number}=1" for number in range(257)),
    "%ff=1",
]


@pytest.mark.parametrize("query", HOSTILE, ids=lambda query: query[:40])
def test_a_senseless_query_is_refused_in_the_worker(query: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(query)
    assert 400 <= refused.value.status < 500
    assert refused.value.sentence
    assert is_cheap(pushlog_query.JSON, query)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02 00", 86400),
        ("1969-12-31 23:59:59", -1),
        ("9999-12-31", 253402214400),
        ("0001-01-01T00:00:00+14:00", -62135647200),
    ],
)
def test_dates_are_utc(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("command", "query", "expected"),
    [
        ("pushes", "", True),
        ("pushes", "startID=1&endID=2&version=2", True),
        ("pushes", f"changeset={NODE}&tipsonly=1", True),
        ("pushes", f"changeset={NODE}&changeset={OTHER.upper()}", True),
        ("pushes", "startID=1000&endID=1500", True),
        ("pushes", "startID=1000&endID=1501", False),
        ("pushes", "startID=0", False),
        ("pushes", "endID=5", False),
        ("pushes", "startdate=0&enddate=60", False),
        ("pushes", "user=alice", False),
        ("pushes", f"fromchange={NODE}&tochange={OTHER}", False),
        ("pushes", f"changeset={NODE[:12]}", False),
        ("pushes", f"changeset={NODE}&changeset=tip", False),
        ("pushes", "fromchange=v1.0", False),
        ("pushes", "full=1", False),
        ("pushlog", "", False),
        ("pushloghtml", "", False),
        ("repoinfo", "", False),
    ],
)
def test_only_the_index_is_asked_in_the_worker(command: str, query: str, expected: bool) -> None:
    assert is_cheap(command, query) is expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", True),
        ("startID=0", False),
        ("enddate=5", False),
        ("user=a", False),
        ("changeset=a", False),
        ("tochange=a", False),
        ("full&tipsonly=1", True),
    ],
)
def test_without_a_condition_the_newest_are_asked_for(query: str, expected: bool) -> None:
    assert parse(query).is_open is expected


@pytest.mark.parametrize("page", ["0", "-1", "x", "1.0", "9" * 8, "2%00", "../1", "²"])
def test_there_is_no_such_page(page: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse("", page)
    assert refused.value.status == 404


def test_an_answer_has_an_end() -> None:
    within = (pushlog_query.MOST_PUSHES, pushlog_query.MOST_FULL)
    assert pushlog_query.too_many(*within, parse("full")) is None
    assert pushlog_query.too_many(within[0], within[1] + 1, parse("")) is None
    for counts in ((within[0] + 1, 0), (1, within[1] + 1)):
        sentence = pushlog_query.too_many(*counts, parse("full"))
        assert sentence is not None
        assert "startID and endID" in sentence
