"""Sign-in of a request: the answers of the daemon that checks passwords, as statuses of HTTP."""

from __future__ import annotations

import base64
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import protocol
from hgfleet.auth.client import NotAskedError
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal
from hgfleet.web.http.exchange import Exchange, RefusedError
from hgfleet.web.http.settings import Settings
from hgfleet.web.http.signin import WAITED_SECONDS, SignIn

if TYPE_CHECKING:
    from pathlib import Path

PERSON_ID = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
ALICE = "Basic " + base64.b64encode(b"alice:secret").decode()


def exchange(header: str = ALICE, scheme: str = "https") -> Exchange:
    environ = {"HTTP_AUTHORIZATION": header, "wsgi.url_scheme": scheme, "REMOTE_ADDR": "10.0.0.9"}
    return Exchange(environ, print, "GET", "/e2e/private", "", time.perf_counter(), "")


class Daemon:
    """Gives the same answer to every question."""

    def __init__(self, answer: protocol.Answer | None) -> None:
        self.answer = answer
        self.asked: list[protocol.Question] = []

    def ask(self, question: protocol.Question) -> protocol.Answer:
        """Note the question; without an answer the daemon is away."""
        self.asked.append(question)
        if self.answer is None:
            raise UnavailableError("/auth: connection refused")
        return self.answer

    def again(self, question: protocol.Question) -> protocol.Answer:
        """Answer a question about a request that has waited."""
        return self.ask(question)


@pytest.fixture
def signin(tmp_path: Path) -> SignIn:
    return SignIn(Settings(auth_socket=tmp_path / "auth"))


def answered(
    signin: SignIn, monkeypatch: pytest.MonkeyPatch, answer: protocol.Answer | None
) -> Daemon:
    daemon = Daemon(answer)
    monkeypatch.setattr(signin, "_client", daemon)
    return daemon


@pytest.mark.parametrize("answer", [protocol.Unavailable(), None])
def test_without_a_directory_a_right_password_is_neither_believed_nor_called_wrong(
    signin: SignIn, monkeypatch: pytest.MonkeyPatch, answer: protocol.Answer | None
) -> None:
    answered(signin, monkeypatch, answer)
    asked = exchange()
    with pytest.raises(RefusedError) as refused:
        signin.principal(asked)
    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "public repositories are served" in refused.value.sentence
    assert dict(refused.value.headers) == {"Retry-After": "60"}
    assert asked.entry["refused"] == "unavailable"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (protocol.Refused(), HTTPStatus.UNAUTHORIZED),
        (protocol.Throttled(7), HTTPStatus.TOO_MANY_REQUESTS),
    ],
)
def test_a_refusal_has_the_status_of_its_reason(
    signin: SignIn, monkeypatch: pytest.MonkeyPatch, answer: protocol.Answer, status: HTTPStatus
) -> None:
    answered(signin, monkeypatch, answer)
    with pytest.raises(RefusedError) as refused:
        signin.principal(exchange())
    assert refused.value.status == status


def test_a_person_is_signed_in_and_the_credentials_leave_the_request(
    signin: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = answered(
        signin, monkeypatch, protocol.Person("alice", frozenset({"staff"}), "password", PERSON_ID)
    )
    asked = exchange()
    assert signin.principal(asked) == Principal("alice", frozenset({"staff"}), PERSON_ID)
    (question,) = daemon.asked
    assert (question.user, question.secret) == ("alice", "secret")
    assert "HTTP_AUTHORIZATION" not in asked.environ
    assert asked.is_personal


def test_a_password_in_clear_is_not_looked_at(
    signin: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = answered(signin, monkeypatch, protocol.Person("alice", frozenset(), "password"))
    with pytest.raises(RefusedError) as refused:
        signin.principal(exchange(scheme="http"))
    assert refused.value.status == HTTPStatus.FORBIDDEN
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("answer", "groups"),
    [
        (protocol.Person("alice", frozenset({"b"}), "password", PERSON_ID), {"b"}),
        (protocol.Refused(), None),
        # A disabled person reaches it by asking often: a right token is never throttled.
        (protocol.Throttled(7), None),
        (protocol.Unavailable(), {"a"}),
        (None, {"a"}),
    ],
)
def test_after_a_wait_the_person_is_the_one_of_now(
    signin: SignIn,
    monkeypatch: pytest.MonkeyPatch,
    answer: protocol.Answer | None,
    groups: set[str] | None,
) -> None:
    daemon = answered(signin, monkeypatch, protocol.Person("alice", frozenset({"a"}), "password"))
    request = exchange()
    before = signin.principal(request)
    assert before is not None
    daemon.answer = answer
    assert signin.after_wait(request, before) == before
    assert len(daemon.asked) == 1, "it did not wait"

    request.started -= WAITED_SECONDS
    after = signin.after_wait(request, before)
    assert (None if after is None else set(after.groups)) == groups
    assert after is None or after.person_id == (PERSON_ID if groups == {"b"} else "")
    assert daemon.asked[0] == daemon.asked[1]


def test_a_client_whose_own_questions_leave_no_room_is_not_let_in_after_a_wait(
    signin: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = answered(signin, monkeypatch, protocol.Person("alice", frozenset({"a"}), "password"))
    request = exchange()
    before = signin.principal(request)
    assert before is not None

    def again(_: protocol.Question) -> protocol.Answer:
        raise NotAskedError("too many questions of 10.0.0.9 at a time")

    monkeypatch.setattr(daemon, "again", again)
    request.started -= WAITED_SECONDS
    assert signin.after_wait(request, before) is None
