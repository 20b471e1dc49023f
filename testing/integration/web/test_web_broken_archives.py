"""A client can tell by the bytes that an archive broke off; none is a whole answer or archive."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import json
import re
import socket
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from hgfleet.web.app import Application
from hgfleet.web.engine import archives
from testing.bench.hostile_failing import GONE
from testing.integration.web import hostile_archives
from testing.integration.web.support import PROJECT, Site, ask, copied, last
from testing.integration.web.test_web_clients import gunicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

BROKEN = ("rot after the first byte", "memory")
"""Failures that show when several megabytes have been sent."""

REFUSED = {
    "rot": 500,
    "missing behind a large": 500,
    "censored": 403,
    "censored behind a large": 403,
    "oversized": 403,
}
"""The status of failures that show before the first byte."""

WHOLE = GONE
"""An archive of 10 MB, of which nothing fails."""


@pytest.fixture(scope="module")
def hostile(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with little memory for a request."""
    site = copied(template, tmp_path_factory.mktemp("broken"))
    memory = {"HGFLEET_WEB_REQUEST_MEMORY_BYTES": str(hostile_archives.MEMORY)}
    return replace(site, environment={**site.environment, **memory})


@pytest.fixture(scope="module")
def nodes(hostile: Site) -> dict[str, str]:
    """The changeset of each way to fail."""
    return hostile_archives.make(hostile)


@contextlib.contextmanager
def served(hostile: Site, wait_for: WaitFor) -> Iterator[tuple[str, int]]:
    """Serve the site; yield address and port. The journal is complete afterwards."""
    with gunicorn(hostile, wait_for) as url:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        yield address.hostname, address.port


def sent(address: tuple[str, int], *requests: str) -> tuple[str, bytes]:
    """Send requests on a connection; return the first head and all that follows, until its end.

    A connection that stays open is an error here.
    """
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(
            "".join(f"{request}\r\nHost: x\r\n\r\n" for request in requests).encode()
        )
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    return head.decode("latin-1"), body


def chunks(body: bytes) -> tuple[bytes, bool]:
    """Return the payload of a chunked body, and whether it has an end."""
    payload = b""
    while (head := re.match(rb"([0-9A-Fa-f]+)\r\n", body)) is not None:
        size = int(head[1], 16)
        if not size:
            return payload, True
        payload += body[head.end() : head.end() + size]
        body = body[head.end() + size + len(b"\r\n") :]
    return payload, False


def unpack(suffix: str, packed: bytes) -> None:
    """Read an archive to its end."""
    if suffix == "zip":
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            assert archive.testzip() is None
    else:
        gzip.decompress(packed)


@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
def test_an_archive_that_breaks_off_has_no_end_and_ends_its_connection(
    hostile: Site,
    nodes: dict[str, str],
    wait_for: WaitFor,
    capfd: pytest.CaptureFixture[str],
    suffix: str,
) -> None:
    with served(hostile, wait_for) as address:
        for version in ("1.1", "1.0"):
            unpack(suffix, answer(address, nodes[WHOLE], suffix, version))
            for way in BROKEN:
                payload = answer(address, nodes[way], suffix, version, is_whole=False)
                with pytest.raises((zipfile.BadZipFile, EOFError)):
                    unpack(suffix, payload)
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [event["event"] for event in events] == ["stream"] * 4
    for event, cause in zip(
        events, ("integrity check failed", "its budget (memory)") * 2, strict=True
    ):
        assert cause in event["message"]


def answer(
    address: tuple[str, int], node: str, suffix: str, version: str, *, is_whole: bool = True
) -> bytes:
    """Return the bytes of an archive that has begun, looked at as a client of HTTP does."""
    requests = [f"GET {hostile_archives.HOSTILE}/archive/{node}.{suffix} HTTP/{version}"]
    if is_whole:
        requests[0] += "\r\nConnection: close"
    else:
        # After an answer that is not whole, no other may come.
        requests.append(f"GET {PROJECT}/archive/tip.zip HTTP/{version}\r\nConnection: close")
    head, body = sent(address, *requests)
    assert head.startswith(f"HTTP/{version} 200 OK")
    # Nothing between here and the client keeps it, or takes a part for the whole.
    assert "\r\nCache-Control: no-cache\r\n" in head
    for name in ("Content-Length", "ETag", "Last-Modified", "Accept-Ranges"):
        assert f"\r\n{name}:".lower() not in head.lower()
    assert ("Transfer-Encoding: chunked" in head) == (version == "1.1")
    payload = body
    if version == "1.1":
        payload, is_ended = chunks(body)
        assert is_ended == is_whole
    assert len(payload) > 4 * 2**20
    return payload


@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
def test_an_archive_far_above_its_processor_time_is_refused_before_the_first_byte(
    hostile: Site, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    # A processor of any speed passes this margin, and finishes 4 MiB within the budget.
    monkeypatch.setattr(archives, "MARGIN", 0.3)
    path = f"{hostile_archives.HOSTILE}/archive/{nodes['many files']}.{suffix}"
    bounded = replace(hostile.settings, request_memory_bytes=hostile_archives.MEMORY)
    reply = ask(Application(replace(bounded, archive_cpu_seconds=0.6)), path)
    assert reply.status == 503
    assert "takes more than 0.6 s of processor time" in reply.text
    assert last(hostile)["refused"] == "limit (processor time)"
    unpack(suffix, ask(Application(replace(bounded, archive_cpu_seconds=60)), path).body)


@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
def test_a_client_reads_a_refusal_or_an_incomplete_answer(
    hostile: Site,
    nodes: dict[str, str],
    wait_for: WaitFor,
    capfd: pytest.CaptureFixture[str],
    suffix: str,
) -> None:
    with served(hostile, wait_for) as address:
        for way in (*BROKEN, *REFUSED):
            with contextlib.closing(http.client.HTTPConnection(*address, timeout=60)) as client:
                client.request("GET", f"{hostile_archives.HOSTILE}/archive/{nodes[way]}.{suffix}")
                reply = client.getresponse()
                if way in BROKEN:
                    assert reply.status == 200
                    with pytest.raises(http.client.IncompleteRead):
                        reply.read()
                    continue
                assert (way, reply.status) == (way, REFUSED[way])
                assert reply.getheader("Cache-Control") == "no-store"
                assert int(reply.getheader("Content-Length", "0")) == len(reply.read())
                # A refusal is whole, so its connection takes the next request.
                client.request("GET", f"{PROJECT}/archive/tip.{suffix}")
                unpack(suffix, client.getresponse().read())
    said = capfd.readouterr().err
    assert "Traceback" not in said
    events = [json.loads(line)["event"] for line in said.splitlines()]
    assert sorted(events) == ["error", "error", "stream", "stream"]
