"""Decisions of a promotion: pushes that would be lost, and those that are given up. Pure.

Every push that the stream, the former primary or another mirror has was acknowledged to a person.
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
"""Documents that are made by people; the others are made anew by jobs."""


@dataclass(frozen=True, slots=True)
class Known:
    """The last push of a repository that another place has; `hash` is empty where unknown.

    `path` names the repository for an operator: its path, or its identity where another one has the
    path now.
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
    """Why this mirror does not have it whole, where no other place tells how far it was."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Pushes whose loss an operator accepts."""

    path: str
    first: int
    last: int


def losses(tips: Mapping[str, Tip], known: Iterable[Known]) -> list[Loss]:
    """Return the pushes that other places have and this mirror has not; `tips` are by identity.

    A push of an epoch before that of the mirror's last one was given up by an earlier promotion.
    """
    found: dict[str, Loss] = {}
    for one in known:
        tip = tips.get(one.repository, Tip())
        if one.epoch < tip.epoch or not one.id:
            continue
        differs = one.id == tip.id and one.hash not in ("", tip.hash)
        if one.id <= tip.id and not differs:
            continue
        first = one.id if differs else tip.id + 1
        before = found.get(one.repository)
        if before is None or (one.id, -first) > (before.last, -before.first):
            found[one.repository] = Loss(one.path, one.repository, first, one.id, one.where)
    return sorted(found.values(), key=lambda loss: (loss.path, loss.first))


def incomplete(
    tips: Collection[str],
    paths: Mapping[str, str],
    parked: Mapping[str, tuple[str, str]],
    purged: Collection[str],
) -> dict[str, tuple[str, str]]:
    """Return path and reason of repositories that this mirror knows not to have whole, by identity.

    Those that it parked because pushes are missing, and those of the registry (`paths`) that are
    not among its logs, `tips`. What was deleted is named as purged, and nothing else was.
    """
    absent = "it is in the registry, and its push log is not there or cannot be read"
    found = {one: (path, absent) for one, path in paths.items() if one not in tips}
    found |= {one: (paths.get(one, path), reason) for one, (path, reason) in parked.items()}
    return {one: named for one, named in found.items() if one not in purged}


def unknown(
    tips: Mapping[str, Tip], doubtful: Mapping[str, tuple[str, str]], told: Collection[str]
) -> list[Loss]:
    """Return the repositories of which pushes may be lost although no place tells of any.

    `doubtful` are the incomplete ones. `told` are the identities whose newest push the former
    primary or the stream tells: messages that the stream has dropped for their age tell nothing.
    """
    found = []
    for repository, (path, reason) in sorted(doubtful.items()):
        if repository not in told:
            first = tips.get(repository, Tip()).id + 1
            found.append(Loss(path, repository, first, first, "", doubt=reason or "no reason"))
    return found


def named(former: str, repository: str, paths: Mapping[str, str]) -> str:
    """Return the name of a repository for an operator; `paths` has the paths of now by identity.

    `former` is its path when it was pushed to.
    """
    if repository in paths:
        return paths[repository]
    return repository if former in paths.values() else former


def missing_documents(have: Mapping[str, str], listed: Iterable[Document]) -> list[str]:
    """Return people's changes on the former primary that this mirror does not have yet.

    `have` is the sha256 of documents by name.
    """
    wanted = {one.name: one.sha256 for one in listed}
    return [
        words
        for name, words in _OF_PEOPLE.items()
        if name in wanted and have.get(name) != wanted[name]
    ]


def parse_accepted(text: str) -> Accepted:
    """Read PATH@ID or PATH@FIRST-LAST. Raises UsageError."""
    found = _ACCEPTED.fullmatch(text)
    if found is None:
        raise UsageError(f"--accept-loss: got {text!r}, expected PATH@ID or PATH@FIRST-LAST")
    first = int(found["first"])
    return Accepted(found["path"], first, int(found["last"] or first))


def refused(found: Iterable[Loss], accepted: Sequence[Accepted]) -> list[Loss]:
    """Return the losses that the operator has not named whole."""
    return [
        loss
        for loss in found
        if not any(
            one.path == loss.path and one.first <= loss.first and loss.last <= one.last
            for one in accepted
        )
    ]


def sentence(loss: Loss) -> str:
    """Describe a loss with the option that accepts it."""
    ids = str(loss.first) if loss.first == loss.last else f"{loss.first}-{loss.last}"
    by = f" by {', '.join(loss.users)}" if loss.users else ""
    if loss.doubt:
        return (
            f"{loss.path}: this mirror does not have it whole ({loss.doubt}), and neither the "
            "former primary nor the brokers, which keep 7 days, tell how far it was: push "
            f"{ids} and later ones may be lost; --accept-loss {loss.path}@{ids} gives them up"
        )
    return (
        f"{loss.path}: push {ids}{by} is known to {loss.where}, and this mirror does not have it; "
        f"--accept-loss {loss.path}@{ids} gives it up"
    )
