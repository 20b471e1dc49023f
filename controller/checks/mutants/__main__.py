"""Mutation test: change single decisions of the product, and list changes that no test notices.

A mutant is killed if a unit test that depends on its file fails. A survivor is printed as FILE:LINE
before -> after, "not run" if no unit test comes to the place. Kill it with a test, or explain it in
controller/checks/mutants/explained.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.bootstrap import CACHE, ROOT
from controller.checks.mutants import choosing, explained, sandbox
from controller.tests import worktree
from controller.tests.choice import references

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from controller.checks.mutants.choosing import Mutant
    from controller.checks.mutants.explained import Entry

RESULTS: Final = CACHE / "mutants/results.jsonl"
MOST_TESTS: Final = 20
EXAMPLES: Final = """\
examples, each behind python -m controller.checks.mutants:
  --sample 40                               as many mutants of each package
  --sample 40 --seed 7                      others
  --package backup --resume                 all of a package, in several sittings
  --only hgfleet/backup/restic/prune.py:45  after a new test
  --again --integration                     survivors of earlier runs
  --package ssh --list                      names mutants, runs nothing

exit code: 0 if each mutant was killed or is explained, 1 if not, 2 if nothing could be run
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m controller.checks.mutants",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "--package",
        action="append",
        choices=sorted(choosing.FOLDERS),
        help="a package; may be given several times (default: all)",
    )
    result.add_argument("--sample", type=int, default=0, metavar="N", help="at most N mutants")
    result.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    result.add_argument(
        "--only", action="append", metavar="FILE[:LINE]", help="mutants of a file or line"
    )
    result.add_argument(
        "--again", action="store_true", help="mutants that were tried before and not killed"
    )
    result.add_argument(
        "--most-tests",
        type=int,
        default=MOST_TESTS,
        metavar="N",
        help=f"files of tests of a tier per mutant, the nearest by imports (default: {MOST_TESTS})",
    )
    result.add_argument(
        "--integration",
        action="store_true",
        help="tests of the tier integration too, but for stories: for code that is not run by unit",
    )
    result.add_argument(
        "--resume", action="store_true", help="keep results whose code and tests did not change"
    )
    result.add_argument("--list", action="store_true", help="print the mutants and end")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = parser().parse_args(arguments)
    inside = os.environ.get(sandbox.INSIDE)
    names = worktree.files()
    sources = worktree.sources(names)
    entries = explained.read(explained.FILE.read_text("utf-8"))
    if lines := explained.problems(entries, sources):
        print(*lines, sep="\n", file=sys.stderr)
        return 2
    mutants = chosen(options, sources, alive(RESULTS) if options.again else set())
    if not mutants:
        print("No mutant is of that package and place: see --list.", file=sys.stderr)
        return 2
    if options.list:
        print(*mutants, sep="\n")
        return 0
    if inside is None:
        return outside(names, sys.argv[1:] if arguments is None else arguments)
    return try_all(mutants, options, sources, references.graph(sources, names), Path(inside))


def chosen(
    options: argparse.Namespace, sources: Mapping[str, str], again: Container[str]
) -> list[Mutant]:
    """Return the mutants of a command line; `again` are the places for --again."""
    packages = [
        [
            mutant
            for mutant in choosing.all_of(sources, folder)
            if is_wanted(mutant, options.only) and (not options.again or mutant.place in again)
        ]
        for name, folder in choosing.FOLDERS.items()
        if name in (options.package or choosing.FOLDERS)
    ]
    return choosing.sample(packages, options.sample, options.seed)


def is_wanted(mutant: Mutant, only: Sequence[str] | None) -> bool:
    """Whether a mutant is at a wanted place, FILE or FILE:LINE."""
    places = (mutant.file, f"{mutant.file}:{mutant.mutation.line}")
    return not only or any(place in only for place in places)


