"""Policies on the right to change a part: closed trees, rules of branches, paths and tags.

They apply to every change: publishing another person's draft on a closed branch is a landing, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from hgfleet.core.text import alternatives, shown
from hgfleet.policies import globs
from hgfleet.policies.base import AppliesTo, Policy, Push
from hgfleet.policies.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hgfleet.policies.bounded import Pattern
    from hgfleet.policies.rule import Rule

OVERRIDE: Final = "CLOSED_TREE"
"""`hg push --pushvars CLOSED_TREE=yes` is how a person of an excepted group confirms the push."""


class ClosedTree(Policy):
    """Pushes are refused for a while: during a release, broken tests, a migration."""

    name: ClassVar[str] = "closed-tree"
    summary: ClassVar[str] = "nothing may be pushed for the moment"
    applies_to: ClassVar[AppliesTo] = "every change"
    options: ClassVar[Mapping[str, Option]] = {
        "reason": Option("text", "why, and until when", required=True),
        "branches": Option("globs", "branches that are closed; without it, all branches"),
        "except": Option("groups", "groups whose members may push, if they confirm it"),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._reason = options["reason"].rstrip(".")
        self._globs = options.get("branches", ())
        self._branches = globs.branches(self._globs)
        self._except = options.get("except", ())

    def check(self, push: Push) -> Iterator[str]:
        """Yield the closed branches, and the groups that may push all the same."""
        excepted = not push.principal.groups.isdisjoint(self._except)
        if excepted and push.variables.get(OVERRIDE) == "yes":
            return
        branches = {changeset.branch: None for changeset in (*push.added, *push.moved)}
        for bookmark in push.bookmarks:
            branches.update(dict.fromkeys(bookmark.branches))
        closed = [branch for branch in branches if self._branches.fits(branch)]
        # A bookmark without any changeset (deleted by an id that is gone) has no branch to ask for.
        if not closed and not (push.bookmarks and not branches and not self._globs):
            return
        if excepted:
            way_out = f"you may push all the same with hg push --pushvars {OVERRIDE}=yes"
        elif self._except:
            way_out = f"wait, or ask a member of {alternatives(self._except)} to push"
        else:
            way_out = "wait until it opens"
        if self._globs:
            listed = ", ".join(shown(branch) for branch in closed[:5])
            where = f"the branch {listed} is" if len(closed) == 1 else f"branches ({listed}) are"
        else:
            where = "the tree is"
        yield f"{where} closed: {self._reason}; {way_out}"


class Rules(Policy):
    """Groups that may push to some branches and paths: `rules:` of the registry.

    Every rule that covers a changeset applies, including the rules of a namespace. A rule without
    paths also covers the bookmarks of its branches, and their creation and deletion. hg resolves a
    name as a bookmark, then as a tag, then as a branch (mercurial.scmutil.revsymbol). So a rule
    about branches or tags also covers names of the other kinds that hg takes for such a branch or
    tag. A covered name can come to give another changeset although no covered changeset was pushed,
    so the changesets that names give are compared before and after the push.
    """

    name: ClassVar[str] = "rules"
    summary: ClassVar[str] = "groups that may push to a branch, path or tag"
    applies_to: ClassVar[AppliesTo] = "every change"

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__({})
        self._rules = [
            (rule, globs.branches(rule.tags or rule.branches), globs.paths(rule.paths))
            for rule in rules
        ]

    def check(self, push: Push) -> Iterator[str]:
        """Find changes that a rule covers and whose pusher the rule does not name."""
        for rule, names, paths in self._rules:
            if not push.principal.groups.isdisjoint(rule.push):
                continue
            who = f"only members of {alternatives(rule.push)}" if rule.push else "nobody"
            so = f"{who} may push; ask {'one of them' if rule.push else 'an operator'}"
            if rule.tags:
                yield from self._names_of_tags(push, names, so)
                continue
            changes = self._changes(push, rule, names, paths, so)
            first = next(changes, None)
            if first is not None:
                yield first
                yield from changes
            elif rule.branches or not rule.paths:
                # The push changes nothing that the rule covers, but names may give other changesets
                # now.
                yield from self._given(push, rule, names, paths, so)

    def _changes(
        self, push: Push, rule: Rule, names: Pattern, paths: Pattern, so: str
    ) -> Iterator[str]:
        """Yield the changes that a rule of branches, paths or both covers."""
        if rule.branches or not rule.paths:
            yield from self._names_of_branches(push, rule, names, so)
        if rule.branches and rule.paths:
            yield from self._replaced(push, names, paths, so)
        for changeset in (*push.added, *push.moved):
            if not names.fits(changeset.branch):
                continue
            branch = f"the branch {shown(changeset.branch)}"
            if not rule.paths:
                yield f"{changeset} is on {branch}, where {so}"
                continue
            touched = push.touched_on_branch if rule.branches else push.touched
            covered = next((path for path in touched(changeset) if paths.fits(path)), None)
            if covered is not None:
                where = f" on {branch}" if rule.branches else ""
                yield f"{changeset} changes {shown(covered)}{where}, where {so}"

    @staticmethod
    def _given(push: Push, rule: Rule, branches: Pattern, paths: Pattern, so: str) -> Iterator[str]:
        """Yield the covered branches whose names give another changeset, with other paths."""
        for move in push.given_branches:
            if not branches.fits(move.branch):
                continue
            content = ""
            if rule.paths:
                differing = push.differing_paths(move.former, move.now)
                covered = next(filter(paths.fits, differing), None)
                if covered is None:
                    continue
                content = f" with another {shown(covered)}"
            yield (
                f"the branch {shown(move.branch)} would give {_short(move.now)} instead of "
                f"{_short(move.former)}{content}, where {so}"
            )

    @staticmethod
    def _names_of_branches(push: Push, rule: Rule, branches: Pattern, so: str) -> Iterator[str]:
        """Yield the bookmarks on a covered branch, and other names that hg takes for such a branch.

        `hg update release` goes to the bookmark or tag where a branch has that name too. A rule of
        paths covers only such names, and only those of branches that exist.
        """

        def is_taken(name: str) -> bool:
            return branches.fits(name) and (not rule.paths or push.has_branch(name))

        for bookmark in push.bookmarks:
            covered = () if rule.paths else filter(branches.fits, bookmark.branches)
            branch = next(iter(covered), None)
            if branch is not None:
                where = f"is on the branch {shown(branch)}"
            elif is_taken(bookmark.name):
                where = "has the name of a branch"
            else:
                continue
            yield f"the bookmark {shown(bookmark.name)} {where}, where {so}"
        tags = [tag.name for tag in (*push.tags, *push.moved_tags)]
        tags += [move.name for move in push.given_tags]
        for name in dict.fromkeys(tags):
            if is_taken(name):
                yield f"the tag {shown(name)} has the name of a branch, where {so}"

    @staticmethod
    def _names_of_tags(push: Push, tags: Pattern, so: str) -> Iterator[str]:
        """Yield the covered tags that move, and the names that hg takes for a covered tag."""
        told = set()
        tags_of_changesets = [*push.tags, *push.moved_tags]
        for tag in tags_of_changesets:
            if tags.fits(tag.name) and tag.stored not in told:
                told.add(tag.stored)
                yield f"{tag.changeset[:12]} changes the tag {shown(tag.name)}, where {so}"
        for move in push.given_tags:
            if tags.fits(move.name) and move.stored not in told:
                yield (
                    f"the tag {shown(move.name)} would give {_short(move.now)} instead of "
                    f"{_short(move.former)}, because other heads would be left, where {so}"
                )
        for bookmark in push.bookmarks:
            if tags.fits(bookmark.name):
                yield f"the bookmark {shown(bookmark.name)} has the name of a tag, where {so}"
        for changeset in (*push.added, *push.appeared):
            if changeset.begins_branch and tags.fits(changeset.branch):
                yield f"the branch {shown(changeset.branch)} has the name of a tag, where {so}"

    @staticmethod
    def _replaced(push: Push, branches: Pattern, paths: Pattern, so: str) -> Iterator[str]:
        """Yield the heads that start a covered branch afresh, with other content of the paths."""
        touched = {changeset.branch: None for changeset in (*push.added, *push.moved)}
        for branch in filter(branches.fits, touched):
            told: set[str] = set()
            for head, path in push.replaced_paths(branch):
                if head not in told and paths.fits(path):
                    told.add(head)
                    yield (
                        f"{head[:12]} replaces the head of the branch {shown(branch)} by another "
                        f"{shown(path)}, where {so}"
                    )


def _short(node: str | None) -> str:
    return "no changeset" if node is None else node[:12]
