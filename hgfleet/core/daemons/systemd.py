"""systemd: readiness messages and credentials of the running unit."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send a state such as "READY=1" to systemd (sd_notify(3)); outside a unit, do nothing."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A leading @ means the abstract namespace.
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.sendto(state.encode(), address)


def credential(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of a credential (LoadCredential=), there or not; None outside a unit."""
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    return Path(folder, name) if folder else None
