"""Decisions of a check of a replica from the answers of both servers; no server is asked here."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.directory import sync_check, sync_cli
from hgfleet.directory.sync_check import (
    Contents,
    Memory,
    RefusedError,
    UnreachableError,
    content,
)
from hgfleet.directory.sync_cli import Config

WALL = datetime(2020, 11, 21, 12, 0, 0, tzinfo=UTC)


def csn(minutes: float = 0, count: int = 0, server: str = "000") -> str:
    """A change of so many minutes before noon."""
    made = WALL - timedelta(minutes=minutes)
    return f"{made:%Y%m%d%H%M%S.%fZ}#{count:06x}#{server}#000000"


OLD, NEW = {"000": csn(10)}, {"000": csn(5)}


def decide(
    local: dict[str, str] | Exception,
    provider: dict[str, str] | Exception,
    before: Memory | None = None,
    boot: float = 100.0,
    contents: Contents | None = None,
) -> tuple[sync_check.Verdict, Memory]:
    return sync_check.decide(
        local, provider, before or Memory(), wall=WALL, boot=boot, contents=contents
    )


PEOPLE = [(b"1", b"a"), (b"2", b"b")]


def compared(replica: list[tuple[bytes, bytes]], boot: float = 100.0) -> Contents:
    """The entries of both servers; the provider has PEOPLE."""
    return Contents(content(replica), content(PEOPLE), NEW["000"], boot)


def test_the_same_change_on_both_sides_is_in_sync() -> None:
    verdict, memory = decide(NEW, NEW)
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("in-sync", False, 0)
    assert memory == Memory("in-sync")


def test_a_replica_with_a_change_that_the_provider_lost_is_ahead_and_an_alarm() -> None:
    verdict, memory = decide(NEW, OLD)
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("ahead", True, 71)
    assert NEW["000"] in verdict.detail
    assert memory.state == "ahead"
    # A server that the provider does not know any more.
    assert decide({**NEW, "001": csn(20, server="001")}, NEW)[0].state == "ahead"


def test_the_order_of_entries_is_nothing_and_each_of_their_changes_something() -> None:
    assert content(PEOPLE) == content(PEOPLE[::-1])
    assert content(PEOPLE).entries == 2
    others = [
        *([], PEOPLE[:1], [*PEOPLE, (b"3", b"c")], [PEOPLE[0], PEOPLE[0]]),
        *([(b"1", b"b"), (b"2", b"a")], [(b"1a", b""), PEOPLE[1]]),
    ]
    assert all(content(other).digest != content(PEOPLE).digest for other in others)


def test_other_entries_at_the_same_change_are_an_alarm_until_they_are_compared_again() -> None:
    verdict, memory = decide(NEW, NEW, contents=compared([*PEOPLE, (b"3", b"c")]))
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("other-entries", True, 71)
    assert "3 entries" in verdict.detail
    assert "the provider has 2" in verdict.detail
    # Changes keep coming: nothing is known, so nothing is well.
    verdict, memory = decide(NEW, NEW, memory)
    assert (verdict.state, verdict.stale) == ("other-entries", True)
    verdict, memory = decide(NEW, NEW, memory, contents=compared(PEOPLE, boot=150.0))
    assert (verdict.state, verdict.stale) == ("in-sync", False)
    assert (memory.compared, memory.compared_at) == (NEW["000"], 150.0)


def test_entries_are_compared_after_a_change_and_now_and_then() -> None:
    at = 1000.0
    assert sync_check.is_due(Memory(), "csn", at)
    memory = Memory("in-sync", compared="csn", compared_at=at)
    assert not sync_check.is_due(memory, "csn", at + 599)
    assert sync_check.is_due(memory, "csn", at + 600)
    assert not sync_check.is_due(memory, "later", at + 59)
    assert sync_check.is_due(memory, "later", at + 60)
    # After a boot, and after any state but in-sync.
    assert sync_check.is_due(memory, "csn", at - 1)
    for state in set(sync_check.EXIT_CODES) - {"in-sync"}:
        assert sync_check.is_due(Memory(state, None, 0.0, "csn", at), "csn", at + 1)


def test_a_comparison_outlives_a_lag() -> None:
    _, memory = decide(NEW, NEW, contents=compared(PEOPLE))
    _, memory = decide(OLD, NEW, memory)
    _, memory = decide(OLD, UnreachableError("away"), memory)
    _, memory = decide(NEW, NEW, memory)
    assert (memory.compared, memory.compared_at) == (NEW["000"], 100.0)


def test_a_missing_change_sends_lookups_to_the_provider_and_is_an_alarm() -> None:
    verdict, _ = decide(OLD, NEW)
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("lagging", True, 71)
    assert NEW["000"] in verdict.detail


def test_changes_of_one_moment_are_told_apart_by_their_number() -> None:
    assert decide({"000": csn(5, 1)}, {"000": csn(5, 2)})[0].state == "lagging"


def test_the_lag_is_measured_from_when_the_missing_change_was_first_seen() -> None:
    first, memory = decide(OLD, NEW, boot=100.0)
    assert first.behind == 0.0
    second, memory = decide(OLD, {"000": csn(1)}, memory, boot=130.0)
    assert second.behind == 30.0, "a newer change does not start the clock again"
    third, memory = decide(NEW, {"000": csn(1)}, memory, boot=140.0)
    assert third.behind == 0.0, "the replica has moved; what is missing now is another change"
    last, memory = decide({"000": csn(1)}, {"000": csn(1)}, memory, boot=150.0)
    assert (last.state, last.behind, memory.missing) == ("in-sync", None, None)


def test_this_hosts_clock_has_no_say_in_the_order() -> None:
    late = WALL + timedelta(hours=3)
    verdict, _ = sync_check.decide(OLD, NEW, Memory(), wall=late, boot=1.0)
    assert (verdict.state, verdict.behind) == ("lagging", 0.0)
    assert sync_check.decide(NEW, NEW, Memory(), wall=late, boot=1.0)[0].state == "in-sync"


def test_a_provider_that_is_away_changes_nothing_but_is_told() -> None:
    verdict, _ = decide(OLD, UnreachableError("ldaps://ldap1: Can't contact LDAP server"))
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("provider-unreachable", None, 75)
    assert "Can't contact" in verdict.detail


def test_a_provider_that_goes_away_does_not_end_a_lag() -> None:
    _, memory = decide(OLD, NEW, boot=100.0)
    _, memory = decide(OLD, UnreachableError("away"), memory, boot=110.0)
    verdict, _ = decide(OLD, NEW, memory, boot=160.0)
    assert verdict.behind == 60.0


@pytest.mark.parametrize("provider", [NEW, UnreachableError("away")])
def test_an_empty_replica_is_never_asked_first(provider: dict[str, str] | Exception) -> None:
    verdict, _ = decide({}, provider)
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("never-synchronised", True, 71)


def test_a_refused_account_is_an_alarm_although_nothing_lags_yet() -> None:
    verdict, _ = decide(NEW, RefusedError("invalid credentials"))
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("refused", True, 77)


def test_a_replica_that_does_not_answer_is_an_alarm() -> None:
    verdict, _ = decide(UnreachableError("no socket"), NEW)
    assert (verdict.state, verdict.stale, verdict.exit_code) == ("replica-unreachable", True, 69)


@pytest.mark.parametrize(("minutes", "state"), [(-0.5, "in-sync"), (-2, "clock")])
def test_a_change_from_the_future_hides_later_ones(minutes: float, state: str) -> None:
    ahead = {"000": csn(minutes)}
    verdict, _ = decide(ahead, ahead)
    assert verdict.state == state
    assert verdict.stale is (state == "clock")


def test_every_server_that_takes_writes_counts() -> None:
    both = sync_check.parse_csns([csn(5, server="001"), csn(1, server="002")])
    assert sync_check.missing(both, both) == {}
    assert sync_check.missing({"001": both["001"]}, both) == {"002": both["002"]}


@pytest.mark.parametrize("text", ["", "20201121120000Z", csn(1) + "#", "x#000000#000#000000"])
def test_what_is_no_csn_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="contextCSN"):
        sync_check.parse_csns([text])


def test_every_state_has_words_and_an_exit_code() -> None:
    assert set(sync_cli._SENTENCES) == set(sync_check.EXIT_CODES)
    manual = sync_check.__doc__ or ""
    for state, code in sync_check.EXIT_CODES.items():
        row = next(line for line in manual.splitlines() if line.startswith(f"| {state} |"))
        assert f"| {code} |" in row


# --- files ----------------------------------------------------------------------------------


def config(folder: Path) -> Config:
    return Config(
        replica="ldapi://%2Fnowhere",
        provider="ldaps://ldap1.example.org",
        suffix="dc=example,dc=org",
        bind_dn="cn=replica,ou=services,dc=example,dc=org",
        bind_password_file=str(folder / "password"),
        ca_file="/etc/hgfleet/tls/ca.pem",
        timeout=2,
        patience=0.01,
        stale_file=str(folder / "directory-stale"),
        state_file=str(folder / "replica.json"),
    )


def write(folder: Path, **changes: object) -> str:
    values = {name: getattr(config(folder), name) for name in Config.__slots__} | changes
    path = folder / "replica.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]
    path.write_text("\n".join(lines))
    return str(path)


def test_settings_are_read(tmp_path: Path) -> None:
    assert sync_cli.load_config(write(tmp_path)) == config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provider": None}, "provider: got nothing, expected a text"),
        ({"colour": "red"}, "colour"),
        ({"timeout": "2"}, "timeout: got '2'"),
        ({"suffix": ""}, "suffix"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        sync_cli.load_config(write(tmp_path, **changes))


def test_a_host_without_replica_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no replica"):
        sync_cli.load_config(str(tmp_path / "none.toml"))


def test_the_mark_is_made_left_alone_and_removed(tmp_path: Path) -> None:
    mark = str(tmp_path / "directory-stale")
    assert sync_cli.mark(mark, None) is False
    assert sync_cli.mark(mark, stale=True) is True
    assert sync_cli.mark(mark, None) is True
    assert sync_cli.mark(mark, stale=False) is False
    assert sync_cli.mark(mark, stale=False) is False


def test_what_a_check_leaves_is_what_the_next_one_finds(tmp_path: Path) -> None:
    path = str(tmp_path / "replica.json")
    assert sync_cli.load_memory(path) == Memory()
    left = Memory("lagging", NEW, 12.5, NEW["000"], 11.5)
    sync_cli.save_memory(path, left)
    assert sync_cli.load_memory(path) == left
    # A file of the release before.
    Path(path).write_text('{"state": "in-sync", "missing": null, "since": 0.0}')
    assert sync_cli.load_memory(path) == Memory("in-sync")
    Path(path).write_text("{")
    assert sync_cli.load_memory(path) == Memory()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Stand in for both servers: the answer of each, or its error."""
    same = content(PEOPLE)
    said: dict[str, object] = {"replica": OLD, "provider": OLD, "ldapi": same, "ldaps": same}

    def answer(name: str) -> object:
        told = said[name]
        if isinstance(told, list):
            told = told.pop(0) if len(told) > 1 else told[0]
        if isinstance(told, Exception):
            raise told
        return told

    monkeypatch.setattr(sync_cli, "read_replica", lambda _config: answer("replica"))
    monkeypatch.setattr(sync_cli, "read_provider", lambda _config: answer("provider"))
    monkeypatch.setattr(
        sync_cli, "read_content", lambda _config, uri: answer(uri.partition(":")[0])
    )
    return said


