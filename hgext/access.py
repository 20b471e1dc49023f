"""refuse writes of people who may not push.

This extension runs in the hg that serves a repository and checks who opens a transaction. Every
change of a repository's content needs a transaction (a push, a bookmark, a phase, a strip, a
local commit), so there is no second way in: it does not matter whether the write arrives over
SSH, over HTTPS or from a shell on the server.

The rights are in the hgrc of the repository, written from the registry by
``hgfleet registry apply``::

  [hgfleet]
  # the path of the repository in the registry, for messages
  path = sandbox/playground
  # groups whose members may push; empty: only the owner
  push = maintainers sandbox
  # "public", or the groups whose members may read; pushing needs the right to read
  read = public
  # the person who created it over SSH, and so may push
  owner = bob
  # the repositories that people created, with the person id of each owner
  dynamic = /var/lib/hgfleet/dynamic/registry.json
  # the reason why pushes are refused at the moment
  read-only = moving to another host until noon

The person is in the environment, set by ``hgfleet-shell`` for each session and never by data of
the client:

``HGFLEET_USER``
  The name of the person. ``operator:NAME`` is an administrator at a shell of the server, who may
  write everywhere; that is logged.

``HGFLEET_PERSON_ID``
  The entryUUID of the person's entry, where the directory gives it.

``HGFLEET_GROUPS``
  The person's groups, separated by commas.

==============================  ==============================================================
state                           answer
==============================  ==============================================================
person in one of the groups     may write
the owner                       may write
another person of that name     refused, unless in one of the groups
person in none of them          refused; the sentence names the groups
``read-only`` has a reason      refused except for operators; the sentence has the reason
no ``HGFLEET_USER``             refused (a web worker, a forgotten job, a plain shell)
``operator:NAME``               may write, logged; NAME has to be a name
no ``path`` or ``read``         refused except for operators: ``registry apply`` has not seen
                                this repository
another repository is now at    refused: the session was admitted to the repository that it
the path                        opened; a copy (``HGFLEET_SOURCE_IDENTITY``) of another one ends
==============================  ==============================================================

Every decision is logged with the event ``access`` (see :hg:`help -e blackbox`).

Enable it for everything that runs on the server::

  [extensions]
  access = /opt/hgfleet/current/hgext/access.py
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from mercurial import encoding, error, registrar

from hgfleet.core.errors import RegistryError
from hgfleet.core.paths import DYNAMIC
from hgfleet.hg import early_refusal, opened_identity
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer
from hgfleet.hg.opened_place import OpenedPlace
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model.permissions import may_push, owns, push_refusal
from hgfleet.registry.model.registry import Repository

if TYPE_CHECKING:
    from hgfleet.core.principal import Principal
    from hgfleet.registry.dynamic.entry import Entry

testedwith = b"7.2"
minimumhgversion = b"7.2"

_SOURCE = opened_identity.SOURCE.encode("ascii")

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"dynamic", default=os.fsencode(DYNAMIC))
configitem(b"hgfleet", b"owner", default=None)
configitem(b"hgfleet", b"path", default=None)
configitem(b"hgfleet", b"push", default=list)
configitem(b"hgfleet", b"read", default=list)
configitem(b"hgfleet", b"read-only", default=None)


class Answer(NamedTuple):
    """Whether the write may begin, and the reason in a word; `message` is for a person."""

    allowed: bool
    reason: str
    message: str = ""


def decide(principal: Principal, repository: Repository | None) -> Answer:
    """Decide from the session's person and the registry's entry of the repository."""
    user = principal.name
    if OPERATOR.fullmatch(user):
        return Answer(True, "operator")
    if not user or ":" in user:
        return Answer(
            False,
            "nobody",
            f"writing to {repository.path if repository else 'this repository'} needs a name: "
            "push over SSH, or set HGFLEET_USER=operator:NAME as an administrator of this host",
        )
    if repository is None:
        return Answer(
            False,
            "unregistered",
            f"{user} may not push here: this repository is not in the registry; "
            "an operator has to declare it and run the play",
        )
    allowed = may_push(repository, principal)
    if repository.read_only is not None:
        reason = "read-only"
    else:
        reason = "owner" if owns(repository, principal) else "groups"
    return Answer(allowed, reason, "" if allowed else push_refusal(repository, principal))


def registered(ui: Any) -> Repository | None:
    """Return the repository as the generated hgrc describes it, None without an entry."""
    path = ui.config(b"hgfleet", b"path")
    # An empty list is an answer (only the owner reads it), a missing list is not.
    if not path or not ui.hasconfig(b"hgfleet", b"read"):
        return None
    read = tuple(text(name) for name in ui.configlist(b"hgfleet", b"read"))
    owner = text(ui.config(b"hgfleet", b"owner") or b"")
    entry = entry_of(ui, text(path), owner) if owner else None
    reason = ui.config(b"hgfleet", b"read-only")
    return Repository(
        path=text(path),
        description="",
        read="public" if read == ("public",) else read,
        push=tuple(text(name) for name in ui.configlist(b"hgfleet", b"push")),
        publishing=True,
        bundles=(),
        read_only=text(reason) if reason else None,
        owner=owner or None,
        owner_id=entry.owner_id if entry is not None else "",
        created=entry.created if entry is not None else "",
    )


def entry_of(ui: Any, path: str, owner: str) -> Entry | None:
    """Return the entry of the owner in the registry, or None.

    It is needed only for a person with the owner's name. Raises RegistryError.
    """
    if owner != writer().name:
        return None
    file = os.fsdecode(ui.config(b"hgfleet", b"dynamic"))
    entry = user_repositories.load(file).repositories.get(path)
    return entry if entry is not None and entry.owner == owner else None


def reposetup(_ui: Any, repo: Any) -> None:
    """Put the check in front of every transaction of a repository on this host's disk."""
    if repo.local():
        _refuse_another_source(repo)
        # The overlay wins over every hgrc, so no configuration file can remove the hook.
        repo.ui.setconfig(b"hooks", b"pretxnopen.access", check, b"access")
        # Sessions without a name (web workers) never write, and keep many repositories open.
        if writer().name:
            repo.__class__ = _refusing_another(repo.__class__, OpenedPlace(repo.path))


