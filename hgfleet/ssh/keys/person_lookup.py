"""Lookup of a person's state on the directory's servers in their order, cached for seconds.

The replica of this host is asked last while it is behind. Such a replica is then no evidence that a
person is not enabled: it may have been emptied, or not know yet that the person was enabled again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import UnavailableError
from hgfleet.directory import publickey
from hgfleet.directory.entries import (
    ENTRY_UUID,
    DeniedError,
    groups_of,
    person_id_of,
    person_of,
    texts,
)
from hgfleet.directory.filters import any_name_filter, group_filter
from hgfleet.directory.person_state import (
    DISABLED,
    ENABLED,
    MISSING,
    PATIENCE_S,
    UNCLEAR,
    PersonState,
)
from hgfleet.ssh.keys import lookup, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.directory.entries import Attributes
    from hgfleet.ssh.keys.lookup import Connect, Directory
    from hgfleet.ssh.keys.settings import Config

KEEP_S: Final = 10.0
"""How long "enabled" is cached. A build farm asks about the same person in many sessions."""

ANSWER_S: Final = PATIENCE_S - 0.5
"""For all servers together, so that a server that does not answer leaves time for the next
(seconds). A login has the whole timeout of the settings for each server."""

MOST_KEPT: Final = 10_000

_ATTRIBUTES: Final = ["uid", ENTRY_UUID, "pwdAccountLockedTime", "sshPublicKey", "sshPublicKeyId"]


def find(config: Config, name: str, connect: Connect = lookup.Connection) -> PersonState:
    """Return the state of a person. The first server that answers decides.

    Raises UnavailableError if none does, and ConfigurationError.
    """
    failures = []
    seconds = min(config.timeout, ANSWER_S / len(config.uris))
    config = settings.Config(**{**vars(config), "timeout": seconds})
    is_stale = lookup.is_stale(config)
    for uri in lookup.in_order(config.uris, is_stale):
        try:
            person = _at(connect(config, uri), config, name)
        except UnavailableError as error:
            failures.append(f"{uri} {error}")
            continue
        if person.state != ENABLED and is_stale and lookup.is_replica(uri):
            return PersonState(UNCLEAR)
        return person
    raise UnavailableError("; ".join(failures))


def _at(directory: Directory, config: Config, name: str) -> PersonState:
    entries = directory.search(config.people_base, any_name_filter(name), _ATTRIBUTES)
    try:
        exact, dn, attributes = person_of(entries)
        # The directory may compare more loosely than a login does.
        if exact != name:
            return PersonState(UNCLEAR)
        groups, _ = groups_of(directory.search(config.groups_base, group_filter(dn), ["cn"]))
    except DeniedError as denied:
        if denied.reason == "disabled" and denied.person == name:
            return PersonState(DISABLED, person_id=person_id_of(entries[0][1]))
        return PersonState(MISSING if denied.reason == "unknown" else UNCLEAR)
    keys = fingerprints(attributes, config.key_types)
    return PersonState(ENABLED, frozenset(groups), keys, person_id_of(attributes))


def fingerprints(attributes: Attributes, allowed: frozenset[str]) -> frozenset[str]:
    """Return the fingerprints of the keys that a login accepts: stored and indexed."""
    # The search of a login ignores blanks at either end (caseExactMatch, RFC 4518).
    indexed = {text.strip(" ") for text in texts(attributes, "sshPublicKeyId")}
    stored = set()
    for text in texts(attributes, "sshPublicKey"):
        try:
            stored.add(publickey.parse(text, allowed).fingerprint)
        except publickey.BadKeyError:
            continue
    return frozenset(indexed & stored)


class Kept:
    """Enabled people, each cached for `KEEP_S`. Safe in threads.

    Other states are not cached: with an old answer, the sweep would remove a token that its owner
    made after being enabled again.
    """

    def __init__(
        self,
        ask: Callable[[str], PersonState],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, PersonState]] = OrderedDict()

    def find(self, name: str) -> PersonState:
        """Return the state of a person; raise the errors of the question, which are not cached."""
        now = self._clock()
        with self._lock:
            kept = self._kept.get(name)
        if kept is not None and now - kept[0] < KEEP_S:
            return kept[1]
        person = self._ask(name)
        with self._lock:
            self._kept.pop(name, None)
            if person.state == ENABLED:
                # The age counts from before the question was asked.
                self._kept[name] = (now, person)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return person
