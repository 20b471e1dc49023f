"""Checks that the rights of a session or request still hold, for code that has waited.

A session or request is admitted once, and may then wait for minutes: for its next command, a lock,
a slot. The code that admits it leaves a check here, and code that has waited runs the check. The
check belongs to the context of the session or request (a thread, a task), and ends with that
context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token

_check: ContextVar[Callable[[], None] | None] = ContextVar("hgfleet_session_check", default=None)


def leave(check: Callable[[], None]) -> Token[Callable[[], None] | None]:
    """Set the check of this context; the check raises if a right is gone."""
    return _check.set(check)


def forget(token: Token[Callable[[], None] | None]) -> None:
    """End the check that `leave` has set."""
    _check.reset(token)


def run() -> None:
    """Run the check of this context, if it has a check."""
    check = _check.get()
    if check is not None:
        check()
