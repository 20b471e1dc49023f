"""Anonymous requests that try to take time or memory: revsets, wire commands, pages, archives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE: Final = "f" * 40
"""A node that no repository has."""


@dataclass(frozen=True)
class Case:
    """A request below a repository's URL."""

    name: str
    target: str
    body: bytes = b""
    arguments: str = ""
    """The header X-HgArg-1 of wire commands."""

    def headers(self) -> dict[str, str]:
        """Return the headers of the request."""
        made = {"Accept": "application/mercurial-0.1"} if "?cmd=" in self.target else {}
        if self.arguments:
            made |= {"X-HgArg-1": self.arguments, "Vary": "X-HgArg-1"}
        if self.body:
            made |= {"Content-Type": "application/mercurial-0.1"}
        return made


_REVSETS: Final = (
    "all()",
    "reverse(all())",
    "sort(all(),'desc')",
    "sort(all(),'-user rev')",
    "sort(all(),topo)",
    "last(all(),100000)",
    "first(sort(all(),date),1)",
    "limit(reverse(all()),100000,5)",
    "::tip",
    "0::tip",
    "0..tip",
    "ancestors(tip)",
    "descendants(0)",
    "only(tip,0)",
    "not ::0",
    "heads(all())",
    "roots(all())",
    "head()",
    "merge()",
    "branchpoint()",
    "children(all())",
    "parents(all())",
    "p1(all())",
    "p2(all())",
    "generationsrel(tip,-99999)",
    "tip~99999",
    "tip^^^^^^^^^^^^^^^^",
    "ancestor(0,tip)",
    "max(all())",
    "min(all())",
    "matching(all())",
    "matching(all(),'diff')",
    "matching(tip,'files')",
    "desc('x')",
    "desc('re:(a+)+$')",
    "desc('r'##'e:(a+)+$')",
    "desc(r're:(.*)*x')",
    "keyword('x')",
    "keyword('a')",
    "grep('(a+)+$')",
    "grep('.*.*.*.*x')",
    "user('x')",
    "user('re:(a+)+$')",
    "author('literal:x')",
    "branch('re:(a+)+$')",
    "branch(all())",
    "bookmark('re:(a+)+$')",
    "tag('re:(a+)+$')",
    "extra('x','re:(a+)+$')",
    "date('>1970-01-01')",
    "date('-36500')",
    "file('**')",
    "file('re:(a+)+$')",
    "file('relre:(a+)+$')",
    "file('listfile:/dev/zero')",
    "file('listfile0:/dev/zero')",
    "file('include:/dev/zero')",
    "file('subinclude:/dev/zero')",
    "file('set:grep(\"(a+)+$\")')",
    "file('set:size(\">1\")')",
    "_matchfiles('p:re:(.*)*0x')",
    "filelog('**')",
    "follow()",
    "followlines('f',1:10)",
    "contains('**')",
    "contains('re:(a+)+$')",
    "modifies('**')",
    "adds('**')",
    "removes('**')",
    "copies()",
    "subrepo('re:(a+)+$')",
    "outgoing('https://localhost:1')",
    "remote('tip','https://localhost:1')",
    "destination('0')",
    "origin(all())",
    "bisect(good)",
    "converted()",
    "divergent()",
    "obsolete()",
    "orphan()",
    "secret()",
    "public()",
    "draft()",
    "hidden()",
    "wdir()",
    "id('f')",
    "rev(99999)",
    "present(all())",
    "nodefromfile('/dev/zero')",
    "revset(all())",
    "successors(all())",
    "predecessors(all())",
    "expectsize(all(),0:999999)",
    "reachableroots(0,tip)",
    "(((((((((((((((((((((((((((((((all())))))))))))))))))))))))))))))))",
    "+".join(["all()"] * 200),
    " or ".join(f"::{number}" for number in range(200)),
    "not " * 500 + "all()",
    "x" * 4000,
    "word",
)


def _revsets() -> Iterator[Case]:
    for number, revset in enumerate(_REVSETS):
        name = revset if len(revset) <= 44 else f"{revset[:36]}... {number}"
        yield Case(f"revset {name}", f"/log?rev={quote(revset, safe='')}")
    for revset in ("all()", "file('**')", "desc('r'##'e:(a+)+$')", "::tip"):
        yield Case(f"revset at /rev {revset}", f"/rev/{quote(revset, safe='')}")
        yield Case(f"revset at /archive {revset}", f"/archive/{quote(revset, safe='')}.zip")
        yield Case(f"revset at lookup {revset}", "?cmd=lookup", arguments=f"key={quote(revset)}")


