"""Each client is sent to bundles near its real address, and downloads them."""

from __future__ import annotations

import json
import re
import uuid
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Client, Clone

REPOSITORY = "e2e/steering"
NOTICED_S = 15
"""Seconds after which no client is sent to a lost store; the bar of the service."""

KINDS = ("stream", "zstd", "gzip")
ORDER = {
    "east": "s3-1/stream s3-1/zstd cdn1/zstd cdn1/stream s3-2/zstd s3-2/stream",
    "west": "s3-2/stream s3-2/zstd cdn1/zstd cdn1/stream s3-1/zstd s3-1/stream",
    "elsewhere": "cdn1/zstd cdn1/stream s3-1/zstd s3-2/zstd s3-1/stream s3-2/stream",
}
"""The order of bundles for clients of each network, before gzip."""


@pytest.fixture(scope="module")
def source(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone with a new changeset; clients are offered bundles of all kinds with it."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path_factory.mktemp("source") / "work")
    work.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
    work.hg("push").ok()
    cluster.wait_for_bundles(REPOSITORY)
    wait_until(
        "all bundles are handed out",
        lambda: len(cluster.manifest_of_all(REPOSITORY)) == 3 * len(KINDS),
        2 * NOTICED_S,
    )
    return work


def names(cluster: Cluster, urls: list[str]) -> list[str]:
    """Turn URLs into HOST/KIND."""
    hosts = {cluster.address(host): host.name for host in cluster.hosts}
    shown = []
    for url in urls:
        address = str(urlsplit(url).hostname)
        kind = next(kind for kind in KINDS if f".{kind}" in url.rpartition("/")[2])
        shown.append(f"{hosts[address]}/{kind}")
    return shown


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("way", ["https://proxy1/", "ssh://hg@hg1/"])
@pytest.mark.parametrize("place", ORDER)
def test_a_client_is_told_of_what_is_near_it_and_clones_from_there(
    cluster: Cluster, clients: Mapping[str, Client], place: str, way: str
) -> None:
    client, source = clients[place], way + REPOSITORY

    told = client.told(source)

    assert names(cluster, told)[: 2 * 3] == ORDER[place].split()
    assert all(name.endswith("/gzip") for name in names(cluster, told)[2 * 3 :])
    served = cluster.host(ORDER[place].partition("/")[0])
    cursor = served.journal_cursor()
    said = client.clone(source)
    assert f"applying clone bundle from {told[0]}" in said.output
    wait_until(
        f"{served.name} has logged the download by {client.address}",
        lambda: downloads(served, cursor, told[0], client.address),
        10,
    )


def downloads(host: Host, cursor: str, url: str, address: str) -> list[str]:
    """Return the downloads in the log of a store or a cache."""
    key = url.rpartition("/")[2]
    return [
        line
        for line in host.journal_after(cursor)
        if key in line and address in line and "GET" in line.upper()
    ]


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(("memory", "kind"), [("64MB", "stream"), ("4GB", "zstd")])
def test_a_client_with_little_memory_takes_another_kind(
    cluster: Cluster, clients: Mapping[str, Client], memory: str, kind: str
) -> None:
    """The site's level of compression for this repository takes memory to decompress."""
    far = clients["elsewhere"]
    said = far.clone(f"https://proxy1/{REPOSITORY}", "--config", f"ui.available-memory={memory}")
    urls = re.findall(r"applying clone bundle from (\S+)", said.output)
    assert names(cluster, urls) == [f"cdn1/{kind}"]


@pytest.mark.usefixtures("source")
def test_what_a_client_says_of_its_address_is_not_believed(
    cluster: Cluster, clients: Mapping[str, Client]
) -> None:
    west, east = clients["west"], clients["east"]
    script = """
import json, ssl, sys, urllib.request as u
context = ssl.create_default_context(cafile="/client/HGFLEET_CA_CERT")
headers = {name: sys.argv[2] for name in ("X-Forwarded-For", "X-Real-IP", "X-Client-IP")}
headers["Forwarded"] = f"for={sys.argv[2]}"
for url in sys.argv[1].split():
    request = u.Request(f"{url}?cmd=clonebundles", headers=headers)
    print(u.urlopen(request, context=context).read().decode().split()[0])
"""
    # Through the proxy, and past it to each web host, which believes only the proxy.
    webs = [f"https://{host.name}:8443/{REPOSITORY}" for host in cluster.all("web")]
    urls = " ".join([f"https://proxy1/{REPOSITORY}", *webs])
    said = west.host.run("python3", "-c", script, urls, east.address).ok().stdout.split()
    assert names(cluster, said) == ["s3-2/stream"] * (1 + len(webs))

    ssh = f"ssh://hg@hg1/{REPOSITORY}"
    forged = f"SetEnv=SSH_CONNECTION={east.address}"
    options = west.hg("config", "ui.ssh").ok().stdout.strip()
    told = west.hg(
        "--config", f"ui.ssh={options} -o {forged}", "debug::clonebundle-manifest", "--raw", ssh
    ).ok()
    assert names(cluster, told.stdout.split()[:1]) == ["s3-2/stream"]


@pytest.mark.usefixtures("source")
def test_a_resumed_download_through_the_cache_is_the_bundle(
    cluster: Cluster, clients: Mapping[str, Client]
) -> None:
    client = clients["elsewhere"]
    told = client.told(f"https://proxy1/{REPOSITORY}")
    where = dict(zip(names(cluster, told), told, strict=True))
    url, origin = where["cdn1/stream"], where["s3-1/stream"]
    script = """
import ssl, sys, urllib.request as u
context = ssl.create_default_context(cafile="/client/HGFLEET_CA_CERT")
def get(url, **headers):
    return u.urlopen(u.Request(url, headers=headers), context=context).read()
cached, origin = sys.argv[1:]
whole = get(origin)
half = len(whole) // 2
resumed = get(cached, Range=f"bytes=0-{half}") + get(cached, Range=f"bytes={half + 1}-")
print(resumed == whole == get(cached))
"""
    assert client.host.run("python3", "-c", script, url, origin).ok().stdout == "True\n"


# --- networks that providers publish ----------------------------------------------------------


@pytest.fixture
def provider(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """A provider of networks, which a host of the cluster serves over HTTPS during a test.

    Gives a function that publishes a file and lets the prober fetch it.
    """
    # Any web host may answer the client, and each reads its own settings.
    webs, server = cluster.all("web"), cluster.first("directory")
    address = cluster.address(server)
    serve = """
import http.server, ssl
class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments): super().__init__(*arguments, directory="/run/provider")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/etc/hgfleet/tls/cert.pem", "/etc/hgfleet/tls/key.pem")
made = http.server.HTTPServer(("", 9443), Handler)
made.socket = context.wrap_socket(made.socket, server_side=True)
made.serve_forever()
"""
    server.shell("install -d /run/provider")
    unit = "--unit=provider --quiet --collect"
    server.run("systemd-run", *unit.split(), "/usr/bin/python3", "-c", serve).ok()
    # A real provider is outside of the site's firewalls.
    server.shell("hgfleet-firewall add insert rule inet hgfleet input tcp dport 9443 accept")
    settings = "/etc/hgfleet/steering.toml"
    write = ["sh", "-c", f"cat >{settings}.new && mv {settings}.new {settings}"]
    before = {host: host.shell(f"cat {settings}") for host in webs}
    table = (
        f'[[provider]]\nname = "aws"\nurl = "https://{address}:9443/ip-ranges.json"\n'
        '[provider.regions]\nus-west-2 = "west"\n\n'
    )
    for host, text in before.items():
        host.run(
            *write, stdin=text.replace("# Regions of clients", table + "# Regions of clients")
        ).ok()

    def looked(host: Host, cursor: str) -> bool:
        lines = host.journal_after(cursor, "--unit=hgfleet-steering")
        return any("event=steering.ranges" in line for line in lines)

    def publish(text: str) -> None:
        server.write("/run/provider/ip-ranges.json", text)
        cursors = {host: host.journal_cursor() for host in webs}
        for host in webs:
            host.systemctl("restart", "hgfleet-steering").ok()
        for host, cursor in cursors.items():
            asked = partial(looked, host, cursor)
            wait_until(f"the prober of {host.name} has looked at the file", asked)

    yield publish
    for host, text in before.items():
        host.run(*write, stdin=text).ok()
        host.shell(
            "rm -f /var/lib/hgfleet-steering/ranges-aws.json; systemctl restart hgfleet-steering"
        )
    server.shell("systemctl reload hgfleet-firewall; systemctl stop provider; rm -r /run/provider")


@pytest.mark.disruptive
@pytest.mark.usefixtures("source")
def test_networks_that_a_provider_publishes_count_until_a_better_file_comes(
    cluster: Cluster, clients: Mapping[str, Client], provider: Callable[[str], None]
) -> None:
    client, network = clients["elsewhere"], cluster.env["HGFLEET_CLUSTER_NETWORK"]

    def first() -> list[str]:
        return names(cluster, client.told(f"https://proxy1/{REPOSITORY}"))[:1]

    region = {"ip_prefix": f"{network}.64/26", "region": "us-west-2", "service": "EC2"}
    provider(json.dumps({"prefixes": [region] * 3, "ipv6_prefixes": []}))
    wait_until("the client is in that region", lambda: first() == ["s3-2/stream"])
    for web in cluster.all("web"):
        assert web.run("hgfleet", "steering", "where", client.address).ok().stdout == "west\n"
        # The inventory's own networks have a longer prefix than the provider's, so they count.
        east = web.run("hgfleet", "steering", "where", clients["east"].address).ok()
        assert east.stdout == "east\n"

    wrong = ("<html>", json.dumps({"prefixes": [{"ip_prefix": "0.0.0.0/33"}], "ipv6_prefixes": []}))
    for text in wrong:
        provider(text)
        wait_until("the file before stays in force", lambda: first() == ["s3-2/stream"])


@pytest.mark.usefixtures("source")
def test_prober_says_how_it_is(cluster: Cluster) -> None:
    said = cluster.first("web").run("hgfleet", "steering", "status").ok().stdout
    lines = {line.partition(":")[0] for line in said.splitlines()}
    assert {"s3-1 (east)", "s3-2 (west)", "cdn1 (CDN)"} <= lines, said
    assert re.search(r"^cdn1 .*: up, [1-9]\d* copies of s3-1 read", said, re.MULTILINE), said
