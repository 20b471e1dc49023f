"""A push has the parts of bundle2 that are listed, and nothing of the others reaches the disk."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from testing.integration.pushlog.site import ALICE, OPERATOR
from testing.integration.support import site as support

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testing.integration.pushlog.site import PushlogSite

CRAFT = """\
import sys
from mercurial import bundle2, bundle2_part_handlers, ui
bundle2_part_handlers.init()
bundler = bundle2.bundle20(ui.ui.load())
for words in sys.argv[1:]:
    name, _, data = words.partition("=")
    name, *parameters = name.split("?")
    part = bundler.newpart(
        name.lower().encode(), data=bytes.fromhex(data), mandatory=name[0].isupper()
    )
    for parameter in parameters:
        key, _, value = parameter.partition(":")
        part.addparam(key.lower().encode(), value.encode(), mandatory=key[0].isupper())
sys.stdout.buffer.write(b"".join(bundler.getchunks()))
"""


CORES = ("undo", "journal.desc", "branch")


def crafted(site: PushlogSite, *parts: str) -> bytes:
    """Return a bundle2 of parts, `NAME?PARAMETER:VALUE=HEX`; an upper-case letter is mandatory."""
    return subprocess.run(
        [sys.executable, "-c", CRAFT, *parts],
        env=support.environment(site.client_rc),
        capture_output=True,
        check=True,
    ).stdout


def send(site: PushlogSite, data: bytes, **person: str) -> str:
    """Push these bytes over the wire protocol; return all that the server says."""
    request = b"unbundle\nheads 10\n666f726365%d\n%b0\n" % (len(data), data)
    environment = site.environment(**(ALICE | person))
    words = ["-R", site.path("server"), "serve", "--stdio"]
    done = support.server(environment).hg(words, environment, site.root, request)
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def files(site: PushlogSite) -> Mapping[str, bytes]:
    """Return the files of the repository with their content."""
    place = site.path("server") / ".hg"
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        # Files that core leaves of an aborted transaction have nothing of the push.
        if path.is_file() and path.stat().st_size and not path.name.startswith(CORES)
    }


def bundle(site: PushlogSite, type_: str) -> bytes:
    """Return a bundle that alice's hg makes of her clone."""
    place = site.root / f"{type_}.hg"
    if type_ == "packed1":
        site.at_work("debugcreatestreamclonebundle", place)
    else:
        site.at_work("bundle", "--all", "--type", type_, place)
    return place.read_bytes()


@pytest.fixture
def changed(site: PushlogSite) -> PushlogSite:
    """An empty repository; alice's clone has a tagged changeset and another push log."""
    site.change()
    site.at_work("tag", "--cwd", site.work, "v1")
    (site.work / ".hg/store/pushlog").write_bytes(b"a log of her own\n")
    return site


def test_raw_files_of_a_store_are_refused(changed: PushlogSite) -> None:
    before = files(changed)
    data = bundle(changed, "none-streamv2")
    assert b"\x07STREAM2" in data
    # Mandatory, advisory, and mandatory by a single letter: core takes all of them.
    for name in (b"STREAM2", b"stream2", b"streaM2"):
        said = send(changed, data.replace(b"\x07STREAM2", b"\x07" + name))
        assert "a push may not have the part stream2: raw files of a store would" in said
        assert files(changed) == before
    said = send(changed, crafted(changed, "Stream3-exp?Requirements:store=00"))
    assert "a push may not have the part stream3-exp" in said
    assert files(changed) == before
    changed.push()
    assert changed.server("log", "-T", "{rev}") == "10"
    assert [record.kind for record in changed.records()] == ["push"]


def test_the_tags_cache_of_the_server_is_its_own(changed: PushlogSite) -> None:
    changed.push()
    changed.server("tags")
    before = files(changed)
    tip, first = changed.server("log", "-T", "{node}\n").split()
    for name in ("hgtagsfnodes", "Hgtagsfnodes"):
        said = send(changed, crafted(changed, f"{name}={tip}{first}"))
        assert "a push may not have the part hgtagsfnodes" in said
        assert files(changed) == before


def test_a_person_without_the_right_to_a_branch_cannot_write_the_tags_cache(
    changed: PushlogSite,
) -> None:
    changed.push()
    before = files(changed)
    changed.configure("server", 'policies = {"closed-tree": {"reason": "release"}}')
    tip = changed.server("log", "-r", "tip", "-T", "{node}")
    send(changed, crafted(changed, f"hgtagsfnodes={tip}{tip}"))
    changed.configure("server")
    assert files(changed) == before


