"""Changesets of a repository as a compressed changegroup, for messages and for the source."""

from __future__ import annotations

import itertools
import os
import threading
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from mercurial import changegroup, error, extensions, phases
from mercurial import ui as ui_module
from mercurial.repo import factory

from hgfleet.hg import repository_settings
from hgfleet.replication.source.requests import RefusedError, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

VERSION: Final = b"03"
COMPRESSION: Final = b"GZ"
"""Mercurial's name of zlib."""

LEVEL: Final = 1
"""Level of zlib: hosts are near each other, so processor time costs more than the network."""

PIECE: Final = 64 * 1024
"""Bytes of uncompressed data between two answers of the compressor."""

_KEPT: Final = b"pinned_store"
"""Extension with which a reader keeps the store that it opened during a storage upgrade."""

_opening: Final = threading.Lock()


def new_ui(hgrc: Path) -> Any:
    """Return a ui with a host's configuration, with only the extension for readers.

    Hooks and rules concern sessions of users, but this process reads for other hosts.
    """
    # Not `ui.load()`, which would also read files of the account and of the system.
    ui = ui_module.ui()
    repository_settings.skip(ui)
    if hgrc.exists():
        ui.readconfig(os.fsencode(hgrc), trust=True)
    for name, _ in ui.configitems(b"extensions"):
        if b":" not in name and name != _KEPT:
            ui.setconfig(b"extensions", name, b"!", b"hgfleet")
    for section, name, value in (
        (b"ui", b"interactive", b"no"),
        (b"ui", b"quiet", b"yes"),
        # Otherwise Mercurial warns of the markers in a repository, and accepts none.
        (b"experimental", b"evolution", b"all"),
    ):
        ui.setconfig(section, name, value, b"hgfleet")
    return ui


def open_repository(ui: Any, path: Path) -> Any:
    """Open a repository with all its changesets, hidden changesets included."""
    # Extensions are loaded with the first repository, into variables of Mercurial's modules.
    with _opening:
        extensions.loadall(ui)
        return factory.repository(ui, os.fsencode(path)).unfiltered()


def revisions(whole: Any, selection: Selection) -> tuple[list[int], list[int]]:
    """Return the revisions of a selection, in order, and the heads of the mirror's revisions.

    Hidden and secret changesets count: a mirror is a whole copy, and they are hidden and secret
    there as well. Raises RefusedError for changesets that the repository does not have.
    """
    log = whole.changelog
    if selection.nodes:
        chosen = set(_known(whole, selection.nodes))
        above = {parent for number in chosen for parent in log.parentrevs(number)} - chosen - {-1}
        return sorted(chosen), sorted(above)
    common = _known(whole, selection.common)
    missing = log.findmissingrevs(common or [-1], _known(whole, selection.heads))
    return sorted(missing), common


def _known(whole: Any, nodes: Iterable[str]) -> list[int]:
    index = whole.changelog.index
    numbers = []
    for node in nodes:
        number = index.get_rev(bytes.fromhex(node))
        if number is None:
            raise RefusedError(
                404, f"changeset {node} is no longer in the repository; resync the repository"
            )
        numbers.append(number)
    return numbers


def stream(whole: Any, selection: Selection, level: int = LEVEL) -> Iterator[bytes]:
    """Yield the pieces of a compressed changegroup; raises RefusedError before the first."""
    made = _compressed(_pieces(whole, selection), level)
    # The first piece is computed before the return, so that early errors are raised here.
    return itertools.chain((next(made),), made)


def add(repo: Any, tr: Any, data: BinaryIO) -> None:
    """Add the changesets of a compressed changegroup to a repository; their phase is draft.

    Raises the errors of Mercurial.
    """
    unpacker = changegroup.getunbundler(VERSION, data, COMPRESSION)
    # "pull": with "push" the repository's own setting would decide about phases.
    unpacker.apply(repo, tr, b"pull", b"replication", targetphase=phases.draft)


def _pieces(whole: Any, selection: Selection) -> Iterator[bytes]:
    """Encode a selection; every changegroup of replication is made here."""
    numbers, above = revisions(whole, selection)
    log = whole.changelog
    common = log.ancestors(above, inclusive=True) if above else set()
    if any(number in common for number in numbers):
        raise RefusedError(
            404,
            "the changesets of the push have later changesets between them; resync the repository",
        )
    packer = changegroup.getbundler(VERSION, whole)
    # The fast way takes all revisions of each file, which is only right for the whole repository.
    made: Iterator[bytes] = packer.generate(
        common, [log.node(number) for number in numbers], len(numbers) == len(log), b"replication"
    )
    return made


def _compressed(pieces: Iterable[bytes], level: int) -> Iterator[bytes]:
    squeeze = zlib.compressobj(level)
    waiting: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            waiting.append(squeeze.compress(piece))
            size += len(piece)
            if size >= PIECE and (made := b"".join(waiting)):
                yield made
                waiting, size = [], 0
    except (error.Error, error.StorageError) as problem:
        raise RefusedError(500, f"Mercurial says: {text(problem)}") from problem
    yield b"".join((*waiting, squeeze.flush()))


def text(problem: BaseException) -> str:
    """Return the sentence of an error of Mercurial."""
    if isinstance(problem, error.Error):
        return bytes(problem).decode("utf-8", "replace")
    return str(problem)
