"""Made-up repositories: the same seed and size give the same changesets, node for node.

    python -m testing.bench.repos DESTINATION --changesets 2000 --seed 1
    python -m testing.bench.repos --kept --changesets 100000       # says where; made once

The history is realistic work for servers: a tree of files in folders, edits of several sizes, topic
branches that are merged back, named branches, tags, bookmarks. It needs no working copy and no
subprocess. It slows down as history grows: 48,000 changesets took ten minutes on a busy machine.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from mercurial import context, hg
from mercurial import ui as ui_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

USERS: Final = ("alice", "bob", "carol")
# fmt: off
WORDS: Final = (
    "branch", "bundle", "cache", "changeset", "client", "commit", "filter", "graph", "head",
    "index", "journal", "key", "lock", "manifest", "merge", "node", "object", "parent", "phase",
    "proxy", "push", "query", "replica", "revision", "server", "store", "stream", "tag", "tree",
)
# fmt: on
START: Final = 1_577_836_800
"""2020-01-01 00:00 UTC, in seconds; each changeset is some minutes younger than the last."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much history to make; the other numbers follow from the number of changesets."""

    changesets: int = 1000
    files: int = 200
    named_branches: int = 3
    bookmarks: int = 3
    tags: int = 5


OLD_FORMAT: Final = {
    "revlog-compression": "zlib",
    "sparse-revlog": "no",
    "usegeneraldelta": "no",
    "use-share-safe": "no",
}
"""Section [format] of a repository as Mercurial made them before 2016."""


