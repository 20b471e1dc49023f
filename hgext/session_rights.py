"""check the rights of a session again at each command, and end a session that is too old.

``hgfleet-shell`` decides once who may read the repository of a session, and core reads the
generated hgrc once. A session may go on for hours. This extension checks again before each command
of a client over SSH, after a wait in the queue of clones, and when a transaction opens:

==============================  ==============================================================
state                           answer
==============================  ==============================================================
all as at the beginning         two or three calls of stat
the folder is another, or is    the session ends: the repository was renamed, archived, or
gone                            replaced by another repository at its path
the repository has not the      the same: the folder was replaced before hg opened it
identity of the entry
the generated hgrc changed      the session ends; the next session has the new settings
the registry changed since the  the session ends if the person may not read the path any more,
session was admitted            or another repository has the path
the directory has not been      ``hgfleet-people`` is asked: the session ends if the person was
asked for almost a minute       disabled, left a group, has not the key of the session any more, or
                                is another person of the same name
the session is older than       the session ends before its next command
``session-max`` seconds
==============================  ==============================================================

A session that ends says so in a sentence, and the client can connect again. The check comes before
any part of a command. An answer that is on its way is sent to its end. If the directory does not
answer, the session ends after ten minutes (``hgfleet.directory.person_watch``).

::

  [hgfleet]
  # seconds from the start of a session to its last command; 0: no limit
  session-max = 43200
  # the socket that reports the state of a person; empty: the person is as at the login
  session-people = /run/hgfleet-people/socket
  # the two files of the registry
  session-compiled = /var/lib/hgfleet/registry.json
  session-dynamic = /var/lib/hgfleet/dynamic/registry.json

Enable it for everything that runs on the server::

  [extensions]
  session_rights = /opt/hgfleet/current/hgext/session_rights.py
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from mercurial import (
    config,
    encoding,
    error,
    extensions,
    registrar,
    wireprotoserver,
    wireprotov1server,
)

from hgfleet.core.paths import COMPILED, DYNAMIC
from hgfleet.directory.person_watch import PersonWatch, login_age
from hgfleet.hg import opened_identity
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer
from hgfleet.hg.opened_place import OpenedPlace
from hgfleet.hg.sessions import session_checks, session_start
from hgfleet.hg.sessions.incoming import SessionEndError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.directory.person_state import PersonState

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"session-max", default=43200)
configitem(b"hgfleet", b"session-people", default=b"")
configitem(b"hgfleet", b"session-compiled", default=os.fsencode(COMPILED))
configitem(b"hgfleet", b"session-dynamic", default=os.fsencode(DYNAMIC))

_DECIDING = (
    *(b"path", b"owner", b"read", b"push", b"read-only"),
    *(b"policies", b"rules", b"accept-dates"),
)
"""Settings of a generated hgrc about rights (hgfleet/registry/model/repository_hgrc.py)."""

_IDENTITY = os.fsencode(opened_identity.VARIABLE)

Stamp = tuple[int, ...]


class RightsChangedError(Exception):
    """The facts that admitted the session have changed; the sentence is for the person."""


def watched_person(ui: Any) -> PersonWatch | None:
    """Return the watch of the person of this session; None if there is nothing to watch."""
    socket = os.fsdecode(ui.config(b"hgfleet", b"session-people"))
    principal = writer()
    if not socket or not principal.name or OPERATOR.fullmatch(principal.name):
        return None

    def ask(person: str) -> PersonState:
        # Imported here, since most sessions end before the first question.
        from hgfleet.directory import person_state

        return person_state.ask(person, socket)

    environ = encoding.environ
    key = text(environ.get(b"HGFLEET_KEY", b""))
    return PersonWatch(
        principal,
        key if key.startswith("SHA256:") else "",
        ask,
        age=login_age(text(environ.get(b"HGFLEET_LOGIN", b"")), time.time()),
        now=time.monotonic(),
    )


class Rights:
    """The facts that admitted a session, and whether they still hold."""

    def __init__(self, repo: Any) -> None:
        """Record the state at the beginning of a session; the repository has just been opened."""
        self._place = OpenedPlace(repo.path)
        self._repo = repo
        expected = text(encoding.environ.get(_IDENTITY, b""))
        self._is_expected = expected in ("", opened_identity.of(repo))
        self._hgrc = repo.vfs.join(b"hgrc")
        # If the file changes now, the content is as of the stamp or later: the next check reads it.
        self._stamp = stamp(self._hgrc)
        settings = content(self._hgrc)
        # If the hgrc changed after hg read it, the first check ends the session.
        self._settings = settings if are_read(repo.ui, settings) else None
        if self._settings is None:
            self._stamp = ()
        self._path = text(repo.ui.config(b"hgfleet", b"path") or b"")
        self._files = tuple(
            repo.ui.config(b"hgfleet", name) for name in (b"session-compiled", b"session-dynamic")
        )
        registry = tuple(map(stamp, self._files))
        # If the registry changed after `hgfleet-shell` read it, the first check reads it.
        is_old = not any(status and session_start.is_since(status[-1]) for status in registry)
        self._registry = registry if is_old else None

    def check(self) -> None:
        """Raise RightsChangedError if the session may not go on."""
        name = self._path or "this repository"
        if not (self._is_expected and self._place.is_there()):
            raise RightsChangedError(
                f"{name} was renamed, archived or replaced while this session was open; run the "
                "command again"
            )
        now = stamp(self._hgrc)
        if now != self._stamp or self._settings is None:
            # It may have been written again without a change.
            if content(self._hgrc) != self._settings:
                raise RightsChangedError(
                    f"the settings of {name} changed while this session was open; run the command "
                    "again"
                )
            self._stamp = now
        registry = tuple(map(stamp, self._files))
        if registry != self._registry:
            if not self._may_read():
                raise RightsChangedError(
                    f"the rights to {name} changed while this session was open; run the command "
                    "again"
                )
            self._registry = registry

    def _may_read(self) -> bool:
        from hgfleet.core.errors import RegistryError
        from hgfleet.registry.dynamic import user_repositories
        from hgfleet.registry.model.permissions import may_read

        principal = writer()
        if not self._path or not principal.name or OPERATOR.fullmatch(principal.name):
            return True
        compiled, dynamic = map(os.fsdecode, self._files)
        try:
            registry = user_repositories.load_effective(compiled, dynamic, lambda _problem: None)
        except RegistryError:
            # A new session would be refused too; the operators have the reason in its log line.
            return False
        repository = registry.repositories.get(self._path)
        if repository is None or not may_read(repository, principal):
            return False
        # Read now: the first `registry apply` gives an identity to a repository that is open.
        return repository.identity in ("", opened_identity.of(self._repo))


def stamp(path: bytes) -> Stamp:
    """Return the part of a stat that changes with the content; empty for a missing file."""
    try:
        status = os.stat(path)  # noqa: PTH116  (bytes, and pathlib is slow to import)
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def content(path: bytes) -> bytes:
    """Return the bytes of a file; empty if it is missing."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (bytes, and pathlib is slow to import)
            return file.read()
    except OSError:
        return b""


