"""Who sends a request: Basic authentication (RFC 7617), decided by `hgfleet-auth`.

Only requests for something that not everybody may read come here; a public repository is served
without a look at who asks. A request without a name and a secret is told to bring them if it speaks
Mercurial's wire protocol, whether or not the path names a repository: hg sends them only when
asked. Browsers are sent to /login instead, so that a wrong address is no prompt for a password.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from hgfleet.auth import protocol
from hgfleet.auth.client import AuthClient
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal
from hgfleet.web.request import RefusedError, client_address

if TYPE_CHECKING:
    from hgfleet.web.request import Exchange
    from hgfleet.web.settings import Settings

LONGEST_HEADER: Final = 4096
"""Characters of Authorization; the longest name and secret in UTF-8 and base64 are no longer."""

_CHALLENGE: Final = 'Basic realm="{realm}", charset="UTF-8"'
_WRONG: Final = "The name or the password is not right, or the token is no longer good."
_NOBODY: Final = "This address is for those who say who they are: a name, and a password or token."
_UNAVAILABLE: Final = (
    "This server cannot check passwords right now; public repositories are served. "
    "Try again in a minute."
)


class SignIn:
    """Tells who sends a request. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        """Without `auth_socket` nobody can sign in, and only public repositories exist."""
        self._client: AuthClient | None = None
        if settings.auth_socket is not None:
            self._client = AuthClient(str(settings.auth_socket), settings.auth_calls)
        realm = "".join(c for c in settings.title if " " <= c <= "~" and c not in '"\\')
        self._challenge = _CHALLENGE.format(realm=realm or "Mercurial")

    @property
    def is_on(self) -> bool:
        """Whether this server lets people sign in."""
        return self._client is not None

    def principal(self, exchange: Exchange) -> Principal | None:
        """The person, or None if the request names nobody; raises RefusedError."""
        header = str(exchange.environ.pop("HTTP_AUTHORIZATION", ""))
        if self._client is None or not header:
            return None
        # Whatever becomes of it, the answer is for this client alone.
        exchange.is_personal = True
        if exchange.environ.get("wsgi.url_scheme") != "https":
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "This server takes passwords over HTTPS only; change yours, it was sent in clear.",
            )
        given = parse(header)
        if given is None:
            raise self.refused(exchange, _WRONG)
        question = protocol.Question(*given, client_address(exchange.environ))
        try:
            answer = self._client.ask(question)
        except UnavailableError as problem:
            _tell(exchange, str(problem))
            answer = protocol.Unavailable()
        match answer:
            case protocol.Person(name, groups, via):
                exchange.entry.update(user=name, via=via)
                return Principal(name, groups)
            case protocol.Throttled(seconds):
                exchange.entry["refused"] = "throttled"
                raise RefusedError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "Too many wrong passwords; this one was not looked at. "
                    f"Try again in {seconds} s, or use a token.",
                    (("Retry-After", str(seconds)),),
                )
            case protocol.Unavailable():
                exchange.entry["refused"] = "unavailable"
                raise RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE, _UNAVAILABLE, (("Retry-After", "60"),)
                )
        raise self.refused(exchange, _WRONG)

    def refused(self, exchange: Exchange, sentence: str = _NOBODY) -> RefusedError:
        """401: say who you are."""
        exchange.is_personal = True
        exchange.entry["refused"] = "signin"
        return RefusedError(
            HTTPStatus.UNAUTHORIZED, sentence, (("WWW-Authenticate", self._challenge),)
        )

    def not_found(self) -> RefusedError:
        """404 for somebody who may still sign in."""
        return RefusedError(
            HTTPStatus.NOT_FOUND,
            "There is no such page or repository here; for what is not public, sign in first: "
            "/login",
        )


def parse(header: str) -> tuple[str, str] | None:
    """Name and secret of an Authorization header, or None if it is no Basic one."""
    if len(header) > LONGEST_HEADER:
        return None
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    name, colon, secret = decoded.partition(":")
    return (name, secret) if colon else None


def _tell(exchange: Exchange, message: str) -> None:
    record = {"event": "auth", "id": exchange.identity, "message": message}
    print(json.dumps(record), file=sys.stderr, flush=True)
