from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from hgfleet.bundles.decide.plan import State
from hgfleet.bundles.decide.pullbundle_chain import (
    MAX_HEADS,
    MAX_LINKS,
    PIECES,
    Chain,
    ChainPlan,
    Limits,
    Link,
    Move,
    NewLink,
    heads_to_look_up,
    intact,
    parse,
    plan,
    render,
    segments,
)

MADE = datetime(2026, 11, 20, 12, tzinfo=UTC)
LIMITS = Limits(least=100, step=10)


def node(count: int) -> str:
    """The head of a straight history of so many changesets."""
    return f"{count:040x}"


def link(begin: int, end: int) -> Link:
    bases = (node(begin),) if begin else ()
    return Link(f"{end:064x}.hg", bases, (node(end),), end - begin, 100, MADE)


def chain(*ends: int) -> Chain:
    return tuple(link(begin, end) for begin, end in zip((0, *ends), ends, strict=False))


def state(count: int, links: Chain = ()) -> State:
    """A straight history of which the chain's heads up to its tip are there."""
    heads = {head for part in links for head in part.heads}
    return State(
        heads=frozenset({node(count)}),
        tip=node(count),
        changesets=count,
        covered={head: int(head, 16) for head in heads if int(head, 16) <= count},
    )


def carried_out(decision: ChainPlan, count: int) -> Chain:
    """The chain as the job would have it after a plan."""
    done: list[Link] = []
    for part in decision.parts:
        if isinstance(part, Link):
            done.append(part)
            continue
        begin = int(part.bases[0], 16) if part.bases else 0
        end = int(part.heads[0], 16) if part.heads else count
        for piece in range(part.pieces):
            width = end - begin
            done.append(
                link(
                    begin + width * piece // part.pieces,
                    begin + width * (piece + 1) // part.pieces,
                )
            )
    return parse(render(done))


# --- the manifest ---------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written() -> None:
    start = Link("-", (), (node(5), node(4)), 5, 0, MADE)
    two = Link(f"{'a' * 64}.hg", (node(4), node(5)), (node(9),), 4, 77, MADE)
    assert parse(render([start, two])) == (start, two)
    assert (two.on_disk, start.on_disk, two.sha256) == (True, False, "a" * 64)
    assert "bases=" not in start.line()


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "rubbish",
        f"../../etc/passwd BUNDLESPEC=zstd-v2 heads={node(9)} changesets=1 size=1",
        link(7, 9).line(),
        link(5, 9).line().replace("size=100", "size=x"),
        link(5, 9).line().replace(node(9), "z" * 40),
    ],
    ids=["empty", "rubbish", "path", "gap", "size", "node"],
)
def test_a_manifest_ends_where_it_is_damaged(broken: str) -> None:
    text = render([link(0, 5)]) + broken + "\n" + link(9, 12).line() + "\n"
    assert parse(text) == (link(0, 5),)


# --- making ---------------------------------------------------------------------------------------


def test_small_repositories_have_no_chain() -> None:
    decision = plan((), state(99), LIMITS)
    assert (decision.move, decision.parts) == (Move.KEEP, ())
    assert "fewer than 100" in decision.reason
    links = chain(150)
    assert plan(links, state(99, links), LIMITS).move is Move.DROP


def test_a_first_chain_has_links_of_equal_length() -> None:
    decision = plan((), state(10_000), LIMITS)
    assert (decision.move, decision.parts) == (Move.REBASE, (NewLink((), None, PIECES),))
    assert [part.changesets for part in carried_out(decision, 10_000)] == [1250] * PIECES


def test_a_chain_without_the_whole_begins_with_what_is_not_on_disk() -> None:
    limits = replace(LIMITS, whole=False)
    assert plan((), state(10_000), limits).parts == (NewLink((), None, on_disk=False),)
    start = replace(link(0, 10_000), name="-", size=0)
    here = state(10_050, (start,))
    assert plan((start,), here, limits).parts == (start, NewLink(start.heads))
    # The setting is followed in either direction.
    assert plan((start,), here, LIMITS).parts == (NewLink((), None, PIECES),)
    links = chain(10_000)
    assert plan(links, state(10_000, links), limits).parts == (NewLink((), None, on_disk=False),)


def test_a_chain_is_extended_when_that_is_worth_a_file() -> None:
    links = chain(500, 1000)
    assert plan(links, state(1000, links), LIMITS) == ChainPlan(Move.KEEP, "current", links)
    assert plan(links, state(1009, links), LIMITS).move is Move.KEEP
    decision = plan(links, state(1010, links), LIMITS)
    assert (decision.move, decision.parts) == (Move.EXTEND, (*links, NewLink((node(1000),))))
    # With a new clone bundle, always: the next pull begins there.
    assert plan(links, state(1001, links), LIMITS, aligned=True).move is Move.EXTEND
    assert plan(links, state(1000, links), LIMITS, aligned=True).move is Move.KEEP


def test_small_links_are_rolled_up() -> None:
    links = chain(500, 1000, 1020, 1030)
    decision = plan(links, state(1040, links), LIMITS)
    assert (decision.move, decision.parts) == (Move.ROLL_UP, (*links[:2], NewLink((node(1000),))))


def test_a_link_that_ends_with_a_clone_bundle_stays_one() -> None:
    links = chain(500, 1000, 1020, 1030)
    decision = plan(links, state(1040, links), LIMITS, tips={node(1020)})
    assert decision.parts == (*links[:3], NewLink((node(1020),)))