def test_a_replica_that_catches_up_in_time_is_no_alarm(
    tmp_path: Path, answers: dict[str, object]
) -> None:
    answers.update(replica=[OLD, OLD, NEW], provider=NEW)
    verdict, _ = sync_cli.examine(config(tmp_path), Memory(), patience=30)
    assert verdict.state == "in-sync"


def look(folder: Path, before: Memory | None = None, *, whole: bool = False) -> str:
    verdict, _ = sync_cli.examine(config(folder), before or Memory(), patience=0, whole=whole)
    return verdict.state


def test_a_replica_that_got_a_change_between_the_two_looks_is_in_sync(
    tmp_path: Path, answers: dict[str, object]
) -> None:
    answers.update(replica=NEW, provider=[OLD, NEW])
    assert look(tmp_path) == "in-sync"
    answers.update(provider=OLD)
    assert look(tmp_path) == "ahead"


def test_people_whom_a_restored_provider_does_not_have_are_seen_after_its_next_change(
    tmp_path: Path, answers: dict[str, object]
) -> None:
    answers.update(replica=NEW, provider=NEW, ldapi=content([*PEOPLE, (b"3", b"c")]))
    assert look(tmp_path) == "other-entries"
    # Entries compared a moment ago are not compared again, but for a person who asks.
    known = Memory("in-sync", None, 0.0, NEW["000"], sync_cli._boot())
    assert look(tmp_path, known) == "in-sync"
    assert look(tmp_path, known, whole=True) == "other-entries"


