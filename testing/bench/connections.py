"""One address opens thousands of connections, while another client goes on.

    ./cluster up
    PYTHONPATH=.:docker .venv/bin/python testing/bench/connections.py
    PYTHONPATH=.:docker .venv/bin/python testing/bench/connections.py --connections 500 --seconds 5

A host of the cluster holds as many connections as it is let have, of each kind in turn:

    idle          nothing is sent, not even a handshake of TLS
    slow-header   a byte of a request's head each second
    slow-body     the same with its body
    slow-reader   requests whose answers are not read
    h2            HTTP/2 without a stream

Another host sends a request over a new connection, five a second, and so does a third one, the
health check. The limits of the first address are counted at connections (HAProxy at the proxy, the
firewall at stores and caches), so the other two meet none.

Bars: the 95th percentile of the other client at 1 s, no request refused, and no more connections
held than an address may have.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from testing.e2e.cluster import Cluster
from testing.e2e.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.e2e.host import Host

BAR_SECONDS: Final = 1.0
KINDS: Final = ("idle", "slow-header", "slow-body", "slow-reader", "h2")

# Runs on the attacking host until its input ends; then it prints what it held.
ATTACK: Final = r"""
import asyncio, json, resource, socket, ssl, sys

host, port, kind, path, count = *sys.argv[1:5], int(sys.argv[5])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 500, count + 500))
trust = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
trust.set_alpn_protocols(["h2"] if kind == "h2" else ["http/1.1"])
trust.check_hostname = False
secure = None if kind == "idle" or port == "80" else trust
get = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n"
post = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n"
settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
held, refused, ended = set(), 0, 0

async def hold(number):
    global refused, ended
    try:
        opening = asyncio.open_connection(host, int(port), ssl=secure, limit=1024)
        reader, writer = await asyncio.wait_for(opening, 20)
    except (OSError, asyncio.TimeoutError):
        refused += 1
        return
    held.add(number)
    try:
        if kind == "slow-reader":
            for _ in range(20):
                writer.write((get + "\r\n").encode())
            await asyncio.sleep(3600)
        elif kind == "h2":
            writer.write(settings)
            while await reader.read(1024):
                pass
        elif kind == "idle":
            await reader.read()
        else:
            writer.write((get if kind == "slow-header" else post).encode())
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b"X-A: a\r\n" if kind == "slow-header" else b"a")
                await writer.drain()
                await asyncio.sleep(1)
    except OSError:
        pass
    finally:
        held.discard(number)
        ended += 1
        writer.close()

async def main():
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(hold(number)))
        if number % 50 == 49:
            await asyncio.sleep(0.02)
    async def settle():
        while len(held) + refused + ended < count:
            await asyncio.sleep(0.2)
    try:
        await asyncio.wait_for(settle(), 60)
    except asyncio.TimeoutError:
        pass
    print("holding", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps({"held": len(held), "refused": refused, "ended": ended}), flush=True)
    for task in tasks:
        task.cancel()

asyncio.run(main())
"""

# Runs on another host: a request over a new connection every 0.2 s; prints seconds and statuses.
OTHER: Final = r"""
import concurrent.futures, http.client, json, ssl, sys, time

host, port, path, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
trust = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
trust.check_hostname = False

def one(_):
    began = time.monotonic()
    try:
        if port == 80:
            connection = http.client.HTTPConnection(host, port, timeout=30)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=30, context=trust)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        status = answer.status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        status = type(error).__name__
    return time.monotonic() - began, status

with concurrent.futures.ThreadPoolExecutor(200) as pool:
    started = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        started.append(pool.submit(one, None))
        time.sleep(0.2)
    print(json.dumps([each.result() for each in started]))
"""


@dataclass(frozen=True)
class Target:
    """A server of the cluster: its host and port, a page of it, and its most per address."""

    name: str
    host: str
    port: int
    path: str
    good: int
    most: int


def measure(
    target: Target, kind: str, attacker: Host, others: Sequence[Host], options: argparse.Namespace
) -> bool:
    """Attack, measure, print; return whether the bars hold."""
    words = (target.host, str(target.port), kind, target.path, str(options.connections))
    asking = (target.host, str(target.port), target.path, str(options.seconds))
    with attacker.start("python3", "-c", ATTACK, *words) as attack:
        assert attack.stdin is not None
        assert attack.stdout is not None
        assert attack.stdout.readline() == "holding\n"
        with contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(host.start("python3", "-c", OTHER, *asking)) for host in others
            ]
            answers = [answer for each in started for answer in json.loads(each.communicate()[0])]
        said = json.loads(attack.communicate("\n")[0])
    seconds = [took for took, _ in answers]
    slow = statistics.quantiles(seconds, n=20)[-1]
    wrong = [status for _, status in answers if status != target.good]
    is_met = slow <= BAR_SECONDS and not wrong and said["held"] <= target.most
    print(
        f"{target.name:8} {kind:12} held {said['held']:5} refused {said['refused']:5} "
        f"ended {said['ended']:5}   others: {len(answers):4} p95 {slow:6.2f} s "
        f"wrong {len(wrong)} {sorted({str(code) for code in wrong})}"
        f"{'' if is_met else '   missed'}",
        flush=True,
    )
    return is_met


def targets(cluster: Cluster) -> list[Target]:
    """Return the servers that every client can reach."""
    defaults = {"proxy": 200, "store": 128, "cache": 300}
    proxy, store = cluster.first("proxy"), cluster.first("objectstore")
    cache = cluster.first("cdn")
    return [
        Target("proxy", proxy.name, 443, "/healthz", 200, defaults["proxy"]),
        Target("plain", proxy.name, 80, "/healthz", 301, defaults["proxy"]),
        Target("store", store.name, 7443, "/healthz", 200, defaults["store"]),
        Target("cache", cache.name, 443, "/healthz", 200, defaults["cache"]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args(arguments)
    cluster = Cluster(environment())
    attacker, client = cluster.all("objectstore")[-1], cluster.first("directory")
    others = [client, cluster.first("monitoring")]
    kinds = options.kind or list(KINDS)
    results = [
        measure(target, kind, attacker, others, options)
        for target in targets(cluster)
        for kind in kinds
        if target.name == "proxy" or kind in ("idle", "slow-header")
    ]
    print("bars met" if all(results) else "a bar is missed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
