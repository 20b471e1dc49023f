"""Verify: compare each repository of a mirror with the primary, by digests of both states.

A mirror is compared at the record that it shows. A mirror that is behind gets some time; a lag is
distinguished from a difference, which no further push repairs. The mirror's own registry says where
a repository is: the path on the primary may differ for a moment.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from hgfleet.core import identity
from hgfleet.core.errors import HgfleetError, PushlogError
from hgfleet.pushlog import chain, log_file
from hgfleet.replication.protocol import snapshot
from hgfleet.replication.repositories.errors import MissingError
from hgfleet.replication.repositories.registry_paths import RegistryPaths
from hgfleet.replication.source.client import GoneError, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.protocol.snapshot import Digests
    from hgfleet.replication.source.client import SourceClient

JOBS: Final = 2
PAUSE_S: Final = 0.5
PATIENCE_S: Final = 10.0
"""Seconds that a mirror may take to show a push that came during the comparison."""


class Finding(StrEnum):
    """Result for a repository."""

    EQUAL = "equal"
    BEHIND = "behind"
    """The mirror misses records; its applier fetches them."""
    AHEAD = "ahead"
    """The mirror has records that the primary does not have."""
    DIFFERENT = "different"
    """The states differ at the same record, or the chains differ."""
    MISSING = "missing"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"
    """It could not be compared."""


@dataclass(frozen=True, slots=True)
class Result:
    """The finding of a repository, and a sentence about it."""

    path: str
    finding: Finding
    text: str


def judge(here: Digests, there: Digests) -> tuple[Finding, str]:
    """Compare the state of a mirror with the state of the primary."""
    if here.id and there.id and here.repository != there.repository:
        return Finding.DIFFERENT, "its push log belongs to another repository"
    if here.id < there.id:
        return Finding.BEHIND, f"is at record {here.id}, the primary at {there.id}"
    if here.id > there.id:
        return Finding.AHEAD, f"has record {here.id}, the primary ends with {there.id}"
    differing = snapshot.differences(here, there)
    if differing:
        return Finding.DIFFERENT, f"differs at record {here.id} in {', '.join(differing)}"
    return Finding.EQUAL, f"is equal at record {here.id}"


class Verification:
    """A run on a mirror."""

    def __init__(self, settings: Settings, source: SourceClient) -> None:
        self._settings = settings
        self._source = source
        self._paths = RegistryPaths(settings)

    def run(
        self, paths: Iterable[str], tell: Callable[[Result], None], patience: float = PATIENCE_S
    ) -> list[Result]:
        """Compare repositories, by default all of the primary; `tell` gets each result.

        Raises UnavailableError if the source does not answer at the start, RegistryError if the
        registry of this mirror cannot be read.
        """
        known = {position.path: position for position in self._source.repositories()}
        wanted = list(paths) or sorted(known)

        def verified(path: str) -> Result:
            result = self._one(path, known.get(path), patience)
            tell(result)
            return result

        with ThreadPoolExecutor(JOBS, "verify") as pool:
            return list(pool.map(verified, wanted))

    def _one(self, path: str, position: Position | None, patience: float) -> Result:
        if position is None:
            return Result(path, Finding.UNKNOWN, "is no repository in service on the primary")
        if position.problem:
            return Result(path, Finding.UNKNOWN, f"the primary cannot read it: {position.problem}")
        try:
            place = self._settings.repositories / self._paths.read().path(position.identity)
        except MissingError as error:
            return Result(path, Finding.MISSING, str(error))
        if not (place / ".hg/store").is_dir():
            text = "is not on this mirror; its applier or `hgfleet replication resync` copies it"
            return Result(path, Finding.MISSING, text)
        if wrong := identity.problem(place, position.identity):
            return Result(path, Finding.DIFFERENT, wrong)
        if damage := damage_of(place / ".hg/store" / log_file.NAME):
            return Result(path, Finding.DAMAGED, damage)
        until = time.monotonic() + patience
        while True:
            try:
                here = self._state(place)
                finding, text = judge(here, self._source.digests(position.identity))
                if lost := loss_of(here, place / ".hg/store" / log_file.NAME):
                    finding, text = Finding.DAMAGED, lost
            except GoneError as error:
                return Result(path, Finding.UNKNOWN, str(error))
            except HgfleetError as error:
                finding, text = Finding.UNKNOWN, str(error)
            except Exception as error:
                # Mercurial has many classes of errors; here each means damage of this repository.
                return Result(path, Finding.DAMAGED, f"{type(error).__name__}: {error}")
            passing = finding in (Finding.BEHIND, Finding.AHEAD, Finding.UNKNOWN)
            if not passing or time.monotonic() >= until:
                return Result(path, finding, text)
            time.sleep(PAUSE_S)

    def _state(self, place: Path) -> Digests:
        from hgfleet.replication.source import changesets

        ui = changesets.new_ui(self._settings.hgrc)
        return snapshot.read(place, lambda: changesets.open_repository(ui, place)).digests()


def loss_of(here: Digests, log: Path) -> str:
    """Return how a state differs from the record that it belongs to; "" if it does not.

    This shows that a host lost changesets, even if the other host lost the same changesets.
    """
    for entry in log_file.entries(log):
        record = entry.record
        if record.id == here.id and record.heads.digest != here.heads:
            return f"its heads differ from the heads in its record {here.id}: it lost changesets"
    return ""


def damage_of(log: Path) -> str:
    """Return the damage of a push log; "" if each record continues the record before it."""
    try:
        for _ in chain.checked(log_file.entries(log)):
            pass
    except (PushlogError, OSError) as error:
        return str(error)
    return ""
