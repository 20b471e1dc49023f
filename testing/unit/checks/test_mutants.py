"""Mutants of decisions: which there are, which tests are theirs, and which may survive."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import ROOT
from controller.checks.mutants import __main__ as command
from controller.checks.mutants import choosing, explained, sandbox
from controller.checks.mutants.choosing import Mutant
from controller.checks.mutants.explained import Entry
from controller.checks.mutants.mutations import MODULE, apply, mutations, witness
from controller.tests import worktree

if TYPE_CHECKING:
    from pathlib import Path


def changes(source: str) -> set[str]:
    return {mutation.change for mutation in mutations(source)}


# --- mutations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"a < b -> a <= b"}),
        ("x = a >= b", {"a >= b -> a > b"}),
        # Times are never equal.
        ("x = now < b", {"now < b -> now >= b"}),
        ("x = a == b != c", {"a == b != c -> a != b != c", "a == b != c -> a == b == c"}),
        ("x = a in b", {"a in b -> a not in b"}),
        ("x = a is not None", {"a is not None -> a is None"}),
        (
            "x = a and b and c",
            {
                "a and b and c -> a or b or c",
                "a and b and c -> b and c",
                "a and b and c -> a and c",
                "a and b and c -> a and b",
            },
        ),
        ("x = not a", {"not a -> a"}),
        ("if a:\n    f()", {"if a -> True", "if a -> False"}),
        ("while a:\n    f()", {"if a -> False"}),
        ("while True:\n    f()", set()),
        ("x = b if a else c", {"if a -> True", "if a -> False"}),
        ("x = [a for a in b if a]", {"if a -> True"}),
        ("LIMIT: Final = 3", {"3 -> 4"}),
        ("LIMIT = 3", {"3 -> 4"}),
        # It is tuned, and 1801 would be as right.
        ("PATIENCE_SECONDS = 1800", set()),
        ("found = 3", set()),
        ("x = f(days=3)", {"3 -> 4"}),
        ("x = (a + 1) * 2.5", {"1 -> 2", "2.5 -> 3.5"}),
        ("def f(a=3, *, b=4): pass", {"3 -> 4", "4 -> 5"}),
        ("def f(a=True): pass", set()),
        ("def f():\n    return True", {"return True -> return False"}),
        ("raise ValueError('x')", {"raise ValueError('x') -> pass"}),
        ("x = a.lower()", {"a.lower() -> a"}),
        ("x = min(a, b)", {"min -> max"}),
        ('x = ["a", "--b", f"--c={d}"]', {"'--b' -> (left out)", "f'--c={d}' -> (left out)"}),
        # No decisions of the product.
        ("assert a < b", set()),
        ("if TYPE_CHECKING:\n    x = a < b", set()),
        ('if __name__ == "__main__":\n    sys.exit(a < b)', set()),
        ('x = f"{a < b}"', set()),
        ("x: int | None = a", set()),
    ],
)
def test_decisions_have_mutations(source: str, expected: set[str]) -> None:
    assert changes(source) == expected


def test_a_mutation_changes_its_place_alone() -> None:
    source = textwrap.dedent("""\
        def f(a):
            "é"; x = "éé" < a  # kept
            return x
        """)
    (mutation,) = mutations(source)
    assert apply(source, mutation) == source.replace('"éé" < a', "('éé' <= a)")
    assert (mutation.line, mutation.scope) == (2, "f")


def test_a_condition_over_lines_stays_a_condition() -> None:
    source = (
        "x = (\n    a\n    and b\n)\nif (\n    x\n):\n    raise ValueError(\n        x\n    )\n"
    )
    for mutation in mutations(source):
        ast.parse(apply(source, mutation))
        assert apply(source, mutation) != source


def test_an_option_is_left_out_and_nothing_else() -> None:
    source = 'x = ["forget", "--prune", *more]'
    (mutation,) = mutations(source)
    assert ast.unparse(ast.parse(apply(source, mutation))) == "x = ['forget', *more]"


def test_the_scope_is_the_function_with_its_class() -> None:
    source = "class A:\n    def f(self):\n        return True\nX = 3"
    assert [mutation.scope for mutation in mutations(source)] == ["A.f", MODULE]


@pytest.mark.parametrize("call", [1, 9])
def test_a_witness_says_whether_the_place_was_reached(tmp_path: Path, call: int) -> None:
    source = "def f(a):\n    if a > 5:\n        raise ValueError(a)\n    return a\n"
    for mutation in mutations(source):
        mark = tmp_path / f"mark-{call}"
        mark.unlink(missing_ok=True)
        names: dict[str, object] = {}
        exec(witness(source, mutation, str(mark)), names)  # noqa: S102  (the text above)
        function = names["f"]
        assert callable(function)
        if call > 5:
            with pytest.raises(ValueError, match="9"):
                function(call)
        else:
            assert function(call) == call
        assert mark.exists() == (call > 5 or not mutation.before.startswith("raise"))


def test_every_mutation_of_the_product_is_python() -> None:
    sources = worktree.sources([name for name in worktree.files() if name.endswith(".py")])
    # The smallest package stands for all: compiling all mutants takes a minute.
    mutants = choosing.all_of(sources, choosing.FOLDERS["ssh"])
    assert len(mutants) > 200
    for mutant in mutants:
        compile(apply(sources[mutant.file], mutant.mutation), mutant.file, "exec")


# --- the mutants of a run, and their tests ----------------------------------------------------

SOURCES = {
    "hgfleet/backup/restic/prune.py": "LIMIT = 3\nOTHER = 4\n",
    "hgfleet/ssh/session/shell.py": "x = a < b\n",
    "testing/unit/backup/test_prune.py": "one test",
}


def test_a_sample_is_the_same_for_the_same_seed_and_begins_with_the_smaller_one() -> None:
    packages = [
        [
            Mutant(f"{name}.py", mutation)
            for mutation in mutations("x = a and b and c and d\ny = e or f")
        ]
        for name in ("p", "q")
    ]
    first = choosing.sample(packages, 4, 0)
    assert first == choosing.sample(packages, 4, 0)
    assert first == choosing.sample(packages, 8, 0)[:4]
    assert first != choosing.sample(packages, 4, 1)
    # Packages take turns, however large they are.
    assert [mutant.file for mutant in first] == ["p.py", "q.py", "p.py", "q.py"]
    everything = choosing.sample(packages, 0, 0)
    assert sorted(map(str, everything)) == sorted(map(str, packages[0] + packages[1]))


def test_tests_of_a_file_are_the_unit_tests_that_depend_on_it_nearest_first() -> None:
    graph = {
        "hgfleet/x/b.py": frozenset({"hgfleet/x/a.py"}),
        "testing/unit/test_far.py": frozenset({"hgfleet/x/b.py"}),
        "testing/unit/test_near.py": frozenset({"hgfleet/x/a.py"}),
        "testing/unit/test_other.py": frozenset({"hgfleet/y.py"}),
        # It names the file, and does not run it.
        "testing/unit/checks/test_mutants.py": frozenset({"hgfleet/x/a.py"}),
        "testing/integration/test_x.py": frozenset({"hgfleet/x/a.py"}),
    }
    tests = choosing.tests_of("hgfleet/x/a.py", graph, 9, ["unit"])
    assert tests == ["testing/unit/test_near.py", "testing/unit/test_far.py"]
    assert choosing.tests_of("hgfleet/x/a.py", graph, 1, ["unit"]) == tests[:1]
    assert choosing.tests_of("hgfleet/z.py", graph, 9, ["unit"]) == []
    both = choosing.tests_of("hgfleet/x/a.py", graph, 1, ("unit", "integration"))
    assert both == [*tests[:1], "testing/integration/test_x.py"]


def test_a_result_counts_until_the_code_or_a_test_changes() -> None:
    first, second = choosing.all_of(SOURCES, "hgfleet/backup/")
    tests = ["testing/unit/backup/test_prune.py"]
    key = choosing.key(first, SOURCES, tests)
    assert key == choosing.key(first, SOURCES, tests)
    others = {
        choosing.key(second, SOURCES, tests),
        choosing.key(first, {**SOURCES, tests[0]: "another test"}, tests),
        choosing.key(first, {**SOURCES, first.file: SOURCES[first.file] + "#"}, tests),
        choosing.key(first, SOURCES, []),
    }
    assert len(others | {key}) == 5


def test_mutants_are_of_a_package_and_of_a_place() -> None:
    options = command.parser().parse_args(["--package", "backup"])
    assert {mutant.file for mutant in command.chosen(options, SOURCES, set())} == {
        "hgfleet/backup/restic/prune.py"
    }
    options = command.parser().parse_args(["--only", "hgfleet/backup/restic/prune.py:2"])
    assert [str(mutant) for mutant in command.chosen(options, SOURCES, set())] == [
        "hgfleet/backup/restic/prune.py:2 4 -> 5  (in module)"
    ]


# --- survivors --------------------------------------------------------------------------------

PRUNE, OTHER = choosing.all_of(SOURCES, "hgfleet/backup/")
REASON = "a limit that nobody meets"


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        (Entry("hgfleet/backup/restic/prune.py", REASON), [True, True]),
        (Entry("hgfleet/backup/restic/prune.py", REASON, MODULE), [True, True]),
        (Entry("hgfleet/backup/restic/prune.py", REASON, MODULE, "3 -> 4"), [True, False]),
        (Entry("hgfleet/backup/restic/prune.py", REASON, "prune"), [False, False]),
        (Entry("hgfleet/backup/run.py", REASON), [False, False]),
    ],
)
def test_a_survivor_is_explained_by_its_file_function_or_change(
    entry: Entry, covered: list[bool]
) -> None:
    assert [bool(explained.reason([entry], mutant)) for mutant in (PRUNE, OTHER)] == covered


def test_a_class_explains_its_methods_and_no_other_class() -> None:
    entry = Entry("a.py", REASON, "Store")
    assert entry.covers("a.py", "Store.read", "x -> y")
    assert not entry.covers("a.py", "Stores.read", "x -> y")


def test_an_explanation_of_nothing_or_without_a_reason_is_a_problem() -> None:
    entries = explained.read(
        '[[explained]]\nfile = "hgfleet/backup/restic/prune.py"\n'
        'change = "3 -> 5"\nreason = "equal"\n'
    )
    short, stale = explained.problems(entries, SOURCES)
    assert "got the reason 'equal'" in short
    assert "there is no such mutation" in stale
    assert explained.problems([Entry("hgfleet/backup/restic/prune.py", REASON)], SOURCES) == []


def test_the_list_of_this_repository_explains_mutations_that_exist() -> None:
    entries = explained.read(explained.FILE.read_text("utf-8"))
    files = {entry.file for entry in entries}
    sources = worktree.sources([name for name in worktree.files() if name in files])
    assert explained.problems(entries, sources) == []


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ({}, 0),
        ({PRUNE: "killed"}, 0),
        ({PRUNE: "killed", OTHER: "survived"}, 1),
        ({OTHER: "not run"}, 1),
    ],
)
def test_the_exit_code_tells_of_survivors(
    outcomes: dict[Mutant, str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.summary(outcomes, []) == code
    assert ("hgfleet/backup/restic/prune.py:2 4 -> 5" in capsys.readouterr().out) == bool(code)
    assert command.summary(outcomes, [Entry("hgfleet/backup/restic/prune.py", REASON)]) == 0


def test_results_of_a_killed_run_are_read_without_its_last_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert command.results(file) == {}
    command.note(file, "a", PRUNE, "killed")
    with file.open("a") as broken:
        broken.write('{"key": "b", "outc')
    assert command.results(file) == {"a": "killed"}


def test_mutants_that_were_not_killed_are_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for key, mutant, outcome in (
        ("a", PRUNE, "survived"),
        ("b", OTHER, "not run"),
        ("c", PRUNE, "killed"),
    ):
        command.note(file, key, mutant, outcome)
    assert command.alive(file) == {OTHER.place}
    (shell,) = choosing.all_of(SOURCES, "hgfleet/ssh/")
    options = command.parser().parse_args(["--again"])
    assert shell in command.chosen(options, SOURCES, {shell.place})
    assert command.chosen(options, SOURCES, {OTHER.place}) == [OTHER]


# --- the sandbox ------------------------------------------------------------------------------


def test_a_copy_has_the_files_and_the_environment_of_the_controller(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "hgfleet").mkdir(parents=True)
    (checkout / ".venv").mkdir()
    (checkout / "hgfleet/x.py").write_text("x = 1")
    copy = sandbox.make_copy(checkout, ["hgfleet/x.py"], tmp_path / "work")
    assert (copy / "hgfleet/x.py").read_text() == "x = 1"
    assert (copy / ".venv").resolve() == checkout / ".venv"


@pytest.mark.root
def test_nothing_can_be_written_outside_the_two_folders(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("copy", "results", "checkout")]
    for folder in folders:
        folder.mkdir()
    touch = 'for folder in "$@"; do touch "$folder/touched" 2>/dev/null || :; done'
    words = ["sh", "-c", touch, "sh", *map(str, folders)]
    done = subprocess.run(
        sandbox.command(folders[0], folders[1], words, root=True),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    written = [folder.name for folder in folders if (folder / "touched").exists()]
    assert written == ["copy", "results"]


# --- trying -----------------------------------------------------------------------------------


PRODUCT = """\
def is_small(number):
    return number < 5