@pytest.mark.parametrize(
    "part",
    [
        *("cache:rev-branch-cache", "listkeys?Namespace:bookmarks", "output=6869"),
        *("reply:changegroup?Return:1?In-reply-to:0", "error:abort?Message:owned"),
        "Remote-changegroup?Url:http://127.0.0.1:9/?Size:1",
    ],
)
def test_parts_of_answers_and_of_files_are_none_of_a_push(changed: PushlogSite, part: str) -> None:
    before = files(changed)
    said = send(changed, crafted(changed, part))
    name = part.partition("?")[0].partition("=")[0].lower()
    assert f"a push may not have the part {name}" in said
    assert files(changed) == before


def test_a_part_that_core_does_not_know_is_as_in_core(changed: PushlogSite) -> None:
    assert "UNSUPPORTEDCONTENT" in send(changed, crafted(changed, "Flying-carpet"))
    said = send(changed, crafted(changed, "flying-carpet"))
    assert "may not" not in said
    # A push that asks for no reply is answered.
    assert "cannot be carried out" not in said


@pytest.mark.parametrize(
    "parameter", ["Treemanifest:1", "treemanifest:1", "targetphase:96", "Exp-sidedata:1"]
)
def test_a_parameter_that_no_push_has_is_refused(changed: PushlogSite, parameter: str) -> None:
    before = files(changed)
    said = send(changed, crafted(changed, f"Changegroup?version:02?{parameter}="))
    assert "a push may not have the parameter" in said
    assert files(changed) == before


@pytest.mark.parametrize("version", ["01", "05", "x"])
def test_a_version_of_changegroups_that_was_not_offered_is_refused(
    changed: PushlogSite, version: str
) -> None:
    said = send(changed, crafted(changed, f"Changegroup?Version:{version}="))
    assert ("a push may not have the version" in said) == (version != "01")


@pytest.mark.parametrize("type_", ["zstd-v2", "gzip-v2", "bzip2-v2"])
def test_a_compressed_push_is_refused(changed: PushlogSite, type_: str) -> None:
    before = files(changed)
    said = send(changed, bundle(changed, type_))
    assert "a push may not be compressed" in said
    assert files(changed) == before


@pytest.mark.parametrize(
    ("type_", "sentence"),
    [
        ("packed1", "a push may not be a bundle of raw files"),
        ("none-v1", "incompatible Mercurial client; bundle2 required"),
    ],
)
def test_other_kinds_of_bundles_are_refused(
    changed: PushlogSite, type_: str, sentence: str
) -> None:
    before = files(changed)
    assert sentence in send(changed, bundle(changed, type_))
    assert "unknown bundle version 2Y" in send(changed, b"HG2Y\0\0\0\0\0\0\0\0")
    assert files(changed) == before


def test_a_part_inside_of_another_is_refused_likewise(changed: PushlogSite) -> None:
    """A size of -1 lets a part interrupt the data of another part."""
    before = files(changed)
    inner = crafted(changed, "hgtagsfnodes=" + "ab" * 40)[8:-4]
    outer = crafted(changed, "Replycaps=41")
    at = outer.index(b"\0\0\0\1A")
    said = send(changed, outer[:at] + b"\xff\xff\xff\xff" + inner + outer[at:])
    assert "a push may not have the part hgtagsfnodes" in said
    # hg's own client tells so of an error of its own in the middle of a push.
    inner = crafted(changed, "error:abort?Message:my disk is full")[8:-4]
    said = send(changed, outer[:at] + b"\xff\xff\xff\xff" + inner + outer[at:])
    assert "my disk is full" in said
    assert "may not" not in said
    assert files(changed) == before


def test_an_ordinary_push_has_only_listed_parts(site: PushlogSite) -> None:
    site.configure("server", publishing=False)
    node = site.change()
    site.at_work("bookmark", "stable")
    site.push("-B", "stable", "--pushvars", "CLOSED_TREE=yes")
    (site.work / "file").write_text("two\n")
    site.at_work("commit", "--cwd", site.work, "--amend", "-q", "-m", "amended")
    site.push("--force", "-B", "stable")
    site.at_work("phase", "--public", "-r", ".")
    site.push(code=1)
    assert [bool(record.markers) for record in site.records()] == [False, True, False]
    assert site.records()[0].changesets == (node,)


