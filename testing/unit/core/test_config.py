"""The reader of settings: errors name the file, the setting, the value found and the expected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core import settings_file
from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.core.settings_file import Table


def everything(table: Table) -> dict[str, Any]:
    inner = table.table("inner")
    return {
        "text": table.text("text", "default"),
        "optional": table.optional_text("optional"),
        "choice": table.choice("choice", ("one", "two"), "one"),
        "texts": table.texts("texts", ()),
        "flag": table.flag("flag", default=False),
        "number": table.number("number", 0.5, least=0, most=1),
        "seconds": table.seconds("seconds", 2, least=0.1, most=60),
        "integer": table.integer("integer", 3, least=1, most=9),
        "size": table.size("size", 2**20),
        "file": table.file("file", "/a/b"),
        "url": table.url("url", "https://host/path"),
        "inner": inner.text("text", "inside"),
        "rows": [row.text("name") for row in table.tables("row")],
    }


def test_every_setting_has_its_default(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("")
    got = settings_file.read(file, everything)
    assert got == {
        "text": "default",
        "optional": "",
        "choice": "one",
        "texts": (),
        "flag": False,
        "number": 0.5,
        "seconds": 2.0,
        "integer": 3,
        "size": 2**20,
        "file": Path("/a/b"),
        "url": "https://host/path",
        "inner": "inside",
        "rows": [],
    }
    assert isinstance(got["seconds"], float)


def test_every_setting_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'text = "t"\noptional = "o"\nchoice = "two"\ntexts = ["a"]\nflag = true\nnumber = 1\n'
        'seconds = 0.1\ninteger = 9\nsize = 0\nfile = "/c"\nurl = "http://[::1]:80/p/"\n'
        '[inner]\ntext = "i"\n[[row]]\nname = "r1"\n[[row]]\nname = "r2"\n'
    )
    got = settings_file.read(file, everything)
    assert list(got.values()) == [
        *("t", "o", "two", ("a",), True, 1.0, 0.1, 9, 0),
        *(Path("/c"), "http://[::1]:80/p", "i", ["r1", "r2"]),
    ]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"text": ""}, "text: got '', expected a text"),
        ({"text": "a\nb"}, "text: got 'a\\nb', expected a text"),
        ({"text": 1}, "text: got 1, expected a text"),
        ({"optional": "\x1b"}, "optional: got '\\x1b', expected a text"),
        ({"choice": "three"}, "choice: got 'three', expected one of one, two"),
        ({"choice": 1}, "choice: got 1, expected one of one, two"),
        ({"texts": "a"}, "texts: got 'a', expected a list of texts"),
        ({"texts": ["a", ""]}, "texts: got ['a', ''], expected a list of texts"),
        ({"flag": 1}, "flag: got 1, expected true or false"),
        ({"number": 1.5}, "number: got 1.5, expected a number from 0 to 1"),
        ({"number": True}, "number: got True, expected a number from 0 to 1"),
        ({"number": float("nan")}, "number: got nan, expected a number from 0 to 1"),
        ({"seconds": "x"}, "seconds: got 'x', expected seconds from 0.1 to 60"),
        ({"integer": 10}, "integer: got 10, expected a whole number from 1 to 9"),
        ({"integer": 1.0}, "integer: got 1.0, expected a whole number from 1 to 9"),
        ({"integer": True}, "integer: got True, expected a whole number from 1 to 9"),
        ({"size": -1}, "size: got -1, expected bytes from 0 to"),
        ({"file": "a/b"}, "file: got 'a/b', expected an absolute path"),
        ({"url": "file:///etc"}, "url: got 'file:///etc', expected a URL like https://"),
        ({"url": "https://host/?q"}, "url: got 'https://host/?q', expected a URL"),
        ({"url": "https://[/"}, "url: got 'https://[/', expected a URL"),
        ({"inner": 1}, "inner: got 1, expected a table [inner]"),
        ({"inner": {"text": 1}}, "inner.text: got 1, expected a text"),
        ({"row": {}}, "row: got {}, expected tables [[row]]"),
        ({"row": [1]}, "row: got [1], expected tables [[row]]"),
        ({"row": [{}]}, "row.name: got nothing, expected a text"),
        ({"more": 1, "less": 2}, "got unknown settings less, more"),
        ({"inner": {"more": 1}}, "got unknown settings inner.more"),
    ],
)
def test_a_wrong_setting_is_named(data: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_file.parse_table("/etc/x.toml", data, everything)
    assert str(caught.value).startswith(f"/etc/x.toml: {error}")


@pytest.mark.parametrize(
    ("take", "error"),
    [
        (lambda table: table.text("a"), "a: got nothing, expected a text"),
        (lambda table: table.texts("a"), "a: got nothing, expected a list of texts"),
        (lambda table: table.texts("empty"), "empty: got [], expected a list of texts"),
        (lambda table: table.flag("a"), "a: got nothing, expected true or false"),
        (lambda table: table.file("a"), "a: got nothing, expected an absolute path"),
        (lambda table: table.url("a"), "a: got nothing, expected a URL like https://"),
        (
            lambda table: table.integer("a", least=1, most=2),
            "a: got nothing, expected a whole number from 1 to 2",
        ),
        (
            lambda table: table.tables("a", least=1),
            "a: got nothing, expected 1 or more tables [[a]]",
        ),
    ],
)
def test_a_setting_without_a_default_must_be_there(
    take: Callable[[Table], object], error: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_file.parse_table("x.toml", {"empty": []}, take)
    assert str(caught.value).startswith(f"x.toml: {error}")


def test_tables_with_names_of_the_site_are_read_name_by_name() -> None:
    def levels(table: Table) -> dict[str, int]:
        below = table.table("levels")
        assert "team/*" in below
        return {name: below.integer(name, least=1, most=22) for name in below.names()}

    data = {"levels": {"team/*": 3, "b": 4}}
    assert settings_file.parse_table("x.toml", data, levels) == {"team/*": 3, "b": 4}


def test_a_missing_file_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_file.read(
            tmp_path / "x.toml", everything, "the settings of x", "the role `x` writes it"
        )
    assert str(caught.value) == (
        f"{tmp_path}/x.toml: cannot read the settings of x (No such file or directory); "
        "the role `x` writes it"
    )


@pytest.mark.parametrize("content", [b"a = [", b"a = '\xff'"])
def test_a_file_must_be_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"x\.toml: not TOML: "):
        settings_file.read(file, everything)


@pytest.mark.parametrize(
    "content",
    ['key = "s3cret', 'key = ["s3cret"]', 'key = "s3\\u0001cret"', 'key = "s3" # s3cret\n1'],
)
def test_errors_of_a_secret_file_show_no_text_of_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        settings_file.read(file, lambda table: table.text("key"), secret=True)
    assert "s3" not in str(caught.value).replace(str(file), "")
    assert caught.value.__cause__ is None


def test_key_lookup_can_afford_the_table() -> None:
    code = (
        "import sys; sys.path.append('.')\n"
        "from hgfleet.core.settings_file import parse_table\n"
        "parse_table('x', {'a': '/b'}, lambda table: table.file_name('a'))\n"
        "slow = {'re', 'os', 'typing', 'pathlib', 'tomllib', 'dataclasses'} & set(sys.modules)\n"
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )
    subprocess.run([sys.executable, "-IS", "-c", code], check=True)
