"""Check that the person of a command may still log in, if the login is older than a minute.

A client may send commands over the connection of a single login for hours (ControlMaster).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hgfleet.core import hgrc
from hgfleet.core.errors import AccessDeniedError
from hgfleet.directory import person_watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.directory.person_state import PersonState
    from hgfleet.selfservice.context import Context


def check(
    context: Context, login: str, ask: Callable[[str, str], PersonState] | None = None
) -> None:
    """Raise AccessDeniedError if the person may not go on; `login` is the time of the login.

    Nothing is checked where the configuration of the host names no `session-people`.
    """
    socket = hgrc.setting(context.configuration, "session-people")
    if not socket:
        return
    now = time.monotonic()

    def ask_daemon(person: str) -> PersonState:
        from hgfleet.directory import person_state

        return (ask or person_state.ask)(person, socket)

    watch = person_watch.PersonWatch(
        context.principal,
        context.fingerprint,
        ask_daemon,
        age=person_watch.login_age(login, time.time()),
        now=now,
    )
    if sentence := watch.check(now):
        raise AccessDeniedError(f"Nothing was done: {sentence}.")
