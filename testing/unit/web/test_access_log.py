from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from hgfleet.web.http import access_log
from hgfleet.web.http.access_log import AccessLog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_json_with_the_time_in_utc(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    AccessLog(path).write({"event": "request", "path": "/a\nb\u2028\xe9", "bytes": 3})
    (line,) = lines(path)
    assert line["time"].endswith("Z")
    assert line["path"] == "/a\nb\u2028\xe9"
    assert path.read_text().count("\n") == 1
    assert path.stat().st_mode & 0o777 == 0o640


def test_lines_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)

    def work() -> None:
        for _ in range(100):
            log.write({"text": "x" * 500})

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(path)) == 800


def test_after_a_rotation_lines_go_to_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "REOPEN_S", 0.0)
    path = tmp_path / "access.log"
    log = AccessLog(path)
    log.write({"number": 1})
    path.rename(tmp_path / "access.log.1")
    log.write({"number": 2})
    path.unlink()
    log.write({"number": 3})
    assert [line["number"] for line in lines(path)] == [3]
    assert [line["number"] for line in lines(tmp_path / "access.log.1")] == [1]


def test_a_log_that_cannot_be_written_is_told_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    AccessLog(tmp_path / "missing" / "access.log").write({"number": 1})
    assert "access.log" in capsys.readouterr().err


def test_without_a_file_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    AccessLog(None).write({"number": 1})
    assert json.loads(capsys.readouterr().err)["number"] == 1
