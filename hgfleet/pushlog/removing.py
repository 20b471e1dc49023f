"""Removal of changesets with its record, and the end of a removal that was killed.

Only extensions import this module; it needs Mercurial. See `removal.py`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mercurial import bundle2, dagop, encoding, error, exchange, repair

from hgfleet.core import files
from hgfleet.core.errors import PushlogError
from hgfleet.hg import opened_identity
from hgfleet.hg.hooks import text
from hgfleet.pushlog import facts, log_file, reading, recording, removal, shared, writable, writing
from hgfleet.pushlog.record import Heads
from hgfleet.pushlog.removal import Intent, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hgfleet.pushlog.record import Node

_NAME: Final = removal.NAME.encode("ascii")
_FOLDER: Final = b"strip-backup"
"""Folder of core, in `.hg`."""

_KEPT: Final = b"-temp.hg"
_OWN: Final = b".pushlog"
_MODE: Final = 0o640


def strip(repo: Any, nodes: Sequence[bytes], original: Callable[[], Any]) -> Any:
    """Strip, and then record the removal, while the caller holds the lock.

    Core removes all changesets from the first one on, and adds the changesets that stay again, each
    step in a transaction: records of these would show removals and pushes that no reader saw.

    First, an earlier removal that was killed is completed or withdrawn. Then the intent goes to the
    disk: it has the heads before this removal, and a digest of the heads after it. Core strips, and
    its transactions leave no record. The record of the removal follows in a transaction of its own,
    unless the store had departed from its log before. The intent is removed last. If core fails
    with the heads as before, the intent is removed, too. After any other failure, or a kill, it
    stays, and the next writer learns from the heads how far the removal came (`removal.decide`).
    """
    _settle_before(repo)
    if repo.svfs.exists(_NAME):
        # A host that takes no changes refuses this removal, too.
        return original()
    foreign = recording.foreign(repo)
    intent = _intent(repo, nodes, is_recorded=foreign is None)
    with _own(repo):
        _write(repo, intent)
        try:
            with _stripping(repo):
                result = original()
        except BaseException:
            # Refused, or failed before anything was removed. Otherwise, the next writer completes
            # it.
            if facts.digest(repo.changelog) == intent.before:
                _forget(repo, intent)
            raise
        if intent.is_recorded:
            _record(repo, intent)
        elif left := recording.foreign(repo):
            # A record would have the digest of the foreign changesets that stay, and cover them.
            repo.ui.warn(encoding.strtolocal(f"the removal is not recorded: still, {left}\n"))
        _forget(repo, intent)
    return result


def _settle_before(repo: Any) -> None:
    """Complete an earlier removal; raises Abort if that is impossible, and its intent stays."""
    try:
        if repo.svfs.exists(_NAME):
            settle(repo)
    except PushlogError as problem:
        raise error.Abort(
            encoding.strtolocal(f"an earlier removal was interrupted: {problem}"),
            hint=b"runbook pushlog, A killed removal",
        ) from problem


def bundled(repo: Any, name: bytes) -> None:
    """Record the bundle of the changesets that a removal takes away and adds again.

    The bundle is their only copy until the removal is complete.
    """
    if intent := _read(repo):
        for place in (name, _FOLDER):
            _sync(os.fsdecode(repo.vfs.join(place)))
        _write(repo, replace(intent, kept=text(name.rpartition(b"/")[2])))


def settle(repo: Any) -> str | None:
    """Complete or withdraw a removal whose process was killed; return a sentence about it.

    The caller holds the lock, and has rolled back any open transaction. A host that takes no
    changes leaves the intent as it is. Raises PushlogError, OSError or errors of core if the
    removal cannot be completed; the intent stays, and a push is refused with the way out.
    """
    repo = repo.unfiltered()
    if shared.of(repo).completes or not _takes_changes(repo):
        return None
    with _own(repo), _without_rules(repo):
        return _settle(repo)


def _takes_changes(repo: Any) -> bool:
    """Whether this process makes transactions of a recorded repository on its primary."""
    ui = repo.ui
    is_logged = ui.configbool(b"hgfleet", b"pushlog") and ui.config(b"hgfleet", b"path")
    return bool(is_logged) and not (
        shared.of(repo).applied or ui.config(b"hgfleet", b"replica-of") or writable.fence(ui, 0.0)
    )


def _settle(repo: Any) -> str:
    tip = log_file.tip(reading.file(repo))
    try:
        intent = _read(repo)
    except PushlogError:
        if recording.foreign(repo) is not None:
            raise
        # The log explains the store, so nothing of the removal is left to do.
        intent = None
    if intent is None:
        repo.svfs.tryunlink(_NAME)
        return "an intent of a removal was withdrawn, which this release cannot read"
    step = removal.decide(intent, opened_identity.of(repo), tip, facts.digest(repo.changelog))
    what = f"a killed removal of {len(intent.gone)} changesets by {intent.user or 'nobody'}"
    if step is Step.STALE:
        # The bundle is kept: its changesets may be nowhere else.
        repo.svfs.tryunlink(_NAME)
        return f"{what} {step.value}, withdrawn"
    if step is Step.RESTORE:
        _restore(repo, intent)
    if step is not Step.WITHDRAW:
        if intent.is_recorded:
            _record(repo, intent, intent.moves)
        else:
            with _stripping(repo), repo.transaction(b"pushlog") as transaction:
                _move(repo, transaction, intent.moves)
    _forget(repo, intent)
    end = "withdrawn" if step is Step.WITHDRAW else "completed"
    return f"{what} {step.value}, {end}"


def _restore(repo: Any, intent: Intent) -> None:
    """Add the changesets again that core took away for a moment, from its bundle."""
    if not intent.kept:
        raise PushlogError(
            "its store has other heads than before and after the removal, and the intent names no "
            "bundle of the changesets that stay"
        )
    name = _FOLDER + b"/" + intent.kept.encode("ascii")
    if not repo.vfs.exists(name):
        raise PushlogError(
            f".hg/{text(name)} is missing, which has the changesets that stay; `hgfleet integrity "
            "repair` brings all back, then repeat the removal"
        )
    url = b"bundle:" + repo.vfs.join(name)
    with (
        _stripping(repo),
        repo.vfs(name, b"rb") as file,
        repo.ui.silent(),
        repo.transaction(b"strip") as transaction,
    ):
        bundle = exchange.readbundle(repo.ui, file, name, repo.vfs)
        bundle2.applybundle(repo, bundle, transaction, source=b"strip", url=url)
        if (digest := facts.digest(repo.changelog)) != intent.after:
            raise PushlogError(
                f".hg/{text(name)} leads to heads with the digest {digest[:12]}, expected "
                f"{intent.after[:12]}"
            )
    # The bookmarks were read without these changesets.
    repo.invalidate()


def _record(repo: Any, intent: Intent, moves: Sequence[tuple[str, Node]] = ()) -> None:
    """Record a removal, and move the bookmarks that it left behind, in a single transaction."""
    log = repo.changelog
    before, now = set(intent.heads), facts.heads(log)
    marks = facts.marks(repo._bookmarks) | dict(moves)  # noqa: SLF001  (core has no other name)
    gone = facts.Facts(
        tuple(node for node in intent.gone if not log.hasnode(bytes.fromhex(node))),
        Heads(tuple(sorted(before - now)), tuple(sorted(now - before)), facts.digest(log)),
        bookmarks=facts.moved(dict(intent.bookmarks), marks),
    )
    by = writing.Origin(intent.user, intent.key, intent.client)
    state = shared.of(repo)
    state.digest_before = intent.before
    try:
        with (
            recording.given(repo, [("strip", gone)], by),
            repo.transaction(b"pushlog") as transaction,
        ):
            _move(repo, transaction, moves)
    finally:
        state.digest_before = ""


def _move(repo: Any, transaction: Any, moves: Sequence[tuple[str, Node]]) -> None:
    changes = [
        (name.encode("utf-8", "surrogateescape"), bytes.fromhex(node)) for name, node in moves
    ]
    if changes:
        repo._bookmarks.applychanges(repo, transaction, changes)  # noqa: SLF001


@contextlib.contextmanager
def _own(repo: Any) -> Iterator[None]:
    """Mark the intent as this process's own: transactions ignore it."""
    state = shared.of(repo)
    state.completes = True
    try:
        yield
    finally:
        state.completes = False


