"""look at the rights of a session again at each command, and end a session that is too old.

``hgfleet-shell`` decides once who may read the repository of a session, and core reads the
generated hgrc once. A session may go on for hours. This extension looks again before each command
of a client over SSH, after a wait in the queue of clones, and when a transaction opens:

==============================  ==============================================================
state                           answer
==============================  ==============================================================
all as at the beginning         two or three calls of stat
the folder is another one, or   the session ends: the repository was renamed, archived, or
gone                            replaced by another one at its path
the repository has not the      the same: the folder was replaced before hg opened it
identity of the entry
the generated hgrc changed      the session ends; the next one has the new settings
the registry changed since the  the session ends if the person may not read the path any more,
session was let in              or the path is that of another repository
the directory has not been      ``hgfleet-people`` is asked: the session ends if the person was
asked for almost a minute       disabled, left a group, has not the key of the session any more, or
                                is another person of the same name
the session is older than       the session ends before its next command
``session-max`` seconds
==============================  ==============================================================

A session that ends says so in one sentence, and the client can connect again. Nothing of a command
is done before the look. An answer that is on its way is sent to its end. A directory that does not
answer ends a session after ten minutes (``hgfleet.directory.person_watch``).

::

  [hgfleet]
  # seconds from the start of a session to its last command; 0: no limit
  session-max = 43200
  # the socket that tells the state of a person; empty: the person is that of the login
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
from hgfleet.hg import opened_identity, session_checks, session_start
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer
from hgfleet.hg.incoming import SessionEndError
from hgfleet.hg.opened_place import OpenedPlace

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
"""Settings of a generated hgrc that decide about rights (hgfleet/registry/hgrc.py)."""

_IDENTITY = os.fsencode(opened_identity.VARIABLE)

Stamp = tuple[int, ...]


class RightsChangedError(Exception):
    """What the session was let in by is not as it was; the sentence is for the person."""


def watched_person(ui: Any) -> PersonWatch | None:
    """Return the watch of the person of this session; None where there is none to ask about."""
    socket = os.fsdecode(ui.config(b"hgfleet", b"session-people"))
    principal = writer()
    if not socket or not principal.name or OPERATOR.fullmatch(principal.name):
        return None

    def ask(person: str) -> PersonState:
        # Here, since most sessions end before the first question.
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
    """What a session was let in by, and whether that still holds."""

    def __init__(self, repo: Any) -> None:
        """Note the state at the beginning of a session; the repository has just been opened."""
        self._place = OpenedPlace(repo.path)
        self._repo = repo
        expected = text(encoding.environ.get(_IDENTITY, b""))
        self._is_expected = expected in ("", opened_identity.of(repo))
        self._hgrc = repo.vfs.join(b"hgrc")
        # Of a file that changes now, the content is of the stamp or later: the next look reads it.
        self._stamp = stamp(self._hgrc)
        settings = content(self._hgrc)
        # One that changed after hg read it ends the session at the first look.
        self._settings = settings if are_read(repo.ui, settings) else None
        if self._settings is None:
            self._stamp = ()
        self._path = text(repo.ui.config(b"hgfleet", b"path") or b"")
        self._files = tuple(
            repo.ui.config(b"hgfleet", name) for name in (b"session-compiled", b"session-dynamic")
        )
        registry = tuple(map(stamp, self._files))
        # One that changed after `hgfleet-shell` read it is asked at the first look.
        is_old = not any(found and session_start.is_since(found[-1]) for found in registry)
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
            # It may have been written again as it was.
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
        from hgfleet.registry import user_repositories
        from hgfleet.registry.permissions import may_read

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
        # Read now: the first `registry apply` gives one to a repository that is open.
        return repository.identity in ("", opened_identity.of(self._repo))


def stamp(path: bytes) -> Stamp:
    """Return the part of a stat that changes with the content; empty for a missing file."""
    try:
        found = os.stat(path)  # noqa: PTH116  (bytes, and pathlib is slow to import)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def content(path: bytes) -> bytes:
    """Return the bytes of a file, none of a missing one."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (bytes, and pathlib is slow to import)
            return file.read()
    except OSError:
        return b""


def are_read(ui: Any, settings: bytes) -> bool:
    """Whether hg has read this generated hgrc, and not the one before it."""
    found = config.config()
    try:
        found.parse(b"hgrc", settings)
    except error.ConfigError:
        return False
    has = dict(ui.configitems(b"hgfleet", untrusted=True))
    return all(found.get(b"hgfleet", name) == has.get(name) for name in _DECIDING)


def uisetup(_ui: Any) -> None:
    """Wrap a session and the one place where core 7.2 begins each of its commands."""
    extensions.wrapfunction(wireprotoserver, "_runsshserver", session)
    extensions.wrapfunction(wireprotov1server, "dispatch", command)


def reposetup(_ui: Any, repo: Any) -> None:
    """Look when a transaction opens: a push may have waited for the lock."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"pretxnopen.session_rights", opening, b"session_rights")


def session(original: Callable[..., None], ui: Any, repo: Any, *more: Any, **named: Any) -> None:
    """Serve a session whose rights are looked at again and again."""
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
    """Look before a command begins."""
    session_checks.run()
    return original(*arguments, **named)


def opening(ui: Any, **_kwargs: object) -> None:
    """Refuse a transaction of a session whose rights changed (a hook)."""
    try:
        session_checks.run()
    except SessionEndError as end:
        refuse(ui, f"{end}; nothing was changed", reason="replaced")
