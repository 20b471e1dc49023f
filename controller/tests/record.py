"""The record of runs in the tree: which scenarios passed with which files, and the last whole run.

| file in `tested/` | contents | written |
| --- | --- | --- |
| `scenarios.json` | per scenario a digest of its files, and the day | as it passes, in any run |
| `whole.json` | tree, time, release, figures of tiers, repeated tests | when the whole has passed |

The files of a scenario are the files whose change makes `./run-tests --changed` choose it. The gate
runs the scenarios whose digest differs from the recorded digest. The folder is no part of the tree
that an attestation names (controller/attestation.py), so writing a record does not change the tree
of its run.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Final

from controller.attestation import RECORD, parse
from controller.bootstrap import ROOT
from controller.tests import worktree
from controller.tests.choice.selection import scenario_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from controller.attestation import Attestation

FOLDER: Final = ROOT / RECORD
MISSING: Final = "missing"


def content_of(name: str, top: Path = ROOT) -> str:
    """Return a file for a digest: the hash of its bytes, and whether it is a program."""
    path = top / name
    try:
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return MISSING
    return f"{checksum} x" if os.access(path, os.X_OK) else checksum


def digest(files: Iterable[str], content: Callable[[str], str]) -> str:
    """Return the digest of files, by their names and contents."""
    hasher = hashlib.sha256()
    for name in sorted(set(files)):
        hasher.update(f"{name}\0{content(name)}\n".encode())
    return hasher.hexdigest()


def to_run(digests: Mapping[str, str], records: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the scenarios that the gate runs, each with its reason."""
    reasons = {}
    for name, now in digests.items():
        if name not in records:
            reasons[name] = "no run of it is recorded"
        elif records[name].get("digest") != now:
            day = records[name].get("passed", "an unknown day")
            reasons[name] = f"its files changed since it passed on {day}"
    return reasons


def read_scenarios(path: Path) -> dict[str, dict[str, str]]:
    """Read the records of scenarios; a file that is missing or broken has none."""
    try:
        data = json.loads(path.read_text("utf-8"))
        return {
            str(name): {str(key): str(value) for key, value in of.items()}
            for name, of in data.items()
        }
    except (OSError, ValueError, AttributeError):
        return {}


def write(path: Path, data: object) -> None:
    """Write JSON in an order that makes small differences, at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(path)


def write_whole(attestation: Attestation) -> Path:
    """Write the record of a whole run that passed."""
    path = FOLDER / "whole.json"
    write(path, asdict(attestation))
    return path


def about_whole(tree: str) -> str:
    """Return a sentence about the last whole run, and whether it was of this tree."""
    path = FOLDER / "whole.json"
    try:
        whole = parse(path.read_text("utf-8"))
    except FileNotFoundError:
        return f"no whole run is recorded in {path.name}"
    except (OSError, ValueError) as error:
        return f"{path} is no record: {error}"
    if whole.tree == tree:
        return f"the whole run of {whole.finished} in {path.name} was of this tree"
    return (
        f"the whole run of {whole.finished} in {path.name} was of tree {whole.tree[:12]}, and this"
        f" is tree {tree[:12]}"
    )


class Scenarios:
    """The scenarios of this checkout: their files as the run found them, and their records."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or FOLDER) / "scenarios.json"
        names = (name for name in worktree.files() if not name.startswith(f"{RECORD}/"))
        self._begun = {name: content_of(name) for name in names}
        self._lock = threading.Lock()

    @cached_property
    def files(self) -> Mapping[str, frozenset[str]]:
        """The files of each scenario. It takes seconds, for the graph of all references."""
        names = list(self._begun)
        return scenario_inputs(worktree.sources(names), names, worktree.carried_roles())

    def to_run(self) -> dict[str, str]:
        """Return the scenarios that the gate runs, each with its reason."""
        digests = {name: digest(files, self._before) for name, files in self.files.items()}
        return to_run(digests, read_scenarios(self.path))

    def passed(self, name: str) -> None:
        """Record that a scenario passed, unless its files changed while it ran."""
        with self._lock:
            files = self.files.get(name, frozenset())
            before = digest(files, self._before)
            records = read_scenarios(self.path)
            is_known = records.get(name, {}).get("digest") == before
            if files and not is_known and digest(files, content_of) == before:
                day = time.strftime("%Y-%m-%d", time.gmtime())
                write(self.path, {**records, name: {"digest": before, "passed": day}})

    def _before(self, name: str) -> str:
        return self._begun.get(name, MISSING)
