"""The cases of the bench of hostile requests, its histories, and its measuring of hosts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mercurial import hg
from mercurial import ui as ui_module

from hgfleet.web.rendering.answer_writer import HELD_BYTES
from testing.bench import hostile, hostile_failing, hostile_groups, hostile_history, hostile_site
from testing.bench.hostile_cases import Case, cases
from testing.bench.hostile_groups import Outcome
from testing.bench.hostile_others import Others, Reply, Target

LEAST = 150


def test_there_are_many_cases_and_each_is_another_request() -> None:
    all_cases = cases()
    assert len(all_cases) >= LEAST
    assert len({case.name for case in all_cases}) == len(all_cases)
    assert len({(case.target, case.body, case.arguments) for case in all_cases}) == len(all_cases)


def test_every_kind_of_request_is_tried() -> None:
    names = [case.name for case in cases()]
    for kind in ("revset", "batch", "between", "getbundle", "page", "archive", "revcount"):
        assert any(name.startswith(kind) for name in names), kind


def test_a_request_fits_http() -> None:
    for case in cases():
        target = case.target
        assert target.isascii(), case.name
        assert " " not in target, case.name
        assert "\n" not in case.arguments, case.name


def test_help_needs_no_cluster() -> None:
    script = Path(hostile.__file__)
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"--phase" in done.stdout


def test_servers_that_went_down_are_counted() -> None:
    text = (
        "# pxname,svname,status,chkdown\n"
        "web,FRONTEND,OPEN,\nweb,hg1,UP,2\nweb,hg2,UP,1\nweb,BACKEND,UP,7\n\n"
    )
    assert hostile_site.count_downs(text) == 3


def test_a_case_above_a_bar_is_missed() -> None:
    assert Outcome("x", "200", 1, 2.0, 200_000_000, 1, 2.0).is_held
    assert not Outcome("x", "200", 1, 2.1, 0).is_held
    assert not Outcome("x", "200", 1, 0, 200_000_001).is_held
    # The mean of 32 requests hides an expensive request.
    assert not Outcome("x", "200", 1, 0.1, 0, 1, 2.1).is_held


def test_each_case_is_sent_and_dear_ones_with_those_of_their_memory() -> None:
    def tried(name: str, wall: float, memory: int, computed: int = 1) -> Outcome:
        return Outcome(name, "200", wall, wall, memory, computed, wall)

    alone = {
        outcome.name: outcome
        for outcome in (
            tried("cheap", 0.1, 9),
            tried("clone", 5, 500, computed=0),
            *(tried(f"dear {memory}", 1, memory) for memory in (1, 30, 2, 40, 50)),
        )
    }
    chosen = [Case(name, f"/{name}") for name in [*alone, "not tried"]]
    groups = [[case.name for case in group] for group in hostile_groups.plan(chosen, alone)]
    assert groups == [
        *(["cheap"], ["clone"], ["not tried"]),
        ["dear 50", "dear 40", "dear 30"],
        ["dear 2", "dear 1"],
    ]


def test_every_case_of_the_bench_is_sent_once() -> None:
    alone = {
        case.name: Outcome(case.name, "200", number % 3, 1, number % 7, number % 5, 1)
        for number, case in enumerate(cases())
    }
    sent = [case for group in hostile_groups.plan(cases(), alone) for case in group]
    assert sorted(case.name for case in sent) == sorted(case.name for case in cases())


def test_a_group_that_misses_a_bar_is_sent_again_case_by_case() -> None:
    group = [Case("a", "/a"), Case("b", "/b")]
    held, missed = Outcome("a", "200", 1, 1, 0), Outcome("b", "200", 1, 0, 300_000_000)
    assert hostile_groups.again(group, [held, held]) == []
    assert hostile_groups.again(group, [held, missed]) == [[group[0]], [group[1]]]
    assert hostile_groups.again(group[1:], [missed]) == []


def test_a_case_that_found_no_renderer_in_a_group_is_sent_again() -> None:
    group = [Case("a", "/a"), Case("b", "/b")]
    tried, refused = Outcome("a", "200,429", 1, 1, 0), Outcome("b", "429", 1, 1, 0)
    assert hostile_groups.again(group, [tried, refused]) == [[group[1]]]


def test_the_sampler_reads_the_access_log(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\n")
    (tmp_path / "cgroup.procs").write_text("")
    log = tmp_path / "access.log"
    log.write_text('{"cpu": 9.0}\n')
    source = hostile_site.SAMPLER.replace("/var/log/hgfleet/web/access.log", str(log))
    source = source.replace('"/sys/fs/cgroup" + shown.stdout.decode().strip()', repr(str(tmp_path)))
    source = source.replace('["systemctl", "show",', '["true", "show",')
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        sampler = hostile_site.Sampler(process)
        first = sampler.read()
        assert (first.cpu, first.requests) == (1.5, 0)
        with log.open("a") as file:
            file.write('{"cpu": 0.5}\n{"status": 429}\n{"cpu": 1.9}\n{"cp')
        second = sampler.read()
        assert (second.requests, second.computed, second.dearest) == (3, 2, 1.9)
        # A rotation replaces the log.
        log.write_text('{"cpu": 0.1}\n')
        assert sampler.read().dearest == 0.1
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A small history of the bench's shape."""
    folder = tmp_path / "history"
    hg.repository(ui_module.ui.load(), bytes(folder), create=True)
    shape = hostile_history.Shape(
        lines=30, wide_files=20, large_text_bytes=1000, large_binary_bytes=500
    )
    hostile_history.write(str(folder), 40, shape)
    return folder


