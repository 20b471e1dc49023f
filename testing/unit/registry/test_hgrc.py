"""The generated hgrc says the same to Mercurial as the registry says."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from mercurial import config

from hgfleet.registry.model.compiled import dump_compiled, parse_compiled
from hgfleet.registry.model.repository_hgrc import render as hgrc
from hgfleet.registry.model.schema import parse

TWO = """\
version: 1
repositories:
  plain: {description: A plain one, push: [maintainers]}
  team/tool: {description: A tool, push: [maintainers, team], publishing: false, bundles: [zstd]}
"""


def read_back(text: str) -> dict[str, dict[str, str]]:
    parsed = config.config()
    parsed.parse(b"hgrc", text.encode())
    return {
        section.decode(): {key.decode(): value.decode() for key, value in parsed.items(section)}
        for section in parsed.sections()
    }


BUILT_IN_POLICIES = '{"file-size": {"max": 104857600}}'


def test_the_hgrc_says_what_the_registry_says() -> None:
    registry = parse(TWO)
    assert read_back(hgrc(registry.repositories["team/tool"])) == {
        "phases": {"publish": "false"},
        "experimental": {"evolution.createmarkers": "yes", "evolution.exchange": "yes"},
        "web": {"name": "team/tool", "description": "A tool", "contact": "maintainers, team"},
        "hgfleet": {
            "path": "team/tool",
            "read": "public",
            "push": "maintainers team",
            "policies": BUILT_IN_POLICIES,
        },
    }


def test_the_hgrc_says_from_which_size_on_there_are_bundles() -> None:
    sized = replace(parse(TWO).repositories["team/tool"], bundles_from=1000)
    assert read_back(hgrc(sized))["hgfleet"]["bundles-from"] == "1000"
    assert "bundles-from" not in hgrc(replace(sized, bundles=()))


def test_the_hgrc_admits_any_date_where_the_registry_does() -> None:
    text = """
version: 1
namespaces:
  old: {description: old, accept-dates: any}
  old/new: {description: new, accept-dates: valid}
repositories:
  old/a: {description: a}
  old/new/b: {description: b}
  other/c: {description: c}
"""
    parsed = parse(text).repositories
    again = parse_compiled(dump_compiled(parse(text))).repositories
    for registry in (parsed, again):
        assert read_back(hgrc(registry["old/a"]))["hgfleet"]["accept-dates"] == "any"
        assert "accept-dates" not in hgrc(registry["old/new/b"]) + hgrc(registry["other/c"])


def test_the_hgrc_has_policies_and_rules_on_a_line_each() -> None:
    hint = 'begin with "Bug 1" \\ äöü 日本 ; # %include'
    text = f"""
version: 1
repositories:
  a:
    description: A
    read-only: "a reason: [hooks] % ä"
    policies: {{commit-message: {{pattern: '^Bug \\d+', hint: {json.dumps(hint)}}}}}
    rules: [{{branches: [stable], push: [release]}}]
"""
    written = hgrc(parse(text).repositories["a"])
    sections = read_back(written)
    assert sorted(sections) == ["hgfleet", "phases", "web"]
    assert sections["hgfleet"]["read-only"] == "a reason: [hooks] % ä"
    assert json.loads(sections["hgfleet"]["policies"]) == {
        **json.loads(BUILT_IN_POLICIES),
        "commit-message": {"pattern": r"^Bug \d+", "hint": hint},
    }
    rule = {"branches": ["stable"], "push": ["release"]}
    assert json.loads(sections["hgfleet"]["rules"]) == [rule]
    assert written.count("\n") == hgrc(parse(TWO).repositories["plain"]).count("\n") + 2


def test_the_hgrc_of_a_closed_repository() -> None:
    text = "version: 1\nrepositories: {a: {description: A, read: [x, y], push: []}}"
    sections = read_back(hgrc(parse(text).repositories["a"]))
    assert sections["hgfleet"] == {
        "path": "a",
        "read": "x y",
        "push": "",
        "policies": BUILT_IN_POLICIES,
    }
    assert sections["web"]["contact"] == "nobody"


@pytest.mark.parametrize(
    "description",
    [
        "%include /etc/passwd",
        "[hooks]",
        "a = b",
        "; comment",
        "# comment",
        "$HOME ${HOME} ~root",
        "quote ' and \" and \\ and \\n",
        "ends with a backslash \\",
        "Grüße, 日本語, 🦀",
        "<script>alert(1)</script>",
        "x" * 200,
    ],
)
def test_no_description_escapes_its_line(description: str) -> None:
    template = parse(TWO).repositories["plain"]
    sections = read_back(hgrc(replace(template, description=description)))
    assert sections["web"]["description"] == description
    assert sorted(sections) == ["hgfleet", "phases", "web"]


def test_random_descriptions_round_trip_through_yaml_and_mercurial() -> None:
    randomness = random.Random(7)
    alphabet = [chr(code) for code in range(0x20, 0x250) if chr(code).isprintable()]
    for _ in range(300):
        text = "".join(randomness.choices(alphabet, k=randomness.randint(1, 80))).strip()
        if not text:
            continue
        quoted = "'" + text.replace("'", "''") + "'"
        registry = parse(f"version: 1\nrepositories: {{a: {{description: {quoted}}}}}")
        assert read_back(hgrc(registry.repositories["a"]))["web"]["description"] == text
