"""A running repository brought back to a restored state, by ordinary transactions.

Changesets of the restored copy are added, then those that it does not have are removed. Both are
records of the push log, so the log goes on, mirrors follow, and the removed changesets stay in a
bundle below `.hg/strip-backup`. A copy that took the place of the repository would end its log
earlier than those of the mirrors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup.restores import history
from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.registry.model.repository_hgrc import configure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.backup.restores.history import Difference, History
    from hgfleet.registry.model.repository_hgrc import Settings

VERSION: Final = b"03"
"""Of the changegroup: it has the flags of revisions."""


def take(
    running: Path, restored: Path, hgrc: Path, operator: str, settings: Settings
) -> Difference:
    """Give a running repository the changesets, phases and bookmarks of a copy; return the change.

    Pushes wait meanwhile. The caller has the rights of the owner, and began with more: hg gets the
    settings of the repository from the registry, and reads none in it. Raises TemporaryError where
    pushes hold the lock, HostError where the result differs or Mercurial refuses.
    """
    # Read by core when it loads the configuration, and by the extensions at each transaction.
    os.environ.update(HGRCPATH=str(hgrc), HGPLAIN="1", HGFLEET_USER=f"operator:{operator}")
    from mercurial import ui as ui_module

    from hgfleet.hg import repository_settings

    ui = ui_module.ui.load()
    repository_settings.skip(ui)
    configure(ui, settings)
    found = bring(ui, running, restored)
    _check(_open(ui, running), _open(ui, restored))
    return found


def bring(ui: Any, target: Path, source: Path, *, keep: bool = True) -> Difference:
    """Give a repository the changesets, their phases and the bookmarks of another one.

    `keep` leaves removed changesets in a bundle. Raises TemporaryError and HostError.
    """
    from mercurial import encoding, error

    _prepare(ui)
    try:
        copy = _open(ui, source)
        repo = _open(ui, target)
        with repo.wlock(), repo.lock():
            there = _history(copy)
            found = history.difference(_history(repo), there)
            _add(repo, copy, there, found)
            _remove(ui, repo, found, keep=keep)
    except error.LockError as problem:
        raise TemporaryError(f"{target}: pushes hold its lock; try again") from problem
    except (error.Error, error.StorageError) as problem:
        told = bytes(problem) if isinstance(problem, error.Error) else str(problem).encode()
        text = encoding.fromlocal(told).decode("utf-8", "replace")
        raise HostError(
            f"{target}: Mercurial cannot take the state of {source}: {text}"
        ) from problem
    return found


def heads(folder: Path) -> list[str]:
    """Return the heads of a repository, hidden ones included, without any configuration."""
    from mercurial import ui as ui_module

    ui = ui_module.ui()
    _prepare(ui)
    return list(history.heads(_history(_open(ui, folder))))


def _prepare(ui: Any) -> None:
    from mercurial import extensions

    # Messages of core are about its own steps; what is refused comes as an exception.
    ui.setconfig(b"ui", b"quiet", b"yes", b"restore")
    ui.setconfig(b"ui", b"interactive", b"no", b"restore")
    ui.setconfig(b"experimental", b"evolution", b"all", b"restore")
    extensions.loadall(ui)


def _open(ui: Any, folder: Path) -> Any:
    from mercurial.repo import factory

    return factory.repository(ui.copy(), os.fsencode(folder)).unfiltered()


def _history(repo: Any) -> History:
    log = repo.changelog
    return {
        log.node(number).hex(): tuple(
            log.node(parent).hex() for parent in log.parentrevs(number) if parent >= 0
        )
        for number in log
    }


def _add(repo: Any, copy: Any, there: History, found: Difference) -> None:
    """Add the changesets that are missing, with their phases, and set the bookmarks of the copy.

    `there` is the history of the copy.
    """
    from mercurial import changegroup, discovery, phases

    marks = dict(copy._bookmarks)  # noqa: SLF001  (core has no other name for them)
    if not found.missing and marks == dict(repo._bookmarks):  # noqa: SLF001
        return
    with repo.transaction(b"restore") as tr:
        if found.missing:
            nodes = [bytes.fromhex(node) for node in found.missing]
            outgoing = discovery.outgoing(
                copy, commonheads=_common(there, found), ancestorsof=copy.changelog.heads()
            )
            pieces = changegroup.makechangegroup(copy, outgoing, VERSION, b"restore")
            # "pull": a push would have the repository's own setting decide about phases.
            pieces.apply(repo, tr, b"pull", b"restore", targetphase=phases.draft)
            for phase, members in _by_phase(copy, nodes):
                if phase < phases.draft:
                    phases.advanceboundary(repo, tr, phase, members)
                elif phase > phases.draft:
                    phases.retractboundary(repo, tr, phase, members)
        gone: list[tuple[bytes, bytes | None]] = [
            (name, None)
            for name in repo._bookmarks  # noqa: SLF001
            if name not in marks
        ]
        repo._bookmarks.applychanges(repo, tr, [*gone, *marks.items()])  # noqa: SLF001


def _common(there: History, found: Difference) -> list[bytes]:
    missing = set(found.missing)
    shared = {node: above for node, above in there.items() if node not in missing}
    return [bytes.fromhex(node) for node in history.heads(shared)]


def _by_phase(copy: Any, nodes: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    found: dict[int, list[bytes]] = {}
    for node in nodes:
        found.setdefault(copy[node].phase(), []).append(node)
    yield from sorted(found.items())


def _remove(ui: Any, repo: Any, found: Difference, *, keep: bool) -> None:
    from mercurial import repair

    if found.roots:
        nodes = [bytes.fromhex(node) for node in found.roots]
        repair.strip(ui, repo, nodes, backup=keep, topic=b"restore")


def _check(repo: Any, copy: Any) -> None:
    """Compare the result with the copy, as readers see both. Raises HostError."""
    for name, one, other in (
        ("changesets", set(_history(repo)), set(_history(copy))),
        ("visible heads", *(set(one.filtered(b"visible").heads()) for one in (repo, copy))),
        ("bookmarks", *(set(one._bookmarks.items()) for one in (repo, copy))),  # noqa: SLF001
    ):
        if one != other:
            raise HostError(
                f"{os.fsdecode(repo.root)}: it has other {name} than the restored copy, which "
                "stays beside it; a push came, or later obsolescence markers hide changesets"
            )
