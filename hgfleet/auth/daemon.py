"""hgfleet-auth: authenticate the name and the secret of a web request.

systemd hands it the socket (/run/hgfleet-auth/socket, for the group hgweb) and the password of its
directory account ($CREDENTIALS_DIRECTORY/bind); the rest is in /etc/hgfleet/auth.toml. Each
question is a line in the journal:

    event=auth decision=allow reason=ok person=alice via=token token=k3v9x2ab client=192.0.2.7 ...

| reason | means |
| --- | --- |
| ok | a person signed in; `via` is `token` or `password` |
| password | a wrong password, or an unknown name (which is then not logged) |
| token | the token does not exist, or belongs to another person |
| expired | a token past its time |
| disabled | a right secret of a person who is disabled or deleted |
| another-person | a token of a former person, whose name belongs to another person now |
| throttled | not checked: too many wrong secrets before |
| directory: ..., tokens: ... | not decided, because of this failure |

For operators: `hgfleet-auth --check FILE` checks a configuration; `hgfleet-auth --probe` asks every
server, with the password in the file that --password-file names.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.auth import protocol, token_file
from hgfleet.auth import settings as config
from hgfleet.auth.authenticator import Authenticator
from hgfleet.auth.directory import LdapDirectory
from hgfleet.core import logfmt
from hgfleet.core.daemons import line_server, systemd
from hgfleet.core.daemons.line_server import LineServer
from hgfleet.core.errors import ConfigurationError, HgfleetError, UnavailableError
from hgfleet.directory import connection

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from hgfleet.auth.authenticator import Decision

_DECISIONS: Final = {
    protocol.Person: "allow",
    protocol.Refused: "refuse",
    protocol.Throttled: "throttle",
    protocol.Unavailable: "unavailable",
}


class Server(LineServer):
    """Answers on a listening socket until told to stop."""

    def __init__(
        self, listening: socket.socket, authenticator: Authenticator, log: logfmt.Log
    ) -> None:
        super().__init__(listening, self._decide, log, longest=protocol.LONGEST_QUESTION)
        self._authenticator = authenticator

    def _decide(self, line: bytes) -> bytes:
        started = time.monotonic()
        question = protocol.read_question(line)
        decision = self._authenticator.answer(question)
        self._log(describe(decision, question.client, time.monotonic() - started))
        return protocol.write_answer(decision.answer)


def describe(decision: Decision, client: str, seconds: float) -> str:
    """Write the log line of a question; nothing in it is secret."""
    answer = decision.answer
    return logfmt.line(
        "auth",
        decision=_DECISIONS[type(answer)],
        reason=decision.reason,
        person=decision.person,
        person_id=answer.person_id or None if isinstance(answer, protocol.Person) else None,
        via=answer.via if isinstance(answer, protocol.Person) else None,
        token=decision.token,
        client=client,
        wait=answer.seconds if isinstance(answer, protocol.Throttled) else None,
        seconds=seconds,
    )


def serve() -> None:
    """Run the daemon until SIGTERM."""
    settings = config.load()
    password = systemd.credential("bind")
    if password is None:
        raise ConfigurationError("hgfleet-auth is started by its unit, which has the credential")
    directory = LdapDirectory(settings, connection.read_password(str(password)))
    server = Server(
        line_server.listening("hgfleet-auth"),
        Authenticator(directory, token_file.Watched(settings.tokens)),
        logfmt.to_journal,
    )
    server.serve_unit()


def probe(password_file: Path) -> None:
    """Ask every server, and print how long it took; raises UnavailableError if none answers."""
    results = LdapDirectory(config.load(), connection.read_password(str(password_file))).probe()
    for uri, problem, seconds in results:
        print(f"{uri} {problem or 'answers'} after {seconds:.3f} s")
    # A single dead replica is a matter for monitoring; a deploy stops if no server answers.
    if all(problem for _, problem, _ in results):
        raise UnavailableError("no server of the directory answers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon, or a check for an operator."""
    parser = argparse.ArgumentParser(
        prog="hgfleet-auth", description="Authenticate people for the web workers."
    )
    parser.add_argument("--check", metavar="FILE", type=Path, help="check a configuration")
    parser.add_argument("--probe", action="store_true", help="ask every server of the directory")
    parser.add_argument(
        "--password-file",
        type=Path,
        default=Path("/etc/hgfleet/secrets/auth-bind"),
        help="for --probe: the file with the password of the directory account",
    )
    options = parser.parse_args(arguments)
    try:
        if options.check is not None:
            config.load(options.check)
        elif options.probe:
            probe(options.password_file)
        else:
            serve()
    except HgfleetError as error:
        logfmt.to_journal(str(error))
        return error.exit_code
    return 0
