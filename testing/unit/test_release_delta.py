"""A release from the one before and the difference, and the whole archive where that fails."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testing import loading

delta = loading.module("ansible/roles/release/files/delta.py")
apply = loading.module("ansible/roles/release/files/apply.py")

RANDOM = os.urandom(300_000)
pytestmark = pytest.mark.skipif(not shutil.which("zstd"), reason="the controller has no zstd")


def release(folder: Path, version: str, content: bytes) -> Path:
    """Make a release and its archive, as the builder does."""
    home = folder / "releases" / version
    (home / "bin").mkdir(parents=True)
    (home / "bin/hg").write_bytes(content)
    (home / "VERSION").write_text(version)
    archive = folder / f"hgfleet-{version}.tar.gz"
    words = ["tar", *apply.PACKED, "--gzip", "--file", str(archive), "--directory"]
    subprocess.run([*words, str(folder / "releases"), version], check=True)
    return archive


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A controller with two archives, and a host with the first."""
    (tmp_path / "incoming").mkdir()
    first = release(tmp_path, "1", RANDOM)
    second = release(tmp_path, "2", RANDOM[:100_000] + b"changed" + RANDOM[100_000:])
    shutil.rmtree(tmp_path / "releases/2")
    return tmp_path, first, second


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_small_difference_gives_the_same_release(
    site: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    host, first, second = site

    delta.main([str(first), str(second)])
    made = told(capsys)
    apply.main(["1", made["sha256"], made["delta"], str(host)])

    assert told(capsys) == {"unpacked": True, "reason": ""}
    assert (host / "incoming/2/VERSION").read_text() == "2"
    assert b"changed" in (host / "incoming/2/bin/hg").read_bytes()
    assert [path.name for path in (host / "incoming").iterdir()] == ["2"]
    assert Path(made["delta"]).stat().st_size < 5_000 < second.stat().st_size
    # Found the next time, and not made again.
    before = Path(made["delta"]).stat().st_mtime_ns
    delta.main([str(first), str(second)])
    assert told(capsys) == made
    assert Path(made["delta"]).stat().st_mtime_ns == before


def test_a_release_that_was_changed_on_the_host_is_no_base(
    site: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    host, first, second = site
    delta.main([str(first), str(second)])
    made = told(capsys)
    (host / "releases/1/bin/hg").write_bytes(RANDOM[:-1] + b"x")

    apply.main(["1", made["sha256"], made["delta"], str(host)])

    assert told(capsys)["unpacked"] is False
    assert not list((host / "incoming").iterdir())


def test_a_host_without_the_former_release_takes_the_whole_archive(
    site: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    host, first, second = site
    delta.main([str(first), str(second)])
    made = told(capsys)

    apply.main(["0", made["sha256"], made["delta"], str(host)])

    assert told(capsys)["reason"].startswith("tar: ")


def test_no_difference_is_made_without_the_former_archive(
    site: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    host, _, second = site
    delta.main([str(host / "hgfleet-0.tar.gz"), str(second)])
    assert told(capsys) == {
        "delta": "",
        "sha256": "",
        "reason": f"{host / 'hgfleet-0.tar.gz'} is not on the controller",
    }


def test_a_difference_as_large_as_the_release_is_not_used(
    site: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    host, first, _ = site
    other = release(host, "3", hashlib.shake_256(b"3").digest(300_000))
    delta.main([str(first), str(other)])
    made = told(capsys)
    assert (made["delta"], made["reason"]) == ("", "the difference is nearly as large")


@pytest.mark.parametrize(("zstd", "why"), [(None, "no zstd"), ("/usr/bin/zstd", "is not on")])
def test_an_obstacle_is_named(tmp_path: Path, zstd: str | None, why: str) -> None:
    assert why in delta.obstacle(tmp_path / "a", tmp_path / "b", zstd)
