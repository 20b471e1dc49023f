"""The contract between a policy and whoever runs it.

A policy is a class: a name, a line that says what it is for, the options it takes, what it applies
to, and a check that yields a sentence for each thing that is wrong. It decides from facts alone;
`Push` has those facts, from a repository (`hgext/policies.py`) or made up by a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hgfleet.core.principal import Principal
    from hgfleet.policies.options import Option

AppliesTo = Literal["added changesets", "heads", "every change"]
"""What a policy looks at, and so which transactions it is asked about.

`added changesets`  what a push, an unbundle or a commit brings, whatever its phase and whether it
                    is already obsolete: it can be pulled by its hash one day.
`heads`             what the branches look like afterwards. Changesets that appear or disappear by
                    a phase or an obsolescence marker change that too.
`every change`      those, moved phases of older changesets, and bookmarks.
"""


@dataclass(frozen=True, slots=True)
class Changeset:
    """What the log has of a changeset. Undecodable bytes are replaced in all texts."""

    node: str
    """40 hexadecimal digits."""
    branch: str
    user: str
    message: str
    is_merge: bool = False

    def __str__(self) -> str:
        return self.node[:12]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as a changeset leaves it, where that differs from each of its parents."""

    path: str
    """Undecodable bytes are lone surrogates, so that different paths stay different."""
    node: bytes
    """Of the file's revision; opaque."""
    kind: Literal["file", "link"]


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A bookmark that was set, moved or deleted, and the branches it left and came to."""

    name: str
    branches: tuple[str, ...]


class Push(Protocol):
    """What a transaction is about to change. Everything that costs is computed when asked for."""

    @property
    def principal(self) -> Principal:
        """Who changes it."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What the person said with `hg push --pushvars NAME=VALUE`."""

    @property
    def added(self) -> Sequence[Changeset]:
        """The changesets it adds, in the order of the log."""

    @property
    def moved(self) -> Sequence[Changeset]:
        """Older changesets that change their phase or become obsolete."""

    @property
    def bookmarks(self) -> Sequence[Bookmark]:
        """The bookmarks it changes."""

    def entries(self, changeset: Changeset) -> Iterable[Entry]:
        """Return the files that differ from every parent: what the changeset itself brings."""

    def touched(self, changeset: Changeset) -> Iterable[str]:
        """Return the paths it changes, files that it removes included.

        A merge touches what somebody had to decide, and not what came cleanly from one side.
        """

    def touched_on_branch(self, changeset: Changeset) -> Iterable[str]:
        """Return the paths that its branch has differently now: a merge brings what it merges."""

    def size(self, entry: Entry, limit: int) -> int:
        """Return the bytes of a file; exactly, if that may be more than the limit."""

    def arrived(self, changeset: Changeset) -> Iterable[str]:
        """Return the paths that its first parent has not."""

    @property
    def added_heads(self) -> Sequence[Changeset]:
        """Those of the added changesets that no other of them descends from."""

    def manifest(self, changeset: Changeset) -> Iterable[str]:
        """Return all paths of a changeset; there may be 100,000 of them."""

    def branch_heads(self, branch: str) -> Sequence[str]:
        """Return the open, visible heads of a branch afterwards."""

    def heads_before(self, branch: str) -> int:
        """Return how many there were before."""


class Policy:
    """One policy with the options it has in this repository."""

    name: ClassVar[str]
    summary: ClassVar[str]
    applies_to: ClassVar[AppliesTo]
    options: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options that `problem` and the registry have found to be right."""

    @classmethod
    def problem(cls, _options: Mapping[str, Any]) -> str | None:
        """Say what is expected of options that are right one by one, or None."""
        return None

    def check(self, push: Push) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong: which changeset, what, the way out."""
        raise NotImplementedError
