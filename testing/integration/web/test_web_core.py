"""Assumptions of the web part about Mercurial itself. A failure here: core has changed."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import mercurial
from mercurial import (
    archival,
    hg,
    revset,
    revset_predicates,
    scmutil,
    transaction,
    wireprotov1server,
)
from mercurial.hgweb import hgweb_mod_inner, request, webcommands, webutil

from hgfleet.hg import fingerprint as state
from hgfleet.hg import wire_commands
from hgfleet.web.engine import hgweb, search
from hgfleet.web.pushlog import commands, query
from hgfleet.web.requests import wire

TEMPLATES = Path(mercurial.__file__).parent / "templates"


def test_core_agrees_about_what_pushes() -> None:
    for name in wire_commands.READING | wire_commands.CLOSED:
        assert hgweb.permission(name) == "pull"
    for name in wire_commands.PUSHING:
        assert hgweb.permission(name) == "push"
    assert hgweb.permission("nonsense") is None


def test_commands_with_stored_answers_take_the_arguments_that_are_checked() -> None:
    for name in wire_commands.REPLAYABLE:
        taken = wireprotov1server.commands[name.encode()].args.replace(b"*", b"").split()
        assert tuple(taken) == wire._REQUIRED.get(name, ())


def test_the_search_of_core_reads_its_revsets_where_we_give_it_ours() -> None:
    source = inspect.getsource(webcommands._search)
    assert source.count("revset.") == 3
    for name in ("safesymbols", "match(", "lookupfn("):
        assert f"revset.{name}" in source
    assert webcommands.revset is search._Revsets


def test_the_page_of_a_changeset_has_a_place_for_its_push() -> None:
    assert "webutil.changesetentry(web, ctx)" in inspect.getsource(webcommands.changeset)
    template = (TEMPLATES / "paper/changeset.tmpl").read_bytes()
    assert commands.with_push_row(b"changeset", template).count(b"{if(pushlogid") == 1
    for other in (TEMPLATES / "paper").glob("*.tmpl"):
        text = other.read_bytes()
        if other.stem != "changeset":
            assert commands.with_push_row(other.stem.encode(), text) == text


def test_the_journal_of_a_transaction_names_the_size_of_a_file_before_the_first_change() -> None:
    source = inspect.getsource(transaction.transaction)
    assert 'self._file.write(b"%s\\0%d\\n" % (file, offset))\n        self._file.flush()' in (
        source.replace("'", '"')
    )


def test_hgweb_gets_its_repository_where_we_give_it_ours() -> None:
    assert "with self._obtainrepo() as repo" in inspect.getsource(hgweb_mod_inner.hgweb.run_wsgi)
    assert "repository" not in vars(hgweb_mod_inner.hgweb)
    made = inspect.getsource(hgweb_mod_inner.hgweb.__init__)
    assert "self._repos = [hg.cachedlocalrepo(self._webifyrepo(r))]" in made


def test_the_state_includes_what_core_itself_looks_at() -> None:
    """Appended in place: watched itself. Replaced by renaming: its folder is watched."""
    assert {(where, name.decode()) for where, name in hg.foi} == {
        ("spath", "00changelog.i"),
        ("spath", "phaseroots"),
        ("spath", "obsstore"),
        ("path", "bookmarks"),
    }
    assert {"store/00changelog.i", "store", "store/obsstore", ""} <= set(state.WATCHED)


def test_only_the_graph_tells_ages() -> None:
    """Ages in words change with time; all other pages are stored until the repository changes."""
    telling = {
        path.name
        for path in TEMPLATES.rglob("*")
        if path.is_file() and re.search(rb"\|age\b", path.read_bytes())
    }
    assert telling == {"graphentry.tmpl", "graphnode.tmpl"}


def test_the_pages_need_no_more_than_their_policy_allows() -> None:
    for path in (TEMPLATES / "paper").glob("*.tmpl"):
        text = path.read_text()
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script or "nonce" in script, f"{path.name}: {script}"
        assert not re.search(r"<[^>]* on[a-z]+=|javascript:|<style", text), path.name


def test_every_page_is_known() -> None:
    assert set(webcommands.__all__) - set(query.STYLES) == {
        "annotate", "archive", "bookmarks", "branches", "changelog", "changeset", "comparison",
        "diff", "file", "filediff", "filelog", "graph", "help", "log", "manifest", "rawfile", "rev",
        "shortlog", "static", "summary", "tags",
    }  # fmt: skip


def test_an_archive_is_begun_with_its_time_and_its_format_where_we_give_them_ours() -> None:
    source = Path(archival.__file__).read_text()
    assert "archiver = archivers[kind](output, mtime or ctx.date()[0])" in source
    assert "archival.archive(" in inspect.getsource(webcommands)
    assert (archival.archivers[b"zip"], archival.archivers[b"tgz"]) == (
        hgweb._zip,
        hgweb._gzipped_tar,
    )
    # Formats that are not offered have no times of ours.
    assert set(webutil.archivespecs) == {b"zip", b"gz", b"bz2"}


def test_hgweb_knows_whether_it_has_begun_an_answer() -> None:
    source = inspect.getsource(request.wsgiresponse)
    assert source.count("self._started = True") == 1
    assert "setbodywillwrite" in inspect.getsource(webcommands)


def test_core_finds_the_working_copy_where_it_is_hidden() -> None:
    """It does so in these two functions of `scmutil`, which the symbols of a revset use, too."""
    by_name = inspect.getsource(scmutil.revsymbol._origfunc)
    assert "except error.WdirUnsupported:\n        return repo[None]" in by_name
    assert "resolvehexnodeidprefix(repo, symbol)" in by_name
    assert "scmutil.revsymbol(" in inspect.getsource(revset.stringset)
    predicates = Path(revset_predicates.__file__).read_text()
    assert "scmutil.resolvehexnodeidprefix(repo, n)" in predicates
    # `rev()` and `id()` check the whole number and the whole hash themselves: search.py does.
    assert predicates.count("in _virtualrevs") == 2
    assert predicates.count("rn = wdirrev") == 2
