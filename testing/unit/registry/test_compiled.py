"""The compiled registry is the registry, and damage of it is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hgfleet.core.errors import RegistryError
from hgfleet.registry.model.compiled import dump_compiled, load_compiled, parse_compiled
from hgfleet.registry.model.schema import parse

ROOT = Path(__file__).resolve().parents[3]
HEAD = "version: 1\n"


def entry(fields: str) -> str:
    return f"{HEAD}repositories:\n  a: {{description: A, {fields}}}\n"


def test_the_compiled_form_says_the_same_and_is_stable() -> None:
    loaded = parse(
        HEAD + "namespaces: {n: {description: Näme, bundles-from: 5MiB}}\n"
        "repositories: {n/a: {description: 'Ä → b', push: [x, y]}, b: {description: B, read: [x]}}"
    )
    text = dump_compiled(loaded)
    again = parse_compiled(text)
    assert dict(again.repositories) == dict(loaded.repositories)
    assert again.namespaces["n"].description == "Näme"
    assert again.namespaces["n"].settings.bundles_from == 5 * 2**20
    assert again.repositories["n/a"].bundles_from == 5 * 2**20
    assert dump_compiled(again) == text


def compiled(path: str, **fields: object) -> str:
    good = {"description": "", "read": "public", "push": [], "publishing": True, "bundles": []}
    return json.dumps(
        {
            "format": 2,
            "read_only": None,
            "defaults": {},
            "namespaces": {},
            "repositories": {path: {**good, **fields}},
        }
    )


def test_the_good_one_of_the_following_is_good() -> None:
    assert list(parse_compiled(compiled("x")).repositories) == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "{" * 5000,
        '{"format": 2}',
        '{"format": 1, "repositories": {}, "namespaces": {}}',
        '{"format": 2, "repositories": [], "namespaces": {}, "defaults": {}, "read_only": null}',
        '{"format": 2, "repositories": {}, "namespaces": {"n": {}}, "defaults": {}}',
        '{"format": 2, "repositories": {}, "namespaces": {}, "defaults": {}, "read_only": 1}',
        '{"format": 2, "repositories": {}, "namespaces": {}, "defaults": [], "read_only": null}',
        compiled("../x"),
        compiled("x", read="staff"),
        compiled("x", push="abc"),
        compiled("x", push=[1]),
        compiled("x", publishing="no"),
        compiled("x", bundles=None),
        compiled("x", policies=["no-merges"]),
        compiled("x", rules=[{}]),
        compiled("x", rules=[{"push": "staff"}]),
        compiled("x", rules="none"),
        compiled("x", read_only=True),
        compiled("x", owner=1),
    ],
)
def test_a_damaged_compiled_registry_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(RegistryError, match="hgfleet registry apply"):
        # Each repository is looked at when it is asked for: a session asks for one of thousands.
        dict(parse_compiled(text, "registry.json").repositories)


def test_a_missing_compiled_registry_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"No such file.*hgfleet registry apply"):
        load_compiled(tmp_path / "registry.json")


def test_reading_the_compiled_form_imports_nothing_slow(tmp_path: Path) -> None:
    """Every SSH session does this."""
    file = tmp_path / "registry.json"
    file.write_text(dump_compiled(parse(entry("push: []"))))
    code = (
        "import sys; from hgfleet.registry.model import permissions; "
        "from hgfleet.registry.model.compiled import load_compiled; "
        "load_compiled(sys.argv[1]); "
        "print(sorted({'yaml', 'boto3', 'subprocess', 'argparse', 'ldap'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(file)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
