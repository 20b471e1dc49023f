"""hgfleet-people: answer programs of the user hg whether a person is enabled.

An open session (`hgext/session_rights.py`) and the sweep of tokens (`hgfleet tokens sweep`) run as
hg, which cannot read the secret of the directory. They ask this daemon, which runs as the user of
the key lookup and reads the same settings, /etc/hgfleet/keys.toml, at each question. systemd hands
it the socket, /run/hgfleet-people/socket. The kernel reports the user of the client, and only hg
and root are answered. A question holds only a name (`hgfleet.directory.person_state`).

Each question is a line in the journal, unless the answer is "enabled":

    event=person state=disabled person=mallory seconds=0.004
    event=person state=unavailable person=alice reason="ldapi://... (bind: ...)" seconds=2.001
"""

from __future__ import annotations

import pwd
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import logfmt
from hgfleet.core.daemons import line_server
from hgfleet.core.errors import ConfigurationError, HgfleetError, UnavailableError
from hgfleet.directory import connection, person_state
from hgfleet.ssh.keys import person_lookup, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.directory.person_state import PersonState

NAME: Final = "hgfleet-people"
USER: Final = "hg"
"""The user whose programs may ask."""


def answer(line: bytes, find: Callable[[str], PersonState], log: logfmt.Log) -> bytes:
    """Answer a line. Raises ProtocolError for a line that is not a question."""
    started = time.monotonic()
    person = person_state.read_question(line)
    reason: str | None = None
    try:
        answered: PersonState | None = find(person)
    except (UnavailableError, ConfigurationError) as error:
        answered, reason = None, str(error)
    state = answered.state if answered is not None else "unavailable"
    if state != person_state.ENABLED:
        seconds = time.monotonic() - started
        log(logfmt.line("person", state=state, person=person, reason=reason, seconds=seconds))
    return person_state.write_answer(answered)


def serve() -> None:
    """Run the daemon until SIGTERM."""
    settings.load()
    # Here, while there are no threads yet, the environment may change.
    connection.isolate()
    try:
        users = frozenset({0, pwd.getpwnam(USER).pw_uid})
    except KeyError:
        raise ConfigurationError(f"there is no user {USER}; the role mercurial makes it") from None
    kept = person_lookup.Kept(lambda name: person_lookup.find(settings.load(), name))
    server = line_server.LineServer(
        line_server.listening(NAME),
        lambda line: answer(line, kept.find, logfmt.to_journal),
        logfmt.to_journal,
        longest=person_state.LONGEST_QUESTION,
        users=users,
    )
    server.serve_unit()


def main() -> int:
    """Run the daemon."""
    try:
        serve()
    except HgfleetError as error:
        logfmt.to_journal(str(error))
        return error.exit_code
    return 0
