"""A mirror has the readers of a repository before the pushes that were made under them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core import files, generation
from hgfleet.core.generation import Generation, Memory
from hgfleet.replication.mirror import failures
from hgfleet.replication.mirror.failures import Kind, classify
from hgfleet.replication.repositories.errors import MissingError, StaleReadersError
from hgfleet.replication.repositories.readers_gate import (
    NONE,
    UNKNOWN,
    Gate,
    RegistryStamp,
    covers,
    stamp,
)
from hgfleet.replication.repositories.registry_paths import Known

if TYPE_CHECKING:
    from pathlib import Path

NEW, OLD = stamp(b"new"), stamp(b"old")


def test_a_stamp_is_that_of_the_content() -> None:
    assert stamp(None) == stamp(b"") == NONE
    assert NEW != OLD
    assert len(NEW) == 16


@pytest.mark.parametrize(
    ("here", "needed", "expected"),
    [
        (OLD, [OLD], True),
        (OLD, [OLD, NEW], False),
        (NEW, [OLD], False),
        (NONE, [OLD], False),
        (OLD, [NONE], True),
        (NONE, [NONE], True),
        (OLD, [UNKNOWN], False),
        (UNKNOWN, [UNKNOWN], False),
        (UNKNOWN, [OLD], False),
        (OLD, [], True),
    ],
)
def test_a_registry_covers_pushes_with_its_stamp(
    here: str, needed: list[str], expected: bool
) -> None:
    assert covers(here, needed) is expected


def test_a_stamp_changes_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    reader = RegistryStamp(file)
    assert reader.read() == NONE
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "new").rename(file)
    assert reader.read() == NEW
    file.unlink()
    file.mkdir()
    assert reader.read() == UNKNOWN


class Asked:
    """A source that counts its questions."""

    def __init__(self, answer: str) -> None:
        self.answer, self.count = answer, 0

    def registry_stamp(self) -> str:
        self.count += 1
        return self.answer


def gate(tmp_path: Path, source: Asked) -> Gate:
    (tmp_path / "registry.json").write_bytes(b"old")
    settings: Any = SimpleNamespace(dynamic=tmp_path / "registry.json")
    paths: Any = SimpleNamespace(read=lambda: Known(declared={"declared"}))
    return Gate(settings, source, paths)


def test_the_source_is_asked_where_the_stamp_is_another_one(tmp_path: Path) -> None:
    source = Asked(OLD)
    new_gate = gate(tmp_path, source)
    new_gate.check("x", [OLD])
    assert source.count == 0
    # The mirror's registry is newer than the push.
    new_gate.check("x", [NEW])
    new_gate.check("x")
    assert source.count == 2
    source.answer = NEW
    new_gate.check("x", [OLD])
    new_gate.check("declared")
    assert source.count == 2
    with pytest.raises(StaleReadersError, match="readers of repositories have changed") as raised:
        new_gate.check("x", [NEW])
    assert classify(raised.value) is Kind.READERS


def test_a_refused_registry_parks_what_waits_for_it_and_not_its_mirror(tmp_path: Path) -> None:
    """Readers that come after some seconds are waited for; these come with a new term."""
    new_gate = gate(tmp_path, Asked(NEW))
    with files.open_folder(tmp_path) as folder:
        memory = Memory(Generation(1, 60), refused="it is older; this mirror keeps generation 1.60")
        generation.write(folder, "registry.json", memory)
    with pytest.raises(MissingError, match=r"this mirror refuses \(it is older") as raised:
        new_gate.check("x", [NEW])
    assert classify(raised.value) in failures.MOST_TRIES
    # Pushes that the registry of this mirror covers go on.
    new_gate.check("declared")
    new_gate.check("x", [OLD])
