"""`hgfleet steering`: the prober, its findings, and the region of an address."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.core import logfmt
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import UnavailableError
from hgfleet.steering import health, networks_file, provider_networks, settings

if TYPE_CHECKING:
    import argparse

    from hgfleet.steering.settings import Config

_EPILOG = """\
examples:
  hgfleet steering check                   check the settings
  hgfleet steering status                  which endpoints answer, and which objects do not
  hgfleet steering where 192.0.2.7         the region of a client's address
  systemctl status hgfleet-steering        the prober
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet steering` and its commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "steering",
        help="probe the endpoints of bundles, and steer clients to those that answer",
        description="The choice and the order of clone bundles for each client.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    for name, summary, run in (
        ("check", "report a mistake in the settings, or that they are fine", _check),
        ("probe", "probe every endpoint until stopped (what the unit runs)", _probe),
        ("status", "show which endpoints answer, and which objects do not", _status),
        ("where", "show the region of a client's address", _where),
    ):
        command = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        command.add_argument(
            "--config",
            type=Path,
            default=settings.DEFAULT_PATH,
            metavar="FILE",
            help="settings (default: %(default)s)",
        )
        command.set_defaults(run=run)
        if name == "where":
            command.add_argument("address", metavar="ADDRESS")


def _check(options: argparse.Namespace) -> int:
    settings.load(options.config)
    print(f"{options.config}: fine")
    return 0


def _probe(options: argparse.Namespace) -> int:
    from hgfleet.steering import probe

    config = settings.load(options.config)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    log = logfmt.events("steering")
    rounds = 0

    def is_over(seconds: float) -> bool:
        nonlocal rounds
        if rounds == 1:
            # Only after the first round, so that clients get bundles as early as possible.
            threading.Thread(target=refresh, daemon=True).start()
        if rounds == 0:
            systemd.notify("READY=1")
        rounds += 1
        # systemd restarts a prober that hangs.
        systemd.notify("WATCHDOG=1")
        return over.wait(seconds)

    def keep_table() -> None:
        try:
            networks_file.write(options.config, config)
        except OSError as problem:
            # Without the file, sessions build the table themselves.
            log("networks-unwritten", reason=problem)

    def refresh() -> None:
        while True:
            provider_networks.refresh(config, log)
            keep_table()
            if over.wait(provider_networks.INTERVAL):
                return

    keep_table()
    probe.run(config, log, is_over)
    return 0


def _status(options: argparse.Namespace) -> int:
    config = settings.load(options.config)
    state, findings = _state(config)
    down = state.down([endpoint.name for endpoint in config.endpoints])
    for endpoint in config.endpoints:
        condition = state.endpoints.get(endpoint.name, health.Condition())
        place = "CDN" if endpoint.is_cdn else endpoint.region or "no region"
        state_text = f"DOWN: {condition.problem}" if endpoint.name in down else "up"
        if endpoint.origin:
            read = sum(endpoint.has(url) for url in findings.read)
            state_text += f", {read} copies of {endpoint.origin} read and advertised"
        print(f"{endpoint.name} ({place}): {state_text}\n    {endpoint.url}")
    for url, problem in findings.dead.items():
        print(f"DEAD: {url}: {problem}")
    return 1 if down or findings.dead else 0


def _state(config: Config) -> tuple[health.Health, health.Findings]:
    try:
        state = health.parse(config.health.read_text("utf-8"))
        findings = health.parse_findings(health.objects_file(config.health).read_bytes())
    except OSError:
        state = None
    if state is None or not state.is_current(time.time()):
        raise UnavailableError(
            f"{config.health}: no recent state: no prober is running, so clients get no bundles; "
            "`systemctl status hgfleet-steering` says why"
        )
    return state, findings


def _where(options: argparse.Namespace) -> int:
    config = settings.load(options.config)
    region = networks_file.build(config).region(options.address)
    print(region or "nowhere known")
    return 0 if region else 1
