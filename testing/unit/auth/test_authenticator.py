"""Sign-in: accepted secrets, how long they are remembered, and equal refusals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hgfleet.auth import authenticator, limits, protocol, token_file, tokens
from hgfleet.auth.authenticator import Authenticator, Decision, Entry
from hgfleet.auth.daemon import describe
from hgfleet.auth.protocol import Person, Question, Refused, Throttled, Unavailable
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
LATER = "b862b310-7ccc-1041-8a1f-1b0c5d2e3f40"
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
BOB = Person("bob", frozenset({"sandbox"}), "password")


@dataclass
class Site:
    """A directory, tokens and a clock, all made up."""

    folder: Path
    passwords: dict[str, str] = field(default_factory=lambda: {"alice": "wonder", "bob": "builder"})
    groups: dict[str, set[str]] = field(default_factory=lambda: {"bob": {"sandbox"}})
    person_ids: dict[str, str] = field(default_factory=dict)
    is_down: bool = False
    bind_seconds: float = 0.0
    now: float = 1000.0
    searches: list[str] = field(default_factory=list)
    binds: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = str(self.folder / "tokens.json")
        self.auth = Authenticator(
            self,
            token_file.Watched(self.path),
            clock=lambda: self.now,
            today=lambda: NOW + timedelta(seconds=self.now - 1000),
        )

    def person(self, name: str) -> Entry | None:
        self.searches.append(name)
        if self.is_down:
            raise UnavailableError("ldaps://ldap1 (search: Can't contact LDAP server)")
        if name not in self.passwords:
            return None
        groups = frozenset(self.groups.get(name, ()))
        return Entry(name, f"uid={name},ou=people", groups, self.person_ids.get(name, ""))

    def principal(self, name: str) -> Principal:
        return Principal(name, person_id=self.person_ids.get(name, ""))

    def is_password(self, entry: Entry | None, password: str) -> bool:
        self.binds.append(entry and entry.name)
        self.now += self.bind_seconds
        if self.is_down:
            raise UnavailableError("ldaps://ldap1 (password: Can't contact LDAP server)")
        return entry is not None and self.passwords[entry.name] == password

    def decide(self, user: str, secret: str, client: str = "192.0.2.7") -> Decision:
        return self.auth.answer(Question(user, secret, client))

    def ask(self, user: str, secret: str, client: str = "192.0.2.7") -> protocol.Answer:
        return self.decide(user, secret, client).answer

    def token(self, person: str = "bob") -> str:
        with token_file.update(self.path) as kept:
            new, _, secret = tokens.create(kept, self.principal(person), "", tokens.DAYS, NOW)
            kept.update(new)
        return secret


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_right_password_is_a_person_with_groups(site: Site) -> None:
    assert site.ask("bob", "builder") == BOB


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ("bob", "wrong"),
        ("bob", ""),
        ("bob", "wonder"),
        ("nobody", "builder"),
        ("", ""),
        ("", "builder"),
        ("BOB", "builder"),
        ("bob ", "builder"),
        ("bob)(uid=*", "builder"),
        ("*", "builder"),
        ("bob\0", "builder"),
        ("uid=bob,ou=people", "builder"),
        ("\udcff", "\udcff"),
    ],
)
def test_everything_else_gets_one_and_the_same_answer(site: Site, user: str, secret: str) -> None:
    assert site.ask(user, secret) == Refused()


def test_an_empty_password_never_reaches_a_bind(site: Site) -> None:
    site.ask("bob", "")
    assert site.binds == []


def test_impossible_names_are_not_searched_for(site: Site) -> None:
    site.ask("bob)(uid=*", "builder")
    assert site.searches == []


def test_a_refusal_takes_as_long_for_an_unknown_name(site: Site) -> None:
    took = []
    for user, bind_seconds in (("bob", 0.05), ("nobody", 0.001), ("not a name", 0.001)):
        site.bind_seconds = bind_seconds
        before = site.now
        answer = site.ask(user, "wrong")
        assert isinstance(answer, Refused)
        took.append(round(site.now - before + answer.after, 6))

    assert took == [authenticator.REFUSAL_S] * 3
    assert site.binds == ["bob", None, None]


def test_a_clone_costs_one_bind(site: Site) -> None:
    for _ in range(10):
        assert site.ask("bob", "builder") == BOB
    assert len(site.binds) == 1
    assert len(site.searches) == 1


def test_a_remembered_password_is_that_persons_and_that_one_alone(site: Site) -> None:
    site.ask("bob", "builder")
    assert site.ask("bob", "builder2") == Refused()
    assert site.ask("alice", "builder") == Refused()


def test_a_replaced_password_lives_for_a_minute(site: Site) -> None:
    site.ask("bob", "builder")
    site.passwords["bob"] = "replaced"
    site.now += authenticator.PASSWORD_S
    assert site.ask("bob", "builder") == BOB
    site.now += 0.1
    assert site.ask("bob", "builder") == Refused()
    assert site.ask("bob", "replaced") == BOB


def test_a_password_is_of_a_person_and_not_of_a_name(site: Site) -> None:
    site.person_ids["bob"] = FORMER
    assert site.ask("bob", "builder") == replace(BOB, person_id=FORMER)
    site.person_ids["bob"] = TODAY
    site.passwords["bob"] = "another"
    site.now += authenticator.PERSON_S + 0.1
    # It was right a moment ago, and is remembered for a minute.
    assert site.ask("bob", "builder") == Refused()
    assert site.ask("bob", "another") == replace(BOB, person_id=TODAY)


def test_a_token_is_of_a_person_and_not_of_a_name(site: Site) -> None:
    site.person_ids["bob"] = FORMER
    secret = site.token()
    assert site.ask("bob", secret) == Person("bob", frozenset({"sandbox"}), "token", FORMER)
    site.person_ids["bob"] = TODAY
    site.now += authenticator.PERSON_S + 0.1
    decision = site.decide("bob", secret)
    assert (decision.answer, decision.reason) == (Refused(), "another-person")


def test_a_token_without_an_id_is_not_of_a_person_who_is_younger(site: Site) -> None:
    secret = site.token()
    assert site.ask("bob", secret) == Person("bob", frozenset({"sandbox"}), "token")
    site.person_ids["bob"] = LATER
    site.now += authenticator.PERSON_S + 0.1
    decision = site.decide("bob", secret)
    assert (decision.answer, decision.reason) == (Refused(), "another-person")
    new = site.token()
    assert isinstance(site.ask("bob", new), Person)


def test_a_token_of_a_release_before_is_of_the_name(site: Site) -> None:
    secret = site.token()
    site.person_ids["bob"] = TODAY
    assert site.ask("bob", secret) == Person("bob", frozenset({"sandbox"}), "token", TODAY)


def test_a_directory_that_tells_no_person_id_is_told_to_the_operators(site: Site) -> None:
    site.person_ids["bob"] = FORMER
    secret = site.token()
    site.person_ids.clear()
    decision = site.decide("bob", secret)
    assert decision.answer == Unavailable()
    assert "no entryUUID of bob" in decision.reason


def test_who_is_disabled_is_out_within_a_second(site: Site) -> None:
    secret = site.token()
    assert site.ask("bob", "builder") == BOB
    del site.passwords["bob"]
    site.now += authenticator.PERSON_S + 0.01

    assert site.ask("bob", "builder") == Refused()
    assert site.ask("bob", secret) == Refused()


def test_groups_are_those_of_this_second(site: Site) -> None:
    site.ask("bob", "builder")
    site.groups["bob"] = {"maintainers"}
    site.now += authenticator.PERSON_S + 0.01
    answer = site.ask("bob", "builder")
    assert isinstance(answer, Person)
    assert answer.groups == {"maintainers"}


def test_a_token_signs_in_its_owner_only(site: Site) -> None:
    secret = site.token()
    assert site.ask("bob", secret) == Person("bob", frozenset({"sandbox"}), "token")
    assert site.ask("alice", secret) == Refused()
    assert site.ask("", secret) == Refused()
    assert site.ask("bob", secret[:-1] + ("a" if secret[-1] != "a" else "b")) == Refused()
    assert site.binds == [], "a token is no password"


def test_a_revoked_token_is_out_at_once(site: Site) -> None:
    secret = site.token()
    assert isinstance(site.ask("bob", secret), Person)
    with token_file.update(site.path) as kept:
        kept.clear()
    assert site.ask("bob", secret) == Refused()


def test_a_token_ends_at_its_time(site: Site) -> None:
    secret = site.token()
    site.now += (tokens.DAYS - 1) * 86400
    assert isinstance(site.ask("bob", secret), Person)
    site.now += 86400
    decision = site.decide("bob", secret)
    assert (decision.answer, decision.reason) == (Refused(), "expired")


@pytest.mark.parametrize("kind", ["expired token", "disabled token", "disabled password"])
def test_a_secret_that_was_right_once_is_throttled_for_itself_alone(site: Site, kind: str) -> None:
    of_alice = site.token("alice")
    secret = "builder" if kind == "disabled password" else site.token()
    assert isinstance(site.ask("bob", secret), Person)
    if kind == "expired token":
        site.now += tokens.DAYS * 86400
    else:
        # Within the time for which a right password is remembered.
        del site.passwords["bob"]
        site.now += authenticator.PERSON_S + 0.01
    answers = [site.ask("bob", secret) for _ in range(limits.FAMILIAR.burst + 30)]
    assert answers.count(Refused()) == limits.FAMILIAR.burst
    assert [type(answer) for answer in answers[limits.FAMILIAR.burst :]] == [Throttled] * 30
    if kind != "expired token":
        assert isinstance(site.ask("alice", of_alice), Person)
    assert isinstance(site.ask("alice", "wonder"), Person)
    assert site.ask("bob", secret, "192.0.2.8") == Refused()
    # A person who is enabled again is let in at once: a right token is never throttled.
    site.passwords["bob"] = "builder"
    site.now += authenticator.PERSON_S + 0.01
    if kind == "disabled token":
        assert isinstance(site.ask("bob", secret), Person)


def test_guessing_is_throttled_and_the_directory_is_left_alone(site: Site) -> None:
    answers = [site.ask("bob", f"guess{number}") for number in range(200)]

    throttled = [answer for answer in answers if isinstance(answer, Throttled)]
    assert len(throttled) > 150
    assert all(1 <= answer.seconds <= limits.PERSON.seconds for answer in throttled)
    assert len(site.binds) == 200 - len(throttled)


def test_a_flood_against_one_person_stops_neither_others_nor_that_one(site: Site) -> None:
    secret = site.token()
    assert site.ask("bob", "builder", "192.0.2.7") == BOB
    # So that it is not the remembered password that lets bob in.
    site.now += authenticator.PASSWORD_S + 1
    for number in range(100):
        site.ask("bob", "guess", f"198.51.100.{number}")

    assert isinstance(site.ask("bob", "guess", "198.51.100.200"), Throttled)
    assert site.ask("bob", "builder", "192.0.2.7") == BOB, "from where bob works"
    assert isinstance(site.ask("bob", secret, "203.0.113.1"), Person), "with a token, anywhere"
    assert isinstance(site.ask("alice", "wonder", "203.0.113.1"), Person)


def test_a_flood_from_one_address_does_not_stop_its_tokens(site: Site) -> None:
    secret = site.token()
    while not isinstance(site.ask("bob", tokens.new_secret()), Throttled):
        pass
    assert isinstance(site.ask("bob", secret), Person)
    assert isinstance(site.ask("alice", "wonder"), Throttled), "a stranger at that address"


def test_without_a_directory_every_answer_is_unavailable(site: Site) -> None:
    secret = site.token()
    site.is_down = True
    for _ in range(100):
        assert site.ask("bob", "wrong") == Unavailable()
    assert site.ask("bob", secret) == Unavailable()
    site.is_down = False
    assert site.ask("bob", "builder") == BOB, "none of these counted as a guess"


def test_a_damaged_file_of_tokens_stops_tokens_alone(site: Site) -> None:
    Path(site.path).write_text("damaged")
    assert site.ask("bob", tokens.new_secret()) == Unavailable()
    assert site.ask("bob", "builder") == BOB


def test_memory_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "MOST_REMEMBERED", 5)
    for number in range(50):
        site.passwords[f"person{number}"] = "same"
        site.ask(f"person{number}", "same", f"192.0.2.{number}")
    assert len(site.auth._people) == 5
    assert len(site.auth._passwords) == 5


def test_log_lines_have_no_secret_and_no_unknown_name(site: Site) -> None:
    secret = site.token()
    lines = [
        describe(site.decide(user, given), "192.0.2.7", 0.001)
        for user, given in (
            ("bob", "builder"),
            ("bob", "mistyped"),
            ("mypassword", "bob"),
            ("bob", secret),
            ("alice", secret),
        )
    ]

    assert "decision=allow reason=ok person=bob via=password client=192.0.2.7" in lines[0]
    assert "decision=refuse reason=password person=bob client" in lines[1]
    assert "decision=refuse reason=password client" in lines[2]
    assert "reason=ok person=bob via=token token=" in lines[3]
    assert "decision=refuse reason=token client" in lines[4]
    for word in ("builder", "mistyped", "mypassword", secret, tokens.digest(secret)):
        assert word not in "\n".join(lines)
