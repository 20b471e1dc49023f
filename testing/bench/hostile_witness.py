"""Phases of the bench of hostile requests with a flood from a host and a witness on another.

| phase         | flood                                           | witness                        |
| ------------- | ----------------------------------------------- | ------------------------------ |
| `connections` | 300 connections on an expensive page            | pages of a healthy repository  |
| `tokens`      | 40 connections with an expired token, or with a | pages of a private repository, |
|               | token of a person who is disabled               | with another person's token    |
| `partial`     | 24 streams of a large repository, without its   | pages and small pulls of a     |
|               | first changeset, or only its last changesets    | healthy repository             |

Both are hosts of the cluster, because the address of this machine has no limits. The clients are
`hostile_load.py`. The witness requests everything once before, and compares each answer with the
first.
"""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from testing.bench import hostile_load, hostile_site
from testing.bench.hostile_bars import NONE, Bar, times

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from testing.bench.hostile_setup import Prepared
    from testing.e2e.host import Host

    Ask = Mapping[str, Any]

URL: Final = "https://proxy1"
BAR_SECONDS: Final = 1.0
CONNECTIONS: Final = 300
TOKENS: Final = 40
STREAMS: Final = 24
PAGES: Final = ("json-log", "raw-rev/tip", "json-branches", "raw-file/tip/0.txt")
CAPABILITIES: Final = quote("HG20,bundle2=" + quote("HG20\nchangegroup=01,02"), safe="")
"""The capabilities of a client that reads bundle2, as in the header."""

REFUSALS: Final = ("401", "429", "503")
"""Statuses of a request whose token is wrong or was not checked."""

WIRE: Final = {"Accept": "application/mercurial-0.1"}


@dataclass(frozen=True)
class Hosts:
    """The hosts of these phases, by their part."""

    web: Host
    proxy: Host
    attacker: Host
    other: Host


@dataclass(frozen=True)
class Nodes:
    """Changesets of a repository: its first, the last before its newest, and its tip."""

    root: str
    late: str
    tip: str


def nodes_of(host: Host, repository: str, late: str) -> Nodes:
    """Return the changesets of a repository on a host."""
    nodes = []
    for revision in ("0", late, "tip"):
        path = f"/srv/hg/repos/{repository}"
        words = ("-R", path, "log", "-r", revision, "-T", "{node}")
        argv = ("runuser", "-u", "hg", "--", "env", "HGRCPATH=", hostile_site.HG, *words)
        nodes.append(host.run(*argv).ok().stdout.strip())
    return Nodes(*nodes)


def asks_for_pages(repository: str, headers: Mapping[str, str] | None = None) -> list[Ask]:
    """Return the pages that a witness requests, whose bytes never change."""
    return [
        {"kind": "page", "path": f"{repository}/{page}?n={{}}", "headers": headers or {}}
        for page in PAGES
    ]


def getbundle(kind: str, repository: str, common: str, heads: str) -> Ask:
    """Return a request for the changesets of a repository that a client does not have."""
    arguments = f"common={common}&heads={heads}&cg=1&bundlecaps={CAPABILITIES}"
    headers = {**WIRE, "X-HgArg-1": arguments, "Vary": "X-HgArg-1"}
    return {"kind": kind, "path": f"{repository}?cmd=getbundle", "headers": headers}


def basic(pair: tuple[str, str]) -> dict[str, str]:
    """Return the header that signs in with a name and a token."""
    return {"Authorization": "Basic " + base64.b64encode(":".join(pair).encode()).decode()}


def asks_with_tokens(prepared: Prepared) -> list[Ask]:
    """Return the requests of the flood with tokens that are refused."""
    return [
        {"kind": reason, "path": f"{prepared.private}/json-log?n={{}}", "headers": basic(pair)}
        for reason, pair in prepared.refused.items()
    ]


def asks_for_streams(repository: str, nodes: Nodes) -> list[Ask]:
    """Return the partial clones of a large repository."""
    return [
        getbundle("all but the first", repository, nodes.root, nodes.tip),
        getbundle("the last", repository, nodes.late, nodes.tip),
    ]


