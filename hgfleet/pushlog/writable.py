"""Whether a host takes changes of its repositories: refusals of mirrors and of fenced primaries.

Only the extension `pushlog` imports this module; it needs Mercurial.
"""

from __future__ import annotations

import os
from typing import Any

from hgfleet.hg.hooks import refuse, text
from hgfleet.pushlog import term


def check(ui: Any, repo: Any, *, is_begun: bool = False) -> None:
    """Refuse a transaction on a mirror or a fenced primary, except to apply a record.

    Before one begins, a host that has just started waits for the confirmation of its term.
    """
    primary, path = ui.config(b"hgfleet", b"replica-of"), ui.config(b"hgfleet", b"path")
    if not path or ui.config(b"hgfleet", b"applied-record"):
        return
    if sentence := fence(ui, 0.0 if is_begun else ui.configint(b"hgfleet", b"unconfirmed-wait")):
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

    def tell() -> None:
        ui.warn(b"this host has just started; waiting for the brokers to confirm that it\n")
        ui.warn(b"is the primary (%d s at most)\n" % seconds)

    return term.unconfirmed(files, name, seconds, tell)


def epoch(ui: Any) -> int:
    """Return the epoch of records that this host makes. Raises PushlogError."""
    return term.epoch(os.fsdecode(ui.config(b"hgfleet", b"epoch")))
