"""Archives: complete, or refused before the first byte."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from testing.integration.web.support import PROJECT, Site, ask
from testing.support import prefork

if TYPE_CHECKING:
    from hgfleet.web.app import Application


@pytest.fixture
def web(site: Site) -> Application:
    return site.application()


def commit_path(site: Site, name: bytes) -> None:
    """Commit a file whose path no working copy can hold."""
    script = f"""
from mercurial import context, hg, initialization, ui
initialization.init()
repo = hg.repository(ui.ui.load(), {str(site.path("team/project"))!r}.encode())

def content(repo, memctx, path):
    return context.memfilectx(repo, memctx, path, b"x")

parents = (repo[b"tip"].node(), repo.nullid)
with repo.lock():
    made = context.memctx(repo, parents, b"x", [{name!r}], content, user=b"test")
    repo.commitctx(made)
"""
    done = prefork.shared(site.environment).python(script, [], site.environment)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("path", [b"../../../../tmp/x", b"/abs", b".hg/hgrc"])
@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_manifest_with_an_unsafe_path_is_refused_before_the_first_byte(
    site: Site, web: Application, path: bytes, suffix: str, method: str
) -> None:
    commit_path(site, path)
    reply = ask(web, f"{PROJECT}/archive/tip.{suffix}", method=method)
    assert reply.status == 403
    if method == "GET":
        assert "unsafe" in reply.text
    # Changesets before it are still there.
    assert ask(web, f"{PROJECT}/archive/1.{suffix}", method=method).status == 200


def test_a_zip_of_a_name_that_is_not_utf_8_is_refused_and_names_the_way_out(
    site: Site, web: Application
) -> None:
    name = b"gr\xf6\xdfe.txt"
    with (site.path("team/project") / "x").open("w"):
        pass
    file = bytes(site.path("team/project")) + b"/" + name
    with open(file, "w") as content:  # noqa: PTH123  (a name in bytes)
        content.write("x")
    site.hg("team/project", "commit", "-q", "-A", "-m", "latin-1")
    reply = ask(web, f"{PROJECT}/archive/tip.zip")
    assert reply.status == 403
    assert "tar.gz" in reply.text
    packed = ask(web, f"{PROJECT}/archive/tip.tar.gz")
    assert packed.status == 200
    with tarfile.open(fileobj=io.BytesIO(packed.body)) as archive:
        assert len(archive.getnames()) == 5
    # A part of the tree that has no such name.
    part = ask(web, f"{PROJECT}/archive/tip.zip/one.txt")
    assert part.status == 200
    with zipfile.ZipFile(io.BytesIO(part.body)) as archive_of_part:
        assert [member.rpartition("/")[2] for member in archive_of_part.namelist()] == ["one.txt"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("", "cmd=rawfile&file=secret.txt&filenode=" + "f" * 40),
        ("", "cmd=file&file=secret.txt&filenode=ffff"),
        ("", "cmd=annotate&file=secret.txt&filenode=2147483647"),
        ("/raw-file", "file=secret.txt&filenode=" + "f" * 40),
        ("", "cmd=filelog&file=one.txt&filenode=x:ffffffff"),
        ("", "cmd=rawfile&file=secret.txt&filenode=1&filenode=" + "f" * 40),
        ("", "cmd=rawfile&file=secret.txt&filenode=" + "f" * 40 + "&filenode=1"),
        ("", "cmd=rawfile&file=secret.txt&filenode=wdir%28%29"),
        ("", "cmd=rawfile&file=secret.txt&filenode=%66" + "f" * 39),
    ],
)
def test_a_file_of_the_working_directory_is_served_under_no_name(
    site: Site, web: Application, path: str, query: str
) -> None:
    (site.path("team/project") / "secret.txt").write_text("of the working directory")
    site.hg("team/project", "add", "secret.txt")
    reply = ask(web, PROJECT + path, query)
    assert reply.status in (400, 404)
    assert b"of the working directory" not in reply.body
