"""The session slot of a command: a person has as many commands and sessions of hg as slots.

A command takes a slot as a session of hg does (`hgext/session_limits.py`), from the same folder and
with the same limit, so a loop of commands or forks is bounded like a loop of clones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.core import hgrc
from hgfleet.core.errors import TemporaryError
from hgfleet.hg.sessions import session_slots
from hgfleet.hg.sessions.incoming import SessionEndError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.selfservice.context import Context

PER_PERSON: Final = 32
"""The default where `sessions-person` is missing, as in `hgext/session_limits.py`."""


def take(context: Context, report: Callable[[str], None]) -> None:
    """Take a slot of the person until the process and every hg that inherits it have ended.

    Raises TemporaryError if all are in use. A folder that cannot be used is reported, and the
    command goes on, as sessions of hg do.
    """
    folder = hgrc.setting(context.configuration, "sessions")
    if not folder:
        return
    most = hgrc.setting(context.configuration, "sessions-person")
    try:
        slot = session_slots.take(
            folder, context.principal.name, int(most) if most.isdecimal() else PER_PERSON
        )
    except SessionEndError as end:
        raise TemporaryError(str(end)) from end
    except OSError as problem:
        report(str(problem))
    else:
        context.inherited.append(slot.descriptor)
