"""Settings are inherited from namespaces and defaults, and protections add up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hgfleet.policies.rule import Rule
from hgfleet.registry.model import registry
from hgfleet.registry.model.compiled import dump_compiled, parse_compiled
from hgfleet.registry.model.registry import BUNDLE_KINDS, Settings, effective
from hgfleet.registry.model.schema import parse

ROOT = Path(__file__).resolve().parents[3]
HEAD = "version: 1\n"


def entry(fields: str) -> str:
    return f"{HEAD}repositories:\n  a: {{description: A, {fields}}}\n"


def test_a_repository_needs_only_a_description() -> None:
    (only,) = parse(
        HEAD + "repositories: {a/b-c: {description: ' Some text '}}"
    ).repositories.values()
    assert only == registry.Repository(
        "a/b-c",
        "Some text",
        "public",
        (),
        True,
        BUNDLE_KINDS,
        {"file-size": {"max": registry.MAX_FILE_BYTES}},
    )
    assert only.is_public


def test_no_repository_at_all_is_fine() -> None:
    assert not parse(HEAD + "repositories: {}").repositories


def test_each_value_comes_from_the_nearest_that_has_it() -> None:
    loaded = parse(
        """
version: 1
defaults: {read: public, push: [everyone], publishing: true, bundles: [zstd]}
namespaces:
  a: {push: [a-team], publishing: false}
  a/b: {description: Below, push: [b-team]}
repositories:
  a/b/c: {description: C, push: [c-team]}
  a/b/d: {description: D}
  a/x: {description: X, publishing: true, bundles: []}
  ab: {description: not below a}
"""
    ).repositories
    assert {path: r.push for path, r in loaded.items()} == {
        "a/b/c": ("c-team",),
        "a/b/d": ("b-team",),
        "a/x": ("a-team",),
        "ab": ("everyone",),
    }
    # a/b says nothing about publishing, so a does.
    assert [r.publishing for r in loaded.values()] == [False, False, True, True]
    assert [r.bundles for r in loaded.values()] == [("zstd",), ("zstd",), (), ("zstd",)]


def test_policies_are_inherited_one_by_one() -> None:
    loaded = parse(
        """
version: 1
defaults: {policies: {no-symlinks: {}, file-size: {max: 1MiB}}}
namespaces:
  n: {policies: {file-size: {max: 2048}, no-merges: {branches: [stable, 'rel-*']}}}
repositories:
  a: {description: A}
  n/b: {description: B}
  n/c: {description: C, policies: {no-symlinks: false, single-head: {}}}
"""
    ).repositories
    assert {path: dict(r.policies) for path, r in loaded.items()} == {
        "a": {"no-symlinks": {}, "file-size": {"max": 2**20}},
        "n/b": {
            "no-symlinks": {},
            "file-size": {"max": 2048},
            "no-merges": {"branches": ["stable", "rel-*"]},
        },
        "n/c": {
            "file-size": {"max": 2048},
            "no-merges": {"branches": ["stable", "rel-*"]},
            "single-head": {},
        },
    }


def test_files_have_a_limit_unless_the_registry_says_otherwise() -> None:
    loaded = parse(
        HEAD
        + """
namespaces:
  n: {policies: {file-size: {max: 1GiB}}}
repositories:
  a: {description: A, policies: {single-head: {}}}
  b: {description: B, policies: {file-size: false}}
  n/c: {description: C}
"""
    ).repositories
    assert {path: dict(r.policies).get("file-size") for path, r in loaded.items()} == {
        "a": {"max": 100 * 2**20},
        "b": None,
        "n/c": {"max": 2**30},
    }
    created = registry.effective(
        "people/bob/x", registry.Settings(), parse(HEAD + "repositories: {}")
    )
    assert created.policies["file-size"] == {"max": 100 * 2**20}


def test_rules_and_reasons_of_what_is_above_cannot_be_lifted_below() -> None:
    text = """
