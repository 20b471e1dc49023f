"""Benchmark of killed runs: after a run that was not killed, everything must be right."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from testing.bench.bundles_site import KINDS, ROOT, WHO, Site, environment, show
from testing.bench.repos import Size, append, generate

if TYPE_CHECKING:
    from pathlib import Path

PATHS: Final = (
    *("registry", "dynamic", "repositories", "manifests", "pull_bundles", "scratch"),
    *("scratch_ram", "hg", "hgrc", "ca"),
)


class Flaky:
    """A proxy between a run and its store, which makes `share` of the connections fail.

    Some are refused, some get an answer of 503, some are cut in the middle.
    """

    def __init__(self, target: int, seed: int = 1) -> None:
        self.share = 0.0
        self.failed = 0
        self._target = target
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            fails = self._chance.random() < self.share
            how = self._chance.choice(("refuse", "503", "cut")) if fails else ""
            limit = self._chance.randrange(20_000) if how == "cut" else None
            self.failed += fails
            threading.Thread(target=self._serve, args=(client, how, limit), daemon=True).start()

    def _serve(self, client: socket.socket, how: str, limit: int | None) -> None:
        with client, contextlib.suppress(OSError):
            if how == "refuse":
                return
            if how == "503":
                client.recv(65536)
                client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._target)) as store:
                back = threading.Thread(target=_pump, args=(store, client, limit), daemon=True)
                back.start()
                _pump(client, store, limit)
                back.join()


def _pump(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    """Copy until the end or the limit (bytes), then end both connections."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data[:limit])
            if limit is not None:
                limit -= len(data)
                if limit <= 0:
                    break
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


FAILING: Final = 0.15
"""Share of the connections to the store that fail while runs are killed."""


@dataclass(frozen=True)
class Command:
    """`hgfleet bundles run` as a process, so that it can be killed."""

    arguments: list[str]
    environment: dict[str, str]

    def run(self, limit: float | None) -> tuple[float, int, str]:
        """Run until the end, or kill after `limit` seconds; return time, exit code and output."""
        started = time.perf_counter()
        with subprocess.Popen(
            self.arguments,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.kill()
                said = ""
        return time.perf_counter() - started, process.returncode, said

    def run_alone(self) -> float:
        """Run until the end; return the time."""
        took, code, said = self.run(None)
        assert code == 0, said
        return took


def _command(site: Site, root: Path, endpoint: str) -> Command:
    """Write the settings of a run over all repositories."""
    lines = [f"{name} = {json.dumps(str(getattr(site.config, name)))}" for name in PATHS]
    lines += ["jobs = 2", "retention_days = 0"]
    lines += ["[[store]]", 'name = "main"', 'bucket = "bundles"']
    lines += [f'endpoint = "{endpoint}"', f'public_url = "{endpoint}/bundles"']
    lines += ["[refresh]", "share = 0"]
    (root / "bundles.toml").write_text("\n".join(lines))
    arguments = [sys.executable, "-m", "hgfleet", "bundles", "run"]
    arguments += ["--config", str(root / "bundles.toml")]
    return Command(
        arguments,
        environment(site.config.hgrc)
        | {
            "PYTHONPATH": str(ROOT),
            "AWS_ACCESS_KEY_ID": WHO.access_key_id,
            "AWS_SECRET_ACCESS_KEY": WHO.secret_access_key,
        },
    )


def bench_kill(site: Site, root: Path, url: str, rounds: int) -> bool:
    """Kill runs at random points; after a run to the end nothing may be wrong.

    A round counts if the run was at work when it was killed; otherwise the round is repeated.
    """
    chance = random.Random(1)
    flaky = Flaky(urlsplit(url).port or 80)
    through = f"http://127.0.0.1:{flaky.port}"
    (store,) = site.config.stores
    store = replace(store, endpoint=through, public_url=f"{through}/bundles")
    site = Site(replace(site.config, stores=(store,)))
    names = [f"kill/{number}" for number in range(4)]
    for number, name in enumerate(names):
        (site.config.repositories / name).parent.mkdir(parents=True, exist_ok=True)
        generate(site.config.repositories / name, Size(changesets=50, files=10), seed=number)
    repositories = site.repositories(names, KINDS)
    command = _command(site, root, through)

    def push(seed: int) -> None:
        for name in names:
            append(site.config.repositories / name, 3, seed=seed)

    command.run_alone()
    push(1000)
    whole = command.run_alone()
    killed = tried = 0
    while killed < rounds:
        assert tried < 10 * rounds, "runs end before they can be killed"
        tried += 1
        push(tried)
        flaky.share = FAILING
        killed += command.run(chance.uniform(0.1, 1) * whole)[1] == -9
    flaky.share = 0
    show("kill", f"runs at work when they were killed, of {tried}", killed, unit="")
    show("kill", "a run that is left alone takes", whole)
    show("kill", "connections to the store that were made to fail", flaky.failed, unit="")
    command.run_alone()
    # A replaced object is no orphan: it stays for the retention time, which here ends now.
    command.run_alone()
    wrong = site.wrong(repositories)
    for problem in wrong:
        print(f"kill   {problem}")
    return show("kill", "things wrong after a run that was left alone", len(wrong), 0, "")
