"""Jobs of the applier's workers, and their results, as they pass between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from hgfleet.pushlog.log_file import Tip

if TYPE_CHECKING:
    from hgfleet.replication.mirror.failures import Failure


class Listed(NamedTuple):
    """A repository in service on the primary, and the end of its push log there."""

    identity: str
    id: int = 0
    hash: str = ""
    problem: str = ""
    """Why the primary cannot read the repository; then id and hash have no meaning."""


class Task(StrEnum):
    """Task of a job."""

    APPLY = "apply"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Job:
    """Work on a repository; the worker looks up its path in the registry.

    `messages` are (line, changegroup); `up_to_date` asks the source for more.
    """

    identity: str
    messages: tuple[tuple[bytes, bytes], ...] = ()
    up_to_date: bool = False
    task: Task = Task.APPLY
    stamps: frozenset[str] = frozenset()
    """Stamps of the primary's registry, from messages that came since the last documents."""


@dataclass(frozen=True, slots=True)
class Result:
    """The position after a job, and the failure that ended it."""

    tip: Tip = field(default_factory=Tip)
    failure: Failure | None = None
