"""The probes as a service: a run each minute, and when the service is reloaded.

    systemctl reload hgfleet-probes      # a run now; returns when it is done

The service has Mercurial loaded. Each run is a fork of the service, so files and memory of a run
end with it.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from typing import TYPE_CHECKING, Final

from hgfleet.core import logfmt
from hgfleet.core.daemons import periodic
from hgfleet.core.errors import HgfleetError
from hgfleet.probes import client
from hgfleet.probes.run import run
from hgfleet.probes.settings import load

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

EVERY_SECONDS: Final = 60.0
"""Time between the begins of two runs."""

_FORK: Final = multiprocessing.get_context("fork")


def serve(path: Path) -> NoReturn:
    """Probe until the process ends; each run reads the settings again.

    Raises ConfigurationError if the settings are wrong at the start.
    """
    load(path)
    client.load()
    # A garbage collection in a fork would write to, and so copy, the memory that both share.
    gc.collect()
    gc.freeze()
    periodic.repeat(lambda: _fork_run(path), EVERY_SECONDS)


def _fork_run(path: Path) -> None:
    process = _FORK.Process(target=_run, args=(path,))
    process.start()
    process.join()
    process.close()


def _run(path: Path) -> None:
    try:
        run(load(path))
    except HgfleetError as error:
        print(f"<4>{logfmt.line('probes.run', problem=error)}", flush=True)
        sys.exit(error.exit_code)
