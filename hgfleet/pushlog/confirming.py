"""The disk's confirmation of a record, before the client hears of it. Runs inside hg."""

from __future__ import annotations

import os
from typing import Any

from mercurial import error

from hgfleet.core import durable
from hgfleet.hg.hooks import refuse, text


def confirm(repo: Any, number: int) -> None:
    """Have the disk confirm the transaction of a record; raises Abort where it does not."""
    try:
        durable.sync(os.fsdecode(repo.svfs.base))
    except OSError as problem:
        path = text(repo.ui.config(b"hgfleet", b"path"))
        sentence = (
            f"push {number} to {path} is in the repository, and the disk has not confirmed it: it "
            "may be lost; tell the operators"
        )
        told = (f"operators: {problem.strerror}; see the runbook pushlog",)
        try:
            refuse(repo.ui, sentence, told, reason="disk")
        except error.Abort as refusal:
            # Core releases the lock after it has set this, which chooses the form of the reply.
            refusal.duringunbundle2 = True
            raise