@contextlib.contextmanager
def _stripping(repo: Any) -> Iterator[None]:
    """Let transactions leave no record."""
    state = shared.of(repo)
    state.strips = True
    try:
        yield
    finally:
        state.strips = False


@contextlib.contextmanager
def _without_rules(repo: Any) -> Iterator[None]:
    """Run no hook that decides about a push: the removal was made by another, authorized user.

    The push log's own hook stays, which refuses changes on a mirror.
    """
    hook_names = [name for name, _ in repo.ui.configitems(b"hooks", untrusted=True)]
    off = [name for name in hook_names if name.startswith(b"pretxn") and not name.endswith(_OWN)]
    with repo.ui.configoverride({(b"hooks", name): b"" for name in off}, b"pushlog"):
        yield


def _intent(repo: Any, nodes: Sequence[bytes], *, is_recorded: bool) -> Intent:
    log = repo.changelog
    tip = log_file.tip(reading.file(repo))
    removed = sorted(repo.revs(b"%ln::", nodes))
    chosen = set(removed)
    left = dagop.headrevs([number for number in log if number not in chosen], log.parentrevs)
    target, names = repair._bookmarkmovements(repo, chosen)  # noqa: SLF001
    marks = facts.marks(repo._bookmarks)  # noqa: SLF001
    moved = facts.marks(dict.fromkeys(names, repo[target].node())) if names else {}
    by = writing.origin({text(name): text(encoding.environ[name]) for name in encoding.environ})
    return Intent(
        repository=opened_identity.of(repo) or tip.repository,
        last=tip.id,
        hash=tip.hash,
        heads=tuple(sorted(facts.heads(log))),
        bookmarks=tuple(sorted(marks.items())),
        gone=tuple(log.node(number).hex() for number in removed),
        after=Heads.digest_of(log.node(number).hex() for number in left),
        moves=tuple(sorted(moved.items())),
        is_recorded=is_recorded,
        user=by.user,
        key=by.key,
        client=by.client,
    )


def _read(repo: Any) -> Intent | None:
    """Read the intent, or return None. Raises PushlogError."""
    data: bytes = repo.svfs.tryread(_NAME)
    return removal.parse(data) if data or repo.svfs.exists(_NAME) else None


def _write(repo: Any, intent: Intent) -> None:
    """Write the intent to the disk before the removal goes on."""
    files.replace(os.fsdecode(repo.svfs.join(_NAME)), intent.text(), mode=_MODE)


def _forget(repo: Any, intent: Intent) -> None:
    """Remove the intent, and files that the removal left in core's folder of bundles."""
    roots = {node[:12] for node in intent.gone}
    names = repo.vfs.listdir(_FOLDER) if repo.vfs.isdir(_FOLDER) else ()
    for name in names:
        # Also the files of a process that was killed before it could record its bundle.
        if name.endswith(_KEPT) and text(name[:12]) in roots:
            repo.vfs.tryunlink(_FOLDER + b"/" + name)
    repo.svfs.tryunlink(_NAME)


def _sync(place: str) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
