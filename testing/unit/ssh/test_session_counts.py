"""Counts of SSH sessions."""

from __future__ import annotations

import ast
import inspect

from hgfleet.selfservice import commands
from hgfleet.ssh.session import original_command, place, session_counts, shell
from hgfleet.ssh.session.session_counts import COMMANDS, REFUSALS, Sessions, counts


def sessions(*ends: tuple[str, str, float, str]) -> Sessions:
    total: dict[str, float] = {}
    for decision, command, seconds, reason in ends:
        for name, amount in counts(decision, command, seconds, reason).items():
            total[name] = total.get(name, 0) + amount
    return Sessions(total)


def test_sessions_are_counted_by_decision_and_command() -> None:
    totals = sessions(
        ("serve", "hg", 0.2, ""),
        ("serve", "hg", 4000.0, ""),
        ("answer", "repo create", 0.4, ""),
        ("refuse", "none", 0.0, "usage"),
    )
    assert {kind: count for kind, count in totals.by_kind.items() if count} == {
        ("serve", "hg"): 2,
        ("answer", "repo create"): 1,
        ("refuse", "none"): 1,
    }
    assert {reason for reason, count in totals.by_reason.items() if count} == {"usage"}
    buckets, count, seconds = totals.times["hg"]
    assert (dict(buckets)[0.25], dict(buckets)[1800.0], count, seconds) == (1, 1, 2, 4000.2)
    assert totals.times["self-service"][1:] == (1, 0.4)


def test_before_the_first_session_every_count_is_0() -> None:
    totals = Sessions({"x: y": 9, "because: z": 3})
    assert not any((*totals.by_kind.values(), *totals.by_reason.values()))


def test_a_word_that_is_none_of_the_code_is_a_defect() -> None:
    assert counts("answer", 'x"} 1', 0.1) == {"crash: none": 1}


def test_each_command_of_the_self_service_has_its_count() -> None:
    assert sorted(COMMANDS) == sorted(["login", *(command.name for command in commands.COMMANDS)])


def test_each_reason_of_a_refusal_has_its_count() -> None:
    """The second argument of each `Refuse` is its reason."""
    reasons = set()
    for module in (original_command, place, shell):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refuse":
                reason = node.args[1]
                assert isinstance(reason, ast.Constant)
                reasons.add(reason.value)
    assert reasons == set(REFUSALS)
    assert session_counts.NONE not in COMMANDS