def test_variables_of_a_push_are_those_that_are_listed(site: PushlogSite) -> None:
    (site.root / "hook.py").write_text(
        "def hook(ui, repo, **found):\n"
        "    names = sorted(name for name in found if 'USERVAR' in name)\n"
        "    ui.warn(b'%s\\n' % ' '.join(names).encode())\n"
    )
    site.hgrc.write_text(
        site.hgrc.read_text() + f"[hooks]\npretxnclose.vars = python:{site.root}/hook.py:hook\n"
    )
    site.change()
    said = site.push("--pushvars", "CLOSED_TREE=yes", "--pushvars", "LD_PRELOAD=x")
    assert "remote: USERVAR_CLOSED_TREE\n" in said
    assert "LD_PRELOAD" in said
    assert "is not known here" in said


def test_a_namespace_that_is_not_listed_is_closed(site: PushlogSite) -> None:
    (site.root / "more.py").write_text(
        "from mercurial import pushkey\n"
        "def extsetup(ui):\n"
        "    pushkey.register(b'more', lambda *x: open('/dev/stderr', 'w').write('owned'),\n"
        "                     lambda repo: {b'secret': b'1'})\n"
    )
    site.hgrc.write_text(site.hgrc.read_text() + f"[extensions]\nmore = {site.root}/more.py\n")
    said = send(site, crafted(site, "Pushkey?Namespace:more?Key:k?Old:?New:v"))
    assert "owned" not in said
    assert "the namespace 'more'" in said
    environment = site.environment(**ALICE)
    words = ["-R", site.path("server"), "serve", "--stdio"]
    request = b"listkeys\nnamespace 4\nmore"
    assert support.server(environment).hg(words, environment, site.root, request).stdout == b"0\n"


def test_a_refused_part_is_logged_and_counted(changed: PushlogSite) -> None:
    counters, hgrc = changed.root / "counters", changed.hgrc.read_text()
    counters.mkdir()
    changed.hgrc.write_text(
        hgrc.replace("[hgfleet]\n", f"[hgfleet]\ncounters = {counters}\n")
        + f"pushcounts = {support.HGEXT}/pushcounts.py\nblackbox =\n"
        "[blackbox]\ntrack = hardening\n"
    )
    send(changed, bundle(changed, "none-streamv2"))
    assert "parts 1\n" in "".join(path.read_text() for path in counters.rglob("*"))
    log = (changed.path("server") / ".hg/blackbox.log").read_text()
    assert "event=push-part" in log
    assert "user=alice" in log


def test_a_fork_does_not_take_the_tags_cache_of_its_source(changed: PushlogSite) -> None:
    changed.push()
    changed.server("tags")
    cache: Path = changed.path("server") / ".hg/cache/hgtagsfnodes1"
    content = cache.read_bytes()
    # As a push could write it once: the newest changeset has no tags.
    cache.write_bytes(content[:-20] + bytes(20))
    assert changed.server("tags", "-T", "{tag}\n").split() == ["tip", "v1"]
    fork = changed.path("fork")
    changed.hg("clone", "--pull", "-U", changed.path("server"), fork, **OPERATOR)
    assert changed.hg("-R", fork, "tags", "-T", "{tag}\n", **OPERATOR).split() == ["tip", "v1"]


def test_raw_files_are_not_unbundled_into_a_registered_repository(changed: PushlogSite) -> None:
    bundle(changed, "none-streamv2")
    before = files(changed)
    said = changed.start(
        *("-R", changed.path("server"), "unbundle", changed.root / "none-streamv2.hg"), **OPERATOR
    )
    assert "raw files of a store" in said.stderr
    assert "--type zstd-v2" in said.stderr
    assert files(changed) == before
    plain = changed.root / "plain"
    changed.hg("init", plain, **OPERATOR)
    changed.hg("-R", plain, "unbundle", changed.root / "none-streamv2.hg", **OPERATOR)


def test_a_push_names_only_the_heads_that_it_replaces(site: PushlogSite) -> None:
    """So pushes to unrelated heads do not race: the capability `checkheads` is offered."""
    site.change()
    site.push()
    site.change(text="two\n")
    said = site.push("--debug")
    assert 'bundle2-output-part: "check:updated-heads"' in said
    assert 'bundle2-output-part: "check:heads"' not in said
