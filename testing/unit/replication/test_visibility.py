"""Mirrors that show a push, and the lines that its pusher reads."""

from __future__ import annotations

import pytest

from hgfleet.hg import wake
from hgfleet.replication.primary import visibility
from hgfleet.replication.primary.visibility import Hints, Shown
from hgfleet.replication.protocol.messages import Brought, Hint, decode_applied, decode_hint

A, B = "a" * 32, "b" * 32
MIRRORS = ("hgweb1", "hgweb2")
FOUR, FIVE, SEVEN, OTHER = ("4" * 64, "5" * 64, "7" * 64, "ef" * 32)


def test_a_mirror_shows_a_push_and_all_before_it() -> None:
    shown = Shown()
    shown.published(A, 7)
    assert shown.applied("hgweb1", A, 5)
    assert not shown.applied("hgweb1", A, 5)
    assert shown.showing(A, 5) == {"hgweb1"}
    assert shown.showing(A, 6) == frozenset()
    assert shown.is_published(A, 6)
    assert not shown.is_published(A, 8)


def test_a_mirror_that_was_made_anew_may_show_an_older_push() -> None:
    shown = Shown()
    shown.published(A, 7, SEVEN)
    shown.applied("hgweb1", A, 7, SEVEN)
    assert shown.applied("hgweb1", A, 4, FOUR)
    assert shown.showing(A, 7, SEVEN) == frozenset()


def test_after_a_restore_a_number_is_that_of_another_push() -> None:
    """The primary came back at push 4; mirrors show pushes 5 to 7 of the history before."""
    shown = Shown()
    for number, hash_ in ((4, FOUR), (5, FIVE), (7, SEVEN)):
        shown.published(A, number, hash_)
    shown.applied("hgweb1", A, 7, SEVEN)
    shown.applied("hgweb2", A, 5, FIVE)
    shown.published(A, 5, OTHER)
    assert shown.is_published(A, 5, OTHER)
    assert not shown.is_published(A, 5, FIVE)
    assert not shown.is_published(A, 7, SEVEN)
    assert shown.showing(A, 5, OTHER) == frozenset()
    assert shown.showing(A, 4, FOUR) == frozenset()
    shown.applied("hgweb2", A, 5, OTHER)
    assert shown.showing(A, 5, OTHER) == shown.showing(A, 4, FOUR) == {"hgweb2"}
    # The relay has published further: the mirror of the history before stays behind.
    for number in (6, 7):
        shown.published(A, number, f"{number:064x}")
    assert shown.showing(A, 5, OTHER) == {"hgweb2"}


def test_a_mirror_ahead_of_the_stream_counts_when_the_stream_has_its_push() -> None:
    """It took push 6 from the source."""
    shown = Shown()
    shown.published(A, 5, FIVE)
    shown.applied("hgweb1", A, 6, SEVEN)
    assert shown.showing(A, 5, FIVE) == frozenset()
    shown.published(A, 6, SEVEN)
    assert shown.showing(A, 5, FIVE) == {"hgweb1"}


@pytest.mark.parametrize(("published", "told"), [("", FIVE), (FIVE, ""), ("", "")])
def test_without_a_hash_on_both_sides_the_number_decides(published: str, told: str) -> None:
    """Hosts of the release before send no hash; a restarted relay does not know all hashes."""
    shown = Shown()
    shown.published(A, 5, published)
    shown.applied("hgweb1", A, 5, told)
    assert shown.showing(A, 5, FIVE) == {"hgweb1"}
    assert shown.showing(A, 5) == {"hgweb1"}
    assert shown.showing(A, 4) == {"hgweb1"}


