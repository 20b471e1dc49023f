"""One run of the probes: a clone, its result in the history, and the page of it in the store."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hgfleet.core import files, logfmt
from hgfleet.core.errors import ConfigurationError, TemporaryError
from hgfleet.objectstore.bucket import Bucket
from hgfleet.objectstore.settings import credentials
from hgfleet.probes import clone, history, page
from hgfleet.probes.history import History, Result

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.probes.settings import Settings

UNIT: Final = "hgfleet-probes.service"

STORE_SECONDS: Final = 5.0
"""Wait for the store: a page is small, and the next run comes within a minute."""


def run(settings: Settings) -> None:
    """Probe once. A clone that fails is a result; its problem goes to the journal.

    Raises ConfigurationError without a repository, TemporaryError while another run is under way,
    UnavailableError if the store does not answer, StoreError if it refuses.
    """
    if not settings.clone_url:
        raise ConfigurationError(
            "no repository to clone; expected monitoring_probe_repository in the inventory"
        )
    with files.open_folder(settings.state) as folder:
        if not files.try_lock(folder):
            raise TemporaryError("another run of the probes is under way; try again later")
        found = history.add(known(settings.state), _clone(settings))
        history.save(found, settings.state)
        if settings.store is not None:
            now = time.time()
            upload(settings, render(settings, found, now))
            history.save(replace(found, uploaded=now), settings.state)


def known(folder: Path) -> History:
    """Return the history; a damaged one begins anew, and the journal tells of it."""
    try:
        return history.load(folder)
    except ValueError as error:
        _warn("probes.history", problem=error)
        return History()


def render(settings: Settings, found: History, now: float) -> bytes:
    """Render the page with the settings of this host."""
    return page.render(settings.title, settings.clone_url, found, settings.incidents, now)


def upload(settings: Settings, content: bytes) -> None:
    """Replace the page in the store."""
    assert settings.store is not None
    bucket = Bucket(
        settings.store, credentials(settings.store.name, unit=UNIT), settings.ca, STORE_SECONDS
    )
    bucket.put_page(page.INDEX, content, page.CONTENT_TYPE, page.MAX_AGE)


def _clone(settings: Settings) -> Result:
    begun = time.time()
    seconds, problem = clone.attempt(settings)
    if problem:
        _warn("probes.clone", result="failed", seconds=seconds, problem=problem)
        return Result(begun, None)
    print(logfmt.line("probes.clone", result="succeeded", seconds=seconds), flush=True)
    return Result(begun, seconds)


def _warn(event: str, **fields: object) -> None:
    # The prefix is systemd's for a warning; the unit leaves lines below out of the journal.
    print(f"<4>{logfmt.line(event, **fields)}", flush=True)
