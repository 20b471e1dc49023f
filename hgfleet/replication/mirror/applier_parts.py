"""Functions that the applier is made of, so that tests can replace them."""

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

    `listing` yields the primary's repositories, `documents` fetches the documents of the primary
    and returns the number of changes, `first` fetches the registry or the tokens and returns
    whether they changed, `registry` reads the registry of this mirror, `held` returns the points in
    which the mirror does not follow the primary.
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
    """Writes the repositories through to the disk; raises HostError."""
