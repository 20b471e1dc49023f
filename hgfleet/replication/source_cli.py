"""`hgfleet source`: serve mirrors what the messages of pushes do not carry (a systemd unit)."""

from __future__ import annotations

import argparse
import signal
import threading
from typing import TYPE_CHECKING, Final

from hgfleet.core import logfmt, systemd
from hgfleet.core.errors import ConfigurationError, HostError
from hgfleet.replication.command_line import add_config
from hgfleet.replication.settings import SOURCE_PORT, Role, load

if TYPE_CHECKING:
    from hgfleet.replication.settings import Settings
    from hgfleet.replication.source_server import SourceServer

_EPILOG: Final = """\
Mirrors of this primary fetch changesets, push logs, the registry of user repositories, tokens (as
hashes) and bundles here. A mirror shows the certificate of its host; other hosts are refused. The
unit hgfleet-source.service runs this as the user hg.

example:
  hgfleet source --port 7460
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `source`."""
    parser = subparsers.add_parser(
        "source",
        help="serve mirrors what the messages of pushes do not carry",
        description="Serve mirrors what the messages of pushes do not carry, over mutual TLS.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(parser)
    parser.add_argument(
        "--address", default="::", help="address to listen at (default: all of this host)"
    )
    parser.add_argument("--port", type=int, default=SOURCE_PORT, help=f"port ({SOURCE_PORT})")
    parser.set_defaults(run=_run)


def make(settings: Settings, address: tuple[str, int], log: logfmt.Log) -> SourceServer:
    """Make the server, listening. Raises ConfigurationError and HostError."""
    from hgfleet.replication.source import Source
    from hgfleet.replication.source_server import SourceServer

    if settings.role is not Role.PRIMARY:
        raise ConfigurationError(
            f"role: got {settings.role.value!r}, expected 'primary': mirrors have no source"
        )

    def complain(sentence: str) -> None:
        log(logfmt.line("source-problem", error=sentence))

    try:
        return SourceServer(address, Source(settings, complain), settings, log)
    except OSError as error:
        where = error.filename or f"{address[0]}:{address[1]}"
        raise HostError(f"{where}: {error.strerror or error}") from error


def _run(options: argparse.Namespace) -> int:
    def log(line: str) -> None:
        print(line, flush=True)

    server = make(load(options.config), (options.address, options.port), log)
    for number in (signal.SIGTERM, signal.SIGINT):
        # shutdown() waits for serve_forever(), which is this thread's.
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        systemd.notify("READY=1")
        server.serve_forever(poll_interval=0.5)
        systemd.notify("STOPPING=1")
    return 0
