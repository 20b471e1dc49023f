"""Mirrors that show a change of the self-service, for the person who made it.

After a change of the registry or of the tokens, the session wakes the relay and waits for a short
time, as a push does. The change is made, and reaches every mirror in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.hg import wake

if TYPE_CHECKING:
    from hgfleet.selfservice.command import Command
    from hgfleet.selfservice.context import Context


def sentence(context: Context, command: Command) -> str:
    """Return the line about a command that was carried out; "" if there is nothing to report."""
    if not (command.document and context.relay):
        return ""
    wait = context.mirror_wait
    answer = wake.ask(context.relay, wake.document_request(command.document), wait)
    return f"{command.name}: {wake.mirrors(answer, wait, command.words)}\n"
