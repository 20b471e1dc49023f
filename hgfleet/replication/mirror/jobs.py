"""Jobs of the applier's workers, and their results: what passes between processes."""

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
    """Why the primary cannot read the repository; id and hash say nothing then."""


class Task(StrEnum):
    """What a job does."""

    APPLY = "apply"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Job:
    """Work on one repository; the worker looks up its path in the registry.

    `messages` are (line, changegroup); `up_to_date` asks the source for more.
    """

    identity: str
    messages: tuple[tuple[bytes, bytes], ...] = ()
    up_to_date: bool = False
    task: Task = Task.APPLY
    stamps: frozenset[str] = frozenset()
    """Of the primary's registry, by messages that came since the last documents."""


@dataclass(frozen=True, slots=True)
class Result:
    """The position after a job, and why it did not get further."""

    tip: Tip = field(default_factory=Tip)
    failure: Failure | None = None
