"""A primary, its mirrors and a broker as processes of this machine, for benches of replication.

Relay, appliers, broker and sessions are the real programs; hosts are folders. Clients push over
the wire protocol, through a pipe in place of SSH.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

os.environ["HGRCPATH"] = ""

from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import FIRST, Heads, Record
from hgfleet.replication.primary.outbox import Position
from hgfleet.replication.primary.positions import Positions
from hgfleet.replication.repositories import log_reader
from testing.integration.support import hosts, site
from testing.integration.support.applier_process import ApplierProcess
from testing.integration.support.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.replication.protocol.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[2]

MIRRORS: Final = ("hgweb1", "hgweb2")
PATIENCE_SECONDS: Final = 300.0
TOLD: Final = re.compile(r"push (\d+) recorded(?:; visible on (\d+)/(\d+) mirrors in ([\d.]+) s)?")
BARE: Final = """\
[extensions]
access = {ext}/access.py
access:required = yes
policies = {ext}/policies.py
policies:required = yes
recovery = {ext}/recovery.py
"""
LOGGED: Final = BARE + "pushlog = {ext}/pushlog.py\npushlog:required = yes\n"
ON_A_PRIMARY: Final = (
    LOGGED + "replicated = {ext}/replicated.py\n[hgfleet]\npushlog = yes\nrelay = {wake}\n"
    "replication-wait = {wait}\nfences = {terms}/fences\n"
)
DURABLE_NO: Final = "durable = no\n"
"""Appended to the section hgfleet of a configuration: acknowledge before the disk has the push."""

ON_A_MIRROR: Final = LOGGED + "[hgfleet]\npushlog = yes\nreplica-of = hg1\n"
OWN: Final = "[hgfleet]\npath = {path}\nread = public\npush = all\n"


def until(what: str, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> float:
    """Wait for a condition; return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)
    return time.monotonic() - began


