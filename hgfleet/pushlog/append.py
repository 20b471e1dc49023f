"""Append a record to a push log within a transaction of hg."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain, log_file
from hgfleet.pushlog.record import parse

if TYPE_CHECKING:
    from collections.abc import Callable

CATEGORY: Final = b"pushlog"
"""Callbacks run in the order of their names: after `cl-`, which completes the changelog."""

_NAME: Final = log_file.NAME.encode("ascii")


def register(tr: Any, repo: Any, line: bytes) -> None:
    """Have the transaction append a line; raises PushlogError if it does not continue the chain.

    The caller holds the lock. The size of the file is registered before the line is written: an
    abort truncates the file, and `hg recover` does after a crash.
    """
    end = _checked_end(repo, line)
    tr.addfinalize(CATEGORY, _appending(repo, line, end))


def _checked_end(repo: Any, line: bytes) -> int:
    tip = log_file.tip(os.fsdecode(repo.svfs.join(_NAME)))
    wrong = chain.problem(tip, parse(line))
    if wrong is not None:
        raise PushlogError(wrong)
    return tip.end


def _appending(repo: Any, line: bytes, end: int) -> Callable[[Any], None]:
    def append(tr: Any) -> None:
        with repo.svfs(_NAME, b"ab") as file:
            if file.tell() != end:
                raise PushlogError(
                    f"the push log has {file.tell()} bytes, and its last record ends at {end}; "
                    "check it with `hg debugpushlog --verify`"
                )
            tr.add(_NAME, end)
            file.write(line + b"\n")

    return append
