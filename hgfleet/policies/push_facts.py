"""Facts about a push, from the repository whose transaction is about to close.

The cost follows the size of the transaction: changesets are read from the log, their files from the
differences of manifests, and no file is read unless it may be too large.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Final

from mercurial import encoding, error, scmutil
from mercurial.node import bin as from_hex
from mercurial.node import hex as to_hex
from mercurial.node import nullrev

from hgfleet.policies import manifest_diff
from hgfleet.policies.base import Bookmark, BranchMove, Changeset, Entry, Marker
from hgfleet.policies.branch_heads import BranchHeads, open_heads
from hgfleet.policies.file_revisions import FileRevisions
from hgfleet.policies.manifests import Manifests
from hgfleet.policies.older_changesets import Moves
from hgfleet.policies.repository_tags import RepositoryTags
from hgfleet.policies.tags import FILE, Tag, moved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hgfleet.core.principal import Principal
    from hgfleet.policies.before import Before
    from hgfleet.policies.manifest_diff import Difference
    from hgfleet.policies.tags import TagMove

_STORED: Final = operator.attrgetter("_revlog")
"""The revlog below a filelog; core has no public way to get a size without reading."""

_VARIABLE: Final = b"USERVAR_"


class RepositoryPush:
    """A `base.Push` of a transaction of Mercurial 7.2."""

    def __init__(
        self,
        repo: Any,
        transaction: Any,
        principal: Principal,
        before: Before,
    ) -> None:
        """Take the state that was recorded when the transaction began."""
        self._repo = repo.unfiltered()
        self._log = self._repo.changelog
        self._manifests = Manifests(self._repo)
        self._transaction = transaction
        self._principal = principal
        self._before = before
        self._moves = Moves(self._repo, transaction, before.hidden)
        self._tags = RepositoryTags(self._repo, before.tag_files)
        self._first = transaction.changes[b"origrepolen"]
        self._revs: dict[str, int] = {}
        self._ancestor_of: tuple[int, Mapping[bytes, bytes]] = (-1, {})

    @property
    def principal(self) -> Principal:
        """See `base.Push`."""
        return self._principal

    @functools.cached_property
    def variables(self) -> Mapping[str, str]:
        """See `base.Push`."""
        return {
            _text(name[len(_VARIABLE) :]): _text(value)
            for name, value in self._transaction.hookargs.items()
            if name.startswith(_VARIABLE)
        }

    @functools.cached_property
    def added(self) -> Sequence[Changeset]:
        """See `base.Push`."""
        return [self._changeset(rev) for rev in range(self._first, len(self._log))]

    @functools.cached_property
    def moved(self) -> Sequence[Changeset]:
        """See `base.Push`."""
        return [self._changeset(rev) for rev in sorted(self._moves.all)]

    @functools.cached_property
    def appeared(self) -> Sequence[Changeset]:
        """See `base.Push`."""
        return [self._changeset(rev) for rev in sorted(self._moves.appeared)]

    @functools.cached_property
    def bookmarks(self) -> Sequence[Bookmark]:
        """See `base.Push`."""
        result = []
        for name, nodes in sorted(self._transaction.changes[b"bookmarks"].items()):
            revs = [self._log.rev(n) for n in nodes if n is not None and self._log.hasnode(n)]
            branches = dict.fromkeys(_text(self._log.branchinfo(rev)[0]) for rev in revs)
            # Not encoding.fromlocal, which raises for a name that is not UTF-8.
            stored = bytes(getattr(name, "_utf8", name))
            result.append(
                Bookmark(
                    _text(name),
                    tuple(branches),
                    stored,
                    is_deleted=nodes[1] is None,
                    is_new=nodes[0] is None,
                )
            )
        return result

    @functools.cached_property
    def new_heads(self) -> Sequence[Changeset]:
        """See `base.Push`."""
        by_rev = {self._rev(changeset): changeset for changeset in (*self.moved, *self.added)}
        # A hidden changeset must not stand for its parent, which is served.
        for rev in self._moves.obsolete.intersection(by_rev).intersection(self._moves.hidden):
            del by_rev[rev]
        heads = dict.fromkeys(sorted(by_rev))
        for rev in by_rev:
            for parent in self._log.parentrevs(rev):
                heads.pop(parent, None)
        return [by_rev[rev] for rev in heads]

    def stored_texts(self) -> Iterator[tuple[str, bytes]]:
        """See `base.Push`."""
        for rev in range(self._first, len(self._log)):
            node = self._log.node(rev)
            yield _text(to_hex(node)), bytes(self._log.revision(node))

    def markers(self) -> Iterator[Marker]:
        """See `base.Push`."""
        markers = self._transaction.changes[b"obsmarkers"]
        for node, successors, _, metadata, date, parents in markers:
            user = dict(metadata).get(b"user", b"")
            nodes = (node, *successors, *(parents or ()))
            yield Marker(_text(to_hex(node)), date, user, nodes)

    def entries(self, changeset: Changeset) -> Iterator[Entry]:
        """See `base.Push`."""
        first, *others = self._against_parents(self._rev(changeset))
        for path, line in sorted(first.after.items()):
            if all(other.after.get(path) == line for other in others):
                node, flag = manifest_diff.entry(line)
                yield Entry(_path(path), node, "link" if flag == b"l" else "file")

    def untrue_files(self, changeset: Changeset) -> Iterator[tuple[str, str]]:
        """See `base.Push`."""
        for what, path in self._file_revisions.untrue(self._rev(changeset)):
            yield what, _path(path)

    @functools.cached_property
    def _file_revisions(self) -> FileRevisions:
        return FileRevisions(self._repo, self._against_parents)

    def arrived(self, changeset: Changeset) -> Iterator[str]:
        """See `base.Push`."""
        first = self._against_parents(self._rev(changeset))[0]
        for path in first.after:
            if path not in first.before:
                yield _path(path)

    def touched(self, changeset: Changeset) -> Iterator[str]:
        """See `base.Push`."""
        rev = self._rev(changeset)
        first, *others = self._against_parents(rev)
        if not others:
            yield from map(_path, sorted(first.paths()))
            return
        (second,) = others
        first_paths, second_paths = set(first.paths()), set(second.paths())
        for path in sorted(first_paths | second_paths):
            # If the merge's file differs from both parents, the merge resolved a conflict. If it
            # equals one parent, it came cleanly from there, as long as the other parent still has
            # the ancestor's file. Otherwise the merge dropped the other parent's change, which
            # counts as touching the path.
            is_in_both = path in first_paths and path in second_paths
            other = (first if path in first_paths else second).before.get(path)
            if is_in_both or other != self._in_ancestor(rev, path):
                yield _path(path)

    def touched_on_branch(self, changeset: Changeset) -> Iterator[str]:
        """See `base.Push`."""
        rev = self._rev(changeset)
        branch = self._log.branchinfo(rev)[0]
        paths: set[bytes] = set()
        is_on_branch = False
        for parent, changes in zip(self._parents(rev), self._against_parents(rev), strict=True):
            if parent != nullrev and self._log.branchinfo(parent)[0] == branch:
                is_on_branch = True
                paths.update(changes.paths())
        if is_on_branch:
            yield from map(_path, sorted(paths))
        else:
            yield from self.touched(changeset)

    def size(self, entry: Entry, limit: int) -> int:
        """See `base.Push`."""
        log = self._repo.file(entry.path.encode("utf-8", "surrogateescape"))
        rev = log.rev(entry.node)
        # The size includes the lines that record a copy, so it is never less than the file's size:
        # mostly that is enough.
        stored = int(_STORED(log).size(rev))
        return stored if stored <= limit else int(log.size(rev))

    def manifest_text(self, changeset: Changeset) -> bytes:
        """See `base.Push`."""
        return self._manifests.text(self._manifests.revision_of(self._rev(changeset)))

    def branch_heads(self, branch: str) -> Sequence[str]:
        """See `base.Push`."""
        return [_text(to_hex(node)) for node in open_heads(self._repo, branch)]

    def heads_before(self, branch: str) -> int:
        """See `base.Push`."""
        before = self._heads.before(branch)
        return len(before.nodes) if before.are_open else 0

    def strays(self, branch: str) -> Sequence[str]:
        """See `base.Push`."""
        return list(map(self._hex, self._heads.strays(branch)))

    def abandoned(self, branch: str) -> tuple[str, str] | None:
        """See `base.Push`."""
        heads = self._heads.abandoned(branch)
        return None if heads is None else (self._hex(heads[0]), self._hex(heads[1]))

    @functools.cached_property
    def given_branches(self) -> Sequence[BranchMove]:
        """See `base.Push`."""
        return [
            BranchMove(branch, self._hex(former), None if now is None else self._hex(now))
            for branch, former, now in self._heads.given()
        ]

    def differing_paths(self, former: str, now: str | None) -> Iterator[str]:
        """See `base.Push`."""
        revs = [nullrev if n is None else self._log.rev(from_hex(n)) for n in (former, now)]
        yield from map(_path, sorted(self._manifests.difference(*revs).paths()))

    def replaced_paths(self, branch: str) -> Iterator[tuple[str, str]]:
        """See `base.Push`."""
        for rev, former in self._heads.replacing(branch):
            differences = [self._manifests.difference(head, rev) for head in former]
            paths = {path for difference in differences for path in difference.paths()}
            for path in sorted(paths):
                yield self._hex(rev), _path(path)

    def _hex(self, rev: int) -> str:
        return _text(to_hex(self._log.node(rev)))

    @functools.cached_property
    def tags(self) -> Sequence[Tag]:
        """See `base.Push`."""
        return self._tags_of(self.added)

    @functools.cached_property
    def moved_tags(self) -> Sequence[Tag]:
        """See `base.Push`."""
        return self._tags_of(self.moved)

    @functools.cached_property
    def given_tags(self) -> Sequence[TagMove]:
        """See `base.Push`."""
        return list(self._tags.moved(self._moves.vanished))

    def has_tag(self, stored: bytes) -> bool:
        """See `base.Push`."""
        return self._tags.has(stored)

    def _tags_of(self, changesets: Sequence[Changeset]) -> Sequence[Tag]:
        file = FILE.encode()
        result: dict[bytes, Tag] = {}
        for changeset in changesets:
            rev = self._rev(changeset)
            if not any(file in c.before or file in c.after for c in self._against_parents(rev)):
                continue
            parents = [self._tags_text(parent) for parent in self._parents(rev)]
            ancestor = self._tags_text(self._ancestor(rev)) if len(parents) > 1 else b""
            tags = moved(changeset.node, self._tags_text(rev), parents, ancestor)
            # If a push moves a tag several times, the last move counts, and the tag is listed once.
            result.update({tag.stored: tag for tag in tags})
        return list(result.values())

    def has_branch(self, name: str) -> bool:
        """See `base.Push`."""
        return bool(self._repo.filtered(b"served").branchmap().hasbranch(encoding.strtolocal(name)))

    def has_bookmark(self, stored: bytes) -> bool:
        """See `base.Push`."""
        bookmarks = self._repo.names[b"bookmarks"]
        return bool(bookmarks.nodes(self._repo, encoding.tolocal(stored)))

    def _tags_text(self, rev: int) -> bytes:
        if rev == nullrev:
            return b""
        context = self._repo[rev]
        name = FILE.encode()
        return bytes(context[name].data()) if name in context else b""

    def is_hash(self, name: str) -> bool:
        """See `base.Push`."""
        served = self._repo.filtered(b"served")
        try:
            return scmutil.resolvehexnodeidprefix(served, name.encode("ascii")) is not None
        except (error.LookupError, error.WdirUnsupported):
            # The beginning of several hashes, or of the hash that means the working copy.
            return False

    @functools.cached_property
    def _heads(self) -> BranchHeads:
        if self._before.heads is None:
            raise RuntimeError("the heads were not noted when the transaction began")
        return BranchHeads(self._repo, self._before.heads, self._moves.obsolete)

    # Changesets.

    def _changeset(self, rev: int) -> Changeset:
        data = self._log.changelogrevision(rev)
        node = _text(to_hex(self._log.node(rev)))
        self._revs[node] = rev
        return Changeset(
            node,
            branch=_text(data.branchinfo[0]),
            user=_text(data.user),
            message=_text(data.description),
            is_merge=self._log.parentrevs(rev)[1] != nullrev,
            stored_branch=bytes(data.extra[b"branch"]),
            begins_branch=all(
                parent == nullrev or self._log.branchinfo(parent)[0] != data.branchinfo[0]
                for parent in self._log.parentrevs(rev)
            ),
        )

    def _rev(self, changeset: Changeset) -> int:
        return self._revs[changeset.node]

    def _parents(self, rev: int) -> list[int]:
        first, second = self._log.parentrevs(rev)
        return [first] if second == nullrev else [first, second]

    # Changed paths.

    def _against_parents(self, rev: int) -> list[Difference]:
        return [self._manifests.difference(parent, rev) for parent in self._parents(rev)]

    def _in_ancestor(self, rev: int, path: bytes) -> bytes | None:
        """Return the line of a path in the ancestor of both parents of a merge."""
        if self._ancestor_of[0] != rev:
            self._ancestor_of = (rev, self._ancestor_lines(rev))
        return self._ancestor_of[1].get(path)

    def _ancestor(self, rev: int) -> int:
        first, second = self._log.parentrevs(rev)
        node = self._log.ancestor(self._log.node(first), self._log.node(second))
        return int(self._log.rev(node))

    def _ancestor_lines(self, rev: int) -> Mapping[bytes, bytes]:
        text = self._manifests.text(self._manifests.revision_of(self._ancestor(rev)))
        fields = (line.partition(b"\0") for line in text.split(b"\n"))
        return {path: rest for path, _, rest in fields}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _path(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
