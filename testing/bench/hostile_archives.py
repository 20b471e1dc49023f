"""Phase `failing` of the bench of hostile requests: archives that fail, and downloads of others."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from testing.bench import hostile_failing, hostile_site
from testing.bench.hostile_bars import NONE, Bar, times
from testing.bench.hostile_others import ARCHIVES, PAGES, Others, Reply, Target

if TYPE_CHECKING:
    from testing.bench.hostile_setup import Prepared
    from testing.bench.hostile_site import Site
    from testing.e2e.host import Host

PHASE: Final = "failing"
PAGE_BAR_SECONDS: Final = 1.0

# Downloads archives that fail, in turn; prints how each ended.
FAILING: Final = r"""
import collections, http.client, json, ssl, sys
host, path, nodes, count, gone = sys.argv[1:]
nodes = json.loads(nodes)
context = ssl._create_unverified_context()
ended = collections.Counter()
print("downloading", flush=True)
for number in range(int(count)):
    way = list(nodes)[number % len(nodes)]
    suffix = ("zip", "tar.gz")[number // len(nodes) % 2]
    connection = http.client.HTTPSConnection(host, timeout=60, context=context)
    try:
        connection.request("GET", f"/{path}/archive/{nodes[way]}.{suffix}")
        answer = connection.getresponse()
        if way == gone:
            answer.read(1)
            how = "left"
        else:
            answer.read()
            how = str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        how = type(error).__name__
    connection.close()
    ended[f"{way}: {how}"] += 1
print(json.dumps(ended), flush=True)
"""


def fetch(site: Site, reader: tuple[str, str], target: Target, query: str) -> Reply:
    """Download a target; a private repository's as the reader, by name and token."""
    given = {}
    if target.is_private:
        pair = ":".join(reader)
        given["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    parts = urlsplit(site.url)
    assert parts.hostname is not None
    context = ssl.create_default_context(cafile=site.ca)
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=60, context=context
    )
    with contextlib.closing(connection):
        try:
            connection.request("GET", f"/{target.path}?{query}", headers=given)
            answer = connection.getresponse()
            return Reply.of(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            return Reply(0, "")


def fill(primary: Host, repository: str, as_hg: tuple[str, ...]) -> str:
    """Fill the repository whose archives fail; return the changeset of each way, as JSON."""
    source = Path(hostile_failing.__file__).read_text()
    memory = str(hostile_site.request_memory(primary))
    argv = (*as_hg, "-", f"/srv/hg/repos/{repository}", memory)
    return hostile_site.finish(primary, *argv, stdin=source).strip()


def failing(site: Site, attacker: Host, prepared: Prepared, nodes: str, share: int) -> list[Bar]:
    """Have archives fail for a host, and compare the downloads of this machine at the same time.

    `share` divides the numbers of the bar, for a short run.
    """
    healthy = [(prepared.healthy, False), (prepared.private, True)]
    others = Others(
        lambda target, query: fetch(site, prepared.reader, target, query),
        [
            Target(f"{repository}/archive/tip.{form}", private)
            for repository, private in healthy
            for form in ("zip", "tar.gz")
        ],
        [
            Target(f"{repository}/{page}", private)
            for repository, private in healthy
            for page in ("json-log", "raw-rev/tip", "json-branches")
        ],
    )
    others.learn()
    archives, pages = max(1, ARCHIVES // share), max(1, PAGES // share)
    arguments = ("proxy1", prepared.failing, nodes, str(archives), hostile_failing.GONE)
    with attacker.start("python3", "-c", FAILING, *arguments) as process:
        assert process.stdout is not None
        process.stdout.readline()
        others.run(archives, pages)
        ended = json.loads(process.stdout.readline())
    for how, count in sorted(ended.items()):
        print(f"{count:4} {how}")
    for line in others.wrong:
        print(line)
    asked = sum(ended.values())
    foreign = sum(line.endswith(": other bytes") for line in others.wrong)
    whole = f"of {archives} archives and {pages} pages"
    return [
        Bar(PHASE, "archives that were asked for", asked or NONE, archives),
        Bar(PHASE, f"others' answers with wrong bytes, {whole}", foreign, 0, is_of_bytes=True),
        Bar(PHASE, "others' answers with another status", len(others.wrong) - foreign, 0),
        *times(PHASE, "others' pages", others.seconds, PAGE_BAR_SECONDS),
    ]
