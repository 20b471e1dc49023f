from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.principal import Principal
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.effective import EffectiveRegistry
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model import registry as model
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Registry, Repository
from hgfleet.web.index import catalogue as catalogues
from hgfleet.web.index.catalogue import Catalogue, namespace_of, page_number, page_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANY = 10_000
NOW = "2026-11-21T00:00:00Z"


def repository(path: str, read: model.Read = "public") -> Repository:
    return Repository(path, f"About {path}", read, (), True, ())


def registry(*entries: Repository) -> Registry:
    namespaces = {"a": Namespace("a"), "a/b": Namespace("a/b")}
    return Registry(
        {entry.path: entry for entry in sorted(entries, key=lambda entry: entry.path)}, namespaces
    )


SMALL = registry(
    *(repository(path) for path in ("z", "a/b/c", "a/d", "ab", "a.x/y")),
    repository("a/secret", ("staff",)),
    repository("hidden/x", ("staff",)),
)
STAFF = Principal("alice", frozenset({"staff"}))
OTHER = Principal("bob", frozenset({"others"}))


def paths(catalogue: Catalogue, folder: str = "", principal: Principal | None = None) -> list[str]:
    return [entry.repository.path for entry in catalogue.listed(folder, principal)]


def test_the_longest_declared_namespace_counts() -> None:
    for path, expected in (("a/b/c", "a/b"), ("a/d", "a"), ("a", ""), ("ab/c", "")):
        assert namespace_of(path, SMALL.namespaces) == expected


def test_repositories_are_listed_by_namespace_for_those_who_may_read_them() -> None:
    catalogue = Catalogue(SMALL)
    assert paths(catalogue) == ["a.x/y", "ab", "z", "a/d", "a/b/c"]
    assert paths(catalogue, "", OTHER) == paths(catalogue)
    assert paths(catalogue, "a") == ["a/d", "a/b/c"]
    assert paths(catalogue, "a", STAFF) == ["a/d", "a/secret", "a/b/c"]


def test_a_folder_is_one_for_those_who_may_read_a_repository_below_it() -> None:
    catalogue = Catalogue(SMALL)
    for folder in ("a", "a/b", "a.x"):
        assert catalogue.is_folder(folder)
    for folder in ("", "z", "a/", "A", "a/b/c", "zz", "hidden"):
        assert not catalogue.is_folder(folder)
    assert catalogue.is_folder("hidden", STAFF)
    assert not catalogue.is_folder("hidden", OTHER)


def test_a_later_catalogue_equals_one_made_from_scratch() -> None:
    chance = random.Random(1)
    names = [f"{a}/{b}/{c}" for a in "abc" for b in "ab" for c in "xyz"]
    before: Catalogue | None = None
    for _ in range(50):
        chosen = chance.sample(names, chance.randint(0, len(names)))
        reads: tuple[model.Read, ...] = ("public", ("staff",))
        now = registry(*(repository(path, chance.choice(reads)) for path in chosen))
        before = Catalogue(now, before)
        fresh = Catalogue(now)
        for principal in (None, STAFF, OTHER):
            assert paths(before, "", principal) == paths(fresh, "", principal)
            assert before.is_folder("a", principal) == fresh.is_folder("a", principal)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (None, 1),
        ("1", 1),
        ("7", 7),
        ("0", 0),
        ("-1", 0),
        ("", 0),
        ("x", 0),
        ("٣", 0),
        ("9" * 99, 0),
    ],
)
def test_the_number_of_a_page_is_a_small_decimal(text: str | None, number: int) -> None:
    assert page_number(text) == number


def test_a_page_is_a_slice_and_others_do_not_exist() -> None:
    listed = Catalogue(SMALL).listed("")
    pages = [page_of(listed, 2, number) for number in (0, 1, 2, 3, 4)]
    assert (pages[0], pages[4]) == (None, None)
    shown = [entry.repository.path for page in pages[1:4] if page for entry in page.entries]
    assert shown == paths(Catalogue(SMALL))
    empty = page_of([], 2, 1)
    assert empty is not None
    assert (empty.count, empty.total) == (1, 0)


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, Path]:
    """A static registry with a namespace, and 10,000 user repositories in it."""
    compiled, dynamic = tmp_path / "registry.json", tmp_path / "dynamic/registry.json"
    dynamic.parent.mkdir()
    namespace = Namespace("people", "", create=("all",), personal=True)
    compiled.write_text(dump_compiled(Registry({}, {"people": namespace})))
    add(dynamic, *(f"people/p{number // 20}/r{number}" for number in range(MANY)))
    return compiled, dynamic