def generate(
    destination: Path,
    size: Size = Size(),
    seed: int = 1,
    formats: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Make the repository and return the node of its tip; the folder must not exist yet."""
    ui = ui_module.ui.load()
    for name, value in formats.items():
        ui.setconfig(b"format", name.encode(), value.encode(), b"repos.py")
    for section, option, setting in (
        (b"ui", b"quiet", b"true"),
        (b"phases", b"publish", b"true"),
        (b"phases", b"new-commit", b"public"),
    ):
        ui.setconfig(section, option, setting, b"repos.py")
    repository = hg.repository(ui, bytes(destination), create=True)
    return _History(repository, size, random.Random(seed)).write()


KEPT: Final = Path(__file__).resolve().parents[2] / ".cache/bench"


def kept(size: Size, seed: int = 1, formats: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Return such a repository from the cache; make it if it is missing.

    Callers must not change it. 100,000 changesets take some minutes. The name contains a hash of
    this program, since the program determines the content.
    """
    shape = f"{size}{seed}{sorted(formats.items())}".encode() + Path(__file__).read_bytes()
    place = KEPT / f"{size.changesets}-{hashlib.sha256(shape).hexdigest()[:12]}"
    if not place.exists():
        new = place.with_name(f"{place.name}.{os.getpid()}.new")
        shutil.rmtree(new, ignore_errors=True)
        KEPT.mkdir(parents=True, exist_ok=True)
        generate(new, size, seed, formats)
        new.rename(place)
    return place


def append(destination: Path, changesets: int, seed: int) -> str:
    """Commit more changesets onto the tip of an existing repository; return the new tip."""
    repository = hg.repository(ui_module.ui.load(), bytes(destination))
    history = _History(repository, Size(changesets=changesets), random.Random(seed))
    return history.grow(repository[b"tip"].node())


class _History:
    def __init__(self, repository: Any, size: Size, chance: random.Random) -> None:
        self._repository = repository
        self._size = size
        self._chance = chance
        self._when = START
        self._made = 0
        self._contents: dict[bytes, list[bytes]] = {}

    def write(self) -> str:
        repository = self._repository
        with repository.wlock(), repository.lock(), repository.transaction(b"generate") as group:
            tip = self._commit([repository.nullid], self._first_files())
            left = self._size.changesets - 1
            branch_points = [tip]
            while left > 0:
                if left > 8 and self._made % 12 == 0:
                    tip, used = self._topic(tip)
                else:
                    tip, used = self._commit([tip], self._edits(self._paths())), 1
                left -= used
                branch_points.append(tip)
            heads = self._branch_heads(branch_points)
            tip = self._tag(tip, branch_points)
            marks = [*heads, tip][: self._size.bookmarks]
            repository._bookmarks.applychanges(  # core's own name
                repository,
                group,
                [(b"mark-%d" % number, node) for number, node in enumerate(marks)],
            )
        return str(tip.hex())

    def grow(self, tip: bytes) -> str:
        repository = self._repository
        self._when = int(repository[tip].date()[0])
        self._made = len(repository)
        with repository.wlock(), repository.lock(), repository.transaction(b"grow"):
            for _ in range(self._size.changesets):
                name = b"grown/file-%03d.txt" % self._chance.randrange(50)
                tip = self._commit([tip], {name: self._lines(5, 40)})
        return tip.hex()

    def _topic(self, base: bytes) -> tuple[bytes, int]:
        """Two to four changesets next to the main line, then a merge."""
        length = self._chance.randint(2, 4)
        folder = b"topics/%04d/" % self._made
        touched: dict[bytes, list[bytes]] = {}
        side = base
        for number in range(length):
            edit = {folder + b"part-%d.txt" % number: self._lines(5, 60)}
            touched.update(edit)
            side = self._commit([side], edit)
        main = self._commit([base], self._edits(self._paths()))
        return self._commit([main, side], touched, b"merge a topic"), length + 2

    def _branch_heads(self, points: list[bytes]) -> list[bytes]:
        heads = []
        for number in range(self._size.named_branches):
            base = points[len(points) * (number + 1) // (self._size.named_branches + 2)]
            name = b"release-%d" % (number + 1)
            edit = {b"VERSION": [b"%d.0\n" % (number + 1)]}
            heads.append(self._commit([base], edit, b"start " + name, name))
        return heads

    def _tag(self, tip: bytes, points: list[bytes]) -> bytes:
        lines = []
        for number in range(self._size.tags):
            node = points[len(points) * (number + 1) // (self._size.tags + 1)]
            lines.append(b"%s v%d\n" % (node.hex().encode(), number + 1))
        return self._commit([tip], {b".hgtags": lines}, b"tag the releases") if lines else tip

    def _first_files(self) -> dict[bytes, list[bytes]]:
        files = {}
        for number in range(self._size.files):
            folder = b"/".join(
                WORDS[(number // 10 + depth * 7) % len(WORDS)].encode()
                for depth in range(1 + number % 3)
            )
            files[b"%s/file-%04d.txt" % (folder, number)] = self._lines(10, 200)
        self._contents = dict(files)
        return files

    def _paths(self) -> list[bytes]:
        paths = list(self._contents)
        return [self._chance.choice(paths) for _ in range(self._chance.randint(1, 4))]

    def _edits(self, paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        edits = {}
        for path in paths:
            lines = list(self._contents[path])
            position = self._chance.randrange(len(lines))
            lines[position : position + self._chance.randint(0, 2)] = self._lines(1, 4)
            self._contents[path] = edits[path] = lines or self._lines(1, 4)
        return edits

    def _lines(self, least: int, most: int) -> list[bytes]:
        return [
            " ".join(self._chance.choices(WORDS, k=self._chance.randint(3, 12))).encode() + b"\n"
            for _ in range(self._chance.randint(least, most))
        ]

    def _commit(
        self,
        parents: list[bytes],
        files: dict[bytes, list[bytes]],
        message: bytes = b"",
        branch: bytes = b"default",
    ) -> bytes:
        repository = self._repository
        self._when += self._chance.randint(60, 7200)
        self._made += 1
        text = message or b"%s: %s" % (
            self._chance.choice(WORDS).encode(),
            " ".join(self._chance.choices(WORDS, k=6)).encode(),
        )

        def content(_repository: Any, commit: Any, path: bytes) -> Any:
            return context.memfilectx(_repository, commit, path, b"".join(files[path]))

        if branch == b"default" and parents[0] != repository.nullid:
            branch = repository[parents[0]].branch()
        commit = context.memctx(
            repository,
            [*parents, repository.nullid][:2],
            text,
            sorted(files),
            content,
            user=b"%s@example.org" % self._chance.choice(USERS).encode(),
            date=(self._when, 0),
            branch=branch,
        )
        node: bytes = commit.commit()
        return node


def main() -> None:
    """Make a repository and print how long it took."""
    parser = argparse.ArgumentParser(description="make a repository with a made-up history")
    parser.add_argument("destination", type=Path, nargs="?")
    parser.add_argument("--kept", action="store_true", help="in the cache of this checkout")
    parser.add_argument("--old-format", action="store_true", help="zlib, as before 2016")
    parser.add_argument("--changesets", type=int, default=Size().changesets)
    parser.add_argument("--files", type=int, default=Size().files)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.perf_counter()
    size = Size(changesets=options.changesets, files=options.files)
    formats = OLD_FORMAT if options.old_format else {}
    if options.kept == bool(options.destination):
        parser.error("either a destination or --kept")
    if options.kept:
        print(f"{kept(size, options.seed, formats)}: {time.perf_counter() - started:.1f} s")
        return
    tip = generate(options.destination, size, options.seed, formats)
    print(f"{options.destination}: tip {tip}, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
