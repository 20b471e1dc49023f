"""A primary: real repositories with push logs, and the relay's settings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hgfleet.core import identity as identities
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import Heads, Record
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.settings import Role, Settings
from testing.integration.support.site import TOP, Site

if TYPE_CHECKING:
    from testing.integration.support.broker import Broker

HGRC = """
[ui]
username = alice
[phases]
publish = no
"""


class Primary(Site):
    """A host whose repositories are pushed to by `push`."""

    def __init__(self, root: Path, broker: Broker, mirrors: tuple[str, ...] = ()) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(root, HGRC)
        self.register(Registry(MappingProxyType({})))
        for folder in ("run", "state", "positions", "terms", "fence"):
            (root / folder).mkdir()
        self.settings = Settings(
            role=Role.PRIMARY,
            host="hg1",
            primary="hg1",
            source="https://hg1:7460",
            brokers=(broker.url,),
            mirrors=mirrors,
            lease_seconds=5.0,
            repositories=self.repos,
            compiled=self.registry,
            dynamic=self.dynamic,
            hgrc=self.hgrc,
            wake=root / "run/wake.sock",
            positions=root / "positions",
            state=root / "state",
            terms=root / "terms",
            fence=root / "fence",
        )

    def add(self, *paths: str) -> None:
        """Create repositories, and register them."""
        for path in paths:
            self.create(path)
            file = self.path(path) / identities.FILE
            file.write_text(identities.text(f"{sum(map(ord, path)):032x}"))
        self.register_all(*paths)

    def register_all(self, *paths: str) -> None:
        """Register only these repositories."""
        made = [Repository(path, "", "public", (), True, ()) for path in paths]
        self.register(Registry(MappingProxyType({entry.path: entry for entry in made})))

    def people_create(self, path: str, identity: str) -> None:
        """Create the repository of a person, as `repo create` does."""
        self.dynamic.parent.mkdir(exist_ok=True)
        self.create(path)
        (self.path(path) / identities.FILE).write_text(identities.text(identity))
        with dynamic_update.update(self.dynamic) as entries:
            entries[path] = Entry("bob", created="2026-11-21T00:00:00Z", identity=identity)

    def people_archive(self, path: str, *, back: bool = False) -> None:
        """Take a repository out of service, or bring it back."""
        with dynamic_update.update(self.dynamic) as entries:
            archived = None if back else "2026-11-22T00:00:00Z"
            entries[path] = replace(entries[path], archived=archived)

    def people_delete(self, path: str) -> None:
        """Delete a repository for good."""
        with dynamic_update.update(self.dynamic) as entries:
            entries.note_purged(entries[path].identity)
            del entries[path]
        shutil.rmtree(self.path(path))

    def people_rename(self, old: str, new: str) -> None:
        """Rename a repository."""
        with dynamic_update.update(self.dynamic) as entries:
            entries[new] = entries[old]
            del entries[old]
        self.path(old).rename(self.path(new))

    def store(self, path: str) -> Path:
        """Return the store of a repository."""
        return self.path(path) / ".hg/store"

    def push(self, path: str, content: str = "", *, changesets: int = 1) -> Record:
        """Add changesets and their record, as a push does."""
        before = log_file.tip(self.store(path) / log_file.NAME).id
        nodes = [
            self.commit(path, f"file{number}", f"{content} {before} {number}")
            for number in range(changesets)
        ]
        return self.record(path, tuple(nodes))

    def record(self, path: str, nodes: tuple[str, ...] = (), **more: Any) -> Record:
        """Append a record to the log of a repository."""
        made = self.next_record(path, nodes, **more)
        with (self.store(path) / log_file.NAME).open("ab") as log:
            log.write(made.line() + b"\n")
        return made

    def next_record(self, path: str, nodes: tuple[str, ...] = (), **more: Any) -> Record:
        """Return the record that could follow in the log of a repository."""
        tip = log_file.tip(self.store(path) / log_file.NAME)
        identity = tip.repository or identities.of(self.path(path)) or f"{sum(map(ord, path)):032x}"
        made = Record(
            id=tip.id + 1,
            repository=identity,
            kind="push",
            user="alice",
            time=1795440000000 + tip.id,
            previous=tip.hash,
            changesets=nodes,
            heads=Heads(digest=Heads.digest_of(nodes)),
        )
        return replace(made, **more)

    def start_relay(self, log: int, *dies: str) -> subprocess.Popen[str]:
        """Start the relay as a process of its own, its events to a file of `subprocess`.

        With `dies` "before" or "after" it kills itself at its third message to the stream of
        pushes, or to the stream that follows.
        """
        data = asdict(self.settings)
        for name, value in data.items():
            if isinstance(value, Path):
                data[name] = str(value)
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "testing.integration.replication.primary",
                json.dumps(data),
                *dies,
            ],
            env=self.environment(PYTHONPATH=str(TOP)),
            stdout=log,
            text=True,
        )


def die(when: str, stream: str = messages.PUSHES) -> None:
    """Have this process killed at a stream's third message: before it is sent, or when stored."""
    from hgfleet.replication.primary.broker import Broker as Connection

    publish, sent = Connection.publish, []

    async def deadly(*arguments: Any) -> tuple[int, bool]:
        if stream not in arguments:
            return await publish(*arguments)
        sent.append(1)
        if when == "after":
            answer = await publish(*arguments)
        if len(sent) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer if when == "after" else await publish(*arguments)

    Connection.publish = deadly  # type: ignore[method-assign]


def main(text: str, *dies: str) -> None:
    """Run a relay with settings from the command line."""
    from hgfleet.replication.daemons import serve

    if dies:
        die(*dies)
    data = json.loads(text)
    for name, value in data.items():
        if isinstance(value, list):
            data[name] = tuple(value)
        elif isinstance(getattr(Settings, name, None), Path):
            data[name] = Path(value)
    serve(Settings(**data | {"role": Role(data["role"])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
