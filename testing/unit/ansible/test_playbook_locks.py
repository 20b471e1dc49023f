"""Playbooks that people run by hand, and that change the site, take its lock first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[3]
BOOKS: Final = ROOT / "ansible/playbooks"
IMPORT: Final = "ansible.builtin.import_playbook"

LOCKED: Final = (
    *("promote.yml", "restore.yml", "restore-primary.yml", "upgrade-os.yml", "ca.yml"),
    *("rotate.yml", "rotate-s3-keys.yml", "rotate-hostkeys.yml"),
)
CHANGES_NOTHING: Final = {
    *("hostkeys.yml", "log.yml", "state.yml", "preflight.yml", "primary.yml", "variables.yml"),
    *("restore_begun.yml", "promotion_begun.yml"),
    # Of a restore: it compares.
    "restore_beyond.yml",
}
OF_THE_LOCK: Final = {"lock.yml", "locked.yml", "unlocked.yml"}

LOOKS: Final = {
    *("ansible.builtin.assert", "ansible.builtin.script", "ansible.builtin.stat"),
    *("ansible.builtin.debug", "ansible.builtin.set_fact", "ansible.builtin.apt"),
}
"""Modules of plays before the lock; apt reads the lists of packages, as each host does daily."""


def path_of(name: str) -> Path:
    """Return the file of a playbook that a person runs, or of an internal one."""
    return BOOKS / name if (BOOKS / name).exists() else BOOKS / "internal" / name


def plays(book: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each play with the playbook that it is in, imported ones at their place."""
    for play in yaml.safe_load(path_of(book).read_text()):
        name = play.get(IMPORT, "/").removeprefix("internal/")
        if "/" not in name and name not in CHANGES_NOTHING | OF_THE_LOCK:
            yield from plays(name)
        else:
            yield name if IMPORT in play else book, play


@pytest.mark.parametrize("book", LOCKED)
def test_nothing_is_changed_before_the_lock_and_nothing_after_it_was_given_back(book: str) -> None:
    names = [name for name, _play in plays(book)]
    assert names.count("locked.yml") == names.count("unlocked.yml") == 1
    taken, given = names.index("locked.yml"), names.index("unlocked.yml")
    outside = [*list(plays(book))[:taken], *list(plays(book))[given + 1 :]]
    for name, play in outside:
        if name in CHANGES_NOTHING:
            continue
        modules = {key for task in play["tasks"] for key in task if key.startswith("ansible.")}
        assert modules <= LOOKS, (name, play["name"])


def test_every_playbook_takes_the_lock_changes_nothing_or_is_a_part_of_another_one() -> None:
    """A new playbook is added to a list above."""
    known = {*LOCKED, *CHANGES_NOTHING, *OF_THE_LOCK}
    imported: set[str] = {"role_variables.yml", "record.yml"}
    for book in LOCKED:
        waiting = [book]
        while waiting:
            for play in yaml.safe_load(path_of(waiting.pop()).read_text()):
                name = play.get(IMPORT, "").removeprefix("internal/")
                if name and name not in imported and "/" not in name:
                    imported.add(name)
                    waiting.append(name)
    books = [*BOOKS.glob("*.yml"), *(BOOKS / "internal").glob("*.yml")]
    assert {path.name for path in books} == known | imported


@pytest.mark.parametrize("book", ["restore.yml", "restore-primary.yml"])
def test_a_host_that_is_half_restored_is_not_deployed(book: str) -> None:
    (locked,) = [play for name, play in plays(book) if name == "locked.yml"]
    assert locked["vars"]["lock_seconds"] == 86400


def test_the_lock_outlasts_the_bundles_that_a_rotation_waits_for() -> None:
    (begun,) = [
        play
        for play in yaml.safe_load((BOOKS / "rotate-s3-keys.yml").read_text())
        if play.get(IMPORT) == "internal/rotation_begun.yml"
    ]
    tasks = [task for _name, play in plays("rotate-s3-keys.yml") for task in play.get("tasks", ())]
    (waits,) = [task for task in tasks if task["name"] == "Runs that have the former keys are over"]
    assert begun["vars"]["lock_seconds"] > waits["retries"] * waits["delay"] + 3600
