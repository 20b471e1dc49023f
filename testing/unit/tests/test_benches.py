"""Smoke runs of benchmarks: each file has a smoke run or a reason, and the bars that it judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.tests import benches
from controller.tests.benches import LEFT_OUT, PARTS, SMOKES, Bench
from testing.bench import hostile_bars

ROOT = Path(__file__).resolve().parents[3]
ERROR = "Traceback (most recent call last):\nNameError: x\n"


def test_every_benchmark_has_a_smoke_or_a_reason() -> None:
    files = {path.stem for path in (ROOT / benches.FOLDER).glob("*.py")} - {"__init__"}
    assert files == {*SMOKES, *LEFT_OUT, *PARTS}
    assert len(files) == len(SMOKES) + len(LEFT_OUT) + len(PARTS)
    assert set(PARTS.values()) <= set(SMOKES)


@pytest.mark.parametrize("name", SMOKES)
def test_the_options_of_a_smoke_are_those_of_the_benchmark(name: str) -> None:
    text = (ROOT / benches.FOLDER / f"{name}.py").read_text()
    for word in SMOKES[name].arguments.split():
        if word.startswith("--"):
            assert f'"{word}"' in text, word


@pytest.mark.parametrize(
    ("counts", "code", "output", "failed"),
    [
        (False, 0, "", False),
        (False, 1, "bar missed", False),
        (False, 1, "bar 0.5: MISSED", False),
        (False, 1, ERROR, True),
        (False, 1, f"bar 0.5: MISSED\n{ERROR}", True),
        (False, 1, "expected 3 pushes", True),
        (False, 2, "usage", True),
        (False, hostile_bars.MISSED, "wrong bytes 0 0 held\np95 2.00 s 1.00 s MISSED", False),
        (False, hostile_bars.WRONG, "wrong bytes 1 0 MISSED", True),
        (False, -9, "", True),
        (True, 0, "", False),
        (True, 1, "a push is lost", True),
    ],
)
def test_a_smoke_fails_by_an_error_or_a_bar_that_counts(
    counts: bool, code: int, output: str, failed: bool
) -> None:
    assert benches.is_failure(Bench(counts=counts), code, output) is failed


def test_a_smoke_is_run_as_the_benchmark_says() -> None:
    assert benches.command("pull", Bench("--rounds 1"), "")[1:] == [
        "-m",
        "testing.bench.pull",
        "--rounds",
        "1",
    ]
    assert benches.command("x", Bench("--versitygw {versitygw}"), "/a b")[3:] == [
        "--versitygw",
        "/a b",
    ]


def test_words_choose_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "cluster_environment", lambda: {"HGFLEET_S3_URL": "x"})
    (step,) = benches.steps("pull")
    assert step.command[-2:] == ["controller.tests.benches", "pull"]
    assert step.env["HGFLEET_S3_URL"] == "x"
    assert len(benches.steps("")) == len(SMOKES)


@pytest.mark.parametrize("arguments", [[], ["no-such"], ["pull", "web"]])
def test_a_wrong_name_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert benches.main(arguments) == 2
    assert "expected one of bundles, manifest" in capsys.readouterr().out
