"""The command line of `hgfleet log`."""

from __future__ import annotations

import pytest

from hgfleet import cli


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["log", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "examples:" in said
    assert "X-Request-ID" in said


@pytest.mark.parametrize("name", ["", "42", "-f", "1F2E3D4C5B6A7988", "x; reboot", "$(id)", "a|b"])
def test_a_name_that_is_none_asks_no_journal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["log", "--", name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "expected the id of a session or request" in said.err
