"""The lengths of modules and functions, and the number of modules of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.checks import lengths

if TYPE_CHECKING:
    from pathlib import Path


def test_a_long_module_and_a_long_function_are_found() -> None:
    body = "    pass\n" * lengths.FUNCTION
    assert list(lengths.too_long(f"class C:\n  def f(self):\n{body}")) == [
        (2, "got 61 lines in f, expected at most 60")
    ]
    assert not list(lengths.too_long(f"def f():\n{body[9:]}"))
    ((line, text),) = lengths.too_long("x = 1\n" * (lengths.MODULE + 1))
    assert line == 1
    assert text.startswith("got a module of 401 lines, expected at most 400")
    assert not list(lengths.too_long("x = 1\n" * lengths.MODULE))


def test_every_folder_with_python_code_is_measured(tmp_path: Path) -> None:
    for folder in lengths.FOLDERS:
        path = tmp_path / folder / "below/x.py"
        path.parent.mkdir(parents=True)
        path.write_text("\n" * 500)
    assert len(lengths.problems(tmp_path)) == len(lengths.FOLDERS)


def test_a_folder_with_too_many_modules_is_found(tmp_path: Path) -> None:
    room = tmp_path / "hgfleet/web/http"
    room.mkdir(parents=True)
    for number in range(lengths.ROOM):
        (room / f"part{number}.py").touch()
    assert not lengths.too_full(tmp_path)
    (room / "more.py").touch()
    (problem,) = lengths.too_full(tmp_path)
    assert problem == (f"{room}: got 26 modules, expected at most 25; make rooms of it by subject")
