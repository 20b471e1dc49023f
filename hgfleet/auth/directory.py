"""People, passwords and groups, looked up in the directory by LDAP.

The daemon binds as its own account, which may see who is enabled and in which groups. To check a
password, it binds as the person over a separate connection, which ends with the check. The daemon
reads no password, and the directory gives none out.

Servers are asked in their order. A server that did not answer is asked last for a few seconds, so
that a dead server does not cost each request its timeout. The first answer decides, yes or no.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hgfleet.auth.authenticator import Entry
from hgfleet.core.errors import ConfigurationError, UnavailableError
from hgfleet.directory import connection, entries
from hgfleet.directory.filters import escape, group_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.auth.settings import Config

    T = TypeVar("T")
    Found = list[tuple[str, dict[str, list[bytes]]]]

AVOIDED_S: Final = 5.0
"""How long a server that did not answer is asked last (seconds)."""

BUDGET_S: Final = 6.0
"""No further server is asked after that time (seconds); the worker waits a little longer."""

IDLE_S: Final = 30.0
"""A connection that was idle for so long is not used again: servers close idle connections."""

MOST_IDLE: Final = 16

NOBODY: Final = "nobody-has-this-name"


class LdapDirectory:
    """The directory as the daemon sees it. Safe in threads."""

    def __init__(
        self, config: Config, password: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not password:
            # A bind with a name and an empty password is anonymous and succeeds (RFC 4513 5.1.2).
            raise ConfigurationError("the password of the directory account is empty")
        connection.isolate()
        import ldap

        self._ldap: Any = ldap
        self._config = config
        self._password = password
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[float, Any]]] = {uri: [] for uri in config.uris}
        self._failed: dict[str, float] = {}

    def person(self, name: str) -> Entry | None:
        """Find an enabled person with groups; raise UnavailableError."""
        return self._ask(lambda uri: self._person_at(uri, name))

    def is_password(self, entry: Entry | None, password: str) -> bool:
        """Bind as the person, or as a person who does not exist; raise UnavailableError."""
        dn = bound_as(entry, self._config.people_base)
        is_right = self._ask(lambda uri: self._binds(uri, dn, password))
        return is_right and entry is not None

    def probe(self) -> list[tuple[str, str | None, float]]:
        """Ask every server for a name that does not exist; return URI, problem or None, seconds."""
        results = []
        for uri in self._config.uris:
            started = self._clock()
            problem = None
            try:
                self._person_at(uri, NOBODY)
            except UnavailableError as error:
                problem = str(error)
            results.append((uri, problem, self._clock() - started))
        return results

    # A single server

    def _person_at(self, uri: str, name: str) -> Entry | None:
        results = self._search(
            uri,
            self._config.people_base,
            f"(&(objectClass=person)(uid={escape(name)}))",
            ["uid", entries.ENTRY_UUID, "pwdAccountLockedTime"],
        )
        person = person_of(results, name)
        if person is None:
            return None
        dn, person_id = person
        groups = self._search(uri, self._config.groups_base, group_filter(dn), ["cn"])
        try:
            names, _ = entries.groups_of(groups)
        except entries.DeniedError:
            return None
        return Entry(name, dn, frozenset(names), person_id)

    def _binds(self, uri: str, dn: str, password: str) -> bool:
        ldap = self._ldap
        connection = self._connect(uri)
        try:
            connection.simple_bind_s(dn, password)
        except (
            ldap.INVALID_CREDENTIALS,
            ldap.INVALID_DN_SYNTAX,
            ldap.INAPPROPRIATE_AUTH,
            ldap.NO_SUCH_OBJECT,
            ldap.CONSTRAINT_VIOLATION,
            ldap.UNWILLING_TO_PERFORM,
        ):
            return False
        except ldap.LDAPError as error:
            raise UnavailableError(_problem("password", error)) from error
        finally:
            with contextlib.suppress(ldap.LDAPError):
                connection.unbind_s()
        return True

    def _search(self, uri: str, base: str, filter_: str, attributes: list[str]) -> Found:
        ldap = self._ldap
        connection = self._take_idle(uri)
        if connection is not None:
            try:
                return self._search_with(connection, uri, base, filter_, attributes)
            except ldap.LDAPError:
                # The server may have closed the idle connection; a new connection shows whether it
                # answers.
                connection = None
        try:
            connection = self._connect(uri)
            connection.simple_bind_s(self._config.bind_dn, self._password)
            return self._search_with(connection, uri, base, filter_, attributes)
        except ldap.LDAPError as error:
            raise UnavailableError(_problem("search", error)) from error

    def _search_with(
        self, connection: Any, uri: str, base: str, filter_: str, attributes: list[str]
    ) -> Found:
        timeout = self._config.timeout
        result = connection.search_ext_s(
            base, self._ldap.SCOPE_ONELEVEL, filter_, attributes, timeout=timeout
        )
        with self._lock:
            if len(self._idle[uri]) < MOST_IDLE:
                self._idle[uri].append((self._clock(), connection))
        # An entry without a DN is a referral to another server, which is not followed.
        return [(dn, entry) for dn, entry in result if dn is not None]

    def _take_idle(self, uri: str) -> Any:
        with self._lock:
            waiting = self._idle[uri]
            while waiting:
                when, connection = waiting.pop()
                if self._clock() - when < IDLE_S:
                    return connection
        return None

    def _connect(self, uri: str) -> Any:
        try:
            return connection.connect(
                self._ldap, uri, ca_file=self._config.ca_file, timeout=self._config.timeout
            )
        except ConfigurationError as error:
            raise UnavailableError(str(error)) from error

    # All servers

    def _ask(self, ask: Callable[[str], T]) -> T:
        started = self._clock()
        problems: list[str] = []
        for uri in self._order(started):
            if problems and self._clock() - started > BUDGET_S:
                break
            try:
                answer = ask(uri)
            except UnavailableError as error:
                problems.append(f"{uri} {error}")
                with self._lock:
                    self._failed[uri] = self._clock()
                continue
            with self._lock:
                self._failed.pop(uri, None)
            return answer
        raise UnavailableError("; ".join(problems))

    def _order(self, now: float) -> list[str]:
        with self._lock:
            failed = {uri for uri, when in self._failed.items() if now - when < AVOIDED_S}
        return order(self._config.uris, failed)


def order(uris: Sequence[str], failed: set[str]) -> list[str]:
    """The servers in the order to ask: as configured, and servers that just failed last."""
    return sorted(uris, key=failed.__contains__)  # which is stable


def bound_as(entry: Entry | None, people_base: str) -> str:
    """Return the DN of a bind; a name without an entry gets a DN that no person has.

    The provider logs binds, and a name without an entry may be a password in the wrong field.
    """
    return f"uid={NOBODY},{people_base}" if entry is None else entry.dn


def person_of(results: Found, name: str) -> tuple[str, str] | None:
    """The DN and the person id of the only enabled person of exactly this name, or None."""
    try:
        found_name, dn, attributes = entries.person_of(results)
    except entries.DeniedError:
        return None
    return (dn, entries.person_id_of(attributes)) if found_name == name else None


def _problem(step: str, error: Exception) -> str:
    return f"({step}: {connection.reason_of(error)})"
