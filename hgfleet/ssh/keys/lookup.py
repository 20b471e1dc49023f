"""Lookup of the person with a key or a name, on the directory's servers in their order."""

from __future__ import annotations

import posix
import time

from hgfleet.core.errors import ConfigurationError, UnavailableError
from hgfleet.directory import connection, publickey
from hgfleet.directory.entries import (
    ENTRY_UUID,
    DeniedError,
    groups_of,
    person_id_of,
    person_of,
    values,
)
from hgfleet.directory.filters import group_filter, key_filter, name_filter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Protocol

    from hgfleet.directory.entries import Entry
    from hgfleet.ssh.keys.settings import Config

    class Directory(Protocol):
        """A bound connection."""

        def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
            """Return the entries directly below `base` that match; raise UnavailableError."""

    Connect = Callable[[Config, str], Directory]


class Allowed:
    """A person whom a directory server found, with that server; `key` as the directory has it."""

    def __init__(
        self, person: str, groups: tuple[str, ...], key: publickey.PublicKey | None = None
    ) -> None:
        self.person = person
        self.groups = groups
        self.key = key
        self.person_id = ""
        self.source = ""
        self.passed_over = ""
        self.unsafe_groups = 0

    def fields(self) -> dict[str, object]:
        """Return the fields for the log; the id distinguishes people of the same name."""
        return {
            "person": self.person,
            "person_id": self.person_id or None,
            "groups": ",".join(self.groups) or None,
            "unsafe_groups": self.unsafe_groups or None,
            "source": self.source,
            "passed_over": self.passed_over or None,
        }


class Connection:
    """A bound connection through libldap; it closes when the process ends, a moment later."""

    def __init__(self, config: Config, uri: str) -> None:
        # Read here and not with the configuration, because a refused question does not need it.
        password = connection.read_password(config.bind_password_file)
        connection.isolate()
        import _ldap

        self._ldap: Any = _ldap
        self._deadline = time.monotonic() + config.timeout
        self._connection = connection.connect(
            _ldap, uri, ca_file=config.ca_file, timeout=config.timeout
        )
        self._call("bind", lambda: self._connection.simple_bind(config.bind_dn, password))

    def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
        """Return the entries directly below `base` that match; raise UnavailableError."""
        scope = self._ldap.SCOPE_ONELEVEL
        result: list[tuple[str | None, Any]] = self._call(
            "search", lambda: self._connection.search_ext(base, scope, filter_, attributes)
        )
        # An entry without a DN is a referral to another server, which is not followed.
        return [(dn, attributes) for dn, attributes in result if dn is not None]

    def _call(self, step: str, start: Callable[[], int]) -> Any:
        try:
            message = start()
            # A single deadline for all steps with a server. Never 0 or less, which means "for
            # ever".
            left = max(0.001, self._deadline - time.monotonic())
            return self._connection.result4(message, 1, left)[1]
        except self._ldap.LDAPError as error:
            raise UnavailableError(f"({step}: {connection.reason_of(error)})") from error


def key_of(
    stored: Sequence[bytes], asked: publickey.PublicKey, allowed: Iterable[str], name: str
) -> publickey.PublicKey:
    """Return the stored key that equals the client's and has no options."""
    problems = []
    for value in stored:
        try:
            key = publickey.parse(value.decode("utf-8"), frozenset(allowed))
        except publickey.BadKeyError as error:
            problems.append(error.reason)
        except UnicodeDecodeError:
            problems.append("not-text")
        else:
            if key == asked:
                return key
            problems.append("other-key")
    raise DeniedError("directory-key", ",".join(problems[:5]) or "no-key", name)


def in_order(uris: Sequence[str], stale: bool) -> list[str]:
    """Return the servers in the order to ask: a replica that is stale comes last."""
    return sorted(uris, key=is_replica) if stale else list(uris)


def is_replica(uri: str) -> bool:
    """Whether this is the server of this host."""
    return uri.startswith("ldapi:")


def is_stale(config: Config) -> bool:
    """Whether the replica of this host is behind its provider now."""
    return _exists(config.stale_file)


def find_person(
    config: Config, asked: publickey.PublicKey | str, connect: Connect = Connection
) -> Allowed:
    """Find the person with a key or a name. The first server that answers decides.

    Raises DeniedError, also if no person has this key and if no server answers.
    """
    by_name = isinstance(asked, str)
    search = name_filter(asked) if isinstance(asked, str) else key_filter(asked.fingerprint)
    attributes = ["uid", ENTRY_UUID, "pwdAccountLockedTime"]
    attributes += [] if by_name else ["sshPublicKey"]
    failures = []
    for uri in in_order(config.uris, is_stale(config)):
        try:
            directory = connect(config, uri)
            name, dn, entry = person_of(directory.search(config.people_base, search, attributes))
            key = None
            if isinstance(asked, str):
                # The directory may compare more loosely (case, blanks) than sshd, which demands
                # the name in the certificate.
                if name != asked:
                    raise DeniedError("name", dn)
            else:
                key = key_of(values(entry, "sshPublicKey"), asked, config.key_types, name)
            groups, unsafe = groups_of(
                directory.search(config.groups_base, group_filter(dn), ["cn"])
            )
        except UnavailableError as error:
            failures.append(f"{uri} {error}")
            continue
        except DeniedError as denied:
            denied.source = uri
            raise
        allowed = Allowed(name, groups, key)
        allowed.person_id = person_id_of(entry)
        allowed.source = uri
        allowed.passed_over = "; ".join(failures)
        allowed.unsafe_groups = unsafe
        return allowed
    raise DeniedError("unavailable", "; ".join(failures))


def probe(config: Config, connect: Connect = Connection) -> list[tuple[str, str | None, float]]:
    """Ask every server for a key that does not exist; return URI, problem or None, seconds."""
    results = []
    unused = publickey.fingerprint(b"")
    for uri in config.uris:
        start = time.monotonic()
        problem = None
        try:
            connect(config, uri).search(config.people_base, key_filter(unused), ["uid"])
        except (UnavailableError, ConfigurationError, OSError) as error:
            problem = str(error)
        results.append((uri, problem, time.monotonic() - start))
    return results


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True