def test_a_change_while_entries_are_read_is_no_difference(
    tmp_path: Path, answers: dict[str, object]
) -> None:
    other, same = content(PEOPLE[:1]), content(PEOPLE)
    answers.update(replica=NEW, provider=[NEW], ldapi=[other, same])
    assert look(tmp_path) == "in-sync"
    answers.update(replica=[OLD, NEW], provider=[OLD, OLD, NEW], ldapi=[other, same])
    assert look(tmp_path) == "in-sync"


def test_changes_that_come_all_the_while_are_no_difference(
    tmp_path: Path, answers: dict[str, object]
) -> None:
    moments = [{"000": csn(minutes)} for minutes in (9, 8, 7, 6)]
    first, second, third, last = moments
    provider = [first, first, second, second, third, third, last]
    answers.update(replica=list(moments), provider=provider, ldapi=content(PEOPLE[:1]))
    verdict, memory = sync_cli.examine(config(tmp_path), Memory("in-sync"), patience=0)
    assert (verdict.state, memory.compared) == ("in-sync", "")


def test_a_server_that_shows_no_entries_is_a_failure(
    tmp_path: Path, answers: dict[str, object]
) -> None:
    answers.update(ldaps=UnreachableError("away"))
    assert look(tmp_path) == "provider-unreachable"
    answers.update(ldaps=content(PEOPLE), ldapi=UnreachableError("away"))
    assert look(tmp_path) == "replica-unreachable"
    # An access rule of the release before.
    answers.update(ldapi=content([]))
    assert look(tmp_path) == "other-entries"


