"""Basic authentication (RFC 7617) of a request, decided by `hgfleet-auth`.

Requests for a public repository never come here. A request of Mercurial's wire protocol without
credentials is answered 401, whether or not the path names a repository: hg sends credentials only
when asked. Browsers are sent to /login instead, so that a wrong address is no password prompt.
"""

from __future__ import annotations

import base64
import binascii
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from hgfleet.auth import protocol
from hgfleet.auth.client import AuthClient, NotAskedError
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal
from hgfleet.web.http.exchange import RefusedError, unavailable
from hgfleet.web.http.journal import report

if TYPE_CHECKING:
    from hgfleet.web.http.exchange import Exchange
    from hgfleet.web.http.settings import Settings

LONGEST_HEADER: Final = 4096
"""Characters of Authorization; the longest name and secret in UTF-8 and base64 are no longer."""

WAITED_SECONDS: Final = 1.0
"""A younger request is not checked again: the daemon remembers people for that long."""

_CHALLENGE: Final = 'Basic realm="{realm}", charset="UTF-8"'
_WRONG: Final = "The name or the password is not right, or the token is no longer good."
NOTHING_PUBLIC: Final = "nothing public at this address"
"""In the realm, which hg and browsers show with the question for a name."""
_ANONYMOUS: Final = (
    "There is nothing public at this address: check its spelling, or sign in with a name and a "
    "password or token."
)
_UNAVAILABLE: Final = (
    "This server cannot check passwords right now; public repositories are served. "
    "Try again in a minute."
)


class SignIn:
    """Authenticates requests. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        """Without `auth_socket` there is no sign-in, and only public repositories exist."""
        self._client: AuthClient | None = None
        if settings.auth_socket is not None:
            self._client = AuthClient(str(settings.auth_socket), settings.auth_calls)
        realm = "".join(c for c in settings.title if " " <= c <= "~" and c not in '"\\')
        self._realm = realm or "Mercurial"

    @property
    def is_on(self) -> bool:
        """Whether people can sign in on this server."""
        return self._client is not None

    def principal(self, exchange: Exchange) -> Principal | None:
        """The person, or None for a request without credentials; raises RefusedError."""
        header = str(exchange.environ.pop("HTTP_AUTHORIZATION", ""))
        if self._client is None or not header:
            return None
        # Accepted or refused, the answer is for this client only.
        exchange.is_personal = True
        if exchange.environ.get("wsgi.url_scheme") != "https":
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "This server accepts passwords over HTTPS only; change yours, since it was sent "
                "unencrypted.",
            )
        given = parse(header)
        if given is None:
            raise self.refused(exchange, _WRONG)
        question = protocol.Question(*given, exchange.client)
        try:
            answer = self._client.ask(question)
        except UnavailableError as problem:
            report("auth", str(problem), exchange.identity)
            answer = protocol.Unavailable()
        match answer:
            case protocol.Person(name, groups, via, person_id):
                exchange.entry.update(user=name, via=via)
                exchange.signed_in = question
                return Principal(name, groups, person_id)
            case protocol.Throttled(seconds):
                exchange.entry["refused"] = "throttled"
                raise RefusedError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "Too many refused passwords or tokens; this sign-in was not checked. "
                    f"Try again in {seconds} s, or use a token that is valid.",
                    (("Retry-After", str(seconds)),),
                )
            case protocol.Unavailable():
                exchange.entry["refused"] = "unavailable"
                raise unavailable(_UNAVAILABLE)
        raise self.refused(exchange, _WRONG)

    def after_wait(self, exchange: Exchange, principal: Principal) -> Principal | None:
        """Return the person of a request that has waited, as of now; None if it is refused now.

        Without an answer of the daemon it is the same person as before: a wait has a bound, and a
        daemon that is being restarted is no reason to lose a place in the queue. A client can cause
        its secret to be throttled, or its question to find no room: both refuse. A right token is
        never throttled, and a right password only after wrong passwords from the same address.
        """
        waited = time.perf_counter() - exchange.started
        if self._client is None or exchange.signed_in is None or waited < WAITED_SECONDS:
            return principal
        try:
            answer = self._client.again(exchange.signed_in)
        except NotAskedError as problem:
            report("auth", str(problem), exchange.identity)
            return None
        except UnavailableError as problem:
            report("auth", str(problem), exchange.identity)
            return principal
        match answer:
            case protocol.Person(name, groups, _, person_id):
                return Principal(name, groups, person_id)
            case protocol.Unavailable():
                return principal
        return None

    def refused(self, exchange: Exchange, sentence: str = _ANONYMOUS) -> RefusedError:
        """401, with the challenge that makes hg and browsers send credentials."""
        exchange.is_personal = True
        exchange.entry["refused"] = "signin"
        # Also for a wrong password: a client keeps a password for its realm.
        realm = self._realm if exchange.path == "/login" else f"{self._realm}: {NOTHING_PUBLIC}"
        challenge = ("WWW-Authenticate", _CHALLENGE.format(realm=realm))
        return RefusedError(HTTPStatus.UNAUTHORIZED, sentence, (challenge,))

    def not_found(self) -> RefusedError:
        """404 for a client without credentials, with the way to sign in."""
        return RefusedError(
            HTTPStatus.NOT_FOUND,
            "There is no such page or repository here; for what is not public, sign in first: "
            "/login",
        )


def parse(header: str) -> tuple[str, str] | None:
    """Name and secret of an Authorization header, or None if it is not Basic."""
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
