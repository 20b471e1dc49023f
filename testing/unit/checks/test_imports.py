"""The direction of imports between packages and their rooms, and circles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.checks import imports

ROOT = Path(__file__).resolve().parents[3]


def package(top: Path, **modules: str) -> Path:
    """Write modules, named by their path with __ for each slash."""
    for name, text in modules.items():
        path = top / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    (top / "hgfleet/__init__.py").touch()
    return top


def test_this_repository_imports_in_one_direction() -> None:
    assert not imports.problems(ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "import hgfleet.registry.model",
        "from hgfleet.registry import model",
        "from hgfleet.registry.model import Registry",
        "from hgfleet import registry",
        "def f():\n    from hgfleet.registry.model import Registry",
        "if TYPE_CHECKING:\n    from hgfleet.registry.model import Registry",
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, text: str) -> None:
    top = package(tmp_path, hgfleet__policies__base=text, hgfleet__registry__model="")
    (problem,) = imports.problems(top)
    line = text.count("\n") + 1
    assert problem.startswith(
        f"{top}/hgfleet/policies/base.py:{line}: policies imports hgfleet.reg"
    )
    assert problem.endswith("it may import core, policies")


def test_imports_in_the_direction_are_fine(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__core__text="import os\nfrom typing import Final\nimport hgfleet_other.x",
        hgfleet__policies__base="from hgfleet.core import text",
        hgfleet__registry__model="import hgfleet.core.text\nimport hgfleet.policies.base",
        hgfleet__steering__cli="import hgfleet.core.text\nimport hgfleet.registry.model",
        hgfleet__cli="import hgfleet\nfrom hgfleet.steering.cli import x",
        hgext__access="from hgfleet.registry import model",
    )
    assert not imports.problems(top)


def test_a_part_may_not_import_another_beside_it(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__web__app="from hgfleet.ssh import shell",
        hgfleet__ssh__shell="",
        hgfleet__bundles__plan="from hgfleet.steering import probe",
        hgfleet__steering__probe="",
        hgfleet__storage__plan="from hgfleet import cli",
        hgfleet__cli="",
        hgext__access="from hgfleet import cli",
    )
    lines = imports.problems(top)
    assert [line.split(": ")[1].partition(";")[0] for line in lines] == [
        "bundles imports hgfleet.steering.probe",
        "storage imports hgfleet.cli",
        "web imports hgfleet.ssh.shell",
        "an extension imports hgfleet.cli",
    ]


def test_circles_within_a_package_are_found(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__core__a="from hgfleet.core import b",
        hgfleet__core__b="from hgfleet.core.c import x",
        hgfleet__core__c="def f():\n    import hgfleet.core.a",
        hgfleet__core__d="from hgfleet.core import a",
    )
    (problem,) = imports.problems(top)
    assert problem.endswith(
        "a circle of imports: hgfleet.core.a -> hgfleet.core.b -> hgfleet.core.c -> hgfleet.core.a"
    )


def test_a_loose_module_and_an_unknown_package_are_found(tmp_path: Path) -> None:
    lines = imports.problems(package(tmp_path, hgfleet__keys="", hgfleet__other__x=""))
    assert any("keys.py:1: a module outside of the packages" in line for line in lines)
    assert any("the package other has no place" in line for line in lines)


def test_rooms_import_each_other_in_their_order(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__web__http__pages="",
        hgfleet__web__engine__hgweb="from hgfleet.web.http import pages",
        hgfleet__web__app="from hgfleet.web.engine import hgweb\nimport hgfleet.web.http.pages",
        hgfleet__backup__record="",
        hgfleet__backup__restic__prune="from hgfleet.backup import run_records",
    )
    assert not imports.problems(top)


@pytest.mark.parametrize(
    ("of", "text", "reason"),
    [
        (
            "web__http__pages",
            "from hgfleet.web.engine import hgweb",
            "the room web.http imports hgfleet.web.engine.hgweb; it may import http",
        ),
        (
            "web__http__pages",
            "from hgfleet.web.app import application",
            "the room web.http imports hgfleet.web.app; it may import http",
        ),
        (
            "replication__primary__relay",
            "def f():\n    from hgfleet.replication.mirror import places",
            (
                "the room replication.primary imports hgfleet.replication.mirror.places; "
                "it may import documents, primary, protocol, repositories, source, terms"
            ),
        ),
        ("web__hall__x", "", "the room web.hall has no place in the order of imports"),
    ],
)
def test_a_room_out_of_order_is_found(tmp_path: Path, of: str, text: str, reason: str) -> None:
    others = dict.fromkeys(
        (
            "hgfleet__web__engine__hgweb",
            "hgfleet__web__app",
            "hgfleet__replication__mirror__places",
        ),
        "",
    )
    top = package(tmp_path, **others | {f"hgfleet__{of}": text})
    (problem,) = imports.problems(top)
    line = text.count("\n") + 1
    assert problem == f"{top}/hgfleet/{of.replace('__', '/')}.py:{line}: {reason}"


def test_every_room_of_the_order_is_there() -> None:
    missing = [
        f"{part}.{room}"
        for part, order in imports.ROOMS.items()
        for room in order
        if room != imports.BESIDE
        and not (ROOT / f"hgfleet/{part}/{room}/__init__.py").is_file()
        and not (ROOT / f"hgfleet/{part}/{room}.py").is_file()
    ]
    assert not missing


def test_the_documentation_names_the_rooms_from_the_highest_down() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    table = text.partition("| rooms of | highest first |")[2].partition("\n\n")[0]
    named = {
        part: re.findall(r"`(\w+)`:", rooms)
        for part, rooms in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    }
    for part, order in imports.ROOMS.items():
        below = ROOT / "hgfleet" / part
        rooms = {room for room in order if room != imports.BESIDE and (below / room).is_dir()}
        assert set(named[part]) == rooms
        for place, room in enumerate(named[part]):
            assert not imports.allowed(room, order).intersection(named[part][:place]), room
    assert set(named) == set(imports.ROOMS)