def test_a_check_logs_marks_and_fails_and_the_next_one_takes_it_back(
    tmp_path: Path, answers: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    from hgfleet import cli

    words = ["replica", "--config", write(tmp_path, patience=0.01), "check"]
    answers.update(provider=NEW)
    assert cli.main(words) == 71
    told = capsys.readouterr().out
    assert told.startswith("event=replica state=lagging provider=ldaps://ldap1.example.org")
    assert " stale=yes " in told
    assert (tmp_path / "directory-stale").exists()
    answers.update(provider=UnreachableError("away"))
    assert cli.main(words) == 75
    assert (tmp_path / "directory-stale").exists()
    answers.update(replica=NEW, provider=NEW)
    assert cli.main(words) == 0
    assert not (tmp_path / "directory-stale").exists()


def test_status_says_the_same_and_changes_nothing(
    tmp_path: Path, answers: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    from hgfleet import cli

    path = write(tmp_path)
    answers.update(provider=NEW)
    assert cli.main(["replica", "--config", path, "status"]) == 71
    assert "has missed a change of ldaps://ldap1.example.org for" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["replica.toml"]


def test_the_journal_hears_only_news_and_troubles() -> None:
    well = sync_check.Verdict("in-sync", stale=False)
    assert sync_cli.priority(well, Memory("in-sync")) == "<6>"
    assert sync_cli.priority(well, Memory("lagging")) == "<5>"
    assert sync_cli.priority(sync_check.Verdict("lagging", stale=True), Memory("lagging")) == "<4>"
