"""`hgfleet applier`: bring the pushes of the primary to this mirror."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from hgfleet.core import logfmt
from hgfleet.replication import applier, push_objects
from hgfleet.replication.command_line import add_config, settings_of
from hgfleet.replication.document_sync import DocumentSync
from hgfleet.replication.group_sync import syncing
from hgfleet.replication.jobs import Listed
from hgfleet.replication.registry_paths import RegistryPaths
from hgfleet.replication.settings import Role, Settings
from hgfleet.replication.source_client import SourceClient

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from hgfleet.replication.work import Worker


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet applier`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "applier",
        help="bring the pushes of the primary to this mirror",
        description="Apply every push of the primary to the repositories of this mirror, until "
        "stopped (what the unit hgfleet-applier runs).",
    )
    add_config(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    found = settings_of(
        options,
        Role.MIRROR,
        "the primary has the pushes already; the role `replication` runs the applier on mirrors "
        "alone",
    )
    os.environ.setdefault("HGRCPATH", str(found.hgrc))
    applier.run(found, parts(found))
    return 0


def parts(found: Settings) -> applier.Parts:
    """Return the functions of the applier of this host."""
    source = SourceClient(found)
    documents = DocumentSync(found, source, lambda sentence: say("documents", text=sentence))

    def listing() -> Iterator[Listed]:
        for one in source.repositories():
            # Of a primary of the release before, whose repository has no push yet.
            if one.identity:
                yield Listed(one.identity, one.id, one.hash, one.problem)

    return applier.Parts(
        partial(make_worker, found),
        listing,
        documents.run,
        documents.first,
        RegistryPaths(found).read,
        say,
        can_repair=True,
        held=documents.held,
        sync=syncing(found),
    )


def make_worker(found: Settings) -> Worker:
    """Make the worker of a process."""
    # Mercurial is imported in worker processes alone.
    from hgfleet.replication.registry_gate import Gate
    from hgfleet.replication.resync import resync
    from hgfleet.replication.work import Worker

    source, paths = SourceClient(found), RegistryPaths(found)

    def repair(identity: str) -> None:
        resync(found, source, identity, lambda text: say("resync", text=text), known=paths)

    gate = Gate(found, source, paths)
    kept = partial(push_objects.fetched, found)
    return Worker(found.repositories, paths, source, repair, gate, syncing(found), kept)


def say(event: str, **fields: object) -> None:
    """Write one structured line to the journal."""
    print(logfmt.line(event, **fields), flush=True)