class ReplicatedSite:
    """The site; `with` starts its broker and its source, and ends every process."""

    def __init__(self, folder: Path, mirrors: tuple[str, ...] = MIRRORS, wait: float = 20) -> None:
        self.folder = folder
        self.broker = Broker(folder / "broker")
        authority = hosts.Authority(folder / "ca")
        self.primary = hosts.Primary(folder / "hg1", authority)
        self.mirrors = [hosts.Host(folder / name, name, authority, "x") for name in mirrors]
        self.wake = folder / "wake.sock"
        self.sessions = folder / "sessions"
        self.sessions.mkdir()
        self.relay: subprocess.Popen[bytes] | None = None
        self.relay_log = folder / "relay.log"
        self.appliers: list[ApplierProcess] = []
        self._stack = ExitStack()
        (folder / "positions").mkdir()
        common = {"brokers": (self.broker.url,), "mirrors": mirrors}
        self.primary.settings = replace(
            self.primary.settings, wake=self.wake, positions=folder / "positions", **common
        )
        self.hgrc("hgrc", ON_A_PRIMARY, wait)
        self.client = self._file("client.hgrc", "[ui]\nusername = alice\n")
        self.program = self._file(
            "hg", f'#!/bin/sh\necho >"{self.sessions}/$$"\nexec "{site.HG}" "$@"\n', 0o755
        )
        self._plain = self._file(
            "plain-hg", f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{site.HG}" "$@"\n', 0o755
        )
        for mirror in self.mirrors:
            mirror.hgrc.write_text(ON_A_MIRROR.format(ext=site.HGEXT))
            mirror.settings = replace(mirror.settings, hg=self._plain, **common)

    def hgrc(self, name: str, text: str, wait: float = 0) -> Path:
        """Write a configuration of the primary's sessions."""
        file = self.primary.root / name
        terms = self.primary.settings.terms
        file.write_text(text.format(ext=site.HGEXT, wake=self.wake, wait=wait, terms=terms))
        return file

    def _file(self, name: str, text: str, mode: int = 0o644) -> Path:
        file = self.folder / name
        file.write_text(text)
        file.chmod(mode)
        return file

    def __enter__(self) -> ReplicatedSite:
        self._stack.callback(self.broker.kill)
        self.broker.start()
        source = self._stack.enter_context(self.primary.serving())
        for mirror in self.mirrors:
            mirror.settings = replace(mirror.settings, source=source)
            applier = ApplierProcess(mirror.settings, self.folder / f"applier-{mirror.root.name}")
            self._stack.callback(applier.kill)
            self.appliers.append(applier)
        self._stack.callback(self.kill_relay)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- repositories ----------------------------------------------------------------------------

    def all_hosts(self) -> list[hosts.Host]:
        """Return the primary and its mirrors."""
        return [self.primary, *self.mirrors]

    def declare(self, paths: Iterable[str]) -> None:
        """Create empty repositories on all hosts, and register them."""
        named = {path: uuid.uuid4().hex for path in paths}
        for host in self.all_hosts():
            for path in named:
                host.create(path)
                (host.path(path) / ".hg/hgrc").write_text(OWN.format(path=path))
            host.declare(*named)
            host.identify_all(named)

    def declare_recorded(self, count: int) -> None:
        """Make many repositories with a published record each, the same on all hosts."""
        model = self.primary.create("model") / ".hg"
        requirements = (model / "requires").read_bytes(), (model / "store/requires").read_bytes()
        names = [f"team{number % 100}/repository{number}" for number in range(count)]
        heads = Heads(digest=Heads.digest_of(()))
        named = {name: uuid.uuid4().hex for name in names}
        for name, identity in named.items():
            line = Record(
                1, identity, "push", "alice", 1_795_440_000_000, FIRST, heads=heads
            ).line()
            for host in self.all_hosts():
                control = host.path(name) / ".hg"
                (control / "store").mkdir(parents=True)
                (control / "requires").write_bytes(requirements[0])
                (control / "store/requires").write_bytes(requirements[1])
                (control / "hgrc").write_text(OWN.format(path=name))
                (control / "store/pushlog").write_bytes(line + b"\n")
        for host in self.all_hosts():
            host.declare(*names)
            host.identify_all(named)
        positions = Positions(self.primary.settings.positions)
        for name in names:
            store = self.primary.path(name) / ".hg/store"
            stamp = log_reader.stamp(store)
            assert stamp is not None
            positions.save(Position(named[name], log_file.tip(store / log_file.NAME), stamp))
        positions.close()

    def tip(self, host: hosts.Host, path: str) -> int:
        """Return the number of the last record on a host."""
        return log_file.tip(host.path(path) / ".hg/store/pushlog").id

    # -- processes -------------------------------------------------------------------------------

    def start_relay(self) -> None:
        """Start the relay; return when sessions can wake it."""
        self.wake.unlink(missing_ok=True)
        with self.relay_log.open("ab") as log:
            self.relay = subprocess.Popen(
                [
                    *(sys.executable, "-m", "testing.integration.replication.primary"),
                    _as_json(self.primary.settings),
                ],
                env=self.primary.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until("the relay starts", self.wake.exists)

    def kill_relay(self) -> None:
        """Kill the relay and its workers (kill -9)."""
        if self.relay is not None:
            os.killpg(self.relay.pid, signal.SIGKILL)
            self.relay.wait()
            self.relay = None

    def start(self) -> None:
        """Start relay and appliers; return when pushes wait for every mirror."""
        self.start_relay()
        for applier in self.appliers:
            applier.start()
        until("the mirrors catch up", self.all_are_live)

    def all_are_live(self) -> bool:
        """Tell whether each mirror is a member for the relay."""
        try:
            state = json.loads((self.primary.settings.state / "state.json").read_bytes())
        except FileNotFoundError:
            return False
        return all(mirror["live"] for mirror in state["mirrors"].values())

    # -- clients ---------------------------------------------------------------------------------

    def clone(self, name: str, changesets: int) -> Path:
        """Make a client's repository with a line of changesets to push."""
        clone = self.folder / name
        environment = self.client_environment()
        for words in (
            ["init", str(clone)],
            [*("-R", str(clone), "debugbuilddag", "--new-file", f"+{changesets}")],
        ):
            done = site.server(environment).hg(words, environment, self.folder)
            if done.returncode:
                raise SystemExit(site.text(done).stderr)
        return clone

    def client_environment(self) -> dict[str, str]:
        """Return the environment of a client's hg."""
        return site.environment(self.client)

    def push(
        self,
        clone: Path,
        path: str,
        revision: int,
        *,
        hgrc: Path | None = None,
        program: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Push a changeset; return its result, with stdout and stderr merged.

        The real hg runs at both ends. With `program`, this hg serves, and the client is a cheap
        fork (`testing/support/prefork.py`).
        """
        environment = self.client_environment()
        export = (
            f"export HGRCPATH={hgrc or self.primary.hgrc} HGFLEET_USER=alice HGFLEET_GROUPS=all"
        )
        words = [
            *("-R", str(clone), "push", "--rev", str(revision)),
            *("--config", f"""ui.ssh=sh -c '{export}; eval "$2"' ssh"""),
            *("--config", f"ui.remotecmd={program or self.program}", self.primary.url(path)),
        ]
        if program:
            done = site.text(site.server(environment).hg(words, environment, self.folder))
        else:
            done = subprocess.run(
                [str(site.HG), *words], env=environment, capture_output=True, text=True, check=False
            )
        return subprocess.CompletedProcess(words, done.returncode, done.stdout + done.stderr, "")


def hg_program() -> Path:
    """Return an hg that starts fast, for sessions."""
    return site.program()


def _as_json(settings: Settings) -> str:
    return json.dumps(asdict(settings), default=str)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and all its descendants."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    spent = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            spent += cpu_seconds(int(child))
    return spent


def load() -> str:
    """Return the load of the machine, for a table."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())