def test_a_push_whose_hash_is_not_known_is_not_taken_for_one_of_the_chain() -> None:
    """A log that was put back by two records made another push 4, and the stream has 5."""
    shown = Shown()
    shown.published(A, 5, FIVE)
    shown.applied("hgweb1", A, 5, FIVE)
    assert not shown.is_published(A, 4, FOUR)
    assert shown.showing(A, 4, FOUR) == frozenset()
    assert not shown.knows(A, 4)
    # The log has it before the push that was published.
    shown.learn(A, 4, FOUR)
    assert shown.is_published(A, 4, FOUR)
    assert shown.showing(A, 4, FOUR) == {"hgweb1"}
    assert shown.showing(A, 4, SEVEN) == frozenset()
    # No log changes the published push.
    shown.learn(A, 5, SEVEN)
    shown.learn(A, 6, SEVEN)
    assert shown.is_published(A, 5, FIVE)
    assert not shown.is_published(A, 6)


def test_a_mirror_may_show_a_push_before_the_broker_has_answered() -> None:
    shown = Shown()
    shown.expect(A)
    assert shown.applied("hgweb1", A, 5, FIVE)
    assert not shown.is_published(A, 5, FIVE)
    assert shown.showing(A, 5, FIVE) == frozenset()
    shown.published(A, 5, FIVE)
    assert shown.showing(A, 5, FIVE) == {"hgweb1"}


def test_few_hashes_of_a_repository_are_remembered() -> None:
    shown = Shown()
    for number in range(1, 3 * visibility.MOST_HASHES):
        shown.published(A, number, f"{number:064x}")
    assert len(shown._published[A].hashes) == visibility.MOST_HASHES
    assert max(shown._published[A].hashes) == shown._published[A].newest


def test_a_mirror_cannot_fill_the_memory() -> None:
    shown = Shown(most=2)
    assert not shown.applied("hgweb1", A, 1)
    for repository in (A, B, "c" * 32):
        shown.published(repository, 1)
        shown.applied("hgweb1", repository, 1)
    assert len(shown._published) == len(shown._applied) == 2
    assert not shown.is_published(A, 1)


@pytest.mark.parametrize(
    ("showing", "live", "published", "complete", "expected"),
    [
        (MIRRORS, MIRRORS, True, True, "visible on 2/2 mirrors in 0.31 s"),
        (
            ("hgweb1",),
            MIRRORS,
            True,
            False,
            "hgweb2 does not show it yet (waited 2 s); visible on 1/2 mirrors",
        ),
        (
            (),
            MIRRORS,
            True,
            False,
            "hgweb1, hgweb2 do not show it yet (waited 2 s); visible on 0/2 mirrors",
        ),
        (
            ("hgweb1",),
            ("hgweb1",),
            True,
            True,
            "visible on 1/2 mirrors in 0.31 s; hgweb2 is down",
        ),
        ((), (), True, True, "visible on 0/2 mirrors; hgweb1, hgweb2 are down"),
        ((), MIRRORS, False, False, "replication is down, mirrors will show it later"),
        # A mirror whose lease has ended may show it nevertheless.
        (MIRRORS, (), True, True, "visible on 2/2 mirrors in 0.31 s"),
    ],
)
def test_a_pusher_reads_where_the_push_is_visible(
    showing: tuple[str, ...],
    live: tuple[str, ...],
    published: bool,
    complete: bool,
    expected: str,
) -> None:
    answer = visibility.answer(showing, live, MIRRORS, published=published, seconds=0.31)
    assert visibility.is_final(answer, settled=True, takes=True) is complete
    assert wake.sentence(42, answer.to_json(), 2.0) == f"push 42 recorded; {expected}"


