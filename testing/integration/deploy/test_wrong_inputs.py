"""./deploy names each wrong input with the way out, all of a site at once, and touches nothing."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from testing.integration.deploy.wrong_inputs import BEFORE_THE_SITE, IN_A_SITE, Mistake

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "ansible/inventories/production-small.example"

CPU_SECONDS = 40.0
"""The most that a refusal may cost. It took 9 s of a core, and the time of a busy core counts."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    shutil.copytree(EXAMPLE, folder)
    vault = folder / "group_vars/all/vault.yml"
    vault.write_text(re.sub(r'""', f'"{"5e" * 24}"', vault.read_text()))
    return folder


def deploy(site: Path, *options: str) -> str:
    """Run ./deploy, which has to refuse; return its output."""
    command = [str(ROOT / "deploy"), str(site), "--yes", "--untested", "a test", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 1, done.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < CPU_SECONDS
    return done.stderr


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_mistakes_of_a_site_are_told_at_once_and_nothing_is_touched(site: Path) -> None:
    for make in dict.fromkeys(mistake.make for mistake in IN_A_SITE):
        make(site)
    before = files(site)
    told = " ".join(deploy(site).split())
    assert {mistake.name for mistake in IN_A_SITE if mistake.told not in told} == set(), told
    assert "Nothing was changed" in told
    assert files(site) == before


@pytest.mark.parametrize("mistake", BEFORE_THE_SITE, ids=lambda mistake: mistake.name)
def test_a_mistake_that_ends_the_run_early_is_told(site: Path, mistake: Mistake) -> None:
    mistake.make(site)
    before = files(site)
    told = deploy(site, *mistake.options)
    assert mistake.told in told
    assert "Traceback" not in told
    assert files(site) == before
