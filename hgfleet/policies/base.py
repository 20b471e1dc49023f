"""Base of all policies: `Policy`, and the facts about a push that it decides from.

A policy is a class: a name, a summary, its options, the kind of changes it applies to, and a check
that yields a sentence for each problem. It decides only from the facts in `Push`, which come from a
repository (`push_facts.py`) or from a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hgfleet.core.principal import Principal
    from hgfleet.policies.options import Option
    from hgfleet.policies.tags import Tag, TagMove

AppliesTo = Literal["added changesets", "heads", "every change"]
"""The changes that a policy checks, and so the transactions that it is evaluated for.

`added changesets`  the changesets of a push, an unbundle or a commit, in any phase. Obsolete
                    changesets are included: a client can pull them by their hash later.
`heads`             the heads of the branches after the transaction. Changesets that appear or
                    disappear by a phase or an obsolescence marker change them too.
`every change`      all of the above, changed phases of older changesets, and bookmarks.
"""


@dataclass(frozen=True, slots=True)
class Changeset:
    """A changeset as the changelog has it. Undecodable bytes are replaced in all texts."""

    node: str
    """40 hexadecimal digits."""
    branch: str
    user: str
    message: str
    is_merge: bool = False
    stored_branch: bytes = b"default"
    """The bytes of the branch's name in the changelog."""
    begins_branch: bool = False
    """Whether none of its parents is on its branch."""

    def __str__(self) -> str:
        return self.node[:12]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a changeset that differs from the file in each parent of the changeset."""

    path: str
    """Undecodable bytes are lone surrogates, so that different paths stay different."""
    node: bytes
    """The node of the file's revision; opaque."""
    kind: Literal["file", "link"]


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A bookmark that was set, moved or deleted, and the branches that it left and reached."""

    name: str
    branches: tuple[str, ...]
    stored: bytes = b""
    """The bytes of its name, as hg would write them to its file."""
    is_deleted: bool = False
    is_new: bool = False
    """Whether the bookmark is new."""


@dataclass(frozen=True, slots=True)
class BranchMove:
    """A branch whose name gives another changeset after a transaction."""

    branch: str
    former: str
    """40 hexadecimal digits of its newest head."""
    now: str | None
    """None of a branch that has no head any more."""


@dataclass(frozen=True, slots=True)
class Marker:
    """An obsolescence marker, with the fields that people read."""

    node: str
    """Hexadecimal digits of the changeset that is obsolete."""
    date: tuple[float, int]
    """Seconds since 1970 and the zone's seconds; any numbers, `nan` too."""
    user: bytes = b""
    nodes: tuple[bytes, ...] = ()
    """All changesets that the marker names: the obsolete one, its successors, its parents."""


class Push(Protocol):
    """The changes of a transaction that is about to close. Costly facts are computed on demand."""

    @property
    def principal(self) -> Principal:
        """The person who pushes."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The values of `hg push --pushvars NAME=VALUE`."""

    @property
    def added(self) -> Sequence[Changeset]:
        """The changesets it adds, in the order of the log."""

    @property
    def moved(self) -> Sequence[Changeset]:
        """Older changesets that change their phase, become obsolete, or are shown or hidden."""

    @property
    def appeared(self) -> Sequence[Changeset]:
        """Moved changesets that were hidden before: secret, or obsolete and needed by nothing."""

    @property
    def bookmarks(self) -> Sequence[Bookmark]:
        """The bookmarks it changes."""

    def stored_texts(self) -> Iterable[tuple[str, bytes]]:
        """Return the node and the stored bytes of each changeset it adds, before any parsing."""

    def markers(self) -> Iterable[Marker]:
        """Return the obsolescence markers it adds."""

    def entries(self, changeset: Changeset) -> Iterable[Entry]:
        """Return the files that differ from every parent."""

    def untrue_files(self, changeset: Changeset) -> Iterable[tuple[str, str]]:
        """Return problems of the changeset's list of files (`file_lists`), each with a path."""

    def touched(self, changeset: Changeset) -> Iterable[str]:
        """Return the paths that the changeset changes, including files that it removes.

        A merge touches the paths of its conflicts, but not the paths that came cleanly from one
        side.
        """

    def touched_on_branch(self, changeset: Changeset) -> Iterable[str]:
        """Return the paths that differ on the changeset's branch now, including merged paths."""

    def size(self, entry: Entry, limit: int) -> int:
        """Return the size of a file in bytes; it is exact if it may exceed the limit."""

    def arrived(self, changeset: Changeset) -> Iterable[str]:
        """Return the paths that the changeset's first parent does not have."""

    @property
    def new_heads(self) -> Sequence[Changeset]:
        """Added and moved changesets from which no other added or moved changeset descends."""

    def manifest_text(self, changeset: Changeset) -> bytes:
        """Return the manifest of a changeset as it is stored; 100,000 files are 8 MB."""

    def branch_heads(self, branch: str) -> Sequence[str]:
        """Return the open, visible heads of a branch after the transaction."""

    def heads_before(self, branch: str) -> int:
        """Return how many open heads the branch had before the transaction."""

    def strays(self, branch: str) -> Sequence[str]:
        """Return the new open heads that descend from no open head that the branch had before.

        For a head that became obsolete, its nearest ancestors that are not obsolete count. Yields
        nothing if the branch had no open head.
        """

    def abandoned(self, branch: str) -> tuple[str, str] | None:
        """Return the former and current newest head, if no open head continues the former."""

    @property
    def given_branches(self) -> Sequence[BranchMove]:
        """Existing branches whose names give another changeset after the transaction."""

    def differing_paths(self, former: str, now: str | None) -> Iterable[str]:
        """Return the paths that differ between two changesets; all of `former` without `now`."""

    def replaced_paths(self, branch: str) -> Iterable[tuple[str, str]]:
        """Return new heads that descend from no former head of the branch, with changed paths.

        Each of them replaces the content of the branch. Its paths are those that differ from any of
        the former heads; closed heads count only if the branch had no open head.
        """

    @property
    def tags(self) -> Sequence[Tag]:
        """The tags that the added changesets set, move or remove."""

    @property
    def moved_tags(self) -> Sequence[Tag]:
        """The tags that the moved changesets set, moved or removed when they were added."""

    @property
    def given_tags(self) -> Sequence[TagMove]:
        """The tags that give another changeset, considering the heads of all branches together."""

    def has_tag(self, stored: bytes) -> bool:
        """Whether the repository has a tag of this name afterwards."""

    def is_hash(self, name: str) -> bool:
        """Whether hexadecimal digits are the beginning of exactly one changeset's hash."""

    def has_branch(self, name: str) -> bool:
        """Whether the repository has a branch of this name afterwards."""

    def has_bookmark(self, stored: bytes) -> bool:
        """Whether the repository has a bookmark of this name afterwards."""


class Policy:
    """A policy with the options that it has in this repository."""

    name: ClassVar[str]
    summary: ClassVar[str]
    applies_to: ClassVar[AppliesTo]
    options: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options that the registry and `problem` have accepted."""

    @classmethod
    def problem(cls, _options: Mapping[str, Any]) -> str | None:
        """Return the problem of options that are valid each by itself but not together, or None."""
        return None

    def check(self, push: Push) -> Iterator[str]:
        """Yield a sentence for each problem: the changeset, the problem, the way out."""
        raise NotImplementedError
