"""Ports of hosts: which ports programs listen on, and which ports accept a connection."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

TCP: Final = "ss -H -n -lt"
UDP: Final = "ss -H -n -lu"
"""Commands whose output `listeners` reads."""

CLOSED: Final = (21, 23, 25, 111, 389, 873, 2375, 3306, 5432, 6379, 8000, 8080, 8222, 9100, 50000)
"""Ports of other programs, among them LDAP without TLS and the monitoring port of NATS."""

# Connects to all pairs at the same time; prints the pairs that accepted.
PROBE: Final = """
import asyncio, json, sys
async def is_open(address, port):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), 5)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True
async def main():
    pairs = json.load(sys.stdin)
    found = await asyncio.gather(*(is_open(*pair) for pair in pairs))
    print(json.dumps([pair for pair, is_in in zip(pairs, found) if is_in]))
asyncio.run(main())
"""


def listeners(shown: str) -> set[int]:
    """Return the ports in the output of ss, without the ports of loopback addresses."""
    ports = set()
    for line in shown.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if not address.strip("[]").startswith(("127.", "::1")):
            ports.add(int(port))
    return ports


def reached(
    wanted: Sequence[tuple[str, int]], prober: Sequence[str] = (sys.executable,)
) -> set[tuple[str, int]]:
    """Return the addresses and ports that accept a connection from the Python of `prober`."""
    command = [*prober, "-c", PROBE]
    done = subprocess.run(
        command, input=json.dumps(wanted), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return {(address, port) for address, port in json.loads(done.stdout)}