def test_what_the_repository_no_longer_has_is_cut_off() -> None:
    links = chain(500, 1000, 1200, 1210)
    stripped = state(1100, links)
    decision = plan(links, stripped, LIMITS)
    assert decision.move is Move.REBASE
    assert decision.parts == (*links[:2], NewLink((node(1000),)))
    # Too little is newer for a file: then the chain is only shorter.
    assert plan(links, state(1005, links), LIMITS) == ChainPlan(
        Move.REBASE, "the repository no longer has the heads of some links", links[:2]
    )
    # Another repository at the same path.
    alien = State(heads=frozenset({"f" * 40}), tip="f" * 40, changesets=5000)
    assert plan(links, alien, LIMITS).parts == (NewLink((), None, PIECES),)


def test_a_lost_file_is_made_again() -> None:
    links = chain(500, 1000, 1200)
    decision = plan(links, state(1200, links), LIMITS, missing={links[1].name})
    assert decision.move is Move.REBASE
    assert decision.parts == (links[0], NewLink((node(500),)))
    decision = plan(links, state(1200, links), LIMITS, missing={links[2].name})
    assert decision.parts == (*links[:2], NewLink((node(1000),)))


def test_force_makes_everything_anew() -> None:
    links = chain(500, 1000)
    assert plan(links, state(1000, links), LIMITS, force=True).parts == (NewLink((), None, PIECES),)


def test_a_chain_goes_with_its_repository_or_its_setting() -> None:
    links = chain(500, 1000)
    assert plan(links, State(), LIMITS).move is Move.DROP
    assert plan(links, state(1000, links), replace(LIMITS, enabled=False)).move is Move.DROP
    assert plan((), State(), LIMITS).move is Move.KEEP
    # A registry that is ahead of the disk is no reason.
    assert plan(links, State(exists=False), LIMITS).move is Move.KEEP


def test_too_many_heads_leave_the_chain_as_it_is() -> None:
    links = chain(500, 1000)
    many = replace(state(2000, links), heads=frozenset(map(node, range(2000, 2001 + MAX_HEADS))))
    assert plan(links, many, LIMITS).parts == links
    assert plan(links, many, LIMITS).move is Move.KEEP


def test_only_the_last_heads_are_asked_for() -> None:
    links = chain(500, 1000, 1200)
    assert heads_to_look_up(links) == {node(1200)}
    assert intact(links, {node(1200)}) == links
    assert intact(links, {node(500), node(1000)}) == links[:2]
    assert heads_to_look_up(()) == set()


@pytest.mark.parametrize("steps", [1, 7, 50])
def test_a_chain_stays_short_and_is_written_a_few_times_only(steps: int) -> None:
    """From 100 changesets to 200,000, in pushes of many sizes."""
    links: Chain = ()
    written, count, pushed, rounds = 0, 100, 100, 0
    while count < 200_000:
        decision = plan(links, state(count, links), LIMITS)
        before = {part.name for part in links}
        links = carried_out(decision, count) if decision.new_links else links
        written += sum(part.changesets for part in links if part.name not in before)
        assert len(links) <= MAX_LINKS
        assert count - int(links[-1].heads[0], 16) < LIMITS.step
        # A client in the middle of a link gets the rest of it live.
        largest = max(part.changesets for part in links)
        assert largest <= max(count / PIECES, pushed, LIMITS.step)
        pushed = max(steps * LIMITS.step, count // 200)
        count += pushed
        rounds += 1
    assert rounds > 100
    assert written < count * 2 * math.log2(count / LIMITS.step)


# --- serving --------------------------------------------------------------------------------------


def served(
    links: Chain, have: int, want: int, missing: tuple[int, ...] = ()
) -> list[tuple[int, str]]:
    """Return the segments of a pull: the last revision of each, and where it comes from."""
    parts = segments(
        links,
        known=lambda part: int(part.heads[0], 16) <= have,
        wanted=lambda part: int(part.heads[0], 16) <= want,
        missing=lambda part: int(part.heads[0], 16) - have,
        usable=lambda part: int(part.heads[0], 16) not in missing,
    )
    return [(int(part.heads[0], 16), "disk" if part.link else "live") for part in parts]


def test_a_full_pull_gets_all_links() -> None:
    links = chain(500, 1000, 1200)
    assert served(links, 0, 1300) == [(500, "disk"), (1000, "disk"), (1200, "disk")]


def test_a_pull_begins_with_the_first_link_that_it_lacks() -> None:
    links = chain(500, 1000, 1200)
    assert served(links, 1000, 1300) == [(1200, "disk")]
    assert served(links, 1200, 1300) == []
    # In the middle of a link: a client with less than half gets the link, others only the rest.
    assert served(links, 600, 1300) == [(1000, "disk"), (1200, "disk")]
    assert served(links, 900, 1300) == [(1000, "live"), (1200, "disk")]
    assert served(links, 1150, 1300) == []


def test_nobody_gets_more_than_was_asked_for() -> None:
    links = chain(500, 1000, 1200)
    assert served(links, 0, 1100) == [(500, "disk"), (1000, "disk")]
    assert served(links, 0, 400) == []


def test_what_is_not_on_disk_is_sent_live() -> None:
    links = chain(500, 1000, 1200)
    assert served(links, 0, 1300, missing=(1000,)) == [
        (500, "disk"),
        (1000, "live"),
        (1200, "disk"),
    ]
    assert served(links, 0, 1300, missing=(500, 1000)) == [(1000, "live"), (1200, "disk")]
    assert served(links, 0, 1300, missing=(500, 1000, 1200)) == []
    start = replace(links[0], name="-")
    assert served((start, *links[1:]), 0, 1300)[0] == (500, "live")
