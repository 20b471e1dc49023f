"""Policies about the files that changesets bring."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hgfleet.core.text import binary_size, shown
from hgfleet.policies import globs
from hgfleet.policies.base import AppliesTo, Policy, Push
from hgfleet.policies.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_SEARCHES: Final = 32
"""Searches of a manifest. With 400,000 paths, a search takes 10 ms, and a loop over all 500 ms."""

_SUBREPOSITORIES = frozenset({".hgsub", ".hgsubstate"})


class FileSize(Policy):
    """A large file is in every clone for ever, even when the next changeset removes it."""

    name: ClassVar[str] = "file-size"
    summary: ClassVar[str] = "no file is larger"
    applies_to: ClassVar[AppliesTo] = "added changesets"
    options: ClassVar[Mapping[str, Option]] = {
        "max": Option("size", "the largest file that may be pushed", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._max = int(options["max"])

    def check(self, push: Push) -> Iterator[str]:
        """Check each revision of a file, including revisions that a later changeset replaces."""
        for changeset in push.added:
            for entry in push.entries(changeset):
                size = push.size(entry, self._max)
                if size > self._max:
                    yield (
                        f"{changeset} has {shown(entry.path)} with {binary_size(size)}, more than "
                        f"{binary_size(self._max)}: keep it elsewhere, and take it out of the "
                        "history (hg histedit, hg commit --amend)"
                    )


class Paths(Policy):
    """Paths that an operating system cannot store, or that the repository forbids."""

    name: ClassVar[str] = "paths"
    summary: ClassVar[str] = "limits to the names of files"
    applies_to: ClassVar[AppliesTo] = "added changesets"
    options: ClassVar[Mapping[str, Option]] = {
        "max-length": Option("count", "bytes of a path; Windows has 260 for all of it"),
        "forbidden": Option("globs", "paths that are refused"),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._max = options.get("max-length")
        self._forbidden = options.get("forbidden", ())
        self._pattern = globs.paths(self._forbidden) if self._forbidden else None

    @classmethod
    def problem(cls, _options: Mapping[str, Any]) -> str | None:
        """Demand at least one option."""
        return None if _options else "max-length, forbidden, or both"

    def check(self, push: Push) -> Iterator[str]:
        """Check added and changed files; a file with a bad name may always be removed."""
        for changeset in push.added:
            for entry in push.entries(changeset):
                length = len(entry.path.encode("utf-8", "surrogateescape"))
                if self._max is not None and length > self._max:
                    yield (
                        f"{changeset} has {shown(entry.path)}, a path of {length} bytes, more than "
                        f"{self._max}: rename it (hg rename, then fold with hg histedit)"
                    )
                elif self._pattern is not None and self._pattern.fits(entry.path):
                    yield (
                        f"{changeset} has {shown(entry.path)}, which is forbidden here "
                        f"({', '.join(self._forbidden[:5])}"
                        f"{', ...' if len(self._forbidden) > 5 else ''}): take it out of the "
                        "history (hg forget, then hg commit --amend)"
                    )


class NoCaseCollisions(Policy):
    """Two names that differ only by upper and lower case are the same file on Windows and macOS.

    There a changeset that has both cannot even be checked out. The policy checks the pushed heads:
    a later changeset of the same push may resolve a collision, and an older collision was not made
    by
    this push. A changeset that was obsolete or secret when it came is a head only when it moves.
    """

    name: ClassVar[str] = "no-case-collisions"
    summary: ClassVar[str] = "no two paths that differ only by upper and lower case"
    applies_to: ClassVar[AppliesTo] = "heads"

    def check(self, push: Push) -> Iterator[str]:
        """Compare the new paths with all paths of each head."""
        arrived: dict[str, None] = {}
        for changeset in (*push.added, *push.moved):
            arrived.update(dict.fromkeys(push.arrived(changeset)))
        if not arrived:
            return
        for head in push.new_heads:
            for path, other in collisions(arrived, candidates(arrived, push.manifest_text(head))):
                yield (
                    f"{head} has both {shown(path)} and {shown(other)}, the same file on Windows "
                    "and macOS: rename one of them (hg rename)"
                )


def candidates(arrived: Iterable[str], text: bytes) -> Iterator[str]:
    """Return the arrived paths and the paths of a manifest that may collide with them.

    The text is searched as bytes: to decode and fold each of 400,000 paths takes a second while the
    repository is locked. More searches than `MAX_SEARCHES` take longer than that.
    """
    # Three kinds of paths can collide with an arrived path: a path of the same folded name, a file
    # with the folded name of a directory above it, and any path below its own folded name. A line
    # of the manifest ends the path with a NUL, so each kind is found by searching the lowered text
    # for the name between a line end and a NUL or a slash. `bytes.lower` does not fold letters
    # outside of ASCII, so every line with such a letter is a candidate too.
    folded = {fold(path) for path in arrived}
    above = {folder for path in folded for folder in _folders(path)}
    if 2 * len(folded) + len(above) > MAX_SEARCHES:
        yield from map(_manifest_path, text.split(b"\n")[:-1])
        return
    names = sorted(folded | above)
    needles = [f"\n{name}\0".encode("utf-8", "surrogateescape") for name in names]
    # A single path below a file is enough.
    needles += [f"\n{name}/".encode("utf-8", "surrogateescape") for name in sorted(folded)]
    lowered = b"\n" + text.lower()
    lines: set[bytes] = set()
    for needle in needles:
        start = lowered.find(needle)
        while start != -1:
            lines.add(text[start : text.index(b"\n", start)])
            start = -1 if needle.endswith(b"/") else lowered.find(needle, start + 1)
    if not text.isascii():
        # bytes.lower folds only ASCII.
        lines.update(line for line in text.split(b"\n") if not line.isascii())
    yield from map(_manifest_path, sorted(lines))


def _manifest_path(line: bytes) -> str:
    return line[: line.index(b"\0")].decode("utf-8", "surrogateescape")


def collisions(arrived: Iterable[str], manifest: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Find the arrived paths whose folded name is also the folded name of another path.

    A file also collides with a directory. Two directories (`Doc/a`, `doc/b`) do not collide: they
    become a single directory, and nothing is lost.
    """
    wanted = {}
    for path in arrived:
        wanted[fold(path)] = path
    # The directories above the new paths: a file may have the same name as such a directory.
    above = {folder for folded in wanted for folder in _folders(folded)}
    matching: dict[str, list[str]] = {}
    files_as_folders: dict[str, str] = {}
    folders_as_files: dict[str, str] = {}
    for path in manifest:
        folded = fold(path)
        if folded in wanted:
            matching.setdefault(folded, []).append(path)
        elif folded in above:
            files_as_folders[folded] = path
        for folder in _folders(folded):
            if folder in wanted:
                folders_as_files[folder] = path
    for paths in matching.values():
        yield from ((other, paths[0]) for other in paths[1:])
    for folded, path in wanted.items():
        if folded not in matching:
            continue  # this head does not have it any more
        if folded in folders_as_files:
            yield path, folders_as_files[folded]
        for folder in _folders(folded):
            if folder in files_as_folders:
                yield path, files_as_folders[folder]


