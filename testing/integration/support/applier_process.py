"""The applier of a mirror as a process of its own, for tests; and pushes published by a test.

`python -m testing.integration.support.applier_process FILE` runs the applier with pickled settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats
from nats.js.api import StreamConfig

from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import PushMessage
from testing.support.pace import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.replication.protocol.settings import Settings
    from testing.integration.support.broker import Broker
    from testing.integration.support.primary import Primary

PATIENCE_SECONDS: Final = 120.0
"""For a state that comes, also on a machine under load."""


def wait_for(condition: Callable[[], Any], what: Callable[[], object] = lambda: "") -> None:
    """Wait for a condition; `what` is shown if it does not come."""
    deadline = Deadline(PATIENCE_SECONDS)
    while not condition():
        assert not deadline.is_over(), what()
        time.sleep(0.02)


class ApplierProcess:
    """An applier, to start, to stop and to kill."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        folder.mkdir(parents=True)
        self.log = folder / "applier.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        file = self.folder / "settings"
        file.write_bytes(pickle.dumps(self.settings))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, file],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"HGRCPATH": str(self.settings.hgrc)},
            )

    def stop(self) -> int:
        """End it in order; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """End it and its workers as the kernel does when a host has no memory left (kill -9)."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def workers(self) -> list[int]:
        """Return the processes that do jobs: the children of its fork server."""
        assert self.process is not None
        above = [self.process.pid]
        for _generation in range(2):
            above = [
                int(child)
                for pid in above
                for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            ]
        return above

    def state(self) -> dict[str, Any]:
        """Return the content of state.json; nothing before it is there."""
        try:
            content: dict[str, Any] = json.loads((self.settings.state / "state.json").read_bytes())
        except FileNotFoundError:
            return {"caught_up": False, "parked": {}, "waiting": 0}
        return content

    def wait_for(self, condition: Callable[[], Any]) -> None:
        wait_for(condition, lambda: f"{self.state()}\n{self.log.read_text()[-6000:]}")


async def _publish(broker: Broker, pushes: Iterable[PushMessage], again: bool) -> None:
    client = await nats.connect(broker.url)
    api = client.jetstream(timeout=60)
    await api.add_stream(
        StreamConfig(name=messages.PUSHES, subjects=["hgfleet.pushes.*"], duplicate_window=0.1)
    )
    for push in pushes:
        headers = push.headers()
        if again:
            headers[messages.MESSAGE_ID_HEADER] += ".again"
        subject = messages.pushes(push.record.repository)
        await api.publish(subject, push.body(), headers=headers)
    await client.close()


def publish_hint(broker: Broker) -> None:
    """Tell mirrors to look at the documents now; those that are connected know the stream."""

    async def tell() -> None:
        client = await nats.connect(broker.url)
        api = client.jetstream(timeout=60)
        await api.add_stream(
            StreamConfig(name=messages.DOCUMENTS, subjects=["hgfleet.documents.*"])
        )
        await api.publish(messages.documents("registry"), b"")
        await client.close()

    asyncio.run(tell())


def publish(broker: Broker, pushes: Iterable[PushMessage] = (), *, again: bool = False) -> None:
    """Create the stream unless it is there, and publish; `again` with ids that are new."""
    asyncio.run(_publish(broker, list(pushes), again))


def messages_of(
    primary: Primary, path: str, after: int = 0, registry: str = ""
) -> list[PushMessage]:
    """Return the messages of a repository's pushes, as the relay makes them."""
    return [
        PushMessage(path, e.line, e.record, primary.changegroup(e.record.changesets), registry)
        for e in primary.entries()
        if e.record.id > after
    ]


def main(file: Path) -> None:
    """Run the applier (the process of the test)."""
    from hgfleet.replication import daemons
    from hgfleet.replication.mirror import applier

    settings = pickle.loads(file.read_bytes())  # noqa: S301  (the test's own file)
    applier.run(settings, daemons.parts(settings))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
