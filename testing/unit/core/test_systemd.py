"""Messages of a unit to systemd, and credentials that systemd hands over."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hgfleet.core.daemons import systemd


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told(tmp_path: Path, is_abstract: bool) -> None:
    name = f"hgfleet-test-{os.getpid()}"
    address = f"@{name}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(5)
        listener.bind(f"\0{name}" if is_abstract else address)
        systemd.notify("READY=1", {"NOTIFY_SOCKET": address})
        assert listener.recv(100) == b"READY=1"


def test_outside_a_unit_nothing_is_told() -> None:
    systemd.notify("READY=1", {})
    systemd.notify("READY=1", {"NOTIFY_SOCKET": ""})


def test_a_credential_is_a_file_of_the_unit() -> None:
    assert systemd.credential("bind", {}) is None
    assert systemd.credential("bind", {"CREDENTIALS_DIRECTORY": "/run/c"}) == Path("/run/c/bind")