def fold(path: str) -> str:
    """Return the name that a case-insensitive file system compares for a path."""
    if path.isascii():
        return path.lower()
    # macOS also takes both ways to write an accented letter for the same name.
    return unicodedata.normalize("NFC", path.casefold())


def _folders(path: str) -> Iterator[str]:
    end = path.find("/")
    while end != -1:
        yield path[:end]
        end = path.find("/", end + 1)


class NoSymlinks(Policy):
    """A link may point out of the working copy, and Windows has none."""

    name: ClassVar[str] = "no-symlinks"
    summary: ClassVar[str] = "no symbolic links"
    applies_to: ClassVar[AppliesTo] = "added changesets"

    def check(self, push: Push) -> Iterator[str]:
        """Check the flags in the manifest."""
        for changeset in push.added:
            for entry in push.entries(changeset):
                if entry.kind == "link":
                    yield (
                        f"{changeset} has {shown(entry.path)}, a symbolic link: replace it by a "
                        "file (hg commit --amend)"
                    )


class NoSubrepositories(Policy):
    """A subrepository makes every clone depend on another server."""

    name: ClassVar[str] = "no-subrepositories"
    summary: ClassVar[str] = "no subrepositories (.hgsub, .hgsubstate)"
    applies_to: ClassVar[AppliesTo] = "added changesets"

    def check(self, push: Push) -> Iterator[str]:
        """Find the two files that hg keeps subrepositories in."""
        for changeset in push.added:
            for entry in push.entries(changeset):
                if entry.path in _SUBREPOSITORIES:
                    yield (
                        f"{changeset} has {entry.path}: no subrepositories here; take the file "
                        "out of the history (hg forget, then hg commit --amend)"
                    )
