"""A repository whose archives fail, each in another way, and clients that download them."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from testing.bench import hostile_failing
from testing.bench.hostile_failing import FAR, GONE
from testing.integration.web.support import Site, ask, environ_of
from testing.support import prefork

if TYPE_CHECKING:
    from hgfleet.web.app import Application

REPOSITORY: Final = "team/hostile"
HOSTILE: Final = f"/{REPOSITORY}"

MEMORY: Final = 64 * 2**20
"""Memory of a request, in bytes."""

TIMES: Final = (FAR, 2**31, -(2**31), -315_619_200, 0)
"""Times of changesets (s): out of the range of a format, and 1960-01-01, which clients make."""

_COMMIT: Final = """
import sys
from testing.bench.hostile_failing import commit, opened
repository = opened(sys.argv[1])
with repository.lock():
    print(commit(repository, "dated", {sys.argv[2]: 100}, int(sys.argv[3])), end="")
"""


def commit(site: Site, repository: str, name: str, seconds: int) -> str:
    """Commit a file at any time, and return the changeset."""
    return _run(site, _COMMIT, [str(site.path(repository)), name, str(seconds)])


def make(site: Site) -> dict[str, str]:
    """Make the repository; return the changeset of each way to fail."""
    site.create(REPOSITORY)
    script = Path(hostile_failing.__file__).read_text()
    said = _run(site, script, [str(site.path(REPOSITORY)), str(MEMORY)])
    nodes: dict[str, str] = json.loads(said)
    return nodes


def _run(site: Site, code: str, arguments: list[str]) -> str:
    done = prefork.shared(site.environment).python(code, arguments, site.environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def leave(web: Application, path: str) -> None:
    """Ask for an archive as a client that disconnects at its first byte."""
    ours, theirs = socket.socketpair()

    def respond(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
        del status, headers, exc_info

        def write(data: bytes) -> None:
            del data
            theirs.close()

        return write

    with ours, theirs, contextlib.suppress(Exception):
        web({**environ_of(path), "gunicorn.socket": ours}, respond)


def fail(web: Application, nodes: dict[str, str], suffix: str, number: int) -> None:
    """Ask for the archives that fail, in turn."""
    ways = list(nodes)
    way = ways[number % len(ways)]
    path = f"{HOSTILE}/archive/{nodes[way]}.{suffix}"
    if way == GONE:
        leave(web, path)
        return
    # It may break off after its first byte.
    with contextlib.suppress(Exception):
        ask(web, path)
