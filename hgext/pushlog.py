"""keep a push log: a record of each push in the store of its repository.

Every transaction that changes changesets, phases, bookmarks or obsolescence markers appends a
record to ``.hg/store/pushlog``: user, key, address, time, the changes, the verdicts of policies,
and the hash of the record before. The record is appended inside the transaction. It is there if
and only if the changes are: an abort removes it, and so does :hg:`recover` after a crash.

It is switched on for registered repositories of a host::

  [extensions]
  pushlog = /opt/hgfleet/current/hgext/pushlog.py

  [hgfleet]
  pushlog = yes
  # on a mirror: the host that pushes go to, and its address
  replica-of = hg1
  ssh-url = ssh://hg@hg.example.org

==============================  ==============================================================
state                           result
==============================  ==============================================================
a push                          a record of the kind ``push``
the first push to a repository  before it a record of the kind ``adoption``, which stands for
that has changesets             all of them
:hg:`strip`, ``debugstrip``     a record of the kind ``strip`` with the changesets that were
                                removed, in a transaction after those of the command
nothing changes                 no record
the log is damaged              refused: a record could not name the one before
a repository without ``path``   no log: it is a clone of a person, or a copy for bundles
a mirror                        refused, for operators too, except where the replication applies
                                a record of the primary; that record is appended as it is
==============================  ==============================================================

The log holds names and addresses of people. It is never part of a clone, bundle or stream.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from mercurial import encoding, error, extensions, registrar, repair

from hgfleet.hg.hooks import OPERATOR, refuse, text, writer

if TYPE_CHECKING:
    from hgfleet.pushlog.facts import Facts
    from hgfleet.pushlog.log_file import Tip

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pushlog", default=False)
configitem(b"hgfleet", b"replica-of", default=b"")
configitem(b"hgfleet", b"ssh-url", default=b"")
configitem(b"hgfleet", b"applied-record", default=None)

_CATEGORY = b"pushlog"
"""Callbacks run in this order: after the changelog's (`000-cl-`), before `txnclose-hook`, which
would announce a transaction that a failed append aborts (7.2)."""


def extsetup(_ui: Any) -> None:
    """Wrap the function that removes changesets, in transactions of its own (7.2)."""
    extensions.wrapfunction(repair, "strip", _strip)


def reposetup(_ui: Any, repo: Any) -> None:
    """Record each transaction of a repository on this host's disk; refuse them on a mirror."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"pretxnopen.pushlog", _refuse_on_mirror, b"pushlog")
        repo.__class__ = _recorded(repo.__class__)


def _refuse_on_mirror(ui: Any, repo: Any, **_more: object) -> None:
    """Refuse a transaction on a mirror (a hook), except the application of a record."""
    primary, path = ui.config(b"hgfleet", b"replica-of"), ui.config(b"hgfleet", b"path")
    if not (primary and path) or ui.config(b"hgfleet", b"applied-record"):
        return
    url = text(ui.config(b"hgfleet", b"ssh-url")).rstrip("/") or "ssh://hg@HOST"
    refuse(
        repo.ui,
        f"{text(path)} is a copy on this host, and nothing was changed: its primary is "
        f"{text(primary)}, push to {url}/{text(path)}",
    )


def _recorded(base: Any) -> Any:
    class _RecordedRepository(base):  # type: ignore[misc]  # core has no published types
        def transaction(self, *arguments: Any, **named: Any) -> Any:
            nested = self.currenttransaction() is not None
            transaction = super().transaction(*arguments, **named)
            if not nested and is_logged(self):
                unfiltered = self.unfiltered()
                transaction.addfinalize(_CATEGORY, lambda tr: _record(unfiltered, tr))
            return transaction

    return _RecordedRepository


def is_logged(repo: Any) -> bool:
    """Whether a repository is registered on a host with push logs."""
    ui = repo.ui
    return bool(ui.configbool(b"hgfleet", b"pushlog") and ui.config(b"hgfleet", b"path"))


