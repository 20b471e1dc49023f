"""Meet a web host as clients do: `probe.py QUESTION` prints a line of JSON with the figures.

QUESTION is JSON: `url` of the host, `peers` (URLs of hosts that have not changed), `primary` (its
URL, empty where this host does not reach it), `truth` (`truth.py` on the primary), `pages` (how
many). It runs on a proxy, which reaches every web host, or on the host itself
(`playbooks/roll/check.yml`).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CA = "/etc/hgfleet/tls/ca.pem"
HG = "/opt/hgfleet/current/bin/hg"

PAGE_SECONDS = 10.0
"""An answer that takes longer is an error."""

CLONE_SECONDS = 60.0

PAGES_SECONDS = 15.0
FEWEST_PAGES = 5
"""Pages that are requested even after PAGES_SECONDS: so many show that a host is slow."""

MOST_ERRORS = 3
"""Failed requests after which no more are sent: a host that hangs does not hold the deploy."""


NULL = "0" * 40
"""The head of a repository without a changeset."""

NODES_AT_ONCE = 50
"""Their hashes make an address of 2 KB, which every server reads."""


class Asked:
    """The answers of a host."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.errors: list[str] = []
        self.seconds: list[float] = []
        context = ssl.create_default_context(cafile=CA)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def get(self, path: str, expected: tuple[int, ...] = (200,)) -> tuple[int, bytes]:
        """Return status and body; (0, b"") after an error, which is recorded."""
        place = path.partition("?")[0]
        try:
            try:
                answer = self._opener.open(self.url + path, timeout=PAGE_SECONDS)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                status, body = int(answer.status), bytes(answer.read())
        except (OSError, http.client.HTTPException) as error:
            self.errors.append(f"does not answer: {place}: {getattr(error, 'reason', error)}")
            return 0, b""
        if status not in expected:
            self.errors.append(f"a request failed: {place}: status {status}")
            return 0, b""
        return status, body

    def page(self, path: str) -> None:
        """Request a page that no cache has, and record the time of its answer."""
        begin = time.monotonic()
        if self.get(f"{path}{'&' if '?' in path else '?'}probe={secrets.token_hex(8)}")[0]:
            self.seconds.append(round(time.monotonic() - begin, 4))


def content(host: Asked, truth: list[dict[str, Any]], primary: Asked | None = None) -> list[str]:
    """Return the differences between the answers of the host and the primary."""
    wrong = []
    for repository in truth:
        if len(host.errors) >= MOST_ERRORS:
            break
        path = repository["path"]
        status, body = host.get(f"/{path}?cmd=heads")
        heads = sorted(body.decode("ascii", "replace").split())
        expected = repository["heads"]
        if status and heads != expected and not _has_moved_on(host, primary, repository, heads):
            wrong.append(f"{path}: heads {_short(heads)}, on the primary {_short(expected)}")
            continue
        if file := repository["file"]:
            tip = repository["tip"]
            status, body = host.get(f"/{path}/raw-file/{tip}/{file}")
            if status and hashlib.sha256(body).hexdigest() != repository["sha256"]:
                wrong.append(f"{path}: {file} of {tip[:12]} differs")
    return wrong


def _has_moved_on(
    host: Asked, primary: Asked | None, repository: dict[str, Any], heads: list[str]
) -> bool:
    """Tell whether heads differ from the primary's only by pushes since those were read.

    Then the host has all that the primary had, and the primary has all that the host has now.
    """
    path = repository["path"]
    if set(heads) <= {NULL} or not knows(host, path, repository["heads"]):
        return False
    return primary is None or knows(primary, path, heads)


def knows(host: Asked, path: str, nodes: list[str]) -> bool:
    """Tell whether a host says that it has these changesets of a repository."""
    for first in range(0, len(nodes), NODES_AT_ONCE):
        some = nodes[first : first + NODES_AT_ONCE]
        _status, body = host.get(f"/{path}?cmd=known&nodes={'+'.join(some)}")
        if body.strip() != b"1" * len(some):
            return False
    return True


def _short(heads: list[str]) -> str:
    return " ".join(node[:12] for node in heads[:3]) + (" ..." if len(heads) > 3 else "") or "none"


def clone(url: str, repository: dict[str, Any]) -> str:
    """Clone all but the newest changeset and pull the rest; return the problem, empty if none."""
    with tempfile.TemporaryDirectory(prefix="hgfleet-probe-") as folder:
        command = [HG, "--config", f"web.cacerts={CA}", "--config", "ui.clonebundles=no"]
        steps = [
            ["init", folder + "/copy"],
            [
                "-R",
                folder + "/copy",
                "pull",
                "-r",
                repository["heads"][0],
                f"{url}/{repository['path']}",
            ],
            ["-R", folder + "/copy", "pull", f"{url}/{repository['path']}"],
            ["-R", folder + "/copy", "verify", "--quiet"],
            # Fails where a changeset is missing. Others may be the heads by now.
            ["-R", folder + "/copy", "log", "-r", "+".join(repository["heads"]), "-T", "{node}\n"],
        ]
        for step in steps:
            try:
                done = subprocess.run(
                    [*command, *step],
                    capture_output=True,
                    text=True,
                    timeout=CLONE_SECONDS,
                    env={"HGRCPATH": "", "HGPLAIN": "1", "PATH": "/usr/bin:/bin"},
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"hg {step[-2]} took more than {CLONE_SECONDS:.0f} s"
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                return f"hg {' '.join(step[:3])}: {last}"
        return ""


def figures(question: dict[str, Any]) -> dict[str, Any]:
    """Return what a client meets: health, differences, the clone's problem, times and errors."""
    host, truth = Asked(question["url"]), question["truth"]
    peers = [Asked(url) for url in question["peers"]]
    status, body = host.get("/healthz", (200, 404, 503))
    primary = Asked(question["primary"]) if question["primary"] else None
    wrong = content(host, truth, primary)
    path = f"/{truth[0]['path']}/rev/{truth[0]['tip']}" if truth else "/"
    until = time.monotonic() + PAGES_SECONDS
    for number in range(question["pages"]):
        if number >= FEWEST_PAGES and time.monotonic() > until:
            break
        # In turn, so that a busy moment of the machine hits both.
        for asked in [host, *peers]:
            if len(asked.errors) < MOST_ERRORS:
                asked.page(path)
    is_right = truth and not wrong and not host.errors
    problem = clone(host.url, truth[0]) if is_right and Path(HG).exists() else ""
    return {
        "health": status,
        "problem": _problem(body),
        "wrong": wrong,
        "errors": host.errors,
        "clone": problem,
        "seconds": host.seconds,
        "peers": [peer.seconds for peer in peers if not peer.errors],
    }


def _problem(body: bytes) -> str:
    try:
        return str(json.loads(body).get("problem", ""))
    except (ValueError, AttributeError):
        return ""


if __name__ == "__main__":
    print(json.dumps(figures(json.loads(sys.argv[1]))))