def is_odd(number):
    return number == 1
"""

PROOF = """\
from tried_module import is_small

def test_it():
    assert is_small(3)
    assert not is_small(9)
"""

# In a process of its own: it forks, and pytest does not run inside pytest.
TRY = """\
import json, pathlib, sys
from controller.checks.mutants import trying
from controller.checks.mutants.choosing import Mutant
from controller.checks.mutants.mutations import mutations

folder, options, *files = sys.argv[1:]
trying.OPTIONS = (*trying.OPTIONS, *options.split())
tests = trying.Tests(pathlib.Path(folder), pathlib.Path.cwd())
source = (tests.copy / "tried_module.py").read_text()
outcomes = {
    one.change: tests.outcome(Mutant("tried_module.py", one), files) for one in mutations(source)
}
print(json.dumps([outcomes, sorted(tests.left_out)]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy with a module, of which a test proves a part."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (tmp_path / "tmp").mkdir()
    (copy / "tried_module.py").write_text(PRODUCT)
    (copy / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (copy / "test_tried.py").write_text(PROOF)
    (copy / "test_broken.py").write_text("def test_it():\n    assert False\n")
    return tmp_path


def tried(folder: Path, *files: str, options: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", TRY, str(folder), options, *files]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=ROOT)


def test_a_mutant_is_killed_or_survives_or_is_not_run(folder: Path) -> None:
    outcomes, left_out = json.loads(tried(folder, "test_tried.py").stdout)
    assert outcomes == {
        "number < 5 -> number <= 5": "survived",
        "5 -> 6": "survived",
        "number == 1 -> number != 1": "not run",
        "1 -> 2": "not run",
    }
    assert left_out == []
    assert (folder / "copy/tried_module.py").read_text() == PRODUCT

    proof = PROOF + "    assert not is_small(5)\n"
    (folder / "copy/test_tried.py").write_text(proof)
    outcomes, _ = json.loads(tried(folder, "test_tried.py").stdout)
    assert outcomes["number < 5 -> number <= 5"] == "killed"
    assert outcomes["5 -> 6"] == "killed"


def test_a_test_that_fails_without_a_mutation_kills_nothing(folder: Path) -> None:
    outcomes, left_out = json.loads(tried(folder, "test_broken.py", "test_tried.py").stdout)
    assert outcomes["5 -> 6"] == "survived"
    assert left_out == ["test_broken.py"]
    outcomes, _ = json.loads(tried(folder, "test_broken.py").stdout)
    assert set(outcomes.values()) == {"not run"}


def test_a_test_that_fails_now_and_then_kills_nothing(folder: Path) -> None:
    """It passes the first time, without a mutation, and fails from then on."""
    (folder / "copy/test_flaky.py").write_text(
        "import pathlib\n\ndef test_it():\n"
        f"    mark = pathlib.Path({str(folder / 'ran')!r})\n"
        "    ran = mark.exists()\n    mark.touch()\n    assert not ran\n"
    )
    outcomes, left_out = json.loads(tried(folder, "test_flaky.py", "test_tried.py").stdout)
    assert outcomes["5 -> 6"] == "survived"
    assert left_out == ["test_flaky.py"]


def test_a_pytest_that_comes_to_no_result_ends_the_run(folder: Path) -> None:
    done = tried(folder, "test_tried.py", options="--no-such-option")
    assert done.returncode == 1
    assert "ControlError" in done.stderr
    assert "--no-such-option" in done.stderr
