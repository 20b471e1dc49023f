"""Tags that a changeset sets, moves or removes, from the texts of `.hgtags`. Pure functions.

A line of `.hgtags` is a node and a name. The last line of a name counts, and the lines before it
are nodes that it supersedes, so that the tags of all heads can be merged
(mercurial.tags.findglobaltags). A changeset moves a tag if the tag's lines differ from the lines in
each parent. A merge also moves a tag if it takes the tag's lines from one parent although the other
parent had changed them: the other parent is no head any more, and its tag is gone or back at a
former node.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE: Final = ".hgtags"

NULL: Final = bytes(20)
"""The changeset of a removed tag."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag that a changeset sets, moves or removes."""

    changeset: str
    """40 hexadecimal digits, of the changeset whose `.hgtags` has it."""
    stored: bytes
    """The bytes of its name."""
    is_removed: bool = False

    @property
    def name(self) -> str:
        """Its name, with replacements for undecodable bytes."""
        return self.stored.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TagMove:
    """A tag that gives another changeset after a transaction, for any reason."""

    stored: bytes
    """The bytes of its name."""
    former: str | None
    """40 hexadecimal digits; None for a new tag."""
    now: str | None

    @property
    def name(self) -> str:
        """Its name, with replacements for undecodable bytes."""
        return self.stored.decode("utf-8", "replace")


def nodes_by_name(text: bytes) -> dict[bytes, list[bytes]]:
    """Return the nodes of each tag's lines in order; malformed lines are skipped, as in core."""
    result: dict[bytes, list[bytes]] = {}
    for name, node in filter(None, map(entry, text.splitlines())):
        result.setdefault(name, []).append(node)
    return result


def entry(line: bytes) -> tuple[bytes, bytes] | None:
    """Return the name and the node of a line, None if it is malformed."""
    digits, blank, name = line.partition(b" ")
    if not blank:
        return None
    try:
        return name.strip(), binascii.unhexlify(digits)
    except binascii.Error:
        return None


def moved(
    changeset: str, text: bytes, parents: Sequence[bytes], ancestor: bytes = b""
) -> Iterator[Tag]:
    """Yield the tags that a changeset with this `.hgtags` moves; `parents` are the texts before.

    `ancestor` is the `.hgtags` of the common ancestor of both parents of a merge.
    """
    if len(parents) == 1 and text.startswith(parents[0]) and parents[0][-1:] in (b"", b"\n"):
        # Nearly always, lines are added at the end. An import of 1,000 tags reads each line once.
        for name, nodes in nodes_by_name(text[len(parents[0]) :]).items():
            yield Tag(changeset, name, is_removed=nodes[-1] == NULL)
        return
    if len(parents) == 2 and sorted(parents) == sorted((text, ancestor)):
        # Most merges: only one side has changed the file.
        return
    # The nodes of a tag's lines are its history. The changeset moves the tag if its history differs
    # from the history in every parent. If a parent has the same history, the tag came from that
    # parent. A merge moves it even so if the other parent had changed the history since the common
    # ancestor, because the merge drops that change.
    now, base = nodes_by_name(text), nodes_by_name(ancestor)
    before = [nodes_by_name(parent) for parent in parents]
    names = dict.fromkeys([*now, *(name for known in before for name in known)])
    for name in names:
        lines = now.get(name, [])
        others = [known.get(name, []) for known in before if known.get(name, []) != lines]
        if len(others) == len(before) or any(other != base.get(name, []) for other in others):
            yield Tag(changeset, name, is_removed=not lines or lines[-1] == NULL)
