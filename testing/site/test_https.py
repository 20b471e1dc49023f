"""Each entrance of a site, for clients without an account: health, pages, TLS, headers."""

from __future__ import annotations

import json
import re
import ssl
import time
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from testing.site.client import Client
    from testing.site.machine import Entrance

DAYS_LEFT: Final = 14
"""A certificate that expires sooner has missed its renewal: a deploy renews it 60 days before."""


def test_a_healthy_web_host_answers(client: Client, each_entrance: Entrance) -> None:
    answer = client.ask(each_entrance, "/healthz")
    assert answer.status == 200, answer
    assert json.loads(answer.body)["status"] == "ok", answer.body


def test_the_front_page_is_for_all_clients_and_bound_by_headers(
    client: Client, each_entrance: Entrance
) -> None:
    answer = client.ask(each_entrance, "/")
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    age = re.search(r"max-age=(\d+)", answer.headers["strict-transport-security"])
    assert age, answer.headers
    assert int(age[1]) >= 31536000


def test_plain_http_leads_to_https(client: Client, each_entrance: Entrance) -> None:
    if not each_entrance.http_port:
        pytest.skip("nothing listens for plain HTTP (proxy_http_port)")
    answer = client.plain(each_entrance, "/some/page")
    assert answer.status == 301
    assert re.fullmatch(r"https://[^/]+/some/page", answer.headers["location"])


def test_the_certificate_is_of_the_public_name_and_lasts(
    client: Client, each_entrance: Entrance
) -> None:
    with client.handshake(each_entrance, client.context()) as link:
        certificate = link.getpeercert()
        assert link.version() in ("TLSv1.2", "TLSv1.3")
    assert certificate
    ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    assert ends - time.time() > DAYS_LEFT * 86400, certificate["notAfter"]


def test_old_tls_is_refused(client: Client, each_entrance: Entrance) -> None:
    context = client.context()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError, match=r"(?i)alert protocol version|reset|eof"):
        client.handshake(each_entrance, context)


def test_a_push_over_https_is_told_where_to_go(client: Client, each_entrance: Entrance) -> None:
    answer = client.ask(each_entrance, "/any/repository?cmd=unbundle", "POST")
    assert answer.headers["content-type"] == "application/hg-error", answer
    assert "a push goes over SSH" in answer.body