def are_read(ui: Any, settings: bytes) -> bool:
    """Whether hg has read this generated hgrc, and not an earlier version."""
    parsed = config.config()
    try:
        parsed.parse(b"hgrc", settings)
    except error.ConfigError:
        return False
    has = dict(ui.configitems(b"hgfleet", untrusted=True))
    return all(parsed.get(b"hgfleet", name) == has.get(name) for name in _DECIDING)


def uisetup(_ui: Any) -> None:
    """Wrap a session and the only function of core 7.2 that begins each of its commands."""
    extensions.wrapfunction(wireprotoserver, "_runsshserver", session)
    extensions.wrapfunction(wireprotov1server, "dispatch", command)


def reposetup(_ui: Any, repo: Any) -> None:
    """Check when a transaction opens: a push may have waited for the lock."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"pretxnopen.session_rights", opening, b"session_rights")


def session(original: Callable[..., None], ui: Any, repo: Any, *more: Any, **named: Any) -> None:
    """Serve a session whose rights are checked again and again."""
    rights = Rights(repo)
    person = watched_person(ui)
    limit = ui.configint(b"hgfleet", b"session-max")
    end = time.monotonic() + limit if limit else float("inf")

    def check() -> None:
        try:
            rights.check()
        except RightsChangedError as changed:
            raise SessionEndError("changed", str(changed)) from changed
        if person is not None and (sentence := person.check(time.monotonic())):
            raise SessionEndError("changed", sentence)
        if time.monotonic() >= end:
            raise SessionEndError(
                "too-old", f"this session is older than {limit} seconds; run the command again"
            )

    token = session_checks.leave(check)
    try:
        original(ui, repo, *more, **named)
    finally:
        session_checks.forget(token)


def command(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Check before a command begins."""
    session_checks.run()
    return original(*arguments, **named)


def opening(ui: Any, **_kwargs: object) -> None:
    """Refuse a transaction of a session whose rights changed (a hook)."""
    try:
        session_checks.run()
    except SessionEndError as end:
        refuse(ui, f"{end}; nothing was changed", reason="replaced")
