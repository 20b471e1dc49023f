"""The outcome of a step, and how a person reads it. No input or output but the given files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

LINES_OF_A_FAILURE: Final = 60
"""A failure is shown whole up to this; the log has the rest."""

COLUMNS_OF_A_FAILURE: Final = 300

SLOWEST: Final = 10
LEAST_SECONDS_SHOWN: Final = 0.5
"""Of a step or test in the table of the slowest; a run of milliseconds needs no table."""

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)")

# Where the interesting part of a tool's output begins: Ansible, then everything else.
_ANSIBLE_FAILURE = re.compile(r"fatal: \[|FAILED!|\[ERROR\]|^ERROR|CRITICAL")
_PYTEST_ERROR = re.compile(r"^E\s{2,}\S")
_DIFFERENCE = re.compile(r"[-+](?![-+])")
_TASK = re.compile(r"^(?:PLAY|TASK|RUNNING HANDLER) \[")

NOTHING: Final = "no test was found"

NO_TESTS: Final = 5
"""pytest's exit code if there is no test, or each was deselected."""

MOST_REPEATED: Final = 3
"""Tests of a run that may fail at first and pass when they are run once more."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed check or test, with the part of its output that a person needs."""

    title: str
    text: str


@dataclass(slots=True)
class Outcome:
    """Counts of a step. A linter or scenario counts once, each test of pytest counts."""

    tier: str
    name: str
    passed: int = 0
    failures: list[Failure] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    repeated: list[Failure] = field(default_factory=list)
    """Its tests that failed and ran once more, with the reasons of their first failures."""
    recorded: list[str] = field(default_factory=list)
    """Steps that did not run because a record says that they passed with these files."""
    seconds: float = 0.0
    log: Path | None = None
    parts: list[tuple[str, float]] = field(default_factory=list)
    """Its tests, or the phases of a scenario, with the seconds that each took."""

    @property
    def failed(self) -> int:
        """How many things failed."""
        return len(self.failures)


def plain(line: str) -> str:
    """Remove colours and links that a tool writes for terminals."""
    return COLOURS.sub("", line)


