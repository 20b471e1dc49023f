"""State of a repository when a transaction begins, for policies that compare it with the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgfleet.policies import repository_tags
from hgfleet.policies.branch_heads import heads_by_branch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hgfleet.policies.branch_heads import Heads


@dataclass(frozen=True, slots=True)
class Before:
    """The served changesets, and the changesets that names of branches and tags gave."""

    hidden: Collection[int]
    """Revisions that were not served: secret, or obsolete and needed by nothing."""
    heads: Mapping[bytes, Heads] | None = None
    """The heads of each branch, None where no policy compares them."""
    tag_files: tuple[bytes, ...] | None = None
    """The revisions of `.hgtags` in the heads, None where no rule compares them."""


def noted(repo: Any, *, heads: bool, tags: bool) -> Before:
    """Return the state of a repository now. At the end, it could be found only by reading all."""
    return Before(
        hidden=hidden(repo),
        heads=heads_by_branch(repo) if heads else None,
        tag_files=repository_tags.files_of_heads(repo, keeps=True) if tags else None,
    )


def hidden(repo: Any) -> Collection[int]:
    """Return the revisions that are not served."""
    revisions: Collection[int] = repo.filtered(b"served").changelog.filteredrevs
    return revisions