@pytest.mark.parametrize(
    ("showing", "live", "published", "takes", "settled", "unsettled"),
    [
        (MIRRORS, MIRRORS, True, True, True, True),
        # The lease of a mirror that is down may be known a moment later.
        (("hgweb1",), ("hgweb1",), True, True, True, False),
        ((), (), True, True, True, False),
        # The broker may be back a moment later.
        ((), MIRRORS, False, False, True, False),
        # The push is on its way.
        ((), MIRRORS, False, True, False, False),
        (("hgweb1",), MIRRORS, True, True, False, False),
    ],
)
def test_a_relay_that_has_just_begun_waits_for_what_it_does_not_know_yet(
    showing: tuple[str, ...],
    live: tuple[str, ...],
    published: bool,
    takes: bool,
    settled: bool,
    unsettled: bool,
) -> None:
    answer = visibility.answer(showing, live, MIRRORS, published=published, seconds=0.31)
    assert visibility.is_final(answer, settled=True, takes=takes) is settled
    assert visibility.is_final(answer, settled=False, takes=takes) is unsettled


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"broker": True},
        {"broker": True, "visible": 1, "of": 1, "seconds": 1, "slow": [3], "down": []},
        {"broker": True, "visible": [], "of": 1, "seconds": 1, "slow": [], "down": []},
    ],
)
def test_an_answer_that_makes_no_sense_is_none(answer: dict[str, object] | None) -> None:
    assert wake.sentence(1, answer, 2.0).endswith("replication is down, mirrors will show it later")


def test_without_a_relay_there_is_no_answer() -> None:
    assert wake.ask("/nonexistent/wake.sock", {}, 0.0) is None


def test_a_mirror_that_followed_a_later_hint_has_the_change_of_an_earlier_one() -> None:
    hints = Hints("boot")
    first, second = hints.next(), hints.next()
    hints.published("tokens", second)
    assert hints.is_published("tokens", first)
    assert not hints.is_published("registry", first)
    assert hints.brought(Brought("hgweb1", "tokens", "boot", second.number))
    assert hints.showing("tokens", first) == hints.showing("tokens", second) == {"hgweb1"}
    assert hints.brought(Brought("hgweb2", "tokens", "boot", first.number))
    assert hints.showing("tokens", second) == {"hgweb1"}
    assert not hints.brought(Brought("hgweb1", "tokens", "boot", first.number))
    assert hints.showing("registry", first) == frozenset()


def test_hints_of_another_relay_and_of_the_future_count_for_nothing() -> None:
    hints = Hints("boot")
    hint = hints.next()
    assert not hints.brought(Brought("hgweb1", "tokens", "before", hint.number))
    assert not hints.brought(Brought("hgweb1", "tokens", "boot", hint.number + 1))
    assert not hints.brought(Brought("hgweb1", "tokens", "boot", 0))
    # A mirror cannot fill the memory.
    assert not hints.brought(Brought("hgweb1", "x" * 40, "boot", hint.number))
    assert hints.showing("tokens", hint) == frozenset()
    assert list(hints._followed) == []


def test_hints_and_their_answers_are_messages() -> None:
    hint, brought = Hint("boot", 7), Brought("hgweb1", "tokens", "boot", 7)
    assert decode_hint(hint.body()) == hint
    assert decode_applied(brought.body()) == brought


@pytest.mark.parametrize("body", [b"", b"{}", b'{"boot": 1, "number": 1}', b"[1]"])
def test_a_hint_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_hint(body)
    with pytest.raises(ValueError, match=r".+"):
        decode_applied(body.replace(b"boot", b"document"))


@pytest.mark.parametrize(
    ("showing", "live", "published", "expected"),
    [
        (MIRRORS, MIRRORS, True, "refused on 2/2 mirrors in 0.31 s"),
        (
            ("hgweb1",),
            MIRRORS,
            True,
            "hgweb2 may still accept it (waited 2 s); refused on 1/2 mirrors",
        ),
        (("hgweb1",), ("hgweb1",), True, "refused on 1/2 mirrors in 0.31 s; hgweb2 is down"),
        ((), MIRRORS, False, "replication is down, mirrors may accept it until it is back"),
    ],
)
def test_a_person_reads_where_a_revoked_token_is_refused(
    showing: tuple[str, ...], live: tuple[str, ...], published: bool, expected: str
) -> None:
    answer = visibility.answer(showing, live, MIRRORS, published=published, seconds=0.31)
    assert wake.mirrors(answer.to_json(), 2.0, wake.REFUSED) == expected
