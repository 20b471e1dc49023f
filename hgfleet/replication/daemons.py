"""Daemons of replication: the applier, the relay, the source and the feed of events."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

from hgfleet.core import logfmt
from hgfleet.core.daemons import service, systemd
from hgfleet.core.errors import HostError
from hgfleet.replication.commands import settings_of
from hgfleet.replication.protocol.settings import Role, load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from hgfleet.replication.mirror.applier_parts import Parts
    from hgfleet.replication.mirror.jobs import Listed
    from hgfleet.replication.mirror.worker import Worker
    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.server import SourceServer


def say(event: str, **fields: object) -> None:
    """Write a structured line to the journal."""
    print(logfmt.line(event, **fields), flush=True)


def say_of(part: str) -> Callable[..., None]:
    """Return a function that writes an event of a part of the service to the journal."""
    return lambda event, **fields: say(f"{part}.{event}", **fields)


def applier(options: argparse.Namespace) -> int:
    """Apply pushes to this mirror until stopped."""
    from hgfleet.replication.mirror.applier import run

    settings = settings_of(
        options,
        Role.MIRROR,
        "the primary has the pushes already; the role `replication` runs the applier only on "
        "mirrors",
    )
    os.environ.setdefault("HGRCPATH", str(settings.hgrc))
    run(settings, parts(settings))
    return 0


def parts(settings: Settings) -> Parts:
    """Return the functions of the applier of this host."""
    from hgfleet.replication.mirror.applier_parts import Parts
    from hgfleet.replication.mirror.document_sync import DocumentSync
    from hgfleet.replication.mirror.jobs import Listed
    from hgfleet.replication.repositories.group_sync import syncing
    from hgfleet.replication.repositories.registry_paths import RegistryPaths
    from hgfleet.replication.source.client import SourceClient

    source = SourceClient(settings)
    documents = DocumentSync(settings, source, lambda sentence: say("documents", text=sentence))

    def listing() -> Iterator[Listed]:
        for remote in source.repositories():
            # A primary of the previous release names no identity before the first push.
            if remote.identity:
                yield Listed(remote.identity, remote.id, remote.hash, remote.problem)

    return Parts(
        partial(make_worker, settings),
        listing,
        documents.run,
        documents.first,
        RegistryPaths(settings).read,
        say,
        can_repair=True,
        held=documents.held,
        sync=syncing(settings),
    )


def make_worker(settings: Settings) -> Worker:
    """Make the worker of a process."""
    # Only worker processes import Mercurial.
    from hgfleet.replication.mirror.resync import resync
    from hgfleet.replication.mirror.worker import Worker
    from hgfleet.replication.protocol import push_objects
    from hgfleet.replication.repositories.group_sync import syncing
    from hgfleet.replication.repositories.readers_gate import Gate
    from hgfleet.replication.repositories.registry_paths import RegistryPaths
    from hgfleet.replication.source.client import SourceClient

    source, known = SourceClient(settings), RegistryPaths(settings)

    def repair(identity: str) -> None:
        resync(settings, source, identity, lambda text: say("resync", text=text), known=known)

    gate = Gate(settings, source, known)
    kept = partial(push_objects.fetched, settings)
    root = settings.repositories
    return Worker(root, known, source, repair, gate, syncing(settings), kept)


def relay(options: argparse.Namespace) -> int:
    """Publish the pushes of this primary until stopped."""
    reason = "the relay runs where pushes arrive; a mirror has an applier"
    serve(settings_of(options, Role.PRIMARY, reason))
    return 0


def serve(settings: Settings) -> None:
    """Run the relay until SIGTERM or SIGINT."""
    from hgfleet.replication.primary import document_watch
    from hgfleet.replication.primary.relay import Relay
    from hgfleet.replication.promotion import former_terms

    told = say_of("relay")
    name_former = former_terms.settle
    relay = Relay(settings, told, name_former=name_former, background=[document_watch.watch])
    service.run(relay.run(), told)


def source(options: argparse.Namespace) -> int:
    """Serve mirrors until stopped."""
    settings = settings_of(options, Role.PRIMARY, "mirrors have no source")
    address = options.address, options.port
    with source_server(settings, address, partial(print, flush=True)) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            # shutdown() waits for serve_forever(), which runs in this thread.
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
        systemd.notify("READY=1")
        server.serve_forever(poll_interval=0.5)
        systemd.notify("STOPPING=1")
    return 0


def source_server(settings: Settings, address: tuple[str, int], log: logfmt.Log) -> SourceServer:
    """Make the server of the source, listening. Raises ConfigurationError and HostError."""
    from hgfleet.replication.source.server import SourceServer

    try:
        return SourceServer(address, settings, log)
    except OSError as error:
        where = error.filename or f"{address[0]}:{address[1]}"
        raise HostError(f"{where}: {error.strerror or error}") from error


def events(options: argparse.Namespace) -> int:
    """Serve push events until stopped."""
    from hgfleet.replication.events.feed_server import FeedServer

    told = say_of("events")
    service.run(FeedServer(load(options.config), options.socket, told).run(), told)
    return 0
