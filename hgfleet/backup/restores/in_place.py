"""A running repository brought back to a restored state, by ordinary transactions.

Changesets of the restored copy are added, then changesets that the copy does not have are removed.
Both steps are records of the push log, so the log goes on, mirrors follow, and the removed
changesets stay in a bundle below `.hg/strip-backup`. If the copy replaced the repository, its push
log would end earlier than the push logs of the mirrors.
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
"""Version of the changegroup: from this version on it has the flags of revisions."""


def take(
    running: Path, restored: Path, hgrc: Path, operator: str, settings: Settings
) -> Difference:
    """Give a running repository the changesets, phases and bookmarks of a copy; return the change.

    Pushes wait until it is done. The caller has the rights of the owner, but began with more: so hg
    gets the settings of the repository from the registry, and reads none in it. Raises
    TemporaryError if pushes hold the lock, HostError if the result differs or Mercurial refuses.
    """
    # Mercurial reads them when it loads the configuration, the extensions at each transaction.
    os.environ.update(HGRCPATH=str(hgrc), HGPLAIN="1", HGFLEET_USER=f"operator:{operator}")
    from mercurial import ui as ui_module

    from hgfleet.hg import repository_settings

    ui = ui_module.ui.load()
    repository_settings.skip(ui)
    configure(ui, settings)
    change = bring(ui, running, restored)
    _check(_open(ui, running), _open(ui, restored))
    return change


def bring(ui: Any, target: Path, source: Path, *, keep: bool = True) -> Difference:
    """Give a repository the changesets, phases and bookmarks of another repository.

    `keep` leaves removed changesets in a bundle. Raises TemporaryError and HostError.
    """
    from mercurial import encoding, error

    _prepare(ui)
    try:
        copy = _open(ui, source)
        repo = _open(ui, target)
        with repo.wlock(), repo.lock():
            there = _history(copy)
            change = history.difference(_history(repo), there)
            _add(repo, copy, there, change)
            _remove(ui, repo, change, keep=keep)
    except error.LockError as problem:
        raise TemporaryError(f"{target}: pushes hold its lock; try again") from problem
    except (error.Error, error.StorageError) as problem:
        told = bytes(problem) if isinstance(problem, error.Error) else str(problem).encode()
        text = encoding.fromlocal(told).decode("utf-8", "replace")
        raise HostError(
            f"{target}: Mercurial cannot take the state of {source}: {text}"
        ) from problem
    return change


def heads(folder: Path) -> list[str]:
    """Return the heads of a repository, hidden heads included, without any configuration."""
    from mercurial import ui as ui_module

    ui = ui_module.ui()
    _prepare(ui)
    return list(history.heads(_history(_open(ui, folder))))


def _prepare(ui: Any) -> None:
    from mercurial import extensions

    # Mercurial's messages are about its own steps; a refusal comes as an exception.
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


def _add(repo: Any, copy: Any, there: History, change: Difference) -> None:
    """Add the missing changesets with their phases, and set the bookmarks of the copy.

    `there` is the history of the copy.
    """
    from mercurial import changegroup, discovery, phases

    marks = dict(copy._bookmarks)  # noqa: SLF001  (core has no other name for them)
    if not change.missing and marks == dict(repo._bookmarks):  # noqa: SLF001
        return
    with repo.transaction(b"restore") as tr:
        if change.missing:
            nodes = [bytes.fromhex(node) for node in change.missing]
            outgoing = discovery.outgoing(
                copy, commonheads=_common(there, change), ancestorsof=copy.changelog.heads()
            )
            pieces = changegroup.makechangegroup(copy, outgoing, VERSION, b"restore")
            # "pull": with "push" the repository's own setting would decide about phases.
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


def _common(there: History, change: Difference) -> list[bytes]:
    missing = set(change.missing)
    shared = {node: above for node, above in there.items() if node not in missing}
    return [bytes.fromhex(node) for node in history.heads(shared)]


def _by_phase(copy: Any, nodes: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    members: dict[int, list[bytes]] = {}
    for node in nodes:
        members.setdefault(copy[node].phase(), []).append(node)
    yield from sorted(members.items())


def _remove(ui: Any, repo: Any, change: Difference, *, keep: bool) -> None:
    from mercurial import repair

    if change.roots:
        nodes = [bytes.fromhex(node) for node in change.roots]
        repair.strip(ui, repo, nodes, backup=keep, topic=b"restore")


def _check(repo: Any, copy: Any) -> None:
    """Compare the result with the copy, as readers see both. Raises HostError."""
    for name, result, expected in (
        ("changesets", set(_history(repo)), set(_history(copy))),
        ("visible heads", *(set(side.filtered(b"visible").heads()) for side in (repo, copy))),
        ("bookmarks", *(set(side._bookmarks.items()) for side in (repo, copy))),  # noqa: SLF001
    ):
        if result != expected:
            raise HostError(
                f"{os.fsdecode(repo.root)}: it has other {name} than the restored copy, which was "
                "kept; a push came, or later obsolescence markers hide changesets"
            )
