"""The option --gate of pytest, by which the gate leaves tests out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

@pytest.mark.disruptive
def test_last(): pass

def test_always(): pass

@pytest.mark.whole
def test_whole(): pass
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], ["test_always", "test_whole", "test_last"]), (["--gate"], ["test_always", "test_last"])],
)
def test_the_gate_leaves_out_tests_with_the_mark(
    tmp_path: Path, options: list[str], expected: list[str]
) -> None:
    (tmp_path / "test_x.py").write_text(TESTS)
    marks = "markers = disruptive\n whole\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{marks}")
    command = [sys.executable, "-m", "pytest", "-p", "testing.conftest", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, *options, "test_x.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    collected = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert collected == expected, done.stdout + done.stderr
