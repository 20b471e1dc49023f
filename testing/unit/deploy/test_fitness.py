"""Whether hosts can take a deploy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from controller.bootstrap import ROOT
from controller.deploy import fitness

GIB = 1 << 30
FIT = fitness.Machine("debian 13", 0.3, {"/": GIB, "/srv": 5 * GIB}, [])


def test_a_host_as_it_should_be_has_no_problem() -> None:
    assert fitness.problems(FIT, "") == []
    assert fitness.problems(FIT._replace(clock_seconds=-fitness.CLOCK_SECONDS), "") == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"system": "debian 12"}, "its system is debian 12, expected debian 13"),
        ({"system": ""}, "its system is unknown, expected debian 13"),
        ({"clock_seconds": 3600.0}, "its clock is 3600 s ahead of the controller's: set it,"),
        ({"clock_seconds": -31.0}, "its clock is 31 s behind the controller's: set it,"),
        ({"free_bytes": {"/": GIB - 1, "/srv": GIB}}, "/ has 1023 MiB free, expected 1024 MiB"),
        ({"unresolved": ["hg1", "web1"]}, "no address for hg1, web1: DNS, or its /etc/hosts"),
    ],
)
def test_a_problem_is_named_with_its_figure(change: dict[str, Any], told: str) -> None:
    (sentence,) = fitness.problems(FIT._replace(**change), "")
    assert sentence.startswith(told)


def test_all_problems_are_told_at_once() -> None:
    bad = fitness.Machine("debian 12", 99, {"/": 0}, ["hg1"])
    problems = fitness.problems(bad, "Missing sudo password")
    assert len(problems) == 5
    assert "Missing sudo password" in problems[0]
    assert "ANSIBLE_BECOME_PASSWORD_FILE" in problems[0]


def test_a_host_looks_at_itself_with_its_own_python() -> None:
    """The file runs by itself, without this project next to it."""
    command = [
        sys.executable,
        "-I",
        str(ROOT / "ansible/on_host/machine.py"),
        str(time.time() - 90),
    ]
    names = ["localhost", "no-such-host.invalid", "-x", "a" * 300]
    done = subprocess.run([*command, *names], capture_output=True, text=True, check=True)
    machine = fitness.parse(json.loads(done.stdout))
    assert machine.unresolved == names[1:]
    assert 90 <= machine.clock_seconds < 120
    assert machine.free_bytes["/"] > 0
    assert len(machine.system.split()) == 2
