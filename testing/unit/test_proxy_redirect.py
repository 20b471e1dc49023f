"""The redirect from HTTP to HTTPS in haproxy.cfg reflects nothing but a plain host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import Environment

TEMPLATE = Path(__file__).resolve().parents[2] / "ansible/roles/proxy/templates/haproxy.cfg.j2"


def frontend(host: str = "") -> str:
    """Render the frontend `http` for a configured host; "": the host that the request names."""
    template = TEMPLATE.read_text()
    found = re.search(
        r"^frontend http\n.*?^{% endif %}\n\n(?=frontend )", template, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    # The last `endif` is that of the port.
    part = found[0].rstrip().removesuffix("{% endif %}")
    environment = Environment(trim_blocks=True, autoescape=False)  # noqa: S701  (no HTML)
    return environment.from_string(part).render(
        proxy_http_port=80,
        proxy_public_https_port=443,
        proxy_public_host=host,
        _proxy_listen=["*"],
    )


def is_redirected(host: str) -> bool:
    patterns = re.findall(r"acl is_plain_host req\.fhdr\(host\) -i -m reg '(.*)'\n", frontend())
    assert patterns
    return any(re.search(pattern, host, re.IGNORECASE) for pattern in patterns)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "hg.Example.org",
        "hg.example.org.",
        "hg-1:8080",
        "192.0.2.1",
        "[2001:db8::1]:80",
    ],
)
def test_a_plain_host_is_redirected(host: str) -> None:
    assert is_redirected(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", ":80", "a b", "a/b", "a\\b", "user@a", "a?b", "a#b", "a%0d", "a,b", "-a", "a-", ".a"),
        *("<script>", '"a"', "a:b", "a:123456", "a:80:80", "[a", "[::1]x", "[]", "x" * 254, "ä"),
    ],
)
def test_another_host_is_not(host: str) -> None:
    assert not is_redirected(host)


def test_the_refusal_comes_before_the_redirect_and_counts_the_headers() -> None:
    rules = [line.strip() for line in frontend().splitlines() if "http-request" in line]
    refusal, redirect = rules
    assert refusal.startswith("http-request return status 400 ")
    # Both conditions: the fetch without a number matches any of several headers.
    assert refusal.endswith(" unless is_plain_host { req.fhdr_cnt(host) eq 1 }")
    assert "//%[req.fhdr(host),host_only]%" in redirect


def test_a_configured_host_is_the_only_one_in_the_redirect() -> None:
    text = frontend("hg.example.org")
    assert "location https://hg.example.org%[capture.req.uri]" in text
    assert "hdr(host)" not in text