version: 1
namespaces:
  n: {rules: [{branches: [stable], push: [release]}], read-only: we move}
  n/m: {read-only: later}
repositories:
  a: {description: A}
  n/b: {description: B, rules: [{paths: [keys], push: []}]}
  n/m/c: {description: C, read-only: never seen, rules: []}
"""
    loaded = parse(text).repositories
    stable = Rule(("release",), branches=("stable",))
    assert loaded["a"].rules == ()
    assert loaded["n/b"].rules == (stable, Rule((), paths=("keys",)))
    assert loaded["n/m/c"].rules == (stable,)
    assert [r.read_only for r in loaded.values()] == [None, "we move", "we move"]
    closed = parse(text + "read-only: the disks are being replaced\n")
    assert {r.read_only for r in closed.repositories.values()} == {"the disks are being replaced"}


def test_a_namespace_says_who_may_create_repositories() -> None:
    loaded = parse(
        HEAD + "namespaces: {n: {create: [staff], personal: true, quota: 5}, m: {}}\n"
        "repositories: {}"
    ).namespaces
    assert (loaded["n"].create, loaded["n"].personal, loaded["n"].quota) == (("staff",), True, 5)
    assert (loaded["m"].create, loaded["m"].personal, loaded["m"].quota) == ((), False, 20)


def test_what_a_person_creates_inherits_like_the_rest() -> None:
    """Also on a host, where there is only the compiled form."""
    text = """
version: 1
defaults: {read: [staff], policies: {no-symlinks: {}}}
namespaces:
  people: {push: [], publishing: false, rules: [{paths: [keys], push: [ops]}], create: [staff]}
  people/bob: {read-only: on holidays}
repositories:
  people/bob/x: {description: X}
"""
    again = parse_compiled(dump_compiled(parse(text)))
    made = registry.effective(
        "people/bob/y", registry.Settings(read="public"), again, description="Y", owner="bob"
    )
    assert made == dataclasses.replace(
        again.repositories["people/bob/x"],
        path="people/bob/y",
        description="Y",
        owner="bob",
        read="public",
        bundles=BUNDLE_KINDS,
        bundles_from=10 * 2**20,
    )
    assert (made.push, made.publishing, made.read_only) == ((), False, "on holidays")
    assert made.rules == (Rule(("ops",), paths=("keys",)),)


def test_an_empty_list_is_a_value_and_not_inherited() -> None:
    text = HEAD + "defaults: {push: [staff]}\nrepositories: {a: {description: A, push: []}}"
    assert parse(text).repositories["a"].push == ()


def test_user_repositories_get_bundles_from_a_size_on_unless_the_registry_says_otherwise() -> None:
    registry = parse("""
version: 1
namespaces:
  a: {bundles-from: 5MiB}
  a/none: {bundles: []}
repositories:
  a/x: {description: X}
  b: {description: B}
""")
    assert [entry.bundles_from for entry in registry.repositories.values()] == [
        5 * 2**20,
        0,
    ]
    for path, least in (("a/bob/x", 5 * 2**20), ("c/bob/x", 10 * 2**20)):
        repository = effective(path, Settings(), registry, owner="bob")
        assert (repository.bundles, repository.bundles_from) == (BUNDLE_KINDS, least)
    assert effective("a/none/x", Settings(), registry, owner="bob").bundles == ()


def test_what_is_not_public_may_have_bundles_too() -> None:
    loaded = parse(entry("read: [staff], bundles: [zstd]")).repositories["a"]
    assert (loaded.read, loaded.bundles, loaded.is_public) == (("staff",), ("zstd",), False)


def test_the_registry_cannot_be_changed_after_loading() -> None:
    loaded = parse(entry("push: []"))
    with pytest.raises(TypeError):
        loaded.repositories["b"] = loaded.repositories["a"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.repositories["a"].push = ("x",)  # type: ignore[misc]
