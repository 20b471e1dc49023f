from __future__ import annotations

from urllib.parse import unquote

import pytest

from hgfleet.core.principal import Principal
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.web.http.routing import Index, InRepository, is_canonical, new_location, resolve
from hgfleet.web.index.catalogue import Catalogue


def repository(path: str, public: bool = True) -> Repository:
    read = "public" if public else ("staff",)
    return Repository(path, "", read, (), True, ())  # type: ignore[arg-type]


REGISTRY = Registry(
    {
        entry.path: entry
        for entry in (
            repository("hgfleet"),
            repository("sandbox/playground"),
            repository("a/b/c/d/e/f/g/h"),
            repository("secret", public=False),
            repository("staff/plans", public=False),
            repository("team/open"),
            repository("team/closed", public=False),
        )
    }
)
CATALOGUE = Catalogue(REGISTRY)


@pytest.mark.parametrize(
    ("path", "name", "rest"),
    [
        ("/hgfleet", "hgfleet", ""),
        ("/hgfleet/", "hgfleet", "/"),
        ("/hgfleet/log/tip/a/../b", "hgfleet", "/log/tip/a/../b"),
        ("/hgfleet//log", "hgfleet", "//log"),
        ("/sandbox/playground", "sandbox/playground", ""),
        ("/sandbox/playground/json-log", "sandbox/playground", "/json-log"),
        ("/a/b/c/d/e/f/g/h/rev/tip", "a/b/c/d/e/f/g/h", "/rev/tip"),
    ],
)
def test_a_path_leads_into_the_repository_whose_segments_it_begins_with(
    path: str, name: str, rest: str
) -> None:
    target = resolve(path, REGISTRY, None, CATALOGUE.is_folder)
    assert isinstance(target, InRepository)
    assert (target.repository.path, target.rest) == (name, rest)


@pytest.mark.parametrize(
    ("path", "folder"),
    [("/", ""), ("/sandbox", "sandbox"), ("/sandbox/", "sandbox"), ("/a/b/c", "a/b/c")],
)
def test_a_folder_with_public_repositories_is_an_index(path: str, folder: str) -> None:
    assert resolve(path, REGISTRY, None, CATALOGUE.is_folder) == Index(folder)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "hgfleet",
        "*",
        "//",
        "//hgfleet",
        "/hgfleetx",
        "/hgfleet-x/log",
        "/HGFLEET",
        "/./hgfleet",
        "/x/../hgfleet",
        "/..",
        "/../../etc/passwd",
        "/sandbox//playground",
        "/sandbox//",
        "/sandbox/playground\0",
        "/hgfleet\0/log",
        "/hgfleet\n",
        "/" + "a/" * 5000,
    ],
)
def test_anything_else_is_not_found(path: str) -> None:
    assert resolve(path, REGISTRY, None, CATALOGUE.is_folder) is None


@pytest.mark.parametrize("path", ["/secret", "/secret/log", "/staff", "/staff/", "/team/closed"])
def test_a_private_repository_does_not_exist_for_others(path: str) -> None:
    assert resolve(path, REGISTRY, None, CATALOGUE.is_folder) is None
    assert resolve("/team", REGISTRY, None, CATALOGUE.is_folder) == Index("team")


def test_a_private_repository_exists_for_its_groups() -> None:
    staff = Principal("alice", frozenset({"staff", "others"}))
    other = Principal("bob", frozenset({"others"}))

    for path in ("/secret", "/secret/log", "/team/closed"):
        target = resolve(path, REGISTRY, staff, CATALOGUE.is_folder)
        assert isinstance(target, InRepository), path
        assert resolve(path, REGISTRY, other, CATALOGUE.is_folder) is None, path
    assert resolve("/staff/", REGISTRY, staff, CATALOGUE.is_folder) == Index("staff")
    assert resolve("/staff/", REGISTRY, other, CATALOGUE.is_folder) is None
    assert resolve("/hgfleet", REGISTRY, other, CATALOGUE.is_folder) == resolve(
        "/hgfleet", REGISTRY, None, CATALOGUE.is_folder
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("/sandbox/playground", True),
        ("/sandbox/playground?cmd=heads", True),
        ("/sandbox/playground/file/tip/a%2Fb", True),
        ("/sandbox%2Fplayground", False),
        ("/sandbox/%70layground", False),
        ("/sandbox/playground%00", False),
        ("/sandbox/playground%2Flog", False),
    ],
)
def test_the_name_of_a_repository_has_one_spelling(raw: str, expected: bool) -> None:
    route = InRepository(repository("sandbox/playground"), "")
    assert is_canonical(raw, route) is expected


RENAMED = Registry(
    REGISTRY.repositories,
    renamed={
        "team/old": "team/open",
        "team/hidden": "team/closed",
        "team/gone": "nowhere",
        "hgfleet": "team/open",
    },
)


@pytest.mark.parametrize(
    ("raw", "location"),
    [
        ("/team/old", "/team/open"),
        ("/team/old/log/tip?style=raw", "/team/open/log/tip?style=raw"),
        ("/team/old?cmd=capabilities", "/team/open?cmd=capabilities"),
        # Hidden, deleted, taken again, spelled otherwise, never there.
        ("/team/hidden", None),
        ("/team/gone", None),
        ("/hgfleet/x", None),
        ("/team/%6fld", None),
        ("/team/old\r\nx: y", None),
        ("//team/old", None),
        ("/team/older", None),
    ],
)
def test_a_former_path_leads_its_readers_to_the_new_one(raw: str, location: str | None) -> None:
    path = unquote(raw.partition("?")[0])
    assert new_location(path, raw, RENAMED) == location


def test_a_former_path_of_a_private_repository_leads_its_groups_alone() -> None:
    staff = Principal("alice", frozenset({"staff"}))
    assert new_location("/team/hidden", "/team/hidden", RENAMED, staff) == "/team/closed"
