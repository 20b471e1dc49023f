"""The address of the service in messages to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.selfservice import commands, service_address
from hgfleet.selfservice.command import understand
from hgfleet.selfservice.context import Context
from testing.unit.selfservice.selfservice_registry import BOB

if TYPE_CHECKING:
    from pathlib import Path

TEXT = 'hg clone ssh://hg@HOST/people/x; see "ssh hg@HOST help".'


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("ssh://hg@HOST", "ssh hg@HOST"),
        ("ssh://hg@hg.example.org", "ssh hg@hg.example.org"),
        ("ssh://hg@hg.example.org:2222", "ssh -p 2222 hg@hg.example.org"),
        ("ssh://hg@[2001:db8::1]:22", "ssh hg@2001:db8::1"),
    ],
)
def test_messages_name_the_known_address(url: str, command: str) -> None:
    expected = f'hg clone {url}/people/x; see "{command} help".'
    assert service_address.addressed(TEXT, url) == expected


@pytest.mark.parametrize(
    "url", ["https://example.org", "ssh://hg@x y", "ssh://-oProxyCommand=x", "ssh://hg@-x"]
)
def test_a_value_that_is_no_address_is_not_made_into_a_command(url: str) -> None:
    assert service_address.addressed(TEXT, url) == TEXT


def test_an_address_is_read_from_the_configuration_of_the_host() -> None:
    assert (
        service_address.configured("[hgfleet]\nssh-url = ssh://hg@a.example/\n")
        == "ssh://hg@a.example"
    )
    assert service_address.configured("[hgfleet]\nssh-url =\n") == "ssh://hg@HOST"
    assert service_address.configured("") == "ssh://hg@HOST"


def test_help_asks_for_the_address_only_where_it_is_not_known(tmp_path: Path) -> None:
    hgrc = tmp_path / "hgrc"
    help_ = understand("help", commands.COMMANDS)
    assert help_ is not None
    context = Context(BOB, "", "", "", str(hgrc))
    assert "where HOST" in help_.command.run(context, help_)
    hgrc.write_text("[hgfleet]\nssh-url = ssh://hg@hg.example.org\n")
    said = service_address.addressed(
        help_.command.run(Context(BOB, "", "", "", str(hgrc)), help_), "ssh://hg@hg.example.org"
    )
    assert "HOST" not in said
    assert "  ssh hg@hg.example.org repo create" in said
