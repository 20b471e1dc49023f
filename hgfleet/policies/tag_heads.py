"""Tags that the `.hgtags` of several heads give together. Pure functions of their texts.

Core reads the texts from the oldest head's to the newest head's (mercurial.tags.findglobaltags). If
two texts have different lines for a tag, the newer text counts, unless the other text supersedes
its changeset. Core parses each line of each text: 36 s for a push to a repository of 2,000 heads,
each with another text of up to 5,000 tags. Here a line is parsed in the first text that has it, and
skipped in other texts as long as no text has another line for the same tag (1.9 s).
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from hgfleet.policies.tags import NULL, entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class HeadTags:
    """Tags of the texts so far, with the changesets that each of them supersedes."""

    def __init__(self) -> None:
        self._tags: dict[bytes, tuple[bytes, list[bytes]]] = {}
        # Tags whose only line is the same in all texts so far. Such a line needs no further
        # parsing.
        self._line: dict[bytes, bytes] = {}
        self._plain: dict[bytes, bytes] = {}

    def copy(self) -> HeadTags:
        """Return another object with the same texts."""
        made = HeadTags()
        made._tags, made._line, made._plain = (
            self._tags.copy(),
            self._line.copy(),
            self._plain.copy(),
        )
        return made

    def add(self, text: bytes) -> None:
        """Add the `.hgtags` of a head that is newer than the others."""
        # Most heads have the same line for most tags. A line is plain if it is the only line of its
        # tag in every text so far. A newer text that repeats a plain line changes nothing, so
        # `_parsed` skips plain lines. A tag is contested, and its line no longer plain, when a text
        # has the line twice (the order of a tag's lines counts) or has another line for the tag.
        # From then on all lines of the tag are parsed. That includes the lines of this text that
        # the first call of `_parsed` skipped, hence the second call.
        lines = text.splitlines()
        if len(set(lines)) < len(lines):
            twice = (line for line, count in Counter(lines).items() if count > 1)
            self._contest(self._plain[line] for line in twice if line in self._plain)
        parsed = self._parsed(lines)
        contested = [name for name in parsed if name in self._line]
        if contested:
            self._contest(contested)
            parsed = self._parsed(lines)
        for name, entries in parsed.items():
            nodes = [node for _, node in entries]
            if name in self._tags:
                self._tags[name] = _newer(nodes, *self._tags[name])
                continue
            self._tags[name] = nodes[-1], nodes[:-1]
            if len(entries) == 1:
                line = entries[0][0]
                self._line[name], self._plain[line] = line, name

    def nodes(self) -> dict[bytes, bytes]:
        """Return the changeset of each tag, without tags that are removed."""
        return {name: node for name, (node, _) in self._tags.items() if node != NULL}

    def _parsed(self, lines: Iterable[bytes]) -> dict[bytes, list[tuple[bytes, bytes]]]:
        """Return the lines that have to be parsed, and the node of each, by the tag's name."""
        entries: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for line in [line for line in lines if line not in self._plain]:
            parsed = entry(line)
            if parsed is not None:
                entries.setdefault(parsed[0], []).append((line, parsed[1]))
        return entries

    def _contest(self, names: Iterable[bytes]) -> None:
        for name in list(names):
            del self._plain[self._line.pop(name)]


def _newer(
    nodes: Sequence[bytes], former: bytes, superseded: list[bytes]
) -> tuple[bytes, list[bytes]]:
    """Return a tag's node and the nodes that it supersedes, after a text with these nodes."""
    # As in core, the newer text wins unless the former text supersedes its node. The former text
    # supersedes the node if the node is in the former history, and if the newer text does not know
    # the former node or has the shorter history.
    node, history = nodes[-1], list(nodes[:-1])
    known = set(history)
    is_superseded = node != former and node in superseded
    if is_superseded and (former not in known or len(superseded) > len(history)):
        node = former
    history += [other for other in superseded if other not in known]
    return node, history


def moved(
    before: Sequence[bytes], now: Sequence[bytes], read: Callable[[bytes], bytes]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield the tags whose changeset differs between two lists of texts, with both changesets.

    `read` returns the text of a revision of `.hgtags`. The revisions at the start of both lists are
    read once.
    """
    pairs = zip(before, now, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    former = HeadTags()
    for revision in before[:shared]:
        former.add(read(revision))
    later = former.copy()
    for tags, more in ((former, before[shared:]), (later, now[shared:])):
        for revision in more:
            tags.add(read(revision))
    old, new = former.nodes(), later.nodes()
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)
