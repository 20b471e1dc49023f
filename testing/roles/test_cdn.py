"""The promises of the role cdn, on any host of the group cdn."""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.host import Host

    from testing.conftest import WaitFor

    Answer = dict[str, str | int]

UNIT = "hgfleet-cdn.service"
CONFIG = "/etc/hgfleet/cdn.conf"
LARGE = 10_000_000
"""A size in bytes, more than two slices."""

# Runs on the host: sends each request over a new connection, prints the answers as JSON.
CLIENT = """
import hashlib, http.client, json, ssl, sys
from urllib.parse import urlsplit
answers = []
for method, url, headers in json.load(sys.stdin):
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.load_verify_locations("/etc/hgfleet/tls/ca.pem")
    # A certificate of a public CA has the public name alone.
    context.check_hostname = False
    connection = http.client.HTTPSConnection(parts.netloc, timeout=20, context=context)
    connection.request(method, url.partition(parts.netloc)[2], headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    found = {name.lower(): value for name, value in answer.headers.items()}
    found.update(status=answer.status, size=len(body), sha256=hashlib.sha256(body).hexdigest())
    answers.append(found)
print(json.dumps(answers))
"""

# Runs on a host that also has the object store: makes an object, or deletes it if the size is 0.
MAKE = """
import sys, boto3
endpoint, bucket, key, size = sys.argv[1:]
lines = open("/etc/hgfleet/secrets/objectstore-root.env").read().splitlines()
root = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="us-east-1", verify="/etc/hgfleet/tls/ca.pem",
    aws_access_key_id=root["ROOT_ACCESS_KEY_ID"],
    aws_secret_access_key=root["ROOT_SECRET_ACCESS_KEY"],
)
if int(size):
    body = b"".join(b"%015d\\n" % n for n in range(int(size) // 16))
    client.put_object(Bucket=bucket, Key=key, Body=body)
else:
    client.delete_object(Bucket=bucket, Key=key)
"""


