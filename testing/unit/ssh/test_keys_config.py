"""keys.toml: every wrong setting is named; the quick reader and tomllib agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from hgfleet.core import settings_file
from hgfleet.core.errors import ConfigurationError
from hgfleet.ssh.keys import settings
from testing.unit.ssh.keys_settings import SETTINGS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uris", []),
        ("uris", "ldaps://x"),
        ("uris", ["ldap://x"]),
        ("uris", ["http://x"]),
        ("uris", [1]),
        ("people_base", ""),
        ("people_base", "ou=people\n"),
        ("bind_dn", 7),
        ("shell", "hgfleet-shell"),
        ("shell", '/bin/sh -c "x'),
        ("shell", "/bin/sh x"),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", 31),
        ("timeout", True),
        ("timeout", "2"),
        ("key_types", []),
        ("key_types", ["ssh-dss"]),
        ("password", "secret"),
        ("stale_file", "relative"),
        ("stale_file", ""),
        ("stale_file", 1),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        settings_file.parse_table("keys.toml", {**SETTINGS, name: value}, settings.parse)


@pytest.mark.parametrize("text", ["uris = [", "\0", "uris = 1\nuris = 2"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"keys\.toml"):
        settings.load(str(path))


ROLES = Path(__file__).resolve().parents[3] / "ansible/roles"


def test_the_file_of_the_role_is_read_without_tomllib() -> None:
    template = (ROLES / "ssh/templates/keys.toml.j2").read_text()
    text = re.sub(r"{{.*}}", '"x"', template)
    assert settings.read_simple(text) == tomllib.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# comment\n\n  # another\n",
        'a = "x"\nb=2\nc = 2.5\nd = 0\ne = 0.5\n',
        'a = ["x", "y"]\nb = ["x=y#z"]',
        'a_b = "dc=x,dc=y"',
        'ä = "x"',
        'a = "x" # comment',
        'a = ["x",]',
        'a = ["x, y"]',
        "a = []",
        'a = "x\\n"',
        "a = 'x'",
        'a = """x"""',
        'a = """\nx"""',
        "a = 02",
        "a = 1.",
        "a = .5",
        "a = 1e3",
        "a = 1_000",
        "a = -1",
        "a = 1.2.3",
        "a = true",
        "a",
        "a =",
        "= 1",
        "a.b = 1",
        "a-b = 1",
        "a b = 1",
        "[a]\nb = 1",
        "a = 1\na = 2",
        'a = "x\ty"',
        'a = "x"\r\n',
        'a = "x\u2028y"',
        'a = "\0"',
        "a = ²",
    ],
)
def test_the_quick_reader_agrees_with_tomllib_or_leaves_the_file_to_it(text: str) -> None:
    quick = settings.read_simple(text)
    if quick is not None:
        slow = tomllib.loads(text)
        assert quick == slow
        assert [type(v) for v in quick.values()] == [type(v) for v in slow.values()]


def test_other_toml_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    lines = [f"{name} = {value!r}" for name, value in SETTINGS.items()]
    path.write_text("\n".join(lines) + "  # a comment that takes tomllib\n")
    assert settings.load(str(path)).uris == tuple(SETTINGS["uris"])