@contextlib.contextmanager
def client(host: Host, kind: str, plan: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Start a client on a host, and wait until it is ready. It ends with its input."""
    source = Path(hostile_load.__file__).read_text()
    with host.start("python3", "-c", source, kind) as process:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(plan) + "\n")
            process.stdin.flush()
            _line(process, f"the {kind} on {host.name} is not ready")
            yield process
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()


def go_on(process: subprocess.Popen[str], what: str) -> dict[str, Any]:
    """Let a witness ask, or a flood end; return its result."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    result: dict[str, Any] = json.loads(_line(process, f"no result of {what}"))
    return result


def _line(process: subprocess.Popen[str], problem: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        # The client shares stderr with this process, so its reason is already there.
        raise RuntimeError(f"{problem}; expected a line, got the end of its output")
    return line


def bars_of(phase: str, witness: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of a witness."""
    bars = []
    for kind, seconds in witness["seconds"].items():
        failed = witness["failed"][kind]
        told = "".join(f", {count} {how}" for how, count in sorted(failed.items()))
        bars += times(phase, f"others' {kind}s", seconds, BAR_SECONDS)
        count = sum(failed.values()) if seconds else NONE
        bars.append(Bar(phase, f"others' {kind}s that failed{told}", count, 0))
    wrong = len(witness["wrong"])
    bars.append(Bar(phase, "others' answers with wrong bytes", wrong, 0, is_of_bytes=True))
    return bars


def bars_of_flood(phase: str, flood: Mapping[str, Any]) -> list[Bar]:
    """Print the answers of the flood; return its figures. Raises SystemExit if it got none."""
    answers = flood["answers"]
    for how, count in sorted(answers.items()):
        print(f"{count:6} {how}")
    if not flood["bytes"]:
        raise SystemExit(f"{phase}: got no byte for the flood ({answers}), expected answers")
    return [
        Bar(phase, "answers of the flood", sum(answers.values())),
        Bar(phase, "bytes of the flood", flood["bytes"] / 1e6, unit="MB"),
    ]


def let_in(phase: str, reasons: Iterable[str], flood: Mapping[str, Any]) -> Bar:
    """Return the bar of refused tokens: they must get no decision about the requested page.

    A person who is let in and may not read the repository gets 404.
    """
    refusals = {f"{reason}: {status}" for reason in reasons for status in REFUSALS}
    answered = {how: count for how, count in flood["answers"].items() if how[-3:].isdigit()}
    count = sum(count for how, count in answered.items() if how not in refusals)
    return Bar(phase, "requests that a refused token let in", count, 0, is_of_bytes=True)


def run(
    phase: str,
    hosts: Hosts,
    flood: tuple[Sequence[Ask], int],
    witness: Sequence[Ask],
    seconds: float,
    refused: Iterable[str] = (),
) -> list[Bar]:
    """Flood from a host, with a witness on another, for so many seconds; return the bars.

    `refused` names the kinds of the flood that must get no page.
    """
    asks, connections = flood
    attack = {"url": URL, "asks": asks, "connections": connections}
    look = {"url": URL, "asks": witness, "seconds": seconds}
    with (
        client(hosts.other, "witness", look) as watching,
        hostile_site.sampler(hosts.web) as sampler,
    ):
        sampler.read()
        with client(hosts.attacker, "flood", attack) as flooding:
            seen = go_on(watching, "the witness")
            got = go_on(flooding, "the flood")
        grown = sampler.read().growth / 1e6
    for line in seen["wrong"]:
        print(line)
    return [
        *bars_of_flood(phase, got),
        *([let_in(phase, refused, got)] if refused else []),
        *bars_of(phase, seen),
        Bar(phase, "growth of the process that grew most", grown, unit="MB"),
    ]


def connections(hosts: Hosts, prepared: Prepared, page: str, seconds: float) -> list[Bar]:
    """Keep 300 connections of a host on a page."""
    before = hostile_site.downs(hosts.proxy)
    asks = [{"kind": page, "path": f"{prepared.history}{page}", "headers": {}}]
    look = asks_for_pages(prepared.healthy)
    bars = run("connections", hosts, (asks, CONNECTIONS), look, seconds)
    went_down = hostile_site.downs(hosts.proxy) - before
    return [*bars, Bar("connections", "servers that went DOWN", went_down, 0)]


def tokens(hosts: Hosts, prepared: Prepared, seconds: float) -> list[Bar]:
    """Keep 40 connections of a host on sign-in with tokens that are refused."""
    look = asks_for_pages(prepared.private, basic(prepared.reader))
    flood = (asks_with_tokens(prepared), TOKENS)
    return run("tokens", hosts, flood, look, seconds, prepared.refused)


def partial(hosts: Hosts, prepared: Prepared, seconds: float) -> list[Bar]:
    """Keep 24 partial clones of a host under way."""
    large = nodes_of(hosts.web, prepared.history, "tip~4")
    small = nodes_of(hosts.web, prepared.healthy, "tip~1")
    asks = asks_for_streams(prepared.history, large)
    look = [
        *asks_for_pages(prepared.healthy),
        getbundle("pull", prepared.healthy, small.late, small.tip),
    ]
    return run("partial", hosts, (asks, STREAMS), look, seconds)
