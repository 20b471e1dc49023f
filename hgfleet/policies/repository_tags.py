"""Tags of a repository as clients find them: from the `.hgtags` of all heads together.

A tag moves when a changeset changes `.hgtags` (`tags.py`). A tag also moves when the set of heads
changes. A changeset with the newest line of a tag can become obsolete. A new head can have an older
`.hgtags`, in which a line that was removed later still stands. Core reads all heads from the oldest
to the newest; of lines that do not supersede each other, the line of the newest head counts
(mercurial.tags.findglobaltags). So the tags at the beginning and the end of a transaction are
compared too.
compared too.

Core's functions that find the tags of a repository write caches. This module writes no cache at the
end of a transaction: the transaction may be refused, and the next transaction may have another
changeset at the same revision. When a transaction begins, the heads of that moment are added to
core's cache of the revisions of `.hgtags`, since those heads stay. Few requests to a server update
this cache, and without it each push reads a manifest for each head: 1.8 s with 2,000 heads and 500
files.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from mercurial import tags as core
from mercurial.node import hex as to_hex

from hgfleet.policies import tag_heads
from hgfleet.policies.tags import FILE, TagMove

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_FILE = FILE.encode()


def files_of_heads(repo: Any, *, keeps: bool = False) -> tuple[bytes, ...]:
    """Return the revisions of `.hgtags` in the served heads, from the oldest head to the newest.

    `keeps` says that the heads stay in any case, so the revisions are added to core's cache.
    """
    unfiltered = repo.unfiltered()
    log = unfiltered.file(_FILE)
    if not len(log):
        return ()
    known = core.hgtagsfnodescache(unfiltered)
    result: dict[bytes, None] = {}
    for node in reversed(repo.filtered(b"served").heads()):
        revision = known.getfnode(node)
        if revision != repo.nullid and not log.hasnode(revision):
            # The cache entry is from before the repository was cut back.
            revision = unfiltered[node].manifest().get(_FILE, repo.nullid)
        if revision != repo.nullid:
            result[revision] = None
    if keeps and known.hitcount < known.lookupcount:
        known.write()
    return tuple(result)


class RepositoryTags:
    """The tags that an unfiltered repository has now, compared with the tags of another time."""

    def __init__(self, repo: Any, before: tuple[bytes, ...] | None) -> None:
        """Take the `files_of_heads` of the other time, if the tags are compared."""
        self._repo = repo
        self._before = before

    def has(self, stored: bytes) -> bool:
        """Whether the repository has a tag of this name now."""
        return stored in self._nodes

    def moved(self, vanished: Collection[int]) -> Iterator[TagMove]:
        """Yield the tags that give another changeset, or none because their changeset vanished."""
        if self._before is None:
            raise RuntimeError("the tags were not noted when the transaction began")
        listed = set()
        if self._before != self._files:
            for name, former, now in tag_heads.moved(self._before, self._files, self._read):
                listed.add(name)
                yield TagMove(name, _text(former), _text(now))
        if vanished:
            log = self._repo.changelog
            for name, node in self._nodes.items():
                if name not in listed and log.index.has_node(node) and log.rev(node) in vanished:
                    yield TagMove(name, _text(node), None)

    @functools.cached_property
    def _files(self) -> tuple[bytes, ...]:
        return files_of_heads(self._repo)

    @functools.cached_property
    def _nodes(self) -> Mapping[bytes, bytes]:
        tags = tag_heads.HeadTags()
        for revision in self._files:
            tags.add(self._read(revision))
        return tags.nodes()

    def _read(self, revision: bytes) -> bytes:
        return bytes(self._log.read(revision))

    @functools.cached_property
    def _log(self) -> Any:
        return self._repo.file(_FILE)


def _text(node: bytes | None) -> str | None:
    return None if node is None else to_hex(node).decode("ascii")
