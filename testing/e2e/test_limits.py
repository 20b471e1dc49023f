"""The proxy's limits for each address, whose refusals are delayed.

The requests come from hosts of the cluster: the address of this machine has no limits.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from controller.bootstrap import ROOT
from testing.e2e.command import wait_until
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

CACHED: Final = "hgfleet?cmd=heads"
DEAR: Final = "hgfleet/graph/tip?revcount="
ABOVE: Final = 10
TOO_MANY: Final = 429

# Each request holds its body back until all refusals have come, so all are under way until then:
# the proxy counts requests, and nginx passes a request on when it is complete.
AT_ONCE: Final = r"""
import asyncio, json, ssl, sys, time

count, above = int(sys.argv[1]), int(sys.argv[2])
body = b"nodes=" + b"0" * 40
head = (
    f"POST /hgfleet?cmd=known HTTP/1.1\r\nHost: proxy1\r\nConnection: close\r\n"
    f"Content-Type: application/mercurial-0.1\r\nX-HgArgs-Post: {len(body)}\r\n"
    f"Content-Length: {len(body)}\r\n\r\n"
).encode()

async def request(reader, writer, answers):
    begun = time.monotonic()
    writer.write(head)
    status = int((await reader.readline()).split()[1])
    await answers.put([status, time.monotonic() - begun])

async def main():
    trust = ssl.create_default_context()
    pairs = [asyncio.open_connection("proxy1", 443, ssl=trust) for _ in range(count)]
    pairs = await asyncio.gather(*pairs)
    answers = asyncio.Queue()
    requests = [asyncio.create_task(request(*pair, answers)) for pair in pairs]
    print(json.dumps([await answers.get() for _ in range(above)]), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task, (_, writer) in zip(requests, pairs):
        if not task.done():
            writer.write(body)
    print(json.dumps([await answers.get() for _ in range(count - above)]), flush=True)
    await asyncio.gather(*requests)

asyncio.run(asyncio.wait_for(main(), 120))
"""

# Connections that send nothing; prints how many of them the proxy has ended.
SILENT: Final = r"""
import asyncio, json, sys

count, port, expected = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ended = 0

async def hold():
    global ended
    try:
        reader, _ = await asyncio.open_connection("proxy1", port)
        await reader.read()
    except OSError:
        pass
    ended += 1

async def main():
    tasks = [asyncio.create_task(hold()) for _ in range(count)]
    for _ in range(100):
        if ended >= expected:
            break
        await asyncio.sleep(0.1)
    print(json.dumps(ended), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()

asyncio.run(main())
"""

# Sends expensive requests at once until a cheap request is refused, which web hosts never do.
UNTIL_REFUSED: Final = r"""
import concurrent.futures, json, random, sys, time, urllib.error, urllib.request

dear, cached = sys.argv[1:]
deadline = time.monotonic() + 90

def get(path):
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(f"https://proxy1/{path}", timeout=60) as answer:
            answer.read()
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    return status, time.monotonic() - begun

with concurrent.futures.ThreadPoolExecutor(80) as pool:
    found = 200, 0.0
    while found[0] == 200 and time.monotonic() < deadline:
        numbers = random.sample(range(200, 1000), 80)
        pages = list(pool.map(get, [f"{dear}{number}" for number in numbers]))
        found = get(cached)
print(json.dumps([found, pages]))
"""

GET: Final = r"""
import sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(f"https://proxy1/{sys.argv[1]}", timeout=60) as answer:
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture(scope="module")
def limits(cluster: Cluster) -> Mapping[str, Any]:
    """The proxy's variables, from the inventory or else from their defaults."""
    defaults = yaml.safe_load((ROOT / "ansible/roles/proxy/defaults/main.yml").read_text())
    proxy = cluster.first("proxy").name
    return {**defaults, **cluster.inventory["_meta"]["hostvars"][proxy]}


def get(host: Host, path: str) -> int:
    """Return the status that a host of the cluster gets for a page."""
    return int(host.run("python3", "-c", GET, path).ok().stdout)


def gets_pages(host: Host) -> None:
    """Wait until the proxy refuses no request of a host."""
    wait_until(f"{host.name} gets pages", lambda: get(host, CACHED) == 200, 60)


@pytest.fixture
def hosts(cluster: Cluster) -> tuple[Host, Host]:
    """Two hosts with different addresses, neither of which the proxy refuses."""
    attacker, other = cluster.all("objectstore")[-1], cluster.first("directory")
    for host in (attacker, other):
        gets_pages(host)
    return attacker, other


def test_requests_above_the_limit_of_an_address_are_refused_late(
    limits: Mapping[str, Any], hosts: tuple[Host, Host]
) -> None:
    attacker, other = hosts
    most = int(limits["proxy_connections_per_address"])
    argv = ("python3", "-c", AT_ONCE, str(most + ABOVE), str(ABOVE))
    with attacker.start(*argv) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        refused = json.loads(process.stdout.readline() or "[]")
        # The other requests are under way, and another address is not affected.
        meanwhile = get(other, CACHED)
        answered = json.loads(pace.communicate(process, 120, "\n")[0] or "[]")
    assert [status for status, _ in refused] == [TOO_MANY] * ABOVE
    assert min(seconds for _, seconds in refused) >= limits["proxy_refusal_delay_seconds"]
    assert meanwhile == 200
    assert [status for status, _ in answered] == [200] * most


@pytest.mark.parametrize("port", [443, 80])
def test_connections_above_the_limit_of_an_address_are_ended_before_they_send_anything(
    limits: Mapping[str, Any], hosts: tuple[Host, Host], port: int
) -> None:
    attacker, other = hosts
    most = 2 * int(limits["proxy_connections_per_address"])
    argv = ("python3", "-c", SILENT, str(most + ABOVE), str(port), str(ABOVE))
    with attacker.start(*argv) as process:
        assert process.stdout is not None
        ended = json.loads(process.stdout.readline() or "0")
        meanwhile = get(other, CACHED)
        pace.communicate(process, 60, "\n")
    assert ended == ABOVE
    assert meanwhile == 200


def test_an_address_that_the_web_hosts_refuse_often_is_refused_late_by_the_proxy(
    limits: Mapping[str, Any], hosts: tuple[Host, Host]
) -> None:
    attacker, other = hosts
    said = attacker.run("python3", "-c", UNTIL_REFUSED, DEAR, CACHED).ok().stdout
    (status, seconds), pages = json.loads(said)
    assert status == TOO_MANY, pages
    assert seconds >= limits["proxy_refusal_delay_seconds"]
    assert {status for status, _ in pages} <= {200, TOO_MANY, 503}
    assert get(other, CACHED) == 200
    # The refusals end when their reason does.
    gets_pages(attacker)
