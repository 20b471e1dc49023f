from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import term

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_file_that_is_there_refuses(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("fenced", "unconfirmed")]
    assert term.refusal(names) is None
    assert term.refusal([]) is None
    (tmp_path / "unconfirmed").write_text("wait\n for it\n")
    assert term.refusal(names) == "wait for it"
    (tmp_path / "fenced").write_text("hgweb1 is the primary")
    assert term.refusal(names) == "hgweb1 is the primary"


def test_a_file_that_cannot_be_read_or_is_empty_refuses(tmp_path: Path) -> None:
    (tmp_path / "fenced").mkdir()
    assert "cannot be read" in (term.refusal([str(tmp_path / "fenced")]) or "")
    (tmp_path / "empty").write_text("")
    assert "refuses pushes" in (term.refusal([str(tmp_path / "empty")]) or "")


def test_a_host_that_has_just_started_waits_for_its_confirmation(tmp_path: Path) -> None:
    unconfirmed, fenced = tmp_path / "unconfirmed", tmp_path / "fenced"
    told = []

    def wait(tell: str, seconds: float = 3600.0) -> str | None:
        def act() -> None:
            told.append(tell)
            (unconfirmed.unlink if tell == "confirm" else fenced.touch)()

        return term.unconfirmed([str(fenced)], str(unconfirmed), seconds, act)

    assert wait("no") is None
    unconfirmed.write_text("just started\n")
    assert wait("no", seconds=0.0) == "just started"
    assert told == []
    assert wait("confirm") is None
    unconfirmed.write_text("just started\n")
    assert "refuses pushes" in (wait("fence") or "")
    assert told == ["confirm", "fence"]
    # A host that is fenced refuses at once.
    assert "refuses pushes" in (wait("no") or "")
    assert told == ["confirm", "fence"]


def test_a_host_without_a_file_is_in_the_first_epoch(tmp_path: Path) -> None:
    file = tmp_path / "epoch.json"
    assert term.epoch(str(file)) == term.epoch("") == 1
    file.write_text(term.write(7, "hgweb1"))
    assert term.epoch(str(file)) == 7
    assert term.parse(file.read_bytes()) == (7, "hgweb1")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "7", '{"epoch":0,"primary":"a"}', '{"epoch":true,"primary":"a"}'),
        *('{"epoch":2}', '{"epoch":1e3,"primary":"a"}', '{"epoch":2,"primary":3}', "[" * 4096),
    ],
)
def test_a_damaged_epoch_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "epoch.json"
    file.write_text(text)
    with pytest.raises(PushlogError, match="is not an epoch of this site"):
        term.epoch(str(file))