def _wire() -> Iterator[Case]:
    def pairs(count: int) -> str:
        return "+".join([f"{NODE}-{'0' * 40}"] * count)

    for count in (1, 10, 100, 190):
        yield Case(f"between {count}", "?cmd=between", arguments=f"pairs={pairs(count)}")
        many = "+".join([NODE] * count)
        yield Case(f"branches {count}", "?cmd=branches", arguments=f"nodes={many}")
        yield Case(f"known {count}", "?cmd=known", arguments=f"nodes={many}")
    for count in (10_000, 41_000):
        body = b"nodes=" + b"+".join([NODE.encode()] * count)
        yield Case(f"known in a body {count}", "?cmd=known", body=body)
        yield Case(f"branches in a body {count}", "?cmd=branches", body=body)
    for command in ("heads", "branchmap", "lookup key=tip", "listkeys namespace=bookmarks"):
        for count in (10, 1000):
            batch = quote(";".join([f"{command} "] * count))
            yield Case(f"batch {count} {command}", "?cmd=batch", arguments=f"cmds={batch}"[:60_000])
    huge = quote(";".join(["heads "] * 100_000)).encode()
    yield Case("batch 100000 in a body", "?cmd=batch", body=b"cmds=" + huge)
    for command in ("heads", "branchmap", "capabilities", "clonebundles", "clonebundles_manifest"):
        yield Case(f"command {command}", f"?cmd={command}")
    for namespace in ("namespaces", "bookmarks", "phases", "obsolete", "x" * 4000):
        yield Case(
            f"listkeys {namespace[:12]}", "?cmd=listkeys", arguments=f"namespace={namespace}"
        )
    empty = "0" * 40
    for name, more in (
        ("everything", ""),
        ("bundle2", "&bundlecaps=HG20%2Cbundle2%3DHG20&cg=1&phases=1&bookmarks=1"),
        ("listkeys", "&listkeys=phases%2Cbookmarks%2Cnamespaces&cg=0"),
        ("stream", "&bundlecaps=HG20%2Cbundle2%3DHG20%250Astream%253Dv2&stream=1&cg=0"),
        ("narrow", "&includepats=re:(a%2B)%2B$&narrow=1"),
    ):
        arguments = f"common={empty}&heads={NODE}{more}"
        yield Case(f"getbundle {name}", "?cmd=getbundle", arguments=arguments)
    for command in ("changegroup", "changegroupsubset", "stream_out", "unbundle", "pushkey"):
        yield Case(f"closed {command}", f"?cmd={command}")
    yield Case("get_cached_bundle_inline", "?cmd=get_cached_bundle_inline", arguments="path=/etc")
    yield Case("unknown command", "?cmd=" + "x" * 4000)


def _pages() -> Iterator[Case]:
    for page in ("", "/shortlog", "/log", "/graph", "/summary", "/tags", "/bookmarks", "/branches"):
        for style in ("", "json", "raw", "atom"):
            yield Case(f"page {page or '/'} {style}", f"{page}?style={style}")
    for page in ("/shortlog", "/log", "/graph"):
        for count in ("1000", "20000", "%2B20000", "-1", "9" * 50, "0x10000"):
            yield Case(f"revcount {page} {count[:10]}", f"{page}?revcount={count}")
        yield Case(f"deep {page}", f"{page}/0?graphtop=tip&revcount=1000")
    for page in ("/rev", "/raw-rev", "/file", "/annotate", "/diff", "/comparison", "/filelog"):
        for where in ("tip", "0", "tip/" + "x/" * 500, "tip/..%2f..%2fetc"):
            yield Case(f"{page} {where[:12]}", f"{page}/{where}")
    for page in (
        "/file",
        "/annotate",
        "/raw-file",
        "/log",
        "/diff",
        "/comparison",
        "/raw-annotate",
    ):
        for path in ("f", "wide", "large.txt", "large.bin", "source"):
            yield Case(f"{page} of {path}", f"{page}/tip/{path}")
    for page in ("/rev", "/raw-rev", "/diff", "/graph", "/shortlog"):
        for back in (1, 2, 3):
            yield Case(f"{page} of a large changeset {back}", f"{page}/tip~{back}")
            yield Case(f"{page} of a large changeset by number {back}", f"{page}/-{back + 1}")
    for context in ("0", "1000000", "-1"):
        target = f"/comparison/tip/f?context={context}"
        yield Case(f"comparison context {context}", target)
    for line in ("1:100000", "1:99999999999", "-1:5"):
        yield Case(f"linerange {line}", f"/log/tip/f?linerange={line}&patch=1&descend=1")
    yield Case("long query", "/log?x=" + "y" * 6000)
    yield Case("many arguments", "/log?" + "&".join(f"a{n}=b" for n in range(1000)))
    yield Case("help of all", "/help/revisions")


def _archives() -> Iterator[Case]:
    for kind in ("zip", "tar.gz", "tar.bz2"):
        for rev in ("tip", "0", "50000"):
            yield Case(f"archive {rev} {kind}", f"/archive/{rev}.{kind}")
        yield Case(f"archive of a folder {kind}", f"/archive/tip.{kind}/{'x/' * 100}")
        yield Case(f"archive by pattern {kind}", f"/archive/tip.{kind}/re:(a%2B)%2B$")


def cases() -> list[Case]:
    """Return all cases, each with a unique name."""
    return [*_revsets(), *_wire(), *_pages(), *_archives()]
