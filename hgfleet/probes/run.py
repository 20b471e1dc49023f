"""A run of the probes: a clone, a push, their results in the history, their page in the store."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hgfleet.core import files, logfmt
from hgfleet.core.errors import ConfigurationError, TemporaryError
from hgfleet.objectstore.settings import credentials
from hgfleet.probes import clone, page, push, result_history
from hgfleet.probes.result_history import CLONE, PROBES, PUSH, History, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hgfleet.probes.settings import Settings

UNIT: Final = "hgfleet-probes.service"

STORE_SECONDS: Final = 5.0
"""Timeout of the store: a page is small, and the next run comes within a minute."""


def run(settings: Settings) -> None:
    """Probe once. A clone or push that fails is a result; its problem goes to the journal.

    Raises ConfigurationError without a repository or a key, TemporaryError while another run is
    under way, UnavailableError if the store does not answer, StoreError if it refuses.
    """
    if not settings.clone_url:
        raise ConfigurationError(
            "no repository to clone; expected monitoring_probe_repository in the inventory"
        )
    with files.open_folder(settings.state) as folder:
        if not files.try_lock(folder):
            raise TemporaryError("another run of the probes is under way; try again later")
        histories = dict(known(settings))
        for probe, attempt in _attempts(settings).items():
            histories[probe] = result_history.add(histories[probe], _result(probe, attempt))
            result_history.save(histories[probe], settings.state, probe)
        if settings.store is not None:
            now = time.time()
            upload(settings, render(settings, histories, now))
            result_history.save(replace(histories[CLONE], uploaded=now), settings.state, CLONE)


def known(settings: Settings) -> Mapping[str, History]:
    """Return the history of each probe of this host, in the order of the page.

    A damaged history starts again from zero, and is reported in the journal.
    """
    return {probe: _known(settings.state, probe) for probe in PROBES if settings.has(probe)}


def render(settings: Settings, histories: Mapping[str, History], now: float) -> bytes:
    """Render the page with the settings of this host."""
    return page.render(settings.title, settings.clone_url, histories, settings.incidents, now)


def upload(settings: Settings, content: bytes) -> None:
    """Replace the page in the store."""
    # Imported by each run, for 0.1 s of processor time: the waiting service needs 6 MiB less.
    from hgfleet.objectstore.put import put

    assert settings.store is not None
    put(
        settings.store,
        credentials(settings.store.name, unit=UNIT),
        settings.ca,
        STORE_SECONDS,
        page.INDEX,
        content,
        {
            "Content-Type": page.CONTENT_TYPE,
            "Cache-Control": f"public, max-age={page.MAX_AGE}",
        },
    )


def _known(folder: Path, probe: str) -> History:
    try:
        return result_history.load(folder, probe)
    except ValueError as error:
        _warn("probes.history", probe=probe, problem=error)
        return History()


def _attempts(settings: Settings) -> Mapping[str, Callable[[], tuple[float, str]]]:
    attempts: dict[str, Callable[[], tuple[float, str]]] = {CLONE: lambda: clone.attempt(settings)}
    pushed = settings.push
    if pushed is not None:
        attempts[PUSH] = lambda: push.attempt(settings, pushed)
    return attempts


def _result(probe: str, attempt: Callable[[], tuple[float, str]]) -> Result:
    begun = time.time()
    seconds, problem = attempt()
    if problem:
        _warn(f"probes.{probe}", result="failed", seconds=seconds, problem=problem)
        return Result(begun, None)
    print(logfmt.line(f"probes.{probe}", result="succeeded", seconds=seconds), flush=True)
    return Result(begun, seconds)


def _warn(event: str, **fields: object) -> None:
    # The prefix marks a warning for systemd; the unit keeps less severe lines out of the journal.
    print(f"<4>{logfmt.line(event, **fields)}", flush=True)
