"""The tags that the `.hgtags` of several heads give together. Pure functions of their texts.

Core reads the texts from the oldest head's to the newest one's (mercurial.tags.findglobaltags): of
two texts with different lines for a tag, the newer one counts, unless its changeset is one that the
other text supersedes. Core parses each line of each text: 36 s for a push to one of 2,000 heads,
each with another text of up to 5,000 tags. Here a line is parsed in the first text that has it, and
passed over in others as long as no text has another line of its name (1.9 s).
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
        # Of the names that have one line in all texts so far, and once in each: they stand for it.
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
        lines = text.splitlines()
        if len(set(lines)) < len(lines):
            twice = (line for line, count in Counter(lines).items() if count > 1)
            self._contest(self._plain[line] for line in twice if line in self._plain)
        found = self._parsed(lines)
        contested = [name for name in found if name in self._line]
        if contested:
            self._contest(contested)
            found = self._parsed(lines)
        for name, entries in found.items():
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
        """Return the lines that nothing stands for, and the node of each, by the tag's name."""
        found: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for line in [line for line in lines if line not in self._plain]:
            parsed = entry(line)
            if parsed is not None:
                found.setdefault(parsed[0], []).append((line, parsed[1]))
        return found

    def _contest(self, names: Iterable[bytes]) -> None:
        for name in list(names):
            del self._plain[self._line.pop(name)]


def _newer(
    nodes: Sequence[bytes], former: bytes, superseded: list[bytes]
) -> tuple[bytes, list[bytes]]:
    """Return the node of a tag and those that it supersedes, after a text with these nodes."""
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
    """Yield the tags that other texts give another changeset, each with the former and the new one.

    `read` returns the text of a revision of `.hgtags`. Those that both begin with are read once.
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
