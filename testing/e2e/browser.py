"""Debian's Chromium without a window, on pages that ask for a certificate.

    .venv/bin/python -m testing.e2e.browser     writes the dashboards of the running cluster as
                                                pictures into docs/pictures

A browser takes certificates from its own store, and asks a person which to use. So a forwarder on
127.0.0.1 presents the certificate, and the browser needs none.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import tempfile
import threading
import urllib.error
from typing import TYPE_CHECKING, Final

from testing.e2e.command import run
from testing.e2e.prometheus import opener

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAM: Final = "chromium"
PAGE: Final = "/consoles/hgfleet.html"
MILLISECONDS_FOR_A_PAGE: Final = 20_000
"""Milliseconds of the page's own clock, which stops while the page waits for an answer."""


@contextlib.contextmanager
def prometheus_without_certificate(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the URL of a forwarder to the Prometheus of `./cluster env`, on 127.0.0.1."""
    opened = opener(env)

    class Forwarder(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with opened.open(env["HGFLEET_METRICS_URL"] + self.path, timeout=20) as answer:
                    status, headers, body = answer.status, answer.headers, answer.read()
            except urllib.error.HTTPError as error:
                status, headers, body = error.code, error.headers, error.read()
            self.send_response(status)
            self.send_header("Content-Type", headers["Content-Type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forwarder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def _browse(url: str, *options: str) -> str:
    """Load a page and run its scripts to their end; return the output of the browser."""
    # Chromium's own sandbox refuses to run as root, as in a container of continuous integration.
    words = [PROGRAM, "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    words += ["--no-sandbox"] if os.getuid() == 0 else []
    words.append(f"--virtual-time-budget={MILLISECONDS_FOR_A_PAGE}")
    with tempfile.TemporaryDirectory() as profile:
        return run([*words, f"--user-data-dir={profile}", *options, url]).ok().stdout


def page(url: str) -> str:
    """Return the HTML of a page after its scripts have run."""
    return _browse(url, "--dump-dom")


def main() -> None:
    """Write a picture of each dashboard."""
    from controller.bootstrap import ROOT
    from controller.checks import dashboards
    from testing.e2e.conftest import environment

    folder = ROOT / "docs/pictures"
    folder.mkdir(exist_ok=True)
    with prometheus_without_certificate(environment()) as url:
        for dashboard in dashboards.read():
            picture = folder / f"{dashboard['name']}.png"
            shown = f"{url}{PAGE}?dashboard={dashboard['name']}"
            _browse(shown, f"--screenshot={picture}", "--window-size=1400,1000")
            print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
