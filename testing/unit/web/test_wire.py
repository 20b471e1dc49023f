from __future__ import annotations

import pytest
from mercurial import wireprotov1server

from hgfleet.hg import wire_commands
from hgfleet.web.requests.request import is_cheap
from hgfleet.web.requests.wire import (
    ARGUMENTS,
    MOST_BATCHED,
    BadRequestError,
    check,
    header_arguments,
    parse,
)

NODE = b"0123456789abcdef0123456789abcdef01234567"
NULL = b"0" * 40


def test_arguments_spread_over_headers_are_joined_in_order_up_to_a_gap() -> None:
    headers = {f"HTTP_X_HGARG_{number}": f"<{number}>" for number in (1, 2, 3, 5, 10)}
    assert header_arguments(headers) == "<1><2><3>"
    assert header_arguments({"HTTP_X_HGARG_2": "x"}) == ""


def test_arguments_of_headers_win_over_the_query() -> None:
    assert parse("cmd=lookup&key=a", "key=b+c%2Fd") == {b"cmd": [b"lookup"], b"key": [b"b c/d"]}


@pytest.mark.parametrize(("query", "header"), [("key=\xe9", ""), ("", "key=\xff")])
def test_arguments_that_are_not_ascii_are_refused(query: str, header: str) -> None:
    with pytest.raises(BadRequestError):
        parse(query, header)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("known", {}),
        ("known", {b"nodes": [b"xyz"]}),
        ("known", {b"nodes": [NODE + b" "]}),
        ("known", {b"nodes": [NODE.upper()]}),
        ("known", {b"nodes": [NODE + b"\n"]}),
        ("between", {b"pairs": [NODE]}),
        ("between", {b"pairs": [NODE + b"-" + NULL]}),
        ("between", {b"pairs": [b" ".join([NULL + b"-" + NULL] * 2)]}),
        ("listkeys", {}),
        ("lookup", {b"cmd": [b"lookup"]}),
        ("getbundle", {b"heads": [b"tip"]}),
        ("getbundle", {b"common": [b"tip"]}),
        ("getbundle", {b"bundlecaps": [b"HG20%00"]}),
        ("heads", {b"x": [b"1"]}),
        ("heads", {b"cmd": [b"heads"], b"": [b""]}),
        ("known", {b"nodes": [NODE], b"x": [b"1"]}),
        ("listkeys", {b"namespace": [b"bookmarks"], b"nodes": [b""]}),
        ("lookup", {b"key": [b"tip", b"tip"]}),
        ("batch", {b"cmds": [b"heads "], b"x": [b"1"]}),
        ("batch", {b"cmds": [b"heads x=1"]}),
        ("batch", {}),
        ("batch", {b"cmds": [b""]}),
        ("batch", {b"cmds": [b"heads"]}),
        ("batch", {b"cmds": [b"nonsense x=1"]}),
        ("batch", {b"cmds": [b"getbundle "]}),
        ("batch", {b"cmds": [b"batch cmds=heads"]}),
        ("batch", {b"cmds": [b"known nodes"]}),
        ("batch", {b"cmds": [b"known nodes=a=b"]}),
        ("batch", {b"cmds": [b"known "]}),
        ("batch", {b"cmds": [b"known nodes=zz"]}),
        ("batch", {b"cmds": [b"heads ;\xff\xfe "]}),
        ("batch", {b"cmds": [b"between pairs=" + NULL + b"-" + NULL]}),
        ("batch", {b"cmds": [b"branches nodes=" + NODE]}),
        ("batch", {b"cmds": [b";".join([b"heads "] * (MOST_BATCHED + 1))]}),
    ],
)
def test_arguments_that_would_make_hgweb_fail_are_refused_with_a_reason(
    command: str, arguments: dict[bytes, list[bytes]]
) -> None:
    with pytest.raises(BadRequestError, match=r"\w+: |\w+ (needs the|has no|has the) argument "):
        check(command, arguments)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("heads", {}),
        ("heads", {b"cmd": [b"heads"], b"access-hidden": [b"1"]}),
        ("clonebundles_manifest", {b"store_fingerprint": [b"1"]}),
        ("known", {b"nodes": [b""]}),
        ("known", {b"nodes": [NODE + b" " + NULL]}),
        ("between", {b"pairs": [NULL + b"-" + NULL]}),
        ("lookup", {b"key": [b"anything at all"]}),
        ("listkeys", {b"namespace": [b"bookmarks"]}),
    ],
)
def test_good_arguments_pass(command: str, arguments: dict[bytes, list[bytes]]) -> None:
    call = check(command, arguments)
    assert (call.command, call.batch, call.details) == (command, (), {})


def test_a_batch_names_its_commands_also_a_hidden_push() -> None:
    assert check("batch", {b"cmds": [b"heads ;known nodes=" + NODE]}).batch == ("heads", "known")
    hidden = b"heads ;pushkey namespace=bookmarks,key=x,old=,new=" + NODE
    assert check("batch", {b"cmds": [hidden]}).batch == ("heads", "pushkey")


@pytest.mark.parametrize(
    ("arguments", "full", "changesets"),
    [
        ({}, True, True),
        ({b"common": [NULL]}, True, True),
        ({b"common": [NODE]}, False, True),
        ({b"cg": [b"0"]}, False, False),
        ({b"cg": [b"1"], b"heads": [NODE]}, True, True),
        ({b"cg": [b"0"], b"common": [NODE]}, False, False),
    ],
)
def test_a_full_clone_is_told_from_a_pull(
    arguments: dict[bytes, list[bytes]], full: bool, changesets: bool
) -> None:
    details = check("getbundle", arguments).details
    assert (details["full"], details["changesets"]) == (full, changesets)


def test_the_arguments_are_those_of_core() -> None:
    assert set(ARGUMENTS) == wire_commands.REPLAYABLE
    for name, arguments in ARGUMENTS.items():
        declared = wireprotov1server.commands[name.encode()].args.split()
        assert arguments == set(declared) - {b"*"}, name


def cheap(command: str, **arguments: bytes) -> bool:
    return is_cheap(check(command, {name.encode(): [value] for name, value in arguments.items()}))


BOOKMARKS = b"listkeys namespace=bookmarks"


def test_discovery_and_a_pull_are_answered_by_the_worker_itself() -> None:
    some = b" ".join([NODE] * 500)
    assert cheap("known", nodes=some)
    assert cheap("batch", cmds=b"heads ;known nodes=" + some)
    assert cheap("batch", cmds=BOOKMARKS + b";listkeys namespace=phases")
    assert cheap("listkeys", namespace=b"bookmarks")


def test_commands_with_many_arguments_get_a_deadline() -> None:
    half = b" ".join([NODE] * 1200)
    assert cheap("batch", cmds=b"known nodes=" + half)
    assert not cheap("known", nodes=half + b" " + half)
    assert not cheap("batch", cmds=b";".join([b"known nodes=" + half] * 2))
    assert not cheap("batch", cmds=b";".join([BOOKMARKS] * 3))
    assert not cheap("listkeys", namespace=b"obsolete")
    assert not cheap("batch", cmds=b"listkeys namespace=obsolete")