def _record(repo: Any, transaction: Any) -> None:
    """Append the record of a transaction, if it has changes; raises Abort where it cannot."""
    from hgfleet.core.errors import PushlogError
    from hgfleet.pushlog import facts, log_file, writing

    if getattr(repo, "pushlog_stripping", False):
        return
    removed = getattr(repo, "pushlog_removed", None)
    found = removed or facts.of_transaction(repo, transaction)
    line = repo.ui.config(b"hgfleet", b"applied-record")
    adopts = getattr(repo, "pushlog_adopts", False)
    if found.is_empty and line is None and not adopts:
        return
    try:
        tip = log_file.tip(os.fsdecode(repo.sjoin(b"pushlog")))
        if line is not None:
            last = writing.after(tip, writing.applied(tip, line, found.heads.digest), line)
            lines = [line]
        else:
            lines, last = _lines(repo, transaction, tip, found, "strip" if removed else "push")
    except PushlogError as problem:
        path = text(repo.ui.config(b"hgfleet", b"path"))
        raise error.Abort(
            encoding.strtolocal(f"the push log of {path} does not go on, so nothing was changed"),
            hint=encoding.strtolocal(f"tell the operators: {problem}"),
        ) from problem
    if lines:
        writing.append(repo.svfs, transaction, tip, lines)
        done = (last.repository, last.id, last.end)
        transaction.addpostclose(_CATEGORY, lambda _: _remember(repo, done))


def _lines(
    repo: Any, transaction: Any, tip: Tip, found: Facts, kind: str
) -> tuple[list[bytes], Tip]:
    """Return the lines that a transaction of the primary appends, and the tip after them."""
    from hgfleet.pushlog import facts, writing

    by = writing.origin({text(name): text(encoding.environ[name]) for name in encoding.environ})
    lines: list[bytes] = []
    last, now = tip, round(time.time() * 1000)
    if not tip.id:
        last = writing.beginning()
        before = transaction.changes[b"origrepolen"]
        if before or kind == "strip":
            digest = getattr(repo, "pushlog_digest_before", None)
            digest = digest or facts.digest(repo.changelog, before)
            # A person's push adopts a repository by chance; an operator adopts it by intent.
            user = by.user if OPERATOR.fullmatch(writer().name) else ""
            record = writing.adoption(last, digest, user, now)
            lines.append(record.line())
            last = writing.after(last, record, lines[-1])
    if not found.is_empty:
        verdicts = getattr(repo, "hgfleet_verdicts", {})
        record = writing.push(last, found, by, now, verdicts, kind)
        lines.append(record.line())
        last = writing.after(last, record, lines[-1])
    return lines, last


def _remember(repo: Any, done: tuple[str, int, int]) -> None:
    """Note the identity, the id and the end of the last record, for hooks after the lock."""
    repo._pushlog_last = done  # noqa: SLF001


def _strip(original: Any, ui: Any, repo: Any, *arguments: Any, **named: Any) -> Any:
    """Strip, and then record what is gone, while the caller holds the lock.

    Core removes all changesets from the first one on and adds those again that stay, each in a
    transaction: records of these would tell of removals and pushes that no reader saw.
    """
    repo = repo.unfiltered()
    if not is_logged(repo):
        return original(ui, repo, *arguments, **named)
    from hgfleet.pushlog import facts
    from hgfleet.pushlog.record import Heads

    log = repo.changelog
    nodes = [log.node(number).hex() for number in log]
    heads, digest = facts.heads(log), facts.digest(log)
    bookmarks = dict(repo._bookmarks)  # noqa: SLF001
    repo.pushlog_stripping = True
    try:
        result = original(ui, repo, *arguments, **named)
    finally:
        repo.pushlog_stripping = False
    log = repo.changelog
    left, now = facts.heads(log), dict(repo._bookmarks)  # noqa: SLF001
    repo.pushlog_removed = facts.Facts(
        tuple(node for node in nodes if not log.hasnode(bytes.fromhex(node))),
        Heads(tuple(sorted(heads - left)), tuple(sorted(left - heads)), facts.digest(log)),
        bookmarks=facts.moved(bookmarks, now),
    )
    repo.pushlog_digest_before = digest
    try:
        with repo.transaction(b"pushlog"):
            pass
    finally:
        repo.pushlog_removed = repo.pushlog_digest_before = None
    return result