def outside(names: Iterable[str], words: Sequence[str]) -> int:
    """Copy the checkout, and run this command in the sandbox."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mut") as made:
        folder = Path(made)
        sandbox.make_copy(ROOT, names, folder)
        own = [sys.executable, "-m", "controller.checks.mutants", *words]
        command = sandbox.command(folder, RESULTS.parent, own, root=os.geteuid() == 0)
        env = {**os.environ, sandbox.INSIDE: made, "PYTHONPATH": str(ROOT)}
        # The processes inside end with this process (unshare --kill-child), and the copy is
        # removed.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            return subprocess.run(command, env=env, cwd=ROOT, check=False).returncode
        except KeyboardInterrupt:
            return 130


def try_all(
    mutants: Sequence[Mutant],
    options: argparse.Namespace,
    sources: Mapping[str, str],
    graph: Mapping[str, frozenset[str]],
    folder: Path,
) -> int:
    """Try mutants inside the sandbox, print progress and survivors; return the exit code."""
    # It loads pytest, which the process outside does not need.
    from controller.checks.mutants import trying

    if not sandbox.is_shut([ROOT, Path("/"), Path.home()]):
        print(
            "The sandbox is open: this machine lets mutants write outside their copy.\n"
            "Run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1).",
            file=sys.stderr,
        )
        return 2
    tests = trying.Tests(folder, ROOT)
    tiers = ("unit", "integration") if options.integration else ("unit",)
    known = results(RESULTS) if options.resume else {}
    outcomes: dict[Mutant, str] = {}
    for number, mutant in enumerate(mutants, start=1):
        files = choosing.tests_of(mutant.file, graph, options.most_tests, tiers)
        key = choosing.key(mutant, sources, files)
        began = time.monotonic()
        try:
            outcomes[mutant] = known.get(key) or tests.outcome(mutant, files)
        except trying.ControlError as error:
            print(f"The unit tests came to no result on an unchanged copy:\n{error}")
            return 2
        seconds = time.monotonic() - began
        if key not in known:
            note(RESULTS, key, mutant, outcomes[mutant])
        print(
            f"{number}/{len(mutants)} {outcomes[mutant]:<8} {mutant}  {seconds:.1f} s", flush=True
        )
    if tests.left_out:
        print(
            "Left out, because they fail without a mutation:", *sorted(tests.left_out), sep="\n  "
        )
    return summary(outcomes, explained.read(explained.FILE.read_text("utf-8")))


def results(file: Path) -> dict[str, str]:
    """Return the outcomes of earlier runs, by key."""
    return {noted["key"]: noted["outcome"] for noted in _noted(file)}


def _noted(file: Path) -> list[dict[str, str]]:
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    # A killed run may leave a line that is not whole.
    return [json.loads(line) for line in lines if line.endswith("}")]


def alive(file: Path) -> set[str]:
    """Return the places of the mutants that were not killed when they were last tried."""
    last = {noted["place"]: noted["outcome"] for noted in _noted(file)}
    return {place for place, outcome in last.items() if outcome != "killed"}


def note(file: Path, key: str, mutant: Mutant, outcome: str) -> None:
    """Write down an outcome."""
    line = json.dumps({"key": key, "place": mutant.place, "outcome": outcome})
    with file.open("a", encoding="utf-8") as appended:
        appended.write(f"{line}\n")


def summary(outcomes: Mapping[Mutant, str], entries: Sequence[Entry]) -> int:
    """Print the survivors and the figures; return the exit code."""
    alive = {mutant: outcome for mutant, outcome in outcomes.items() if outcome != "killed"}
    reasons = {mutant: explained.reason(entries, mutant) for mutant in alive}
    for mutant, reason in reasons.items():
        if reason:
            print(f"explained: {mutant}: {reason}")
    left = [mutant for mutant in alive if not reasons[mutant]]
    if left:
        print("\nSurvivors that nothing explains:")
        print(
            *(
                f"  {mutant}" + (", not run" if alive[mutant] == "not run" else "")
                for mutant in left
            ),
            sep="\n",
        )
    counts = Counter(outcomes.values())
    told = ", ".join(f"{counts[name]} {name}" for name in ("killed", "survived", "not run"))
    print(f"\n{len(outcomes)} mutants: {told}; {len(alive) - len(left)} of the rest are explained")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
