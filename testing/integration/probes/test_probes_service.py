"""The probes as a service: a real process, which runs, is reloaded, and goes on after failures."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hgfleet.probes import result_history

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.conftest import WaitFor

CLOSED = "http://127.0.0.1:1/canary"
"""No server is there, so each clone fails at once."""


class Service:
    """The process, and its messages to systemd."""

    def __init__(self, root: Path) -> None:
        self.state, self.settings = root / "state", root / "probes.toml"
        self.state.mkdir()
        self.configure()
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._channel.bind(str(root / "notify"))
        self._channel.settimeout(30)
        self._output = (root / "output").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hgfleet", "probes", "--config", self.settings, "serve"],
            env={**os.environ, "NOTIFY_SOCKET": str(root / "notify")},
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def configure(self, more: str = "") -> None:
        """Write the settings."""
        self.settings.write_text(f'clone_url = "{CLOSED}"\nstate = "{self.state}"\n{more}')

    def told(self) -> str:
        """Return the next message to systemd."""
        return self._channel.recv(4096).decode()

    def attempts(self) -> int:
        """Return the number of clones in the history."""
        return result_history.load(self.state, result_history.CLONE).total.attempts

    def said(self) -> str:
        """Return the output so far."""
        self._output.seek(0)
        return self._output.read()

    def stop(self) -> int:
        """Stop the process as systemd does; return the exit code."""
        self.process.terminate()
        code = self.process.wait(20)
        self._channel.close()
        self._output.close()
        return code


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    try:
        assert service.told() == "READY=1"
        yield service
    finally:
        service.stop()


def test_the_first_run_is_at_once_and_a_reload_is_another(service: Service) -> None:
    assert service.told() == "READY=1\nWATCHDOG=1"
    assert service.attempts() == 1
    service.process.send_signal(signal.SIGHUP)
    assert service.told().startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert service.told() == "READY=1\nWATCHDOG=1"
    assert service.attempts() == 2
    assert service.said().count("<4>event=probes.clone result=failed") == 2


def test_a_reload_during_a_run_is_followed_by_a_run(service: Service) -> None:
    """The signal comes before the end of the first run, which began at once."""
    service.process.send_signal(signal.SIGHUP)
    seen = [service.told()]
    while not seen[-1].startswith("RELOADING=1"):
        seen.append(service.told())
    service.told()
    assert service.attempts() == len(seen)


def test_wrong_settings_cost_the_runs_until_they_are_right(service: Service) -> None:
    service.told()
    service.configure("timeout = -1\n")
    service.process.send_signal(signal.SIGHUP)
    service.told(), service.told()
    assert service.attempts() == 1
    assert "<4>event=probes.run problem=" in service.said()
    service.configure()
    service.process.send_signal(signal.SIGHUP)
    service.told(), service.told()
    assert service.attempts() == 2


def test_a_stop_ends_the_service_at_once(tmp_path: Path, wait_for: WaitFor) -> None:
    service = Service(tmp_path)
    wait_for("it is ready", lambda: service.told() == "READY=1")
    assert service.stop() == -signal.SIGTERM


def test_wrong_settings_at_the_start_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "probes.toml").write_text("clone_url = 1\n")
    words = ["-m", "hgfleet", "probes", "--config", tmp_path / "probes.toml", "serve"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "clone_url" in done.stderr