def excerpt(lines: Sequence[str], limit: int = LINES_OF_A_FAILURE) -> str:
    """Choose the part of a tool's output that names the error.

    For Ansible that is the first failed task, for pytest what surrounds the first line of the
    error; else the beginning, where linters put the first finding, and the end, where everything
    else puts the reason.
    """
    for number, line in enumerate(lines):
        if _ANSIBLE_FAILURE.search(line):
            start = number
            while start > 0 and number - start < 20 and not _TASK.search(lines[start]):
                start -= 1
            if not _TASK.search(lines[start]):
                start = max(0, number - 3)
            return "\n".join(lines[start : start + limit])
    if len(lines) <= limit:
        return "\n".join(lines)
    errors = [number for number, line in enumerate(lines) if _PYTEST_ERROR.match(line)]
    if errors:
        start = max(0, errors[0] - limit // 2)
        return "\n".join(lines[start : start + limit])
    half = limit // 2
    left_out = f"... {len(lines) - 2 * half} more lines in the log ..."
    return "\n".join([*lines[:half], left_out, *lines[-half:]])


def of_command(outcome: Outcome, code: int, lines: Sequence[str]) -> None:
    """Count a command that is a single check."""
    if code == 0:
        outcome.passed = 1
    else:
        text = excerpt(lines) or f"no output, exit code {code}"
        outcome.failures.append(Failure(f"{outcome.name} (exit code {code})", text))


def of_junit(
    outcome: Outcome, code: int, lines: Sequence[str], report: Path, *, narrowed: bool = False
) -> None:
    """Count the tests in the report that pytest wrote; a run without tests is a failure.

    With `narrowed` the gate may have left out all of its tests: the step is skipped then.
    """
    try:
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314  (pytest wrote it)
    except (OSError, ET.ParseError):
        cases = []
    # A test that ran again has an empty entry of its first run before the entry that counts.
    entries = [(_title(case), case) for case in cases]
    last = {title: number for number, (title, _) in enumerate(entries)}
    for number, (title, case) in enumerate(entries):
        outcome.parts.append((title, float(case.get("time") or 0)))
        if not len(case) and last[title] != number:
            continue
        bad = [child for child in case if child.tag in ("failure", "error")]
        skips = [child for child in case if child.tag == "skipped"]
        if bad:
            text = bad[0].text or bad[0].get("message") or ""
            outcome.failures.append(Failure(title, excerpt(plain(text).splitlines())))
        elif skips:
            outcome.skipped.append((title, skips[0].get("message") or "no reason given"))
        else:
            outcome.passed += 1
    # 1 is failed tests, 2 is also a file that could not be imported: both are in the report. Any
    # other code means that tests are missing from it.
    if code not in (0, 1, 2, NO_TESTS) or (code in (1, 2) and not outcome.failures):
        reason = f"{outcome.name}: pytest ended with exit code {code}"
        outcome.failures.append(Failure(reason, excerpt(lines)))
    elif not cases and narrowed and code == NO_TESTS:
        outcome.skipped.append((outcome.name, "the gate leaves out all of its tests"))
    elif not cases:
        outcome.failures.append(Failure(f"{outcome.name}: {NOTHING}", excerpt(lines)))


def _title(case: ET.Element) -> str:
    return "::".join(part for part in (case.get("classname"), case.get("name")) if part)


def chosen(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Leave out the steps without a test where words chose tests, unless none has any."""
    with_tests = [
        outcome
        for outcome in outcomes
        if [failure.title for failure in outcome.failures] != [f"{outcome.name}: {NOTHING}"]
    ]
    return with_tests or list(outcomes)


def duration(seconds: float) -> str:
    """Render a time for a person: 0.4 s, 12 s, 3 min 05 s."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{round(seconds) // 60} min {round(seconds) % 60:02} s"


def summary(
    outcomes: Sequence[Outcome], tiers: Mapping[str, float], beside: Sequence[Outcome] = ()
) -> tuple[str, int]:
    """Render the end of a run, and its exit code; `tiers` has the seconds that each tier took.

    `beside` ran in the background. It is shown and not counted: the tiers that needed it are.

    The last line is `N passed, N failed`. A tier that ran nothing is a failure: a test run that
    tests nothing must not look green.
    """
    counted = list(outcomes)
    for tier in tiers:
        if not any(o.tier == tier and (o.passed or o.failed or o.recorded) for o in counted):
            failure = Failure("nothing ran", "Nothing in this tier passed or failed.")
            counted.append(Outcome(tier, "nothing ran", failures=[failure]))
    counted += too_many_repeated(counted)
    rows: list[tuple[str, ...]] = [("tier", "passed", "failed", "skipped", "time")]
    for tier, seconds in tiers.items():
        of_tier = [o for o in counted if o.tier == tier]
        rows.append(_row(tier, of_tier, seconds))
        if len(of_tier) > 1:
            rows += [_row(f"  {o.name}", [o], o.seconds) for o in of_tier if not o.recorded]
    rows += [(f"({o.name}, in the background)", "", "", "", duration(o.seconds)) for o in beside]
    width = max(len(row[0]) for row in rows)
    lines = [
        "",
        *(f"{row[0]:<{width}}  " + "".join(f"{cell:>12}" for cell in row[1:]) for row in rows),
    ]
    lines += _slowest_lines([*counted, *beside])
    failures = [(o, failure) for o in counted for failure in o.failures]
    skipped = [(o, *skip) for o in counted for skip in o.skipped]
    lines += _repeated_lines(counted)
    recorded = [(o, o.recorded) for o in counted if o.recorded]
    if recorded:
        lines += ["", "Not run, they passed before with these files:"]
        lines += [f"  {o.tier}: {' '.join(names)}" for o, names in recorded]
    if skipped:
        lines += ["", "Skipped:", *_skipped_lines((o.tier, *skip) for o, *skip in skipped)]
    if failures:
        outcome, first = failures[0]
        lines += ["", f"First failure, in {outcome.tier}: {first.title}"]
        lines += [f"  | {_shorten(line)}".rstrip() for line in first.text.splitlines()]
        if outcome.log:
            lines.append(f"  log: {outcome.log}")
        if len(failures) > 1:
            lines += ["", "Also failed:"]
            for outcome, failure in failures[1:]:
                log = f" (log: {outcome.log})" if outcome.log else ""
                lines.append(f"  {outcome.tier}: {failure.title}{log}")
    passed = sum(o.passed for o in counted)
    lines += ["", f"{passed} passed, {len(failures)} failed"]
    return "\n".join(lines), 1 if failures or not (passed or recorded) else 0


def repeated_of(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the tests that failed at first and ran once more, with their tiers and reasons."""
    pairs = [
        (f"{o.tier}: {test.title}", reason(test.text)) for o in outcomes for test in o.repeated
    ]
    return [f"{test}: {why}" if why else test for test, why in pairs]


def reason(text: str) -> str:
    """Return the line that names the error: of pytest, of a story's difference, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_PYTEST_ERROR, _DIFFERENCE):
        if matching := [line for line in lines if pattern.match(line)]:
            return _shorten(matching[0].removeprefix("E").strip())
    return _shorten(lines[0]) if lines else ""


def _repeated_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the repeated tests with their first failures, which the second run has hidden."""
    lines = ["", f"Failed at first and run once more ({MOST_REPEATED} of a run at most):"]
    pairs = [(outcome, test) for outcome in outcomes for test in outcome.repeated]
    for outcome, test in pairs:
        lines.append(f"  {outcome.tier}: {test.title}")
        lines += [f"  | {_shorten(line)}".rstrip() for line in test.text.splitlines()]
        if outcome.log:
            lines.append(f"  log: {outcome.log}")
    return lines if pairs else []


def too_many_repeated(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the failure of a run that repeated more tests than a stalled machine explains."""
    repeated = repeated_of(outcomes)
    if len(repeated) <= MOST_REPEATED:
        return []
    title = (
        f"{len(repeated)} tests failed at first and were run once more, expected at most"
        f" {MOST_REPEATED}"
    )
    way_out = (
        "A machine that stalls repeats a test or two. These have a race, or the machine is too"
        " busy: read their first failures above, then run each by its name."
    )
    text = "\n".join([*repeated, way_out])
    return [Outcome("run-tests", "repeated tests", failures=[Failure(title, text)])]


def _skipped_lines(skipped: Iterable[Sequence[str]]) -> list[str]:
    """Return a line per tier, test and reason; a test of several hosts or values has one line."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for tier, name, reason in skipped:
        grouped.setdefault((tier, name.partition("[")[0], reason), []).append(name)
    return [
        f"  {tier}: {names[0] if len(names) == 1 else f'{name}, {len(names)} times'}: {reason}"
        for (tier, name, reason), names in grouped.items()
    ]


def slowest(outcomes: Sequence[Outcome], count: int = SLOWEST) -> list[tuple[str, str, float]]:
    """Return tier, name and seconds of the slowest tests, phases of scenarios and linters."""
    timed = [
        (outcome.tier, name, seconds)
        for outcome in outcomes
        for name, seconds in (outcome.parts or [(outcome.name, outcome.seconds)])
        if seconds >= LEAST_SECONDS_SHOWN
    ]
    return sorted(timed, key=lambda item: -item[2])[:count]


def _slowest_lines(outcomes: Sequence[Outcome]) -> list[str]:
    rows = slowest(outcomes)
    if not rows:
        return []
    width = max(len(tier) for tier, _, _ in rows)
    shown = [
        f"  {duration(seconds):>11}  {tier:<{width}}  {name.removeprefix(f'testing.{tier}.')}"
        for tier, name, seconds in rows
    ]
    return ["", "Slowest steps and tests:", *(_shorten(line) for line in shown)]


def _shorten(line: str) -> str:
    # A whole web page in a single line of an assertion hides all other lines.
    return line if len(line) <= COLUMNS_OF_A_FAILURE else line[:COLUMNS_OF_A_FAILURE] + " ..."


def _row(name: str, outcomes: Sequence[Outcome], seconds: float) -> tuple[str, ...]:
    return (
        name,
        str(sum(o.passed for o in outcomes)),
        str(sum(o.failed for o in outcomes)),
        str(sum(len(o.skipped) for o in outcomes)),
        duration(seconds),
    )
