"""A history whose archives fail, each in a different way.

    python -m testing.bench.hostile_failing REPOSITORY MEMORY_BYTES

Runs with any Python that has Mercurial; `hostile.py --phase failing` sends it to a host. It fills
the repository if it is empty, and prints the changeset of each way as JSON. MEMORY_BYTES is the
memory of a request in the web part.

| way                      | failure                                                    |
| ------------------------ | ---------------------------------------------------------- |
| date                     | no failure any more: a time in 2242, too late for a zip    |
| rot                      | the content of a file does not match its hash              |
| rot after the first byte | the same, behind a file of several megabytes               |
| censored                 | the content of a file was removed                          |
| censored behind a large  | the same, behind a file of several megabytes               |
| missing behind a large   | a file has no store, behind a file of several megabytes    |
| oversized                | a file above the memory, behind a file of several MB       |
| memory                   | a file of 3/4 of the memory, which is not enough to read it |
| many files               | the processor time, as predicted from the first files      |
| client gone              | nothing: the client leaves after the first byte            |
"""

from __future__ import annotations

import json
import random
import sys
from typing import TYPE_CHECKING, Any, Final

from mercurial import context, hg, initialization
from mercurial import ui as ui_module

if TYPE_CHECKING:
    from collections.abc import Mapping

FAR: Final = 2**33
"""A time in the year 2242, which is too large for the fields of a zip archive."""

LARGE: Final = 5 * 2**20
"""Size of a file of random bytes: its archive has begun before the next file is read.

The web part holds back the first 4 MiB of an archive (`hgfleet/web/rendering/answer_writer.py`).
"""

GONE: Final = "client gone"


def commit(repository: Any, text: str, files: Mapping[str, int], seconds: int = 0) -> str:
    """Commit files of random bytes as a new root, and return its node.

    A negative size makes a file of zeros. Unlike a client of hg, this accepts any time.
    """
    sizes = {name.encode(): size for name, size in files.items()}

    def content(repo: Any, changeset: Any, path: bytes) -> Any:
        size = sizes[path]
        data = bytes(-size) if size < 0 else random.Random(path).randbytes(size)
        return context.memfilectx(repo, changeset, path, data)

    made = context.memctx(
        repository,
        (repository.nullid, repository.nullid),
        text.encode(),
        sorted(sizes),
        content,
        user=b"hostile",
        # core checks only dates in text form; a pair of numbers is stored as it is.
        date=(seconds, 0),
    )
    return str(repository[repository.commitctx(made)].hex().decode())


def write(repository: Any, memory: int) -> None:
    """Fill an empty repository."""
    with repository.lock():
        commit(repository, "date", {"dated": 1000}, FAR)
        commit(repository, "rot", {"a": 1000, "rotten": 1000})
        commit(repository, "rot after the first byte", {"aa": LARGE, "torn": 1000})
        commit(repository, "censored", {"b": 1000, "censored": 1000})
        commit(repository, "oversized", {"bb": LARGE, "oversized": -memory - 2**20})
        commit(repository, "censored behind a large", {"bc": LARGE, "censored-too": 1000})
        commit(repository, "missing behind a large", {"bd": LARGE, "missing": 1000})
        commit(repository, "memory", {"be": LARGE, "memory": memory * 3 // 4})
        commit(repository, "many files", {f"many-{number}": LARGE // 2 for number in range(16)})
        commit(repository, GONE, {"c": 2 * LARGE, "d": 1000})
        for name in (b"rotten", b"torn"):
            path = b"data/%b.i" % name
            stored = bytearray(repository.svfs.read(path))
            stored[-1] ^= 255
            repository.svfs.write(path, bytes(stored))
        with repository.transaction(b"censor") as transaction:
            for name in (b"censored", b"censored-too"):
                log = repository.file(name)
                log.censorrevision(transaction, [log.node(0)], tombstone=b"removed")
        repository.svfs.unlink(b"data/missing.i")


def opened(path: str) -> Any:
    """Open a repository."""
    initialization.init()
    return hg.repository(ui_module.ui.load(), path.encode())


def main() -> None:
    """Fill the repository if it is empty, and print the changesets."""
    path, memory = sys.argv[1:]
    repository = opened(path)
    if not len(repository):
        write(repository, int(memory))
        repository = opened(path)
    nodes = {
        repository[number].description().decode(): repository[number].hex().decode()
        for number in repository
    }
    if GONE not in nodes:
        raise SystemExit(f"{path}: has other changesets, expected none; name an empty repository")
    print(json.dumps(nodes))


if __name__ == "__main__":
    main()
