"""A lock has every requirement, each with a version and a hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import locks

if TYPE_CHECKING:
    from pathlib import Path

H = "--hash=sha256:" + "0" * 64


def lock(
    top: Path, wanted: str, controller: str, release: str, dependencies: str = '"a==1"'
) -> list[str]:
    (top / "docker/release").mkdir(parents=True, exist_ok=True)
    (top / "requirements.in").write_text(wanted)
    (top / "requirements.txt").write_text(controller)
    (top / "pyproject.toml").write_text(f"[project]\ndependencies = [{dependencies}]\n")
    (top / "docker/release/requirements.txt").write_text(release)
    return locks.check(top)


def test_locks_that_fit(tmp_path: Path) -> None:
    text = (
        f"a==1 \\\n    {H} \\\n    {H}\n    # via x\nb-c==2.0 ; python_version < '4' \\\n    {H}\n"
    )
    assert lock(tmp_path, "# x\na>=1,<2\nB_c # y\n", text, f"a==1 \\\n    {H}\n") == []


@pytest.mark.parametrize(
    ("wanted", "controller", "release", "expected"),
    [
        ("a\nb\n", f"a==1 {H}\n", f"a==1 {H}\n", "requirements.txt: b is required and not locked"),
        ("a<1\n", f"a==1 {H}\n", f"a==1 {H}\n", "a<1 is required, 1 is locked"),
        ("a\n", "a==1\n", f"a==1 {H}\n", "a has no hash"),
        ("a\n", f"a>=1 {H}\n", f"a==1 {H}\n", "a is not locked to a single version"),
        ("a\n", f"a==1.* {H}\n", f"a==1 {H}\n", "a is not locked to a single version"),
        ("a\n", f"--index-url https://x.test\na==1 {H}\n", f"a==1 {H}\n", "is an option"),
        ("a\n", f"a==1 {H}\n", f"a==2 {H}\n", "a==1 is required, 2 is locked"),
        (
            "a\nc\n",
            f"a==1 {H}\nc==1 {H}\n",
            f"a==1 {H}\nc==2 {H}\n",
            "lock the same version in both",
        ),
        ("", f"a==1 {H}\n", f"a==1 {H}\n", "nothing is required"),
    ],
)
def test_locks_that_do_not_fit(
    tmp_path: Path, wanted: str, controller: str, release: str, expected: str
) -> None:
    assert any(expected in line for line in lock(tmp_path, wanted, controller, release))
