"""All extensions load together, in the order of their names and in the opposite order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HG = Path(sys.executable).with_name("hg")
EXTENSIONS = sorted((ROOT / "hgext").glob("*.py"))


@pytest.mark.parametrize("order", [1, -1])
def test_a_server_with_all_extensions_answers_and_reports_nothing(
    tmp_path: Path, order: int
) -> None:
    lines = [
        line
        for path in EXTENSIONS[::order]
        for line in (f"{path.stem} = {path}", f"{path.stem}:required = yes")
    ]
    hgrc = tmp_path / "hgrc"
    hgrc.write_text("[extensions]\nclonebundles =\n" + "\n".join(lines) + "\n")
    environment = {**os.environ, "HGRCPATH": str(hgrc), "PYTHONPATH": str(ROOT)}
    subprocess.run([HG, "init", "repo"], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        [HG, "-R", "repo", "serve", "--stdio"],
        cwd=tmp_path,
        env=environment,
        input=b"hello\nheads\n",
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert b"capabilities: " in done.stdout
    assert done.stdout.endswith(b"0" * 40 + b"\n")
