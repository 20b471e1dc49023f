"""Ask HAProxy for its web hosts, through its admin socket: for `playbooks/roll/*.yml`, on proxies.

    haproxy.py others NAME...           the web hosts in use that are not among these
    haproxy.py away SECONDS NAME...     wait until these have no client
    haproxy.py back SECONDS NAME...     wait until these are in use

Prints a line of JSON. A proxy that has never been started, or does not know a host, sends it no
client; `away` is at its end then, and `back` does not wait for it.
"""

from __future__ import annotations

import csv
import json
import os
import socket
import sys
import time
from typing import NamedTuple

SOCKET = os.environ.get("HGFLEET_HAPROXY_SOCKET", "/run/haproxy/admin.sock")


class Server(NamedTuple):
    """A web host as HAProxy sees it."""

    is_up: bool
    sessions: int


def parse(text: str) -> dict[str, Server]:
    """Read `show stat`: the servers of the backend `web`."""
    rows = csv.DictReader(text.removeprefix("# ").splitlines())
    return {
        row["svname"]: Server(row["status"].startswith("UP"), int(row["scur"] or 0))
        for row in rows
        if row["pxname"] == "web" and row["svname"] not in ("FRONTEND", "BACKEND")
    }


def ask() -> dict[str, Server]:
    """Return the servers; none if no HAProxy runs."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(SOCKET)
            connection.sendall(b"show stat\n")
            text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    except OSError:
        return {}
    return parse(text)


def unfinished(what: str, servers: dict[str, Server], names: list[str]) -> list[str]:
    """Return the hosts that are not away or back yet."""
    known = {name: servers[name] for name in names if name in servers}
    if what == "away":
        return [name for name, server in known.items() if server.is_up or server.sessions]
    return [name for name, server in known.items() if not server.is_up]


def main(arguments: list[str]) -> dict[str, object]:
    """Carry out the command line."""
    what, *names = arguments
    if what == "others":
        return {
            "up": [name for name, server in ask().items() if server.is_up and name not in names]
        }
    begin, until = time.monotonic(), time.monotonic() + float(names.pop(0))
    while (left := unfinished(what, ask(), names)) and time.monotonic() < until:
        time.sleep(0.1)
    return {"left": left, "seconds": round(time.monotonic() - begin, 1)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
