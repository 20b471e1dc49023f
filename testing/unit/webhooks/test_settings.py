"""Settings of webhooks: receivers, their URLs and their secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import parse_table
from hgfleet.replication.protocol.events import Event
from hgfleet.webhooks import settings

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.webhooks.settings import Settings

A = "a" * 32


def event(number: int = 1, repository: str = A, path: str = "team/tool", **more: Any) -> Event:
    fields = {"is_public": True, "body": json.dumps({"push": number}).encode()} | more
    return Event(path, repository, number, **fields)


def parsed(*receivers: dict[str, Any], **more: Any) -> Settings:
    data = {"receivers": list(receivers), **more}
    return parse_table("webhooks.toml", data, settings.parse)


def receiver(**more: Any) -> dict[str, Any]:
    return {"name": "ci", "url": "https://ci.example.org/hook"} | more


def test_a_receiver_takes_the_events_of_its_repositories() -> None:
    (everything,) = parsed(receiver()).receivers
    assert everything.takes(event(path="a/b/c"))
    assert not everything.takes(event(is_public=False))
    (some,) = parsed(receiver(repositories=["team/*", "core"], private=True)).receivers
    assert some.takes(event(is_public=False))
    assert some.takes(event(path="core"))
    assert not some.takes(event(path="other/tool"))


@pytest.mark.parametrize(
    "url",
    [
        "http://ci.example.org/hook",
        "http://10.0.0.1/hook",
        "http://localhost/hook",
        "http://127.0.0.1.example.org/",
        "http://[::ffff:127.0.0.1]/",
        "ftp://ci.example.org/",
        "file:///etc/passwd",
        "https://alice@ci.example.org/",
        "https://ci.example.org/#part",
        "https://ci.example.org:0/",
        "https://ci.example.org:99999/",
        "https:///hook",
        "https://ci.example.org/a b",
        "https://ci.example.org/ä",
        "https://ci.example.org/\r\nX-Other: 1",
        "ci.example.org",
    ],
)
def test_a_url_that_is_not_https_is_refused_and_not_shown(url: str) -> None:
    assert not settings.is_allowed(url)
    with pytest.raises(ConfigurationError) as caught:
        parsed(receiver(url=url))
    assert url not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://ci.example.org",
        "https://10.0.0.1:8443/hook/?token=1",
        "https://[2001:db8::1]/hook",
        "http://127.0.0.1:8000/hook",
    ],
)
def test_https_to_any_host_is_allowed(url: str) -> None:
    assert settings.is_allowed(url)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([receiver(), receiver()], "a name once"),
        ([receiver(name="CI")], "a name of a-z"),
        ([receiver(name="../x")], "a name of a-z"),
        ([receiver(repositories=["/x"])], "a pattern like"),
        ([receiver(private="yes")], "true or false"),
        ([receiver(other=1)], "unknown settings"),
        ([], "1 or more tables"),
        ([receiver(name=f"e{number}") for number in range(101)], "at most 100"),
    ],
)
def test_wrong_settings_are_named(wrong: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parsed(*wrong)


def test_a_secret_is_a_credential_of_the_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(ConfigurationError, match="no credential"):
        settings.secret("ci")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(ConfigurationError, match="No such file"):
        settings.secret("ci")
    (tmp_path / "ci").write_text("short\n")
    with pytest.raises(ConfigurationError, match="5 bytes, expected 16"):
        settings.secret("ci")
    (tmp_path / "ci").write_text("0123456789abcdef\n")
    assert settings.secret("ci") == b"0123456789abcdef"
