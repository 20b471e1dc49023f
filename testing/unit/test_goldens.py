"""Goldens: complete, without a secret, and a fair account of what a task writes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from testing.tools.goldens import report

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "testing/goldens"

SOURCE = re.compile(r"^=== \S+  \S+ \S+  from (\S+)$", re.MULTILINE)
INCLUDED = re.compile(r"{%-?\s*(?:include|extends|import|from)\s+['\"]([^'\"]+)['\"]")
TEMPLATE_LOOKUP = re.compile(r"lookup\('ansible\.builtin\.template', '([^']+)'\)")


@cache
def goldens() -> dict[str, str]:
    found = {str(path.relative_to(GOLDENS)): path.read_text() for path in GOLDENS.rglob("*.txt")}
    assert len({name.split("/")[0] for name in found}) == 3
    return found


def test_every_template_of_every_role_is_in_a_golden() -> None:
    """Named as the source of a file, included by such a template, or an argument of a module."""
    named = {source for text in goldens().values() for source in SOURCE.findall(text)}
    for path in ROOT.glob("ansible/roles/*/tasks/*.yml"):
        named |= {
            str(path.parents[1].relative_to(ROOT) / "templates" / name)
            for name in TEMPLATE_LOOKUP.findall(path.read_text())
        }
    for source in list(named):
        folder = Path(source).parent
        named |= {str(folder / one) for one in INCLUDED.findall((ROOT / source).read_text())}
    templates = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("ansible/roles/*/templates/**/*")
        if path.is_file()
    }
    assert templates
    assert templates <= named, "no host of an example or of the cluster has these"


def test_no_golden_has_a_secret() -> None:
    secrets = yaml.safe_load((GOLDENS / "secrets.yml").read_text())
    for example in ("small", "large"):
        vault = ROOT / f"ansible/inventories/production-{example}.example/group_vars/all/vault.yml"
        assert set(yaml.safe_load(vault.read_text())) <= set(secrets)
    told = [
        f"{name}: {secret}"
        for name, text in goldens().items()
        for secret, value in secrets.items()
        if value in text
    ]
    assert not told
    assert not [name for name, text in goldens().items() if re.search(r"\{SSHA\}[^<]", text)]
    # Each is somewhere, so the masks stand for something.
    everything = "".join(goldens().values())
    assert not [secret for secret in secrets if f"<{secret}>" not in everything]


def test_a_secret_within_another_is_masked_as_well() -> None:
    secrets = {"short": "geheim-1", "long": "geheim-1-und-mehr"}
    assert report.masked("a geheim-1-und-mehr b geheim-1 c", secrets) == "a <long> b <short> c"
    assert report.masked("userPassword: {SSHA}aGVsbG8=", {}) == "userPassword: {SSHA}<hash>"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("I am a.x\n", "I am b.x\n", True),
        ("peers: a.x, b.x\nI am 10.0.0.1\n", "peers: a.x, b.x\nI am 10.0.0.2\n", True),
        ("I am a.x\n", "I am a.x.y\n", False),
        ("I am a.x\n", "I am b.x\nand more\n", False),
        ("weight 1\n", "weight 2\n", False),
    ],
)
def test_hosts_share_a_page_that_differs_by_their_names(
    one: str, other: str, is_same: bool
) -> None:
    assert report.is_same(one, ("a.x", "10.0.0.1"), other, ("b.x", "10.0.0.2")) is is_same
