"""Malformed names of bookmarks, branches, tags and files, which every repository refuses.

Core's client refuses most of them when a user chooses a name. Another client can send any name,
and core's server stores it: a bookmark with a newline is two lines of `.hg/bookmarks`, and
the path `../../x` is in every archive. So this check has no option and cannot be switched off.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from mercurial import error, pathutil

from hgfleet.core.text import shown
from hgfleet.policies.base import AppliesTo, Policy, Push

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LABEL: Final = 255
"""Bytes of the name of a bookmark or branch; bundle2's reply has a single byte for the length."""

_NODE: Final = re.compile(r"[0-9a-fA-F]{40}")
"""hg takes text of this form for a hash before a name (mercurial.scmutil.revsymbol)."""

_RESERVED: Final = frozenset({"tip", "null", "."})
"""Names that a revision set reads as something else (mercurial.scmutil.checknewlabel)."""

_DIGITS: Final = re.compile(r"x?([0-9a-fA-F]{4,39})")
"""hg skips an x before the beginning of a hash (mercurial.scmutil.resolvehexnodeidprefix)."""

_SHORT: Final = 12
"""Digits of a hash that hg and other programs show."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRIVE: Final = re.compile(rb"[A-Za-z]:[/\\]")


class Names(Policy):
    """Malformed names, in the bookmarks and changesets of every push.

    A malformed bookmark may always be deleted, and a file with such a path removed.
    """

    name: ClassVar[str] = "names"
    summary: ClassVar[str] = "no malformed name of a bookmark, branch, tag or file"
    applies_to: ClassVar[AppliesTo] = "every change"

    def check(self, push: Push) -> Iterator[str]:
        """Check the bookmarks that are set, and branches, tags and files of added changesets."""
        yield from self._bookmarks(push)
        yield from self._branches(push)
        yield from self._tags(push)
        audit = pathutil.pathauditor(b"", realfs=False, cached=True)
        for changeset in push.added:
            for entry in push.entries(changeset):
                problem = path_problem(entry.path.encode("utf-8", "surrogateescape"), audit)
                if problem:
                    yield (
                        f"{changeset} has {shown(entry.path)}, {problem}: take it out of the "
                        "history (hg rename or hg forget, then hg commit --amend)"
                    )

    @staticmethod
    def _bookmarks(push: Push) -> Iterator[str]:
        for bookmark in push.bookmarks:
            if bookmark.is_deleted:
                continue
            problem = name_problem(bookmark.stored)
            if problem is None and bookmark.is_new:
                problem = hash_problem(bookmark.stored, push) or clash(
                    bookmark.stored, push, "branch", "tag"
                )
            if problem:
                yield f"the bookmark {shown(bookmark.name)} {problem}: choose another name"

    @staticmethod
    def _branches(push: Push) -> Iterator[str]:
        known: set[tuple[bytes, bool]] = set()
        appeared = {changeset.node for changeset in push.appeared}
        for changeset in (*push.added, *push.appeared):
            name = changeset.stored_branch
            branch = (name, changeset.begins_branch)
            if branch in known:
                continue
            known.add(branch)
            # A branch that is older than the check may go on.
            problem = None if changeset.node in appeared else label_problem(name)
            if problem is None and changeset.begins_branch:
                problem = (
                    (None if changeset.node in appeared else name_problem(name))
                    or hash_problem(name, push)
                    or clash(name, push, "tag", "bookmark")
                )
            if problem:
                yield (
                    f"{changeset} is on the branch {shown(changeset.branch)}, which {problem}: "
                    "commit it on another branch (hg branch, then hg commit --amend)"
                )

    @staticmethod
    def _tags(push: Push) -> Iterator[str]:
        appeared = {changeset.node for changeset in push.appeared}
        # To read the tags of all published changesets would take long, and find nothing.
        shown_again = [t for t in push.moved_tags if t.changeset in appeared] if appeared else []
        for tag in (*push.tags, *shown_again):
            problem = None if tag.is_removed else tag_problem(tag.stored, push)
            if problem:
                yield (
                    f"{tag.changeset[:12]} sets the tag {shown(tag.name)}, which {problem}: choose "
                    "another name (hg strip the tag's changeset, then hg tag)"
                )


def name_problem(name: bytes) -> str | None:
    """Return the problem of the name of a new bookmark or branch, None if there is none.

    Names with another meaning for hg are refused too, as `hg bookmark` and `hg branch` refuse them.
    """
    problem = label_problem(name)
    if problem:
        return problem
    text = name.decode("utf-8")
    if text in _RESERVED or re.fullmatch(r"[+-]?[0-9]+", text) or _NODE.fullmatch(text):
        return "has a name that means something else to hg"
    if ":" in text:
        return "has a colon in its name, which means a range of changesets"
    return None


def tag_problem(stored: bytes, push: Push) -> str | None:
    """Return the problem of a tag's name, None if there is none.

    hg looks for a tag before a branch, and for a bookmark before a tag: if two of them have the
    same name, hg finds only the first.
    """
    return (
        name_problem(stored)
        or hash_problem(stored, push)
        or clash(stored, push, "branch", "bookmark")
    )


def hash_problem(name: bytes, push: Push) -> str | None:
    """Return the problem of a well-formed name that is also a short hash, None if there is none.

    hg looks for all names before it looks for the beginning of a hash. Programs give 12 digits of
    a hash (`hg identify`), so no name may be 12 digits, whether the changeset exists yet or not.
    """
    digits = _DIGITS.fullmatch(name.decode("utf-8"))
    if digits is None:
        return None
    if len(digits[1]) >= _SHORT:
        return "has a name that reads as a hash"
    if push.is_hash(digits[1]):
        return "has the name of the beginning of a changeset's hash"
    return None


def clash(stored: bytes, push: Push, *kinds: Literal["branch", "tag", "bookmark"]) -> str | None:
    """Return the problem of a name that another kind of label has too, None if there is none."""
    for kind in kinds:
        match kind:
            case "branch":
                taken = push.has_branch(stored.decode("utf-8"))
            case "tag":
                taken = push.has_tag(stored)
            case "bookmark":
                taken = push.has_bookmark(stored)
        if taken:
            return f"has the name of a {kind}"
    return None


def label_problem(name: bytes) -> str | None:
    """Return the problem of the name of a bookmark or branch, None if there is none."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return "has a name that is not UTF-8"
    if not text:
        return "has an empty name"
    if len(name) > MAX_LABEL:
        return f"has a name of {len(name)} bytes, more than {MAX_LABEL}"
    if CONTROL.search(text):
        return "has a control character in its name"
    if text != text.strip():
        return "has a name that begins or ends with a blank"
    return None