def test_the_history_is_public_and_has_expensive_changesets_at_its_end(history: Path) -> None:
    repo = hg.repository(ui_module.ui.load(), bytes(history))
    assert len(repo) == 40
    assert {repo[number].phasestr() for number in repo} == {b"public"}
    assert len(repo.heads()) == 1
    tip = repo[b"tip"]
    assert tip[b"f"].data().endswith(b"the last line\n")
    assert len(repo.file(b"f")) == 18 + 2
    assert len(repo[37].files()) == 20
    assert tip[b"large.bin"].size() == 500
    for path in tip:
        tip[path].data()


def test_a_short_history_is_less_dear_in_proportion() -> None:
    assert hostile_history.Shape.of(100_000) == hostile_history.Shape.of(10_000)
    assert hostile_history.Shape.of(10_000) == hostile_history.Shape()
    short = hostile_history.Shape.of(200)
    assert (short.lines, short.wide_files) == (2000, 1000)
    assert (short.large_text_bytes, short.large_binary_bytes) == (960_000, 320_000)


def test_the_history_needs_an_empty_repository(history: Path) -> None:
    with pytest.raises(SystemExit, match="has 40 changesets, expected none"):
        hostile_history.write(str(history), 40)


def test_others_are_told_of_other_bytes_and_of_another_status() -> None:
    answers = {"page=1": Reply.of(200, b"foreign"), "page=2": Reply.of(400, b"page")}
    archive, page = Target("healthy/archive/tip.zip"), Target("healthy/json-log")

    def fetch(target: Target, query: str) -> Reply:
        return answers.get(query) or Reply.of(200, target.path.encode())

    others = Others(fetch, [archive], [page])
    others.learn()
    others.run(archives=3, pages=4)
    assert others.wrong == [
        "page 1 healthy/json-log: other bytes",
        "page 2 healthy/json-log: status 400",
    ]
    assert len(others.seconds) == 4
    answers["before=1"] = Reply.of(404, b"")
    with pytest.raises(SystemExit, match="status 404, expected 200"):
        others.learn()


def test_an_archive_begins_before_its_large_file_ends() -> None:
    assert hostile_failing.LARGE > HELD_BYTES
