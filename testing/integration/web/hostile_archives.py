"""A repository whose archives fail, each in another way, and clients that download them."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

from hgfleet.web.answer_writer import HELD_BYTES
from testing.integration.web.support import Site, ask, environ_of
from testing.tools import prefork

if TYPE_CHECKING:
    from hgfleet.web.app import Application

REPOSITORY: Final = "team/hostile"
HOSTILE: Final = f"/{REPOSITORY}"

FAR: Final = 2**33
"""A time in the year 2242: above all that the fields of a zip archive hold."""

MEMORY: Final = 64 * 2**20
"""Of a request, in bytes."""

HELD: Final = HELD_BYTES + 2**20
"""Bytes of a file of random content: an archive of it has begun before the next file is read."""

OVERSIZED: Final = MEMORY + 2**20
"""Bytes of a file of zeros, which is small in the store."""

_COMMIT: Final = """
import random, sys
from mercurial import context, hg, initialization, ui
initialization.init()
path, seconds, *files = sys.argv[1:]
repo = hg.repository(ui.ui.load(), path.encode())
sizes = {name.encode(): int(size) for name, _, size in (file.partition("=") for file in files)}

def content(repo, memctx, path):
    size = sizes[path]
    data = bytes(-size) if size < 0 else random.Random(path).randbytes(size)
    return context.memfilectx(repo, memctx, path, data)

with repo.lock():
    made = context.memctx(
        repo,
        (repo.nullid, repo.nullid),
        b"files of this size",
        sorted(sizes),
        content,
        user=b"test",
        # A pair of numbers is stored as it is; core checks a date that is text.
        date=(int(seconds), 0),
    )
    print(repo[repo.commitctx(made)].hex().decode(), end="")
"""

_CENSOR: Final = """
import sys
from mercurial import hg, initialization, ui
initialization.init()
path, name = sys.argv[1:]
repo = hg.repository(ui.ui.load(), path.encode())
with repo.lock(), repo.transaction(b"censor") as transaction:
    log = repo.file(name.encode())
    log.censorrevision(transaction, [log.node(0)], tombstone=b"removed")
"""


def commit(site: Site, repository: str, *files: str, seconds: int = 0) -> str:
    """Commit files NAME=SIZE of random bytes as a history of their own, and return its node.

    A negative size is a file of zeros. The date may be one that no client of hg would accept.
    """
    arguments = [str(site.path(repository)), str(seconds), *files]
    return _run(site, _COMMIT, arguments)


def rot(site: Site, repository: str, name: str) -> None:
    """Change the last byte of what is stored of a file."""
    stored = site.path(repository) / ".hg/store/data" / f"{name}.i"
    data = bytearray(stored.read_bytes())
    data[-1] ^= 255
    stored.write_bytes(data)


def censor(site: Site, repository: str, name: str) -> None:
    """Censor the content of a file, as `hg censor` does."""
    _run(site, _CENSOR, [str(site.path(repository)), name])


def _run(site: Site, code: str, arguments: list[str]) -> str:
    done = prefork.shared(site.environment).python(code, arguments, site.environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def make(site: Site, repository: str = REPOSITORY) -> dict[str, str]:
    """Make the repository; return the changeset of each way to fail."""
    site.create(repository)
    nodes = {
        "date": commit(site, repository, "dated=1000", seconds=FAR),
        "rot": commit(site, repository, "a=1000", "rotten=1000"),
        "rot after the first byte": commit(site, repository, f"aa={HELD}", "torn=1000"),
        "censored": commit(site, repository, "b=1000", "censored=1000"),
        "oversized": commit(site, repository, f"bb={HELD}", f"oversized=-{OVERSIZED}"),
        "client gone": commit(site, repository, f"c={2 * HELD}", "d=1000"),
    }
    rot(site, repository, "rotten")
    rot(site, repository, "torn")
    censor(site, repository, "censored")
    return nodes


def download(web: Application, path: str) -> int | None:
    """Download an archive, and return its status; None: it broke off after its first byte."""
    with contextlib.suppress(Exception):
        return ask(web, path).status
    return None


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
    if way == "client gone":
        leave(web, path)
    else:
        download(web, path)
