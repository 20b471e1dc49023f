"""Documents of replication: their names, and the steps that bring them to a mirror."""

from __future__ import annotations

import json

import pytest

from hgfleet.replication.documents.documents import Document, Kind, Plan, kind_of, parse_line, plan

OLD, NEW = "0a" * 32, "1b" * 32
MINE = "5f" * 16
LINK = f"pullbundles/{MINE}/{NEW}.hg"
CHAIN = f"pullbundles/{MINE}/manifest"
MANIFEST = f"manifests/{MINE}.manifest"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("registry", Kind.REGISTRY),
        ("tokens", Kind.TOKENS),
        (MANIFEST, Kind.MANIFEST),
        (CHAIN, Kind.CHAIN),
        (LINK, Kind.LINK),
        # Names of the release before.
        ("manifests/team/tool.manifest", Kind.FORMER),
        ("manifests/a.manifest", Kind.FORMER),
        ("pullbundles/team+tool/manifest", Kind.FORMER),
        (f"pullbundles/team+tool/{NEW}.hg", Kind.FORMER),
    ],
)
def test_a_document_is_known_by_its_name(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind


@pytest.mark.parametrize(
    "name",
    [
        "",
        "registry.json",
        "/etc/passwd",
        f"manifests/.{MINE}.manifest",
        f"manifests/{MINE}/.manifest",
        f"pullbundles/{MINE}/.fresh.hg",
        f"pullbundles/{MINE}/x.hg",
        "manifests/../../etc/cron.d/x.manifest",
        "manifests//a.manifest",
        "manifests/.history/a.manifest",
        "manifests/a",
        "manifests/.manifest",
        "pullbundles/team/tool/manifest",
        "pullbundles/../manifest",
        "pullbundles/.fresh/manifest",
        "pullbundles/team+tool/.fresh.hg",
        "pullbundles/team+tool/x.hg",
        f"pullbundles/team+tool/{NEW.upper()}.hg",
        f"pullbundles/team+tool/{NEW}.hg/more",
        "pullbundles/+/manifest",
    ],
)
def test_another_name_is_none(name: str) -> None:
    assert kind_of(name) is None


def test_a_line_comes_back_as_it_was_sent() -> None:
    for document in (Document("registry", OLD, 0), Document(LINK, NEW, 2**40)):
        assert parse_line(document.line()) == document


@pytest.mark.parametrize(
    "data",
    [
        {"name": "shadow", "sha256": OLD, "size": 1},
        {"name": "registry", "sha256": OLD[1:], "size": 1},
        {"name": "registry", "sha256": OLD, "size": -1},
        {"name": "registry", "sha256": OLD, "size": 2**40},
        {"name": "registry", "sha256": OLD, "size": "1"},
        {"name": LINK, "sha256": OLD, "size": 1},
        {"name": 1, "sha256": OLD, "size": 1},
        {"name": "registry"},
        ["registry"],
    ],
)
def test_another_line_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="as a document"):
        parse_line(json.dumps(data).encode())


def test_equal_documents_need_no_step() -> None:
    assert not plan({"registry": OLD, LINK: NEW}, [Document("registry", OLD, 1), _link()])


def _link() -> Document:
    return Document(LINK, NEW, 1)


def test_readers_come_first_and_manifests_last() -> None:
    manifest, tokens = Document(MANIFEST, NEW, 1), Document("tokens", NEW, 1)
    registry, chain = Document("registry", NEW, 1), Document(CHAIN, NEW, 1)
    planned = plan({"registry": OLD}, [manifest, chain, tokens, _link(), registry])
    assert planned == Plan(registry, (), (tokens, _link(), chain, manifest))


def test_a_manifest_goes_before_the_files_that_it_names() -> None:
    planned = plan({LINK: NEW, CHAIN: OLD, MANIFEST: OLD, "tokens": OLD}, [])
    assert planned.delete[-1] == LINK
    assert set(planned.delete) == {LINK, CHAIN, MANIFEST, "tokens"}


def test_documents_of_the_release_before_are_deleted_and_never_fetched() -> None:
    former = Document("manifests/team/tool.manifest", OLD, 1)
    link = Document(f"pullbundles/team+tool/{NEW}.hg", NEW, 2**40)
    # The primary may be of either release.
    assert [parse_line(document.line()) for document in (former, link)] == [former, link]
    assert plan({former.name: OLD, link.name: NEW}, [former, link]) == Plan(
        None, (former.name, link.name), ()
    )
    assert not plan({}, [former, link])


def test_a_registry_that_the_primary_does_not_list_stays() -> None:
    assert not plan({"registry": OLD}, [])
