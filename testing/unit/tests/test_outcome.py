"""The counts of ./run-tests, and the summary at the end of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.tests.outcome import (
    Failure,
    Outcome,
    chosen,
    duration,
    excerpt,
    of_command,
    of_junit,
    plain,
    summary,
)


def junit(tmp_path: Path, cases: str, code: int = 0, lines: tuple[str, ...] = ()) -> Outcome:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    outcome = Outcome("unit", "pytest")
    of_junit(outcome, code, lines, report)
    return outcome


# Counting.


def test_each_test_of_pytest_counts(tmp_path: Path) -> None:
    outcome = junit(
        tmp_path,
        '<testcase classname="a" name="one"/>'
        '<testcase classname="a" name="two"><failure message="m">E  assert 1</failure></testcase>'
        '<testcase classname="a" name="three"><skipped message="no root"/></testcase>'
        '<testcase classname="a" name="four"><error message="m">boom</error></testcase>',
        code=1,
    )
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert [failure.title for failure in outcome.failures] == ["a::two", "a::four"]
    assert outcome.skipped == [("a::three", "no root")]


def test_a_test_that_ran_again_counts_once_by_its_last_run(tmp_path: Path) -> None:
    first = '<testcase classname="a" name="one"/>'
    bad = '<testcase classname="a" name="one"><failure message="m">E  assert</failure></testcase>'
    assert (junit(tmp_path, first + first).passed, junit(tmp_path, first + first).failed) == (1, 0)
    outcome = junit(tmp_path, first + bad, 1)
    assert (outcome.passed, outcome.failed) == (0, 1)


def test_words_that_choose_tests_of_one_step_do_not_fail_the_others(tmp_path: Path) -> None:
    empty = Outcome("e2e", "host-a")
    of_junit(empty, 5, ["collected 0 items"], tmp_path / "none.xml")
    good = Outcome("e2e", "service", passed=1)
    bad = Outcome("e2e", "service", failures=[Failure("a test", "")])
    assert chosen([empty, good]) == [good]
    assert chosen([empty, bad]) == [bad]
    assert chosen([empty]) == [empty]
    assert empty.failed


@pytest.mark.parametrize(("code", "words"), [(5, "no test was found"), (0, "no test was found")])
def test_an_empty_run_is_a_failure(tmp_path: Path, code: int, words: str) -> None:
    outcome = junit(tmp_path, "", code)
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert words in outcome.failures[0].title


@pytest.mark.parametrize(("code", "counts"), [(5, (0, 1)), (0, (1, 0)), (4, (1, 0))])
def test_the_gate_may_leave_out_all_tests_of_a_step(
    tmp_path: Path, code: int, counts: tuple[int, int]
) -> None:
    outcome = Outcome("e2e", "host-a")
    of_junit(outcome, code, ["no tests ran"], tmp_path / "missing.xml", narrowed=True)
    assert (outcome.failed, len(outcome.skipped)) == counts


@pytest.mark.parametrize("code", [1, 2, 3, 4, -9])
def test_a_broken_run_is_a_failure_whatever_its_report_says(tmp_path: Path, code: int) -> None:
    outcome = junit(tmp_path, '<testcase classname="a" name="one"/>', code, ("ImportError: x",))
    assert outcome.failed == 1
    assert f"exit code {code}" in outcome.failures[0].title
    assert "ImportError: x" in outcome.failures[0].text


def test_a_missing_or_broken_report_is_a_failure(tmp_path: Path) -> None:
    for text in (None, "<testsuites><test"):
        if text:
            (tmp_path / "report.xml").write_text(text)
        outcome = Outcome("unit", "pytest")
        of_junit(outcome, 0, [], tmp_path / "report.xml")
        assert outcome.failed == 1


@pytest.mark.parametrize(("code", "counts"), [(0, (1, 0)), (1, (0, 1)), (-15, (0, 1))])
def test_a_linter_counts_as_one(code: int, counts: tuple[int, int]) -> None:
    outcome = Outcome("lint", "ruff")
    of_command(outcome, code, [])
    assert (outcome.passed, outcome.failed) == counts


# The end of a run.


def test_tests_that_ran_again_are_named() -> None:
    outcome = Outcome("e2e", "service", passed=1, repeated=[Failure("test_a.py::test_x", "")])
    text, code = summary([outcome], {"e2e": 1.0})
    assert (
        "Failed at first and run once more (3 of a run at most):\n  e2e: test_a.py::test_x\n"
        in text
    )
    assert code == 0


def test_more_than_three_repeated_tests_fail_the_run_and_are_listed() -> None:
    names = [Failure(f"test_a.py::test_{number}", "") for number in range(3)]
    e2e = Outcome("e2e", "service", passed=9, repeated=names)
    assert summary([e2e], {"e2e": 1.0})[1] == 0
    faults = Outcome("faults", "pytest", passed=9, repeated=[Failure("test_b.py::test_x", "")])
    text, code = summary([e2e, faults], {"e2e": 1.0, "faults": 1.0})
    assert code == 1
    assert "4 tests failed at first and were run once more, expected at most 3" in text
    assert "  | faults: test_b.py::test_x\n" in text
    assert text.endswith("\n18 passed, 1 failed")


def test_what_passed_before_is_listed_and_its_tier_is_not_empty() -> None:
    before = Outcome("roles", "passed before", recorded=["base", "web"])
    lint = Outcome("lint", "ruff", passed=1)
    text, code = summary([lint, before], {"lint": 1.0, "roles": 0.0})
    assert code == 0
    assert "Not run, they passed before with these files:\n  roles: base web\n" in text
    ssh = Outcome("roles", "ssh", passed=1)
    text, _ = summary([before, ssh], {"roles": 1.0})
    assert "  passed before" not in text


def test_the_last_line_is_the_count_and_nothing_else() -> None:
    text, code = summary(
        [Outcome("lint", "a", passed=3), Outcome("unit", "b", passed=4)],
        {
            "lint": 1.0,
            "unit": 2.0,
        },
    )
    assert text.splitlines()[-1] == "7 passed, 0 failed"
    assert code == 0


def test_a_failure_shows_its_text_its_log_and_the_names_of_the_others() -> None:
    first = Outcome("lint", "ruff", failures=[Failure("ruff (exit code 1)", "a.py:1: bad")])
    first.log = Path("logs/ruff.log")
    second = Outcome("unit", "pytest", passed=9, failures=[Failure("test_x", "long story")])
    text, code = summary([first, second], {"lint": 1, "unit": 1})
    assert code == 1
    assert (
        "First failure, in lint: ruff (exit code 1)\n  | a.py:1: bad\n  log: logs/ruff.log" in text
    )
    assert "  unit: test_x" in text
    assert "long story" not in text
    assert text.endswith("\n9 passed, 2 failed")


def test_a_line_as_long_as_a_page_is_cut() -> None:
    long = Outcome("unit", "pytest", failures=[Failure("test_x", "y" * 5000 + "\nreason")])
    text, _ = summary([long], {"unit": 1})
    assert max(len(line) for line in text.splitlines()) < 350
    assert "  | reason" in text


def test_skips_are_listed_with_their_reason_above_the_last_line() -> None:
    text, code = summary(
        [Outcome("unit", "pytest", passed=1, skipped=[("test_x", "needs root")])], {"unit": 1}
    )
    assert code == 0
    assert "  unit: test_x: needs root" in text.splitlines()[:-1]


@pytest.mark.parametrize(
    "outcomes", [[], [Outcome("roles", "ssh", skipped=[("ssh", "no scenario")])]]
)
def test_a_tier_in_which_nothing_ran_is_red(outcomes: list[Outcome]) -> None:
    text, code = summary(outcomes, {"roles": 0.1})
    assert code == 1
    assert "0 passed, 1 failed" in text


def test_no_tier_at_all_is_red() -> None:
    assert summary([], {}) == (summary([], {})[0], 1)


def test_the_slowest_tests_phases_and_steps_are_in_one_table(tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="testing.unit.test_x" name="t{n}" time="{n}"/>' for n in range(12)
    )
    unit = junit(tmp_path, cases)
    role = Outcome("roles", "web", passed=1, seconds=80, parts=[("web: converge", 60.0)])
    linter = Outcome("lint", "mypy", passed=1, seconds=7.5)
    text, _ = summary([linter, unit, role], {"lint": 8, "unit": 66, "roles": 80})
    table = text.partition("Slowest steps and tests:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split(maxsplit=3)[2:] for line in table[:3]] == [
        ["roles", "web: converge"],
        ["unit", "test_x::t11"],
        ["unit", "test_x::t10"],
    ]
    assert "7.5 s  lint   mypy" in table[5]
    assert len(table) == 10
    assert text.splitlines()[-1] == "14 passed, 0 failed"


def test_a_run_of_moments_has_no_table_of_the_slowest() -> None:
    assert "Slowest" not in summary([Outcome("lint", "a", passed=1)], {"lint": 0.1})[0]


def test_what_ran_beside_is_shown_and_not_counted() -> None:
    beside = [Outcome("set-up", "cluster up", passed=1, seconds=90)]
    text, code = summary([Outcome("unit", "pytest", passed=4)], {"unit": 1}, beside)
    assert code == 0
    assert "(cluster up, in the background)" in text
    assert "90 s  set-up  cluster up" in text
    assert text.splitlines()[-1] == "4 passed, 0 failed"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (12, "12 s"), (185.2, "3 min 05 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_of_an_ansible_run_the_failed_task_is_shown() -> None:
    lines = [f"TASK [t{n}] ***" if n % 3 == 0 else f"ok: {n}" for n in range(300)]
    lines[250] = "fatal: [hg1]: FAILED! => no space left"
    shown = excerpt(lines).splitlines()
    assert shown[0] == "TASK [t249] ***"
    assert shown[1] == lines[250]


def test_of_a_long_output_the_beginning_and_the_end_are_shown() -> None:
    shown = excerpt([str(n) for n in range(1000)], limit=10).splitlines()
    assert shown == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "... 990 more lines in the log ...",
        *["995", "996", "997", "998", "999"],
    ]


def test_of_a_long_report_of_pytest_the_error_is_shown() -> None:
    code, journal = [f"    line {n}" for n in range(100)], [f"journal {n}" for n in range(900)]
    shown = excerpt([*code, ">   assert 1 <= 0", "E   assert 1 <= 0", *journal], limit=10)
    assert shown.splitlines() == [
        *code[-4:],
        ">   assert 1 <= 0",
        "E   assert 1 <= 0",
        *journal[:4],
    ]


def test_colours_and_links_are_removed() -> None:
    assert plain("\x1b[31mred\x1b[0m \x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\") == "red link"


def test_a_test_that_many_hosts_skip_is_one_line() -> None:
    reason = "it changes the host"
    names = [f"test_web::test_drain[{host}]" for host in ("hg1", "hgweb1")]
    skipped = [(name, reason) for name in [*names, "test_ssh::test_key[hg1]"]]
    outcome = Outcome("site", "host-hg1", passed=1, skipped=skipped)
    text, _ = summary([outcome], {"site": 1.0})
    assert text.partition("Skipped:\n")[2].splitlines()[:2] == [
        f"  site: test_web::test_drain, 2 times: {reason}",
        f"  site: test_ssh::test_key[hg1]: {reason}",
    ]
