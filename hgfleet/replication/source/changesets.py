"""Changesets of a repository as a compressed changegroup, which messages and the source have."""

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
"""Of zlib: hosts are near each other, and higher levels cost more processor time than network."""

PIECE: Final = 64 * 1024
"""Bytes of uncompressed data between two answers of the compressor."""

_KEPT: Final = b"pinned_store"
"""A reader keeps the store that it opened while a storage upgrade exchanges it."""

_opening: Final = threading.Lock()


def new_ui(hgrc: Path) -> Any:
    """Return a ui with a host's configuration, of whose extensions those of readers alone load.

    Hooks and rules concern sessions of users, and this process reads for other hosts.
    """
    # The configuration's own code: a ui that loads reads files of the account and of the system.
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
        # Core warns of the markers in a repository, and takes none in, without it.
        (b"experimental", b"evolution", b"all"),
    ):
        ui.setconfig(section, name, value, b"hgfleet")
    return ui


def open_repository(ui: Any, path: Path) -> Any:
    """Open a repository with all its changesets, hidden ones included."""
    # Extensions are loaded with the first repository, into variables of core's modules.
    with _opening:
        extensions.loadall(ui)
        return factory.repository(ui, os.fsencode(path)).unfiltered()


def revisions(whole: Any, selection: Selection) -> tuple[list[int], list[int]]:
    """Return the revisions of a selection, in order, and the heads of those that the mirror has.

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
    found = []
    for node in nodes:
        number = index.get_rev(bytes.fromhex(node))
        if number is None:
            raise RefusedError(
                404, f"changeset {node} is not in the repository any more; resync the repository"
            )
        found.append(number)
    return found


def stream(whole: Any, selection: Selection, level: int = LEVEL) -> Iterator[bytes]:
    """Yield the pieces of a compressed changegroup; raises RefusedError before the first."""
    made = _compressed(_pieces(whole, selection), level)
    # Computed before the return, so early errors are told.
    return itertools.chain((next(made),), made)


def add(repo: Any, tr: Any, data: BinaryIO) -> None:
    """Add the changesets of a compressed changegroup to a repository; their phase is draft.

    Raises what Mercurial raises.
    """
    unpacker = changegroup.getunbundler(VERSION, data, COMPRESSION)
    # "pull": a push would have the repository's own setting decide about phases.
    unpacker.apply(repo, tr, b"pull", b"replication", targetphase=phases.draft)


def _pieces(whole: Any, selection: Selection) -> Iterator[bytes]:
    """Encode a selection; every changegroup of replication is made here."""
    numbers, above = revisions(whole, selection)
    log = whole.changelog
    common = log.ancestors(above, inclusive=True) if above else set()
    if any(number in common for number in numbers):
        raise RefusedError(
            404,
            "the changesets of the push have others between them, which came later; resync the "
            "repository",
        )
    packer = changegroup.getbundler(VERSION, whole)
    # The fast way takes each revision of a file from its file: right for the whole repository only.
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
