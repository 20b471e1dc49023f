"""The history that hostile requests meet: many changesets, a wide folder, large files.

    python -m testing.bench.hostile_history REPOSITORY CHANGESETS

Runs with any Python that has Mercurial; `hostile.py` sends it to a host. It writes revlogs
in one transaction: 100,000 changesets take two and a half minutes on a busy machine, where
`hg debugbuilddag --new-file` takes more than fifteen, because each of its manifests is larger than
the last.

The manifests of this history stay small until its last changesets, which make the tip expensive
(proportionally less so below 10,000 changesets):

| revision from the end | what it adds                                          |
| --------------------- | ----------------------------------------------------- |
| 4                     | `f` gets 100,000 lines, each of its own               |
| 3                     | 50,000 files in the folder `wide`                     |
| 2                     | `large.txt` of 48 MB, and `large.bin` of 16 MB        |
| 1                     | another line in `f`                                   |

Every second changeset before them changes `f`, so this file has half as many revisions.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mercurial import hg, metadata, phases
from mercurial import ui as ui_module

if TYPE_CHECKING:
    from collections.abc import Mapping

LAST: Final = 4
USERS: Final = (b"alice", b"bob", b"carol")
WORDS: Final = (b"branch", b"bundle", b"cache", b"client", b"file", b"graph", b"index", b"merge")
WHOLE: Final = 10_000
"""Number of changesets of a history that is as expensive as the bars suppose."""

START: Final = 1_577_836_800
"""2020-01-01 00:00 UTC; each changeset is ten minutes younger than its parent."""


@dataclass(frozen=True)
class Shape:
    """How expensive the last changesets are."""

    lines: int = 100_000
    wide_files: int = 50_000
    large_text_bytes: int = 48_000_000
    large_binary_bytes: int = 16_000_000

    @classmethod
    def of(cls, changesets: int) -> Shape:
        """Return the shape of a history: proportionally less below 10,000 changesets."""
        share = min(1.0, changesets / WHOLE)
        sizes = (cls.lines, cls.wide_files, cls.large_text_bytes, cls.large_binary_bytes)
        return cls(*(int(size * share) for size in sizes))


class _Writer:
    """Appends changesets, as a line of history, to an empty repository."""

    def __init__(self, repository: Any, transaction: Any) -> None:
        self._repository = repository
        self._transaction = transaction
        self._changelog = repository.changelog
        self._manifests = repository.manifestlog
        self._null = repository.nullid
        self._tip = self._null
        self._manifest = self._manifests[self._null]
        self._files: dict[bytes, bytes] = {}
        self.count = 0

    def commit(self, contents: Mapping[bytes, bytes], text: bytes) -> None:
        """Append a changeset that sets these files."""
        number = self.count
        manifest = self._manifest.copy()
        files = metadata.ChangingFiles()
        for path, content in sorted(contents.items()):
            before = self._files.get(path, self._null)
            node = self._repository.file(path, writable=True).add(
                content, {}, self._transaction, number, before, self._null
            )
            manifest.read()[path] = self._files[path] = node
            (files.mark_added if before == self._null else files.mark_touched)(path)
        stored = manifest.write(
            self._transaction,
            number,
            self._manifest.node(),
            self._null,
            sorted(contents),
            [],
        )
        self._manifest = self._manifests[stored]
        user, date = USERS[number % len(USERS)] + b"@example.org", (START + 600 * number, 0)
        self._tip = self._changelog.add(
            stored, files, text, self._transaction, self._tip, self._null, user, date, {}
        )
        self.count += 1


def write(destination: str, changesets: int, shape: Shape = Shape()) -> None:
    """Give an empty repository so many public changesets."""
    ui = ui_module.ui.load()
    ui.setconfig(b"phases", b"new-commit", b"public", b"bench")
    repository = hg.repository(ui, destination.encode())
    if len(repository):
        raise SystemExit(f"{destination} has {len(repository):,} changesets, expected none")
    chance = random.Random(1)
    with repository.lock(), repository.transaction(b"bench") as transaction:
        writer = _Writer(repository, transaction)
        lines = [b"line %d\n" % number for number in range(40)]
        while writer.count < changesets - LAST:
            number = writer.count
            words = b" ".join(chance.choices(WORDS, k=6))
            line = b"%d %s\n" % (number, words)
            if number % 2 == 0:
                lines[number // 2 % len(lines)] = line
                edit = {b"f": b"".join(lines)}
            else:
                edit = {b"source/%d/part.txt" % (number % 20): line}
            writer.commit(edit, b"%s: change %d" % (words, number))
        _make_dear(writer, shape, chance)
        phases.registernew(repository, transaction, phases.public, range(writer.count))
    repository.updatecaches()


def _make_dear(writer: _Writer, shape: Shape, chance: random.Random) -> None:
    """Append the last changesets."""
    content = b"".join(b"line %d of many\n" % number for number in range(shape.lines))
    writer.commit({b"f": content}, b"many lines")
    wide = {b"wide/%05d.txt" % number: b"%d\n" % number for number in range(shape.wide_files)}
    writer.commit(wide, b"many files")
    line = b"the same line again and again, as logs and dumps have it\n"
    large = {
        b"large.txt": line * (shape.large_text_bytes // len(line)),
        b"large.bin": chance.randbytes(shape.large_binary_bytes),
    }
    writer.commit(large, b"large files")
    writer.commit({b"f": content + b"the last line\n"}, b"one line")


def main() -> None:
    """Write the history and print how long it took."""
    destination, changesets = sys.argv[1:]
    started = time.perf_counter()
    write(destination, int(changesets), Shape.of(int(changesets)))
    print(f"{destination}: {int(changesets):,} changesets in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