def _refuse_another_source(repo: Any) -> None:
    """End a copy of a repository if another repository is now at the path of its source.

    The copy itself has no identity yet.
    """
    expected = text(encoding.environ.get(_SOURCE, b""))
    if expected and opened_identity.of(repo) not in ("", expected):
        raise error.Abort(
            b"another repository is at this path than the one to copy: it was renamed or replaced",
            hint=b"nothing was copied; try again",
        )


def _refusing_another(base: Any, opened: OpenedPlace) -> Any:
    """Return a class of repositories that only locks the folder that was opened.

    A push waits for the lock by the path of the repository. In that time, the repository may be
    renamed and another repository created at its path: the lock would belong to that repository.
    """

    class _SameRepository(base):  # type: ignore[misc]  # core has no published types
        def lock(self, *arguments: Any, **named: Any) -> Any:
            return self._of_the_same(super().lock, *arguments, **named)

        def wlock(self, *arguments: Any, **named: Any) -> Any:
            return self._of_the_same(super().wlock, *arguments, **named)

        def _of_the_same(self, take: Any, *arguments: Any, **named: Any) -> Any:
            lock = None
            try:
                lock = take(*arguments, **named)
            except (OSError, error.LockUnavailable):
                if opened.is_there():
                    raise
            if not opened.is_there():
                if lock is not None:
                    lock.release()
                path = text(self.ui.config(b"hgfleet", b"path") or b"this repository")
                refuse(
                    self.ui,
                    f"{path} was renamed, archived or replaced while this session used it; nothing "
                    "was changed, push again",
                    reason="replaced",
                )
            return lock

    return _SameRepository


def extsetup(_ui: Any) -> None:
    """Refuse a push before its data is read, so that a reader cannot fill the disk."""
    early_refusal.add(early_refusal.RIGHTS, refusal)


def refusal(ui: Any) -> early_refusal.Refusal | None:
    """Return why the person of this session may not push, None if they may."""
    answer = ask(ui)
    if answer.allowed:
        return None
    log_decision(ui, answer, b"unbundle")
    return early_refusal.Refusal(answer.message, counted_as(answer))


def check(ui: Any, txnname: bytes = b"", **_kwargs: object) -> None:
    """Refuse the transaction of a person who may not write (a hook)."""
    answer = ask(ui)
    log_decision(ui, answer, txnname.split(b"\n")[0])
    if not answer.allowed:
        refuse(ui, answer.message, reason=counted_as(answer))


def ask(ui: Any) -> Answer:
    """Decide whether the person of this session may write."""
    try:
        return decide(writer(), registered(ui))
    except RegistryError as problem:
        return Answer(False, "registry", f"nothing may be written at the moment: {problem}")


def counted_as(answer: Answer) -> str:
    """Return the reason of a refusal for metrics."""
    return "read-only" if answer.reason == "read-only" else "access"


def log_decision(ui: Any, answer: Answer, operation: bytes) -> None:
    """Log a decision on an operation."""
    ui.log(
        b"access",
        b"%s: user=%s reason=%s transaction=%s\n",
        b"allowed" if answer.allowed else b"refused",
        encoding.strtolocal(writer().name) or b"-",
        answer.reason.encode("ascii"),
        operation,
    )
