"""A repository that gets pushes of all kinds from a process of its own, and its state after each.

`python -m testing.integration.backup.pushes REPOSITORY STATES` pushes until its input ends.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testing.integration.support import primary
from testing.integration.support.primary import Primary

if TYPE_CHECKING:
    from collections.abc import Iterator

PUSHES = 5
"""Before the first backup."""


def described(path: Path) -> dict[str, Any]:
    """Return all that a restored repository must have in common with the original."""
    state = primary.state(path)
    log = state.pop("log").decode()
    return {"log": log, **state}


def push_until_told(path: Path, states: Path) -> None:
    """Push without pause; append the state after each push to a file, a JSON object a line."""
    pushed = Primary(path)
    chance = random.Random(7)
    with states.open("a") as file:
        while not select.select([sys.stdin], [], [], 0)[0]:
            pushed.push_anything(chance)
            print(json.dumps(described(path)), file=file, flush=True)
            if len(pushed.entries()) == PUSHES:
                print("ready", flush=True)


@contextlib.contextmanager
def pushing(path: Path, states: Path) -> Iterator[subprocess.Popen[str]]:
    """Run such a process from its first pushes on; it has written all states when it ends."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, path, states],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()
        assert process.wait(60) == 0


def states_of(file: Path) -> list[dict[str, Any]]:
    """Return the states after each push."""
    return [json.loads(line) for line in file.read_text().splitlines()]


if __name__ == "__main__":
    push_until_told(Path(sys.argv[1]), Path(sys.argv[2]))