def add(dynamic: Path, *added: str) -> None:
    with dynamic_update.update(dynamic) as entries:
        for path in added:
            entries[path] = Entry(path.split("/")[1], "", NOW)


def ignore(_problem: str) -> None: ...


def counted(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> list[str]:
    """Count the calls of a function, by its first argument."""
    original: Callable[..., object] = getattr(module, name)
    calls: list[str] = []

    def call(path: str, *arguments: object, **named: object) -> object:
        calls.append(path)
        return original(path, *arguments, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def test_a_new_repository_makes_one_entry_of_ten_thousand(
    large: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, dynamic = large
    effective = EffectiveRegistry(compiled, dynamic)
    catalogue = Catalogue(effective.read(ignore))
    assert len(catalogue.listed("")) == MANY
    made = counted(monkeypatch, model, "effective")
    named = counted(monkeypatch, catalogues, "namespace_of")
    parsed = counted(monkeypatch, user_repositories, "load_compiled")
    path = "people/new/one"
    add(dynamic, path)
    now = effective.read(ignore)
    later = Catalogue(now, catalogue)
    assert (made, named, parsed) == ([path], [path], [])
    assert path in paths(later)
    with dynamic_update.update(dynamic) as entries:
        del entries[path]
    assert paths(Catalogue(effective.read(ignore), later)) == paths(catalogue)
    assert made == [path]


def test_each_change_of_the_files_is_read(tmp_path: Path) -> None:
    compiled, dynamic = tmp_path / "registry.json", tmp_path / "dynamic/registry.json"
    dynamic.parent.mkdir()
    effective = EffectiveRegistry(compiled, dynamic)
    complaints: list[str] = []

    def served() -> dict[str, Repository]:
        expected = user_repositories.load_effective(compiled, dynamic)
        now = effective.read(complaints.append)
        assert dict(now.repositories) == dict(expected.repositories)
        assert now.namespaces == expected.namespaces
        return dict(now.repositories)

    def declare(*declared: str) -> None:
        new = tmp_path / "new"
        entries = {path: repository(path) for path in declared}
        new.write_text(dump_compiled(Registry(entries, {"people": Namespace("people")})))
        new.rename(compiled)

    declare("one")
    assert set(served()) == {"one"}
    add(dynamic, "people/bob/x", "people/bob/y")
    assert set(served()) == {"one", "people/bob/x", "people/bob/y"}
    with dynamic_update.update(dynamic) as changed:
        changed["people/bob/x"] = Entry("carol", "Hers", NOW)
        changed["people/bob/y"] = Entry("bob", "", NOW, archived=NOW)
    assert served()["people/bob/x"].owner == "carol"
    declare("one", "people/bob/x")
    assert served()["people/bob/x"].owner is None
    whole = dynamic.read_bytes()
    dynamic.write_bytes(b"{")
    assert set(served()) == {"one", "people/bob/x"}
    assert len(complaints) == 1
    dynamic.write_bytes(whole)
    declare("two")
    assert served()["people/bob/x"].owner == "carol"
    dynamic.unlink()
    assert set(served()) == {"two"}


def test_reading_one_new_repository_takes_little_cpu(large: tuple[Path, Path]) -> None:
    compiled, dynamic = large
    effective = EffectiveRegistry(compiled, dynamic)
    catalogue = Catalogue(effective.read(ignore))
    assert paths(catalogue)
    spent = []
    for number in range(5):
        add(dynamic, f"people/new/n{number}")
        started = time.thread_time()
        catalogue = Catalogue(effective.read(ignore), catalogue)
        spent.append(time.thread_time() - started)
    print("CPU seconds:", spent)
    assert min(spent) <= 0.15, spent
