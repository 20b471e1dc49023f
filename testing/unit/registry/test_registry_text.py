"""A change within the text of the dynamic registry gives the same bytes as a whole encoding."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.registry.dynamic import dynamic_update, registry_text, user_repositories
from testing.support.user_repository_file import BOB, written

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Raw = dict[str, Any]

PATHS = ("a", "a/b", "a/é", "a-b", "b", 'b"', "b\\", "b\n", "owner", "format", "renamed", "z/𝄞", "")

VALUES: tuple[Any, ...] = (
    BOB.to_json(),
    {**BOB.to_json(), "description": '"},\n"b": {"owner"', "push": ["a", "b", "owner"]},
    # Text that a later release, or an operator, may have written.
    {**BOB.to_json(), "later": {"x": 1, "b": {"owner": "bob"}, "a/b": 2}},
    {"owner": "bob", "later": [{"x": 1, "owner": 2}, {"x": 1, "b": 2}]},
    *([], {}, None, "b", ["a", "b"], 7),
)


def _some(chance: random.Random, most: int) -> Raw:
    paths = chance.sample(PATHS, chance.randint(0, most))
    return {path: chance.choice(VALUES) for path in paths}


def _some_notes(chance: random.Random) -> dict[str, Raw]:
    return {name: _some(chance, 2) for name in ("renamed", "identities", "purged")}


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    missing = object()
    paths = before.keys() | after.keys()
    return {path for path in paths if before.get(path, missing) != after.get(path, missing)}


@pytest.mark.parametrize("seed", range(20))
def test_every_change_gives_the_bytes_of_a_whole_encoding(seed: int) -> None:
    chance = random.Random(seed)
    done = 0
    for _ in range(500):
        before, notes = _some(chance, len(PATHS)), _some_notes(chance)
        after, new_notes = dict(before), chance.choice((notes, _some_notes(chance)))
        for path in chance.sample(PATHS, chance.randint(0, 4)):
            after[path] = chance.choice(VALUES)
            if chance.random() < 0.4:
                del after[path]
        text = registry_text.encode(before, notes)
        paths = _changed(before, after) | set(chance.sample(PATHS, chance.randint(0, 2)))
        paths = {name for name in paths if name in before or name in after}
        result = registry_text.change(text, (before, notes), (after, new_notes), paths)
        assert result in (None, registry_text.encode(after, new_notes))
        done += result is not None
    assert done > 200


def test_an_ordinary_change_is_made_within_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dynamic").mkdir()
    file = tmp_path / "dynamic/registry.json"
    people = {f"people__user{number}__x": BOB for number in range(30)}
    written(file, **people)
    whole = _count_whole_encodings(monkeypatch)
    user_repositories._parsed = ("", b"", user_repositories.NOTHING)
    for name in ("a", "user15", "zz"):
        written(file, **{f"people__{name}__new": BOB})
    with dynamic_update.update(file) as entries:
        del entries["people/user0/x"]
    assert whole == []
    data = json.loads(file.read_bytes())
    assert len(data["repositories"]) == 32
    assert file.read_bytes() == registry_text.encode(
        data["repositories"], {"generation": data["generation"]}
    )


@pytest.mark.parametrize("touch", ["text", "note", "no note"])
def test_a_text_of_another_writer_is_encoded_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touch: str
) -> None:
    (tmp_path / "dynamic").mkdir()
    file = tmp_path / "dynamic/registry.json"
    written(file, people__bob__x=BOB, people__bob__y=BOB)
    seen = file.with_name(user_repositories.SEEN)
    if touch == "text":
        file.write_text(json.dumps(json.loads(file.read_bytes()), indent=1))
    elif touch == "note":
        # A note of a release with another layout.
        seen.write_text(seen.read_text().replace(registry_text.LAYOUT, "layout-0"))
    else:
        seen.write_text("")
    whole = _count_whole_encodings(monkeypatch)
    written(file, people__bob__z=BOB)
    assert len(whole) == 1
    data = json.loads(file.read_bytes())
    assert sorted(data["repositories"]) == ["people/bob/x", "people/bob/y", "people/bob/z"]
    written(file, people__bob__zz=BOB)
    assert len(whole) == 1


def _count_whole_encodings(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    calls: list[None] = []
    encode = registry_text.encode

    def counted(raw: Mapping[str, Any], notes: registry_text.Notes) -> bytes:
        calls.append(None)
        return encode(raw, notes)

    monkeypatch.setattr(registry_text, "encode", counted)
    return calls
