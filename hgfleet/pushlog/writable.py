"""Whether a host takes changes of its repositories: refusals of mirrors and of fenced primaries.

Only the extension `pushlog` imports this module; it needs Mercurial.
"""

from __future__ import annotations

import os
from typing import Any

from hgfleet.core.errors import PushlogError
from hgfleet.hg import opened_identity
from hgfleet.hg.hooks import refuse, text
from hgfleet.pushlog import log_file, repository_fence, shared, term


def check(ui: Any, repo: Any, *, is_begun: bool = False) -> None:
    """Refuse a transaction on a mirror or a fenced primary or repository, except to apply a record.

    Before a transaction begins, a host that has just started waits until its term is confirmed.
    """
    primary, path = ui.config(b"hgfleet", b"replica-of"), ui.config(b"hgfleet", b"path")
    if not path or shared.of(repo).applied:
        return
    if sentence := fence(ui, 0.0 if is_begun else ui.configint(b"hgfleet", b"unconfirmed-wait")):
        refuse(repo.ui, f"{text(path)}: nothing was changed: {sentence}", reason="fenced")
    if sentence := repository_sentence(repo):
        refuse(repo.ui, f"{text(path)}: nothing was changed: {sentence}", reason="fenced")
    if primary:
        url = text(ui.config(b"hgfleet", b"ssh-url")).rstrip("/") or "ssh://hg@HOST"
        refuse(
            repo.ui,
            f"{text(path)} is a copy on this host, and nothing was changed: its primary is "
            f"{text(primary)}, push to {url}/{text(path)}",
            reason="mirror",
        )


def fence(ui: Any, seconds: float) -> str | None:
    """Return why this host takes no changes though it may be the primary, None if it takes them."""
    files = [os.fsdecode(name) for name in ui.configlist(b"hgfleet", b"fence")]
    name = os.fsdecode(ui.config(b"hgfleet", b"unconfirmed"))

    def notify() -> None:
        ui.warn(b"this host has just started; waiting for the brokers to confirm that it\n")
        ui.warn(b"is the primary (%d s at most)\n" % seconds)

    return term.unconfirmed(files, name, seconds, notify)


def repository_sentence(repo: Any) -> str | None:
    """Return why a repository of this host takes no changes, None if it takes them."""
    folder = os.fsdecode(repo.ui.config(b"hgfleet", b"fences"))
    if not folder or not repository_fence.is_any(folder):
        return None
    try:
        logged = log_file.tip(os.fsdecode(repo.sjoin(log_file.NAME.encode("ascii")))).repository
    except PushlogError:
        logged = ""
    sentences = (
        repository_fence.refusal(folder, identity)
        for identity in (opened_identity.of(repo), logged)
        if identity
    )
    return next((sentence for sentence in sentences if sentence), None)


def epoch(ui: Any) -> int:
    """Return the epoch of records that this host makes. Raises PushlogError."""
    return term.epoch(os.fsdecode(ui.config(b"hgfleet", b"epoch")))
