"""Decisions of a promotion: pushes that would be lost, and pushes that are given up. Pure.

Every push that the stream, the former primary or another mirror has was acknowledged to a user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import UsageError
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.documents import documents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from hgfleet.replication.documents.documents import Document

_ACCEPTED: Final = re.compile(r"(?P<path>[^@]+)@(?P<first>[0-9]{1,18})(?:-(?P<last>[0-9]{1,18}))?")


_OF_PEOPLE: Final = {
    documents.REGISTRY: "the list of user repositories",
    documents.TOKENS: "the access tokens",
}
"""Documents that users change; jobs make the others again."""


@dataclass(frozen=True, slots=True)
class Known:
    """The last push of a repository that another place has; `hash` is empty if unknown.

    `path` names the repository for an operator: its path, or its identity if another repository has
    the path now.
    """

    where: str
    path: str
    repository: str
    id: int
    hash: str = ""
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """Pushes `first` to `last` of a repository that the new primary would not have."""

    path: str
    repository: str
    first: int
    last: int
    where: str
    users: tuple[str, ...] = ()
    doubt: str = ""
    """Why this mirror misses pushes, if no other place knows the last push."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Pushes whose loss an operator accepts."""

    path: str
    first: int
    last: int


def losses(tips: Mapping[str, Tip], known: Iterable[Known]) -> list[Loss]:
    """Return the pushes that other places have and this mirror does not; `tips` are by identity.

    If the epoch of a push is before the epoch of the mirror's last push, an earlier promotion gave
    the push up.
    """
    missing: dict[str, Loss] = {}
    for push in known:
        tip = tips.get(push.repository, Tip())
        if push.epoch < tip.epoch or not push.id:
            continue
        differs = push.id == tip.id and push.hash not in ("", tip.hash)
        if push.id <= tip.id and not differs:
            continue
        first = push.id if differs else tip.id + 1
        before = missing.get(push.repository)
        if before is None or (push.id, -first) > (before.last, -before.first):
            missing[push.repository] = Loss(push.path, push.repository, first, push.id, push.where)
    return sorted(missing.values(), key=lambda loss: (loss.path, loss.first))


def incomplete(
    tips: Collection[str],
    paths: Mapping[str, str],
    parked: Mapping[str, tuple[str, str]],
    purged: Collection[str],
) -> dict[str, tuple[str, str]]:
    """Return path and reason, by identity, of repositories of which this mirror misses pushes.

    These are the repositories that it parked because pushes are missing, and repositories of the
    registry (`paths`) that are not among its logs, `tips`. Deleted repositories are in `purged`.
    """
    absent = "it is in the registry, but its push log is missing or cannot be read"
    doubtful = {key: (path, absent) for key, path in paths.items() if key not in tips}
    doubtful |= {key: (paths.get(key, path), reason) for key, (path, reason) in parked.items()}
    return {key: named for key, named in doubtful.items() if key not in purged}


def unknown(
    tips: Mapping[str, Tip], doubtful: Mapping[str, tuple[str, str]], told: Collection[str]
) -> list[Loss]:
    """Return the repositories that may lose pushes although no place knows of any.

    `doubtful` are the incomplete repositories. `told` are the identities whose newest push the
    former primary or the stream knows; the stream has dropped old messages, so it may know none.
    """
    unknown_losses = []
    for repository, (path, reason) in sorted(doubtful.items()):
        if repository not in told:
            first = tips.get(repository, Tip()).id + 1
            unknown_losses.append(
                Loss(path, repository, first, first, "", doubt=reason or "no reason")
            )
    return unknown_losses


def named(former: str, repository: str, paths: Mapping[str, str]) -> str:
    """Return the name of a repository for an operator; `paths` has present paths by identity.

    `former` is its path when it was pushed to.
    """
    if repository in paths:
        return paths[repository]
    return repository if former in paths.values() else former


def missing_documents(have: Mapping[str, str], listed: Iterable[Document]) -> list[str]:
    """Return users' changes on the former primary that this mirror does not have yet.

    `have` is the sha256 of documents by name.
    """
    wanted = {document.name: document.sha256 for document in listed}
    return [
        words
        for name, words in _OF_PEOPLE.items()
        if name in wanted and have.get(name) != wanted[name]
    ]


def parse_accepted(text: str) -> Accepted:
    """Read PATH@ID or PATH@FIRST-LAST. Raises UsageError."""
    match = _ACCEPTED.fullmatch(text)
    if match is None:
        raise UsageError(f"--accept-loss: got {text!r}, expected PATH@ID or PATH@FIRST-LAST")
    first = int(match["first"])
    return Accepted(match["path"], first, int(match["last"] or first))


def refused(found: Iterable[Loss], accepted: Sequence[Accepted]) -> list[Loss]:
    """Return the losses that the operator has not accepted in full."""
    return [
        loss
        for loss in found
        if not any(
            given.path == loss.path and given.first <= loss.first and loss.last <= given.last
            for given in accepted
        )
    ]


def sentence(loss: Loss) -> str:
    """Describe a loss with the option that accepts it."""
    ids = str(loss.first) if loss.first == loss.last else f"{loss.first}-{loss.last}"
    by = f" by {', '.join(loss.users)}" if loss.users else ""
    if loss.doubt:
        return (
            f"{loss.path}: this mirror may miss pushes ({loss.doubt}), and neither the former "
            "primary nor the brokers, which keep 7 days, know the last push: push "
            f"{ids} and later pushes may be lost; --accept-loss {loss.path}@{ids} gives them up"
        )
    return (
        f"{loss.path}: push {ids}{by} is known to {loss.where}, but this mirror does not have it; "
        f"--accept-loss {loss.path}@{ids} gives it up"
    )
