"""Hostile input: no traceback outside, no 500, nothing of the disk."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from mercurial import revset
from mercurial.hgweb import webcommands

from testing.integration.web.support import PROJECT, Reply, Site, ask, copied

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.web.app import Application

GETBUNDLE = "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D02"
ANSWERS = {200, 304, 400, 403, 404, 405, 413, 414}


@pytest.fixture(scope="module")
def web(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """The application for all requests that change nothing."""
    return copied(template, tmp_path_factory.mktemp("hostile")).application()


@pytest.fixture(scope="module")
def injected(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """An application whose repository has markup as its description and as a path."""
    site = copied(template, tmp_path_factory.mktemp("injected"))
    site.descriptions["team/project"] = INJECTED
    site.write_registry()
    site.commit("team/project", INJECTED)
    return site.application()


def check(reply: Reply) -> None:
    assert reply.status in ANSWERS, reply
    assert b"Traceback" not in reply.body
    assert b"/repos/" not in reply.body, "a path of the disk"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "*",
        "http://evil.example.org/",
        "/..",
        "/../../../../etc/passwd",
        "/team/../team/project",
        "/team/./project",
        "//team/project",
        "/team//project",
        "/team/project\0",
        "/team/project\0/log",
        "/team\\project",
        "/TEAM/project",
        "/team/project/../secret",
        "/team/project/.hg/hgrc",
        "/team/project/file/tip/../../.hg/hgrc",
        "/team/project/raw-file/tip/../../../../../etc/passwd",
        "/team/project/raw-file/tip//etc/passwd",
        "/team/project/raw-file/ffffffffffffffffffffffffffffffffffffffff/.hg/hgrc",
        "/team/project/raw-file/ffff/one.txt",
        "/team/project/raw-file/2147483647/one.txt",
        "/team/project/raw-file/x:ffffffff/one.txt",
        "/team/project/archive/ffffffff.tar.gz",
        "/team/project/static/../../../etc/passwd",
        "/team/project/static/style-paper.css",
        "/team/project/__init__/tip",
        "/team/project/..-log/tip",
        "/team/project/" + "x" * 3000,
        "/" + "a" * 100_000,
        "/" + "a/" * 2000,
        "/team/project/file/tip/\xff\xfe",
        "/team/project/rev/\xff\xfe",
        "/healthz/..",
        "/api/repositories/../../etc",
        "/api/repositories/team/secret",
        "/api/repositories/%2e%2e",
    ],
)
@pytest.mark.parametrize("query", ["", "cmd=heads", "style=json"])
def test_no_path_leads_out_of_the_registry(web: Application, path: str, query: str) -> None:
    reply = ask(web, path, query)
    check(reply)
    assert b"root:" not in reply.body
    assert reply.status != 200 or path == "/team/project/" or not reply.body.startswith(b"[")
    if ".." in path or "ffff" in path or "2147483647" in path:
        assert reply.status != 200


@pytest.mark.parametrize(
    "raw",
    [
        "/team%2fproject",
        "/team%2Fproject?cmd=heads",
        "/team/%70roject",
        "/team/project%2flog",
        "/team/project%00",
        "/%74eam/project",
    ],
)
def test_the_name_of_a_repository_may_not_be_encoded(web: Application, raw: str) -> None:
    assert ask(web, PROJECT, "cmd=heads", raw=raw).status == 404


@pytest.mark.parametrize(
    "method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X" * 99]
)
@pytest.mark.parametrize("path", ["/", PROJECT, "/api/repositories", "/missing"])
def test_other_methods_are_not_allowed(web: Application, method: str, path: str) -> None:
    reply = ask(web, path, method=method, body=b"x")
    check(reply)
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/api/repositories", PROJECT, PROJECT + "/log"])
def test_a_post_that_is_no_wire_command_is_not_allowed(web: Application, path: str) -> None:
    assert ask(web, path, method="POST", body=b"a=b").status == 405


@pytest.mark.parametrize(
    ("headers", "body", "logged"),
    [
        ({"X-HgArgs-Post": "5"}, b"", 400),
        ({"X-HgArgs-Post": "-1"}, b"key=tip", 400),
        ({"X-HgArgs-Post": "x"}, b"key=tip", 400),
        ({"X-HgArgs-Post": "9" * 30}, b"key=tip", 400),
        ({"X-HgArgs-Post": "99999999"}, b"key=tip", 413),
        ({"X-HgArgs-Post": "7"}, b"x" * (4 * 1024 * 1024 + 1), 413),
        ({"X-HgArgs-Post": "7"}, b"key=\xff\xfe\xfd", 400),
        ({"X-HgArgs-Post": "7"}, b"key=tip and more", 200),
        ({}, b"key=tip", 400),
    ],
)
def test_a_body_is_what_it_says_it_is(
    site: Site, headers: dict[str, str], body: bytes, logged: int
) -> None:
    web = site.application()
    reply = ask(web, PROJECT, "cmd=lookup", method="POST", headers=headers, body=body)
    check(reply)
    is_refused = reply.headers["Content-Type"] == "application/hg-error"
    assert (site.log()[-1]["status"], is_refused) == (logged, logged != 200)


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("cmd=known", {}),
        ("cmd=known", {"X-HgArg-1": "nodes=zz"}),
        ("cmd=known", {"X-HgArg-1": "nodes=" + "0" * 39}),
        ("cmd=known", {"X-HgArg-1": "nodes=\xe9"}),
        ("cmd=known", {"X-HgArg-1": "no", "X-HgArg-3": "des="}),
        ("cmd=between", {"X-HgArg-1": "pairs=" + "1" * 40 + "-" + "2" * 40}),
        ("cmd=branches", {"X-HgArg-1": "nodes=" + "1" * 40}),
        ("cmd=lookup", {}),
        ("cmd=listkeys", {}),
        ("cmd=protocaps", {}),
        ("cmd=batch", {}),
        ("cmd=batch", {"X-HgArg-1": "cmds=%00"}),
        ("cmd=batch", {"X-HgArg-1": "cmds=getbundle+"}),
        ("cmd=getbundle", {"X-HgArg-1": "heads=" + "1" * 40}),
        ("cmd=getbundle", {"X-HgArg-1": GETBUNDLE + "&common=" + "f" * 40}),
        ("cmd=getbundle", {"X-HgArg-1": GETBUNDLE + "&heads=" + "f" * 40}),
        ("cmd=getbundle", {"X-HgArg-1": "heads=zz"}),
        ("cmd=getbundle", {"X-HgArg-1": "bundlecaps=HG20%2Cbundle2%3D%25ff&common=" + "1" * 40}),
        ("cmd=getbundle", {"X-HgArg-1": "bundlecaps=HG20%2Cbundle2%3Dchangegroup%253D99"}),
        ("cmd=getbundle", {"X-HgArg-1": "bundlecaps=HG20&stream=1"}),
        ("cmd=getbundle", {"X-HgArg-1": "bundlecaps=HG20&nonsense=1"}),
        ("cmd=getbundle", {"X-HgArg-1": "bundlecaps=HG20&includepats=x"}),
        ("cmd=heads", {"X-HgProto-1": "\xff"}),
        ("cmd=heads&x=\xff", {}),
        ("cmd=heads&cmd=unbundle", {}),
        ("cmd=changegroup&roots=" + "0" * 40, {}),
        ("cmd=changegroupsubset", {}),
        ("cmd=debugwireargs&one=1&two=2", {}),
        ("cmd=get_cached_bundle_inline&path=../bundle-cache-x/y", {}),
        ("cmd=%00", {}),
        ("cmd=heads%0d%0aX-Evil:+1", {}),
        ("cmd=" + "a" * 5000, {}),
        ("a" * 20_000, {}),
        ("&".join(f"a{number}=1" for number in range(2000)), {}),
        ("cmd=lookup&key=" + "%ff" * 10, {}),
        ("revcount=999999999999999999999999", {}),
        ("style=../../etc/passwd", {}),
        ("style=" + "a" * 5000, {}),
        ("access-hidden=1&cmd=heads", {}),
    ],
)
def test_nonsense_in_the_protocol_is_refused_politely(
    web: Application, query: str, headers: dict[str, str]
) -> None:
    check(ask(web, PROJECT, query, headers=headers))


def test_closed_commands_say_so(web: Application) -> None:
    for command in ("changegroup", "debugwireargs", "get_cached_bundle_inline"):
        reply = ask(web, PROJECT, f"cmd={command}")
        assert reply.headers["Content-Type"] == "application/hg-error"
        assert "closed on this server" in reply.text


def test_a_wire_command_below_a_repository_is_not_found(web: Application) -> None:
    assert ask(web, PROJECT + "/log", "cmd=heads").status == 404


STYLES = ["", "json-", "raw-", "atom-", "rss-", "paper-", "gitweb-", "zzz-", "..-"]
INJECTED = '"><meta http-equiv=refresh content=0>'
PAGES = ["", "shortlog", "log/tip/{}", "file/tip/{}", "annotate/tip/{}", "graph", "help"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "style", ["", "paper", "gitweb", "monoblue", "spartan", "coal", "map-cmdline"]
)
def test_committed_and_described_text_is_never_markup(
    injected: Application, page: str, style: str
) -> None:
    reply = ask(injected, f"{PROJECT}/{page.format(INJECTED)}", f"style={style}")
    assert reply.status == (400 if style == "map-cmdline" else 200)
    assert b"<meta http-equiv=refresh" not in reply.body


PATTERNS = [
    "file('listfile:{}')",
    "file('set:listfile:{}')",
    "adds('listfile:{}')",
    "contains('listfile:{}')",
    "follow('listfile:{}')",
    "_matchfiles('p:listfile:{}')",
    "filelog('listfile:{}')",
    "file('list' ## 'file:{}')",
    "all() and not file('include:{}')",
    "removes('relpath:{}')",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_search_reads_no_file_of_the_server(
    web: Application, pattern: str, tmp_path: Path
) -> None:
    """The answer is the same as for a search for words, whether a file is there or not."""
    pages = []
    for name in ("present", "missing"):
        (tmp_path / "present").write_text("one.txt\n")
        query = pattern.format(tmp_path / name)
        reply = ask(web, f"{PROJECT}/json-log", f"rev={quote(query, safe='')}")
        assert reply.status == 200
        pages.append(reply.body.replace(str(tmp_path / name).encode(), b"FILE"))
    assert pages[0] == pages[1]
    assert json.loads(pages[0])["entries"] == []


@pytest.mark.parametrize(
    "query",
    [
        "file('relre:(a+)+$')",
        "desc('r' ## 'e:(a+)+$')",
        "_matchfiles('p:re:(.*)*0x')",
        "matching(all(), 'diff')",
    ],
)
def test_a_search_evaluates_no_regular_expression(
    web: Application, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched = []
    monkeypatch.setattr(revset, "match", lambda *words, **_: matched.append(words))
    assert ask(web, f"{PROJECT}/log", f"rev={quote(query, safe='')}").status == 200
    assert matched == []


NODES = [
    "", "tip", "0", "-1", "zz", "f", "1:2", "tip^", "all()", "wdir()", "\xff\xfe", "%2F",
    "a" * 3000, "..", "default", "null", ".", "\x01", "1" * 40, '"<script>', "2147483647", "0" * 40,
    "tip.tar.gz",
]  # fmt: skip
FILES = [
    "", "one.txt", "../../etc/passwd", "/etc/passwd", ".hg/hgrc", "a\0b", "\xe9", "x" * 2500, "//",
    "re:(((", "set:*", "path:x", "glob:*", "a/../b", "~root",
]  # fmt: skip
QUERIES = [
    "", "rev=tip", "rev=all()", "rev=re:(((", "rev=%00", "rev=wdir()", "rev=p1(wdir())",
    "rev=user(%22re:(%22)", "rev=" + "(" * 3000, "rev=date(%22zz%22)", "rev=x%22", "revcount=-1",
    "revcount=zz", "style=..%2f..", "style=json", "style=%ff", "file=x", "file=a%00", "node=ffff",
    "linerange=zz", "linerange=5:2", "context=-5", "context=999999", "type=zip", "graphtop=zz",
    "cmd=archive", "cmd=archive&node=tip&type=gz", "cmd=static&file=../../x", "cmd=", "%", "=&=&=",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_get_an_answer(web: Application, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        path = f"{PROJECT}/{chance.choice(STYLES)}{chance.choice(webcommands.__all__)}"
        if chance.random() < 0.8:
            path += "/" + chance.choice(NODES)
        if chance.random() < 0.6:
            path += "/" + chance.choice(FILES)
        query = "&".join(chance.choices(QUERIES, k=chance.choice((0, 1, 1, 2))))
        check(ask(web, path, query))
