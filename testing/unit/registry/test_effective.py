"""Both parts of the registry together, read again as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.effective import EffectiveRegistry
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Settings, build

if TYPE_CHECKING:
    from pathlib import Path


def static(description: str = "") -> str:
    declared = {"tool": (description, Settings())}
    return dump_compiled(build(declared, {"people": Namespace("people")}, Settings()))


@pytest.fixture
def registry(tmp_path: Path) -> EffectiveRegistry:
    (tmp_path / "registry.json").write_text(static())
    (tmp_path / "dynamic").mkdir()
    return EffectiveRegistry(tmp_path / "registry.json", tmp_path / "dynamic/registry.json")


def test_a_change_of_either_file_is_read_at_once(
    registry: EffectiveRegistry, tmp_path: Path
) -> None:
    said: list[str] = []

    def paths() -> list[str]:
        return [*registry.current(said.append).repositories]

    assert paths() == ["tool"]
    # Several changes within a tick of the clock.
    for number in range(5):
        with dynamic_update.update(tmp_path / "dynamic/registry.json") as entries:
            entries[f"people/bob/{number}"] = Entry("bob", "", "2026-11-20T00:00:00Z")
        assert len(paths()) == number + 2
    new = tmp_path / "new"
    new.write_text(static("better"))
    new.rename(tmp_path / "registry.json")
    assert registry.current(said.append).repositories["tool"].description == "better"
    (tmp_path / "dynamic/registry.json").write_text("half of it")
    assert paths() == ["tool"]
    assert "not a dynamic registry" in said[0]


def test_files_that_have_not_changed_are_read_once(
    registry: EffectiveRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dynamic_update.update(tmp_path / "dynamic/registry.json") as entries:
        entries.note_identity("tool", "5f" * 16)
    said: list[str] = []
    first = registry.current(said.append)
    reads: list[object] = []
    read = user_repositories.load

    def load(path: Path) -> user_repositories.Dynamic:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(user_repositories, "load", load)
    assert registry.current(said.append) is first
    assert reads == []


def test_an_error_is_raised_until_the_file_is_right(
    registry: EffectiveRegistry, tmp_path: Path
) -> None:
    def refuse(problem: str) -> None:
        raise RegistryError(problem)

    file = tmp_path / "dynamic/registry.json"
    for _ in range(2):
        file.write_text("half of it")
        with pytest.raises(RegistryError):
            registry.current(refuse)
    file.unlink()
    assert [*registry.current(refuse).repositories] == ["tool"]


def test_a_change_of_nothing_but_deletions_is_another_snapshot(
    registry: EffectiveRegistry, tmp_path: Path
) -> None:
    required = []
    for number in "12":
        with dynamic_update.update(tmp_path / "dynamic/registry.json") as entries:
            entries.note_purged(number * 32)
        required.append(registry.required())
        assert registry.required() is required[-1]
    first, second = required
    assert first is not second
    assert set(second.dynamic.purged) == {"1" * 32, "2" * 32}
