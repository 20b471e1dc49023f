"""Policies on the history: heads, merges, commit messages, authors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hgfleet.core.text import shown
from hgfleet.policies import globs
from hgfleet.policies.base import AppliesTo, Changeset, Policy, Push
from hgfleet.policies.bounded import Pattern, SearchTimeoutError
from hgfleet.policies.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BRANCHES = Option("globs", "branches it applies to; without it, all branches")


class SingleHead(Policy):
    """A branch has one open head, so that "the newest changeset of the branch" is well defined.

    A branch that had several heads when the policy came may keep them and lose them over time; the
    policy refuses an additional head. It also refuses a head that replaces another head without
    descending from it: the branch is started again elsewhere, and the former head is closed.
    Likewise, where a branch has several heads, the newest head may not be closed: the branch would
    go back to an older head.
    """

    name: ClassVar[str] = "single-head"
    summary: ClassVar[str] = "a branch has one open head"
    applies_to: ClassVar[AppliesTo] = "heads"
    options: ClassVar[Mapping[str, Option]] = {"branches": _BRANCHES}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._branches = globs.branches(options.get("branches", ()))

    def check(self, push: Push) -> Iterator[str]:
        """Count the heads of each branch that changes."""
        touched = {changeset.branch: None for changeset in (*push.added, *push.moved)}
        for branch in touched:
            if not self._branches.fits(branch):
                continue
            heads = push.branch_heads(branch)
            if len(heads) > 1 and len(heads) > push.heads_before(branch):
                some = ", ".join(head[:12] for head in heads[:4]) + (
                    f" and {len(heads) - 4} more" if len(heads) > 4 else ""
                )
                yield (
                    f"the branch {shown(branch)} would have {len(heads)} heads ({some}): pull, "
                    "then merge or rebase so that one head remains, and push again"
                )
                continue
            strays = push.strays(branch)
            abandoned = None if strays else push.abandoned(branch)
            if abandoned:
                former, now = abandoned
                yield (
                    f"the branch {shown(branch)} would go back to its other head {now[:12]}, "
                    f"because {former[:12]} is closed or gone: merge the two heads, or close the "
                    "other head"
                )
            for stray in strays:
                yield (
                    f"{stray[:12]} replaces the head of the branch {shown(branch)} without "
                    "descending from it: pull, then rebase onto that head, and push again"
                )


class NoMerges(Policy):
    """A branch gets its changesets one after the other, each of them rebased."""

    name: ClassVar[str] = "no-merges"
    summary: ClassVar[str] = "no merge on a protected branch"
    applies_to: ClassVar[AppliesTo] = "added changesets"
    options: ClassVar[Mapping[str, Option]] = {"branches": _BRANCHES}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._branches = globs.branches(options.get("branches", ()))

    def check(self, push: Push) -> Iterator[str]:
        """Check the second parent of each changeset on a protected branch."""
        for changeset in push.added:
            if changeset.is_merge and self._branches.fits(changeset.branch):
                yield (
                    f"{changeset} is a merge on the branch {shown(changeset.branch)}: "
                    "rebase instead (hg rebase)"
                )


class _Text(Policy):
    """A pattern that must match a text of each changeset, and a hint that explains the pattern."""

    applies_to: ClassVar[AppliesTo] = "added changesets"
    options: ClassVar[Mapping[str, Option]] = {
        "pattern": Option("pattern", "a regular expression that is found in it", required=True),
        "hint": Option("text", "the sentence of the refusal, instead of the pattern"),
    }
    subject: ClassVar[str]
    way_out: ClassVar[str]

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._pattern = Pattern(options["pattern"])
        self._expected = options.get("hint") or f"expected the pattern {options['pattern']}"

    def text(self, changeset: Changeset) -> str:
        """Return the text that has to match."""
        raise NotImplementedError

    def check(self, push: Push) -> Iterator[str]:
        """Search each text; a search that does not end is a refusal."""
        for changeset in push.added:
            text = self.text(changeset)
            line = shown(text.partition("\n")[0])
            try:
                if self._pattern.is_in(text):
                    continue
            except SearchTimeoutError:
                yield (
                    f'{changeset} has the {self.subject} "{line}", and comparing it with the '
                    "pattern takes too long: write it more simply, and tell an operator"
                )
                # The other changesets would take as long, while the lock blocks all other pushes.
                return
            yield f'{changeset} has the {self.subject} "{line}": {self._expected}; {self.way_out}'


class CommitMessage(_Text):
    """The message has the form that the project agreed on, such as the number of a bug."""

    name: ClassVar[str] = "commit-message"
    summary: ClassVar[str] = "the pattern is found in each commit message"
    subject: ClassVar[str] = "message"
    way_out: ClassVar[str] = "change it with hg commit --amend or hg histedit"

    def text(self, changeset: Changeset) -> str:
        """Return the message."""
        return changeset.message


class Author(_Text):
    """The author is written in a uniform way, such as "Name <mail address>"."""

    name: ClassVar[str] = "author"
    summary: ClassVar[str] = "the pattern is found in each author"
    subject: ClassVar[str] = "author"
    way_out: ClassVar[str] = "set ui.username and use hg commit --amend --user"

    def text(self, changeset: Changeset) -> str:
        """Return the author."""
        return changeset.user
