"""A real nats-server with JetStream on 127.0.0.1, to stop, to kill and to start again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = "/usr/sbin/nats-server"
"""Debian's package nats-server; ./run-tests installs it for this tier."""

START_SECONDS: Final = 60.0
"""How long a start may take on a machine under load."""


class Broker:
    """A broker; its streams and its port stay the same over restarts.

    `more` is text for its configuration: TLS, users, limits.
    """

    def __init__(self, folder: Path, more: str = "", *, scheme: str = "nats") -> None:
        self.folder, self.more, self.scheme = folder, more, scheme
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log = folder / "nats.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; returns when it takes connections."""
        configuration = self.folder / "nats.conf"
        configuration.write_text(
            f"listen: 127.0.0.1:{self.port}\n"
            f'jetstream {{ store_dir: "{self.folder / "jetstream"}" }}\n{self.more}\n'
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [shutil.which("nats-server") or PROGRAM, "--config", configuration],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if self._answers(deadline):
                return
            # A client of another program may have the port for a moment.
            self.kill()
            if time.monotonic() > deadline:
                raise AssertionError(f"nats-server does not start:\n{self.log.read_text()[-2000:]}")

    def _answers(self, deadline: float) -> bool:
        assert self.process is not None
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                self.information()
                return True
            time.sleep(0.02)
        return False

    def information(self) -> dict[str, Any]:
        """Return the server's description of itself to a client that connects."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            line = connection.makefile("rb").readline()
        if not line.startswith(b"INFO "):
            raise ValueError(f"not a broker: {line!r}")
        information: dict[str, Any] = json.loads(line[5:])
        return information

    def kill(self) -> None:
        """End it as a power cut does to a process (kill -9)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop its process where it is: connections stay, and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        # Its threads go on until one of them has taken the signal.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Have a paused process go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


def free_port() -> int:
    """Return a port of 127.0.0.1 that no program has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
