"""Changes that the push probe sends, and the local repository that they come from.

| run | sends |
| --- | --- |
| the first in an hour, or after a failure | a changeset without files, and the bookmark |
| each other run | only the bookmark, to the newest changeset or to its parent |

Both kinds of push are full transactions of the server: with lock, policies, a record in the push
log and the way to the mirrors. The repository grows by 24 changesets a day; a changeset in each run
would add 525,600 a year.

Each monitoring host has its own named branch and bookmark, so hosts never create heads for each
other. The changesets are made in the store, without a working copy, in which files of another
pusher could lie.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

CHANGESET_SECONDS: Final = 3600
"""Time between two changesets."""

AUTHOR: Final = b"push probe"


@dataclass(frozen=True, slots=True)
class Chain:
    """The newest changesets of this host, at most two, and its bookmark."""

    nodes: tuple[bytes, ...] = ()
    """The newest first."""
    time: float = 0.0
    """Time of the newest changeset in seconds since 1970."""
    bookmark: bytes | None = None


def branch_of(host: str) -> str:
    """Return the named branch of a monitoring host."""
    return f"probe/{host}"


def bookmark_of(host: str) -> str:
    """Return the bookmark of a monitoring host, which differs from all names of branches."""
    return f"minute/{host}"


def target(chain: Chain, now: float) -> bytes | None:
    """Return the changeset to which the bookmark moves, None for a new changeset. Pure.

    A changeset from the future, made before the clock was set back, does not delay the next
    changeset.
    """
    if len(chain.nodes) < 2 or chain.bookmark not in chain.nodes:
        return None
    if not 0 <= now - chain.time < CHANGESET_SECONDS:
        return None
    newest, before = chain.nodes
    return before if chain.bookmark == newest else newest


def is_sent(messages: str, host: str) -> bool:
    """Whether the output of hg says that the server moved the bookmark. Pure.

    A push without a changeset has the same exit code whether the bookmark moved or not. Messages of
    the server begin with `remote: `.
    """
    bookmark = bookmark_of(host)
    wanted = {f"updating bookmark {bookmark}", f"exporting bookmark {bookmark}"}
    return not wanted.isdisjoint(messages.splitlines())


def create(place: Path) -> None:
    """Make an empty local repository. Raises OSError and errors of Mercurial."""
    _open(place, create=True)


def prepare(place: Path, host: str, now: float) -> None:
    """Make the changes of the next push. Raises OSError and errors of Mercurial."""
    from mercurial import context

    repo = _open(place)
    branch, bookmark = branch_of(host).encode(), bookmark_of(host).encode()
    with repo.wlock(), repo.lock(), repo.transaction(b"probe") as transaction:
        chain = _chain(repo, branch, bookmark)
        node = target(chain, now)
        if node is None:
            node = context.memctx(
                repo,
                (chain.nodes[0] if chain.nodes else None, None),
                b"push as a committer does",
                [],
                lambda *_: None,
                user=AUTHOR,
                date=(int(now), 0),
                branch=branch,
            ).commit()
        # Core has no public name for this.
        repo._bookmarks.applychanges(repo, transaction, [(bookmark, node)])  # noqa: SLF001


def _open(place: Path, *, create: bool = False) -> Any:
    from mercurial import ui
    from mercurial.repo import factory

    # `ui.load` would read configuration of the account and of the system.
    return factory.repository(ui.ui(), os.fsencode(place), create=create)


def _chain(repo: Any, branch: bytes, bookmark: bytes) -> Chain:
    node = repo.branchtip(branch, ignoremissing=True)
    if node is None:
        # The first changeset of a host is a child of the repository's first changeset.
        return Chain(nodes=(repo[0].node(),) if len(repo) else ())
    newest = repo[node]
    parents = [parent.node() for parent in newest.parents() if parent.rev() >= 0]
    return Chain(
        nodes=(newest.node(), *parents[:1]),
        time=float(newest.date()[0]),
        bookmark=repo._bookmarks.get(bookmark),  # noqa: SLF001  (as above)
    )