@dataclass
class Cache:
    """The cache of a host: its address, and the origin of its objects."""

    host: Host
    url: str
    origin: str
    path: str
    folder: str

    def ask(self, *urls: str, method: str = "GET", **headers: str) -> list[Answer]:
        """Send requests in turn."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        question = json.dumps([(method, url, told) for url in urls])
        printed = self.host.check_output("printf %%s %s | python3 -c %s", question, CLIENT)
        answers: list[Answer] = json.loads(printed)
        return answers

    def one(self, name: str, method: str = "GET", **headers: str) -> Answer:
        """Request an object through the cache."""
        return self.ask(f"{self.url}{self.path}/{name}", method=method, **headers)[0]


@pytest.fixture(scope="module")
def cache(host: Host) -> Cache:
    text = host.file(CONFIG).content_string
    port = re.findall(r"listen \S+?:(\d+) ssl", text)[0]
    origin = re.findall(r"upstream origin {[^}]*server (\S+);", text)[0]
    path = re.findall(r"location ~ \^(\S*?)/\[", text)[0].replace("[.]", ".")
    folder = re.findall(r"proxy_cache_path (\S+)", text)[0]
    return Cache(host, f"https://localhost:{port}", f"https://{origin}", path, folder)


@pytest.fixture(scope="module")
def bundle(request: pytest.FixtureRequest, host: Host, cache: Cache) -> Iterator[str]:
    """An object at the origin: a published object, or a new object if the host has the origin."""
    is_site = request.config.pluginmanager.has_plugin("testing.site.plugin")
    if is_site or not host.file("/etc/hgfleet/secrets/objectstore-root.env").exists:
        read = (
            "import json, ssl, sys, urllib.request as u\n"
            "c = ssl.create_default_context(cafile='/etc/hgfleet/tls/ca.pem')\n"
            "print(u.urlopen(sys.argv[1], context=c).read().decode())"
        )
        url = f"{cache.origin}{cache.path}/bundles.json"
        told = host.run("python3 -c %s %s", read, url)
        published = re.findall(r'"url": "([^"]+)"', told.stdout)
        urls = [each for each in published if each.startswith(f"{cache.origin}{cache.path}/")]
        if is_site and not urls:
            pytest.skip("the origin has no bundle yet")
        assert urls, told
        largest = max(urls, key=lambda each: int(cache.ask(each)[0]["size"]))
        yield largest.partition(cache.path)[2][1:]
        return
    bucket, name = cache.path.strip("/"), f"hgfleet-test/{uuid.uuid4().hex}.hg"
    make = ("python3 -c %s %s %s %s %s", MAKE, cache.origin, bucket, name)
    host.check_output(*make, str(LARGE))
    yield name
    host.check_output(*make, "0")


def test_server_runs_and_starts_with_the_host(host: Host) -> None:
    service = host.service(UNIT)
    assert service.is_running, host.run("journalctl -u %s -n 30 --no-pager", UNIT).stdout
    assert service.is_enabled
    assert host.run('nginx -t -q -g "pid /run/hgfleet-cdn.check;" -c %s', CONFIG).rc == 0


def test_no_other_server_was_started_by_the_package(host: Host) -> None:
    if not host.file("/etc/systemd/system/nginx.service.d/hgfleet.conf").exists:
        assert not host.service("nginx.service").is_running
        assert not host.service("nginx.service").is_enabled


def test_server_is_sandboxed_and_nothing_of_it_is_root(host: Host, cache: Cache) -> None:
    exposure = host.check_output("systemd-analyze security --no-pager %s", UNIT).splitlines()[-1]
    assert float(exposure.split()[-3]) <= 2, exposure
    group = host.check_output("systemctl show -P ControlGroup %s", UNIT)
    processes = host.check_output("cat /sys/fs/cgroup%s/cgroup.procs", group).split()
    owners = host.check_output("ps -o user= -p %s", ",".join(processes)).split()
    assert set(owners) == {"hgcdn"}
    assert host.run("runuser -u nobody -- ls %s", cache.folder).rc != 0


def test_a_bundle_is_what_the_origin_has_and_is_kept(cache: Cache, bundle: str) -> None:
    origin = cache.ask(f"{cache.origin}{cache.path}/{bundle}")[0]
    first, second = cache.one(bundle), cache.one(bundle)
    assert origin["status"] == first["status"] == second["status"] == 200
    assert origin["sha256"] == first["sha256"] == second["sha256"]
    assert second["x-cache"] == "HIT"
    head = cache.one(bundle, "HEAD")
    assert (head["status"], head["content-length"], head["size"]) == (200, str(origin["size"]), 0)


@pytest.mark.changes
def test_a_bundle_that_was_deleted_at_the_origin_is_gone(
    host: Host, cache: Cache, wait_for: WaitFor
) -> None:
    """A copy whose original still exists is kept, without another download."""
    if not host.file("/etc/hgfleet/secrets/objectstore-root.env").exists:
        pytest.skip("only where the object store is on the same host")
    text = host.file(CONFIG).content_string
    seconds = int(re.findall(r"proxy_cache_valid 206 (\d+)s;", text)[0])
    bucket, name = cache.path.strip("/"), f"hgfleet-test/{uuid.uuid4().hex}.hg"
    make = ("python3 -c %s %s %s %s %s", MAKE, cache.origin, bucket, name)
    host.check_output(*make, str(LARGE))
    try:
        assert [cache.one(name)["x-cache"] for _ in range(2)] == ["MISS", "HIT"]
        wait_for(
            "the origin is asked again",
            lambda: cache.one(name)["x-cache"] == "REVALIDATED",
            seconds + 30,
        )
    finally:
        host.check_output(*make, "0")
    wait_for("the copy is gone", lambda: cache.one(name)["status"] == 404, seconds + 30)
    assert cache.one(name, Range="bytes=5000000-5000099")["status"] == 404


def test_ranges_are_those_of_the_bundle(cache: Cache, bundle: str) -> None:
    size = int(cache.one(bundle, "HEAD")["content-length"])
    slice_size = 4 * 1024 * 1024
    wanted = [(0, 0), (0, size - 1), (size // 3, size // 2), (size - 1, size - 1)]
    if size > slice_size:
        wanted += [(slice_size - 1, slice_size), (slice_size, size - 1)]
    for first, last in wanted:
        asked = {"Range": f"bytes={first}-{last}"}
        got = cache.one(bundle, **asked)
        right = cache.ask(f"{cache.origin}{cache.path}/{bundle}", **asked)[0]
        assert got["status"] == 206, asked
        assert got["content-range"] == f"bytes {first}-{last}/{size}"
        assert got["sha256"] == right["sha256"], asked
    whole = cache.one(bundle)["sha256"]
    assert cache.one(bundle, Range="bytes=0-1,5-6")["sha256"] == whole
    assert cache.one(bundle, Range=f"bytes={size}-")["status"] == 416


def test_nothing_that_a_client_says_reaches_the_origin(cache: Cache, bundle: str) -> None:
    """An S3 server refuses credentials that it does not know, and a query that is a signature."""
    whole = cache.one(bundle)
    query = f"{bundle}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=0"
    assert cache.one(query)["sha256"] == whole["sha256"]
    said = {"Authorization": "AWS4-HMAC-SHA256 Credential=x/y, Signature=0", "Cookie": "a=b"}
    missing = f"hgfleet-test/{uuid.uuid4().hex}.hg"
    assert cache.one(bundle, **said)["sha256"] == whole["sha256"]
    assert cache.one(missing, **said)["status"] == 404


def test_a_copy_is_fetched_again_only_for_whom_the_inventory_names(
    host: Host, cache: Cache, bundle: str
) -> None:
    text = host.file(CONFIG).content_string
    named = re.findall(r"^ +([0-9a-f.:]+) 1;$", text, re.MULTILINE)
    assert named, text
    own = host.check_output("hostname -i").split()[0]
    for source in ("127.0.0.1", own):
        url = f"{cache.url.replace('localhost', source)}{cache.path}/{bundle}"
        cache.one(bundle)
        told = cache.ask(url, Cache_Control="no-cache")[0]
        assert told["x-cache"] == ("BYPASS" if source in named else "HIT"), source
        assert told["sha256"] == cache.one(bundle)["sha256"]


def test_what_a_prober_has_read_is_not_in_the_journal(cache: Cache, bundle: str) -> None:
    config = cache.host.file(CONFIG).content_string
    named = re.findall(r"geo \$is_prober {([^}]*)}", config)[0].split()
    if "127.0.0.1" not in named:
        pytest.skip("only on a host whose probers include itself")
    url = f"{cache.url.replace('localhost', '127.0.0.1')}{cache.path}"
    missing = f"hgfleet-test/{uuid.uuid4().hex}.hg"
    asked = f"bytes=5-{uuid.uuid4().int % 9973 + 9}"

    told = cache.ask(f"{url}/{bundle}", f"{url}/{missing}", Range=asked)

    assert [answer["status"] for answer in told] == [206, 404]
    cache.host.check_output("journalctl --sync")
    lines = cache.host.check_output("journalctl -t hgfleet_cdn -o cat -n 100 --no-pager")
    # A prober's successful requests are not logged; its failures and other clients' requests are.
    assert [json.loads(line)["uri"] for line in lines.splitlines() if asked in line] == [
        f"{cache.path}/{missing}"
    ]


@pytest.mark.parametrize(
    "name", ["", "index.html", "bundles.json", "../other/x.hg", "%2e%2e/other/x.hg", "x.hg/", "?x"]
)
def test_only_bundles_of_the_bucket_are_there(cache: Cache, name: str) -> None:
    assert cache.one(name)["status"] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND", "PURGE"])
def test_nothing_is_written_through_it(cache: Cache, bundle: str, method: str) -> None:
    told = cache.one(bundle, method)
    assert (told["status"], told["allow"]) == (405, "GET, HEAD")


def test_only_slices_are_kept(host: Host) -> None:
    """A page with status 200 in place of a slice would stay for as long as its date is new."""
    text = host.file(CONFIG).content_string
    assert re.findall(r"proxy_cache_valid ([^;]*) \S+;", text) == ["206", "404"]
    assert "proxy_no_cache $is_no_slice;" in text


def test_that_something_is_missing_is_not_remembered_for_long(cache: Cache) -> None:
    name = f"hgfleet-test/{uuid.uuid4().hex}.hg"
    first = cache.one(name)
    assert (first["status"], first["x-cache"]) == (404, "MISS")
    asked = time.monotonic()
    while (again := cache.one(name))["x-cache"] == "HIT":
        assert time.monotonic() - asked < 3
    assert again["status"] == 404


def test_the_host_certificate_is_served_and_old_tls_is_not_spoken(host: Host, cache: Cache) -> None:
    command = "echo | openssl s_client -connect %s -CAfile /etc/hgfleet/tls/ca.pem %s"
    where = cache.url.removeprefix("https://")
    assert "Verify return code: 0 (ok)" in host.run(command % (where, "-tls1_3")).stdout
    assert host.run(command % (where, "-tls1_1 -cipher DEFAULT@SECLEVEL=0")).rc != 0
    assert host.run(command % (where, "-tls1_2 -cipher AES128-SHA")).rc != 0


def test_requests_are_in_the_journal(host: Host, cache: Cache) -> None:
    name = f"hgfleet-test/{uuid.uuid4().hex}.hg"
    cache.one(name, Range="bytes=0-9")
    host.check_output("journalctl --sync")
    lines = host.check_output("journalctl -t hgfleet_cdn -o cat -n 100 --no-pager").splitlines()
    requests = [json.loads(line) for line in lines if name in line]
    assert [(request["status"], request["range"], request["cache"]) for request in requests] == [
        ("404", "bytes=0-9", "MISS")
    ]
