from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import TemporaryError
from hgfleet.selfservice import change_refusals
from hgfleet.selfservice.commands import COMMANDS, GREETING

if TYPE_CHECKING:
    from pathlib import Path

READING = {"help", "whoami", "keys", "repo list", "repo info", "token list"}


def test_commands_that_change_something_are_marked() -> None:
    assert {command.name for command in COMMANDS if not command.document} == READING
    assert not GREETING.document


def test_a_mirror_names_the_primary_and_its_address() -> None:
    hgrc = "[hgfleet]\nreplica-of = hg1\nssh-url = ssh://hg@hg.example.org\n"
    with pytest.raises(TemporaryError, match=r"primary is hg1; .* ssh://hg@hg.example.org"):
        change_refusals.check(hgrc)


def test_a_fence_refuses_with_its_sentence(tmp_path: Path) -> None:
    hgrc = f"[hgfleet]\nfence = {tmp_path}/none, {tmp_path}/fenced\nunconfirmed = {tmp_path}/boot\n"
    change_refusals.check(hgrc)
    change_refusals.check("")
    (tmp_path / "boot").write_text("hg1 has just started\n")
    with pytest.raises(TemporaryError, match="Nothing was changed: hg1 has just started"):
        change_refusals.check(hgrc)
    (tmp_path / "fenced").write_text("hgweb1 is the primary\n")
    with pytest.raises(TemporaryError, match="hgweb1 is the primary"):
        change_refusals.check(hgrc)
