"""Untrue lists of files and unreadable revisions, which every repository refuses.

The client writes the list of files of a changeset, and says which changeset a revision of a file
belongs to. Core's server stores both unread, and makes each later answer from them
(mercurial.changegroup.cgpacker.generatefiles). A listed file that does not exist makes every clone
fail. A revision that is not listed, or that belongs to another changeset, is missing in every pull:
clones do not have it, and mirrors stop. The same holds for the texts of revisions: see
`file_revisions`. So this check has no option and cannot be switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hgfleet.core.text import shown
from hgfleet.policies import manifest_diff
from hgfleet.policies.base import AppliesTo, Policy, Push

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from hgfleet.policies.manifest_diff import Difference

UNKNOWN = "lists {path}, which it neither has nor removes"
OMITTED = "changes {path} and does not list it"
UNREADABLE = "has a revision of {path} that cannot be read back"
CENSORED = "has a revision of {path} whose content was removed with hg censor"
ELSEWHERE = "has a revision of {path} that belongs to another changeset"

_COMMON_WAY_OUT = (
    "write the changeset again with hg commit --amend, or ask an operator to bring the history in"
)
_WAY_OUT = {
    CENSORED: (
        "expected complete revisions; push from a clone that is not censored, or a history without "
        "the file (hg help convert, --filemap)"
    )
}


class FileLists(Policy):
    """Lists of files that a clone could not be made from, in the changesets of every push."""

    name: ClassVar[str] = "file-lists"
    summary: ClassVar[str] = "no untrue list of files, and no unreadable revision"
    applies_to: ClassVar[AppliesTo] = "added changesets"

    def check(self, push: Push) -> Iterator[str]:
        """Compare the lists with the manifests and with the revisions of the files."""
        for changeset in push.added:
            for what, path in push.untrue_files(changeset):
                problem = what.format(path=shown(path) or "its manifest")
                yield f"{changeset} {problem}: {_WAY_OUT.get(what, _COMMON_WAY_OUT)}"


def untrue(
    listed: Collection[bytes],
    differences: Sequence[Difference],
    has_file: Callable[[bytes], bool],
    problem: Callable[[bytes, bytes], str | None],
) -> Iterator[tuple[str, bytes]]:
    """Yield each problem of the list or of a revision, with its path.

    `differences` are from each parent. `has_file` returns whether the store has any revision of a
    path, `problem` returns the problem of a new revision.

    The list is checked in both directions. A listed path must differ from a parent, or be a file
    that the store has: a clone fails where there is no such file. Each revision that no parent has
    must be listed, because it is missing in every pull otherwise, and `problem` must find that it
    can be read and belongs to this changeset.
    """
    listed = set(listed)
    for path in sorted(listed):
        is_changed = any(
            path in difference.before or path in difference.after for difference in differences
        )
        # Older clients list files that a merge did not change; those files exist.
        if not is_changed and not has_file(path):
            yield UNKNOWN, path
    for path, node in arrivals(differences):
        if path not in listed:
            yield OMITTED, path
        elif what := problem(path, node):
            yield what, path


def arrivals(differences: Sequence[Difference]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the path and the node of each file whose revision none of the parents has, by path."""
    first, *others = differences
    for path, line in sorted(first.after.items()):
        if any(other.after.get(path) != line for other in others):
            continue
        node, _ = manifest_diff.entry(line)
        if any(
            path in difference.before and manifest_diff.entry(difference.before[path])[0] == node
            for difference in differences
        ):
            # Only the flag differs.
            continue
        yield path, node
