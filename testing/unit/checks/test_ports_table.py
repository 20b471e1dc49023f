"""The table of ports in the architecture comes from the data of the firewall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.checks import ports_table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DOCUMENT = f"Before.\n{ports_table.BEGIN}\nold\n\n{ports_table.END}After.\n"


def test_a_row_has_the_default_ports_of_its_part() -> None:
    row = {
        "from": "clients",
        "to": "proxy",
        "purpose": "HTTPS",
        "ports": {"a": 443, "b": [80], "c": 0},
    }
    away = {"from": "hosts", "to": "receivers", "purpose": "events", "elsewhere": "any"}
    assert ports_table.render([row, away]).splitlines()[2:] == [
        "| clients | proxy | 443, 80 | HTTPS |",
        "| hosts | receivers | any | events |",
    ]


def test_a_stale_table_is_refused_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "architecture.md"
    document.write_text(DOCUMENT)
    assert ports_table.main(["--check"], document) == 1
    assert f"{ports_table.COMMAND} writes it" in capsys.readouterr().err
    assert document.read_text() == DOCUMENT
    assert ports_table.main([], document) == 0
    assert ports_table.main(["--check"], document) == 0
    text = document.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "| proxy | web hosts | 8443 |" in text


def test_a_document_without_marks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "architecture.md"
    document.write_text("Before.\n")
    assert ports_table.main([], document) == 1
    assert "expected both marks" in capsys.readouterr().err
