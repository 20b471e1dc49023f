"""Refusal of pushed phases and bookmarks of changesets that a repository does not have.

Core (7.2) ends such a request with an exception: `RepoLookupError` from `pushkey`, which is not an
`error.Error`, and errors of the changelog from the parts `phase-heads` and `bookmarks`. All of them
are faults of the client: its history is older or newer than the history here.

Only extensions import this module; it needs Mercurial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mercurial import bookmarks, encoding, error, extensions, phases, pushkey
from mercurial.node import hex as to_hex

from hgfleet.hg import push_outcome
from hgfleet.hg.hooks import refuse
from hgfleet.hg.sessions.incoming import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def install() -> None:
    """Wrap the functions that apply a push; core 7.2 has no hook before them."""
    extensions.wrapfunction(pushkey, "push", _push)
    extensions.wrapfunction(phases, "updatephases", _update_phases)
    extensions.wrapfunction(bookmarks.bmstore, "applychanges", _apply_changes)


def sentence(changeset: bytes, thing: str) -> str:
    """Return the refusal of a phase or bookmark of a changeset, whose full hash is given."""
    short = shown(changeset[:12])[1:-1]
    return (
        f"the changeset {short} is not here: got it for {thing}, expected a changeset that this "
        "repository has or that comes with the push; pull, then push again"
    )


def _push(
    original: Callable[..., bool], repo: Any, namespace: bytes, key: bytes, old: bytes, new: bytes
) -> bool:
    """Answer False, after a sentence, if a value of `pushkey` names an unknown changeset."""
    named = {b"phases": key, b"bookmarks": new}.get(namespace, b"")
    try:
        # Core deletes a bookmark that is set to the working directory.
        if not _is_working_directory(repo, named) and original(repo, namespace, key, old, new):
            return True
    except error.RepoLookupError:
        # Any other failed lookup, such as a hook's, is a defect of this service.
        if _missing(repo, namespace, key, new) is None:
            raise
    if missing := _missing(repo, namespace, key, new):
        push_outcome.record("invalid")
        repo.ui.warn(b"%s\n" % encoding.strtolocal(missing))
    return False


def _missing(repo: Any, namespace: bytes, key: bytes, new: bytes) -> str | None:
    """Return the sentence about the missing changeset; core sees hidden changesets for phases."""
    if namespace == b"phases" and not _has(repo.unfiltered(), key):
        return sentence(key, "a phase")
    if namespace == b"bookmarks" and new and not _has(repo, new):
        return sentence(new, f"the bookmark {shown(key)}")
    return None


def _has(repo: Any, name: bytes) -> bool:
    try:
        return not _is_working_directory(repo, name) and name in repo
    except error.ProgrammingError:
        # The name has another form than the full name of a changeset.
        return False


def _is_working_directory(repo: Any, name: bytes) -> bool:
    """Whether core takes this name for the working directory, which a server does not have."""
    return bool(name.lower() == repo.nodeconstants.wdirhex)


def _lookup(repo: Any) -> Callable[[bytes], bool]:
    """Return a function that tells if a changeset is here; core fails for the name ffff...

    (7.2).
    """
    none, has = repo.nodeconstants.wdirid, repo.unfiltered().changelog.hasnode
    return lambda node: node != none and has(node)


def _update_phases(
    original: Callable[..., None],
    repo: Any,
    transaction: Callable[[], Any],
    heads: Mapping[int, Iterable[bytes]],
) -> None:
    has = _lookup(repo)
    for nodes in heads.values():
        for node in nodes:
            if not has(node):
                refuse(repo.ui, sentence(to_hex(node), "a phase"), reason="invalid")
    original(repo, transaction, heads)


def _apply_changes(
    original: Callable[..., None],
    store: Any,
    repo: Any,
    transaction: Any,
    changes: list[tuple[bytes, bytes | None]],
) -> None:
    has = _lookup(repo)
    for bookmark, node in changes:
        if node is not None and not has(node):
            name = f"the bookmark {shown(bookmark)}"
            refuse(repo.ui, sentence(to_hex(node), name), reason="invalid")
    original(store, repo, transaction, changes)
