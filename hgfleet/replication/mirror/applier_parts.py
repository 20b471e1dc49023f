"""Functions that the applier is made of, so that tests give it others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgfleet.replication.mirror import state_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.replication.mirror.jobs import Listed
    from hgfleet.replication.repositories.registry_paths import Known


@dataclass(frozen=True, slots=True)
class Parts:
    """Functions that the applier calls in threads, or in its workers (`make_worker`).

    `listing` yields the primary's repositories, `documents` brings the documents of the primary and
    returns the number of changes, `first` brings the registry or the tokens and returns whether
    there was a change, `registry` reads the registry of this mirror, `held` says what it does not
    follow the primary in.
    """

    make_worker: Callable[[], Any]
    listing: Callable[[], Iterable[Listed]]
    documents: Callable[[], int]
    first: Callable[[str], bool]
    registry: Callable[[], Known]
    say: Callable[..., None]
    can_repair: bool = False
    held: Callable[[], state_file.Held] = state_file.Held
    sync: Callable[[], None] | None = None
    """Has the repositories on the disk; raises HostError."""
