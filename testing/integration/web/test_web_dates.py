"""Pages, feeds, JSON and archives of a history with dates that are none."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

import pytest
from mercurial import changelog

from testing.integration.web.support import PROJECT, Site, ask
from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.web.app import Application

ROOT: Final = Path(__file__).resolve().parents[3]
DATES: Final = ("", "0", "nan 0", "inf 0", "-1e400 0", "x y", "9" * 30 + " 0", "0 " + "9" * 30)

_FORGE: Final = """
import sys
from mercurial import hg, initialization, ui
initialization.init()
repo = hg.repository(ui.ui.load(), sys.argv[1].encode())
log = repo.changelog
with repo.lock(), repo.transaction(b"forge") as transaction:
    log.delayupdate(transaction)
    parent = log.tip()
    lines = bytes(log.revision(parent)).split(b"\\n")
    for date in sys.argv[2:]:
        lines[2] = date.encode()
        text = b"\\n".join(lines)
        parent = log.addrevision(text, transaction, len(log), parent, repo.nullid)
        parent = log.node(parent) if isinstance(parent, int) else parent
        print(parent.hex())
"""


@pytest.fixture(scope="module", autouse=True)
def _any_date() -> Iterator[None]:
    """Undo the extension at the end: renderers of later tests are forks of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changelog.changelogrevision, "date", changelog.changelogrevision.date)
        yield


@pytest.fixture
def nodes(site: Site) -> list[str]:
    """The changesets without dates, on top of a healthy history."""
    rc = Path(site.environment["HGRCPATH"])
    rc.write_text(
        f"{rc.read_text()}\n[extensions]\nany_date = {ROOT}/hgext/any_date.py\n"
        "[web]\nallow-archive = zip, gz\n"
    )
    place = str(site.path("team/project"))
    done = prefork.shared(site.environment).python(_FORGE, [place, *DATES], site.environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split()


PAGES: Final = (
    "",
    "/log",
    "/graph",
    "/branches",
    "/tags",
    "/rev/{node}",
    "/raw-rev/{node}",
    "/file/{node}",
    "/filelog/{node}/one.txt",
    "/annotate/{node}/one.txt",
    "/diff/{node}/one.txt",
    "/json-log/{node}",
    "/json-graph",
    "/json-rev/{node}",
    "/json-filelog/{node}/one.txt",
    "/json-annotate/{node}/one.txt",
    "/json-branches",
    "/atom-log",
    "/rss-log",
    "/atom-branches",
)
SEARCHES: Final = ("rev=date(%22%3E2000%22)", "rev=sort(all(),date)", "rev=author(test)")


def no_constant(name: str) -> float:
    """Refuse constants of Python's JSON that the standard does not have."""
    raise ValueError(name)


def test_a_date_that_is_none_is_shown_as_of_1970(site: Site, nodes: list[str]) -> None:
    web = site.application()
    (entry, *_) = json.loads(ask(web, f"{PROJECT}/json-log").text)["changesets"]
    assert (entry["node"], entry["date"]) == (nodes[-1], [0.0, 0])
    for page in PAGES:
        for node in nodes if "{node}" in page else nodes[:1]:
            reply = ask(web, PROJECT + page.format(node=node))
            assert reply.status == 200, (page, node, reply.text)
            if "json-" in page:
                json.loads(reply.text, parse_constant=no_constant)
            if "atom-" in page or "rss-" in page:
                ElementTree.fromstring(reply.body)  # noqa: S314  (our own feed)
    for search in SEARCHES:
        assert ask(web, f"{PROJECT}/log", search).status == 200, search


def test_a_changeset_whose_date_is_none_has_archives(site: Site, nodes: list[str]) -> None:
    web = site.application()
    for node in nodes:
        with zipfile.ZipFile(io.BytesIO(packed(web, node, "zip"))) as archive:
            assert archive.testzip() is None
            assert {member.date_time[0] for member in archive.infolist()} == {1980}
            (name,) = (
                listed for listed in archive.namelist() if listed.endswith(".hg_archival.txt")
            )
            assert f"node: {node}" in archive.read(name).decode()
        with tarfile.open(fileobj=io.BytesIO(packed(web, node, "tar.gz"))) as members:
            assert {int(member.mtime) for member in members} == {0}


def packed(web: Application, node: str, suffix: str) -> bytes:
    reply = ask(web, f"{PROJECT}/archive/{node}.{suffix}")
    assert reply.status == 200, reply.text
    return reply.body