def path_problem(path: bytes, audit: pathutil.pathauditor) -> str | None:
    r"""Return the problem of a file's path, None if there is none.

    Core's audit, without its check of the file system, refuses `..`, a top `.hg`, a nested `.hg`,
    and names that are the same to macOS and Windows. In addition, this function refuses empty
    segments and `.`, line ends, a backslash (Windows reads it as a separator), and the names that
    Windows opens as `.hg` (`.hg .`, `.hg::$X`).
    """
    if any(byte in path for byte in (b"\0", b"\n", b"\r")):
        return "a path with a line end or NUL"
    try:
        audit(path)
    except error.InputError:
        return "a path that leaves the working copy or enters a repository's own folder"
    segments = path.split(b"/")
    if b"" in segments or b"." in segments:
        return "a path with an empty segment or a single dot"
    if _DRIVE.match(path):
        return "a path that begins with a drive"
    if b"\\" in path and b".." in re.split(rb"[/\\]", path):
        return "a path that leaves the working copy on Windows"
    if b".hg" in path.lower() and any(map(_is_hg_folder, re.split(rb"[/\\]", path))):
        return "a path that enters a repository's own folder"
    return None


def _is_hg_folder(segment: bytes) -> bool:
    return segment.lower().partition(b":")[0].rstrip(b". ") == b".hg"
