"""Verification of a repository by Mercurial's own code, in a process of its own.

`python -m hgfleet.integrity.verifier FOLDER` prints a line for each problem, and ends with 65 if it
found any. It takes no lock, so pushes go on; `check.py` distinguishes a push during the check from
damage. Every revision is read and compared with its hash, manifests included (`hg verify --full`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mercurial import error, extensions, verify
from mercurial import ui as ui_module
from mercurial.repo import factory

from hgfleet.core.errors import PushlogError
from hgfleet.integrity.check import FOUND
from hgfleet.pushlog import chain, log_file, unrecorded
from hgfleet.pushlog.record import Heads


def problems(folder: Path) -> list[str]:
    """Return the problems of a repository; nothing if all is well."""
    ui = ui_module.ui()
    ui.setconfig(b"ui", b"interactive", b"no", b"integrity")
    ui.setconfig(b"ui", b"quiet", b"yes", b"integrity")
    ui.setconfig(b"experimental", b"evolution", b"all", b"integrity")
    extensions.loadall(ui)
    said: list[str] = []
    try:
        repo = factory.repository(ui, os.fsencode(folder)).unfiltered()
        said += _verify(repo)
        said += _small_files(repo)
        said += _unrecorded(repo)
    except (error.Error, error.StorageError, OSError, ValueError) as problem:
        said.append(_text(problem))
    return said + _log(folder)


def _verify(repo: Any) -> list[str]:
    # A repository has a ui of its own, to which the verifier writes.
    repo.ui.pushbuffer(error=True)
    try:
        # Core's function takes the lock, and calls this class.
        failed = bool(verify.verifier(repo, verify.VERIFY_FULL).verify())
    finally:
        lines = repo.ui.popbuffer().decode("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return (said or ["hg verify names no problem"]) if failed else []


def _small_files(repo: Any) -> list[str]:
    """Read the files of the store that `hg verify` does not read."""
    unreadable = []
    for name, read in (
        ("phases", lambda: [repo[number].phase() for number in repo.changelog.headrevs()]),
        ("bookmarks", lambda: dict(repo._bookmarks)),  # noqa: SLF001  (core has no other name)
        ("obsolescence markers", lambda: sum(1 for _ in repo.obsstore)),
    ):
        try:
            read()
        except (error.Error, OSError, ValueError) as problem:
            unreadable.append(f"{name}: {_text(problem)}")
    return unreadable


def _log(folder: Path) -> list[str]:
    try:
        for _ in chain.checked(log_file.entries(folder / ".hg/store" / log_file.NAME)):
            pass
    except (PushlogError, OSError) as problem:
        return [f"push log: {problem}"]
    return []


def _unrecorded(repo: Any) -> list[str]:
    """Compare the heads with the last record: every transaction leaves them equal."""
    log = repo.changelog
    try:
        last = log_file.last(os.fsdecode(repo.sjoin(os.fsencode(log_file.NAME))))
    except PushlogError:
        # `_log` reports the problems of the chain.
        return []
    problem = unrecorded.problem(
        last,
        Heads.digest_of(log.node(number).hex() for number in log.headrevs() if number >= 0),
        changesets=len(log),
        from_start=repo.vfs.exists(os.fsencode(log_file.FROM_START)),
    )
    return [f"push log: {problem}"] if problem else []


def _text(problem: BaseException) -> str:
    if isinstance(problem, error.Error):
        return bytes(problem).decode("utf-8", "replace")
    return f"{type(problem).__name__}: {problem}"


def main(folder: str) -> int:
    """Print the problems of a repository."""
    lines = problems(Path(folder))
    for line in lines:
        print(line)
    return FOUND if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
