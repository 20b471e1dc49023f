"""`hgfleet webhooks`: the daemon (what the unit hgfleet-webhooks runs), and its dead letters."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt
from hgfleet.core.daemons import service
from hgfleet.core.errors import UsageError
from hgfleet.registry.owned_files import become
from hgfleet.replication.protocol import settings as replication_settings
from hgfleet.webhooks import settings as webhook_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client

    from hgfleet.webhooks.letters import Letter, Letters
    from hgfleet.webhooks.settings import Settings

USER: Final = "hgwebhooks"
"""The user of the daemon."""

_EPILOG: Final = """\
examples:
  hgfleet webhooks status              what waits for each receiver, and why
  hgfleet webhooks dead list           the deliveries that were given up
  hgfleet webhooks dead retry ci       try all dead deliveries of the receiver ci again
  hgfleet webhooks dead drop ci ID     remove a dead delivery
"""


def add_parser(subparsers: Any) -> None:
    """Add `webhooks` and its commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "webhooks",
        help="post push events to receivers",
        description="Posts push events to the receivers that the operators have set.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=webhook_settings.DEFAULT_PATH,
        metavar="FILE",
        help="settings (default: %(default)s)",
    )
    parser.add_argument(
        "--replication",
        type=Path,
        default=replication_settings.DEFAULT_PATH,
        metavar="FILE",
        help="settings of replication (default: %(default)s)",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="deliver events until stopped")
    run.set_defaults(run=_run)
    commands.add_parser("check", help="check the settings").set_defaults(run=_check)
    commands.add_parser("status", help="show what waits").set_defaults(run=_status)
    dead = commands.add_parser("dead", help="deliveries that were given up").add_subparsers(
        metavar="COMMAND", required=True
    )
    listing = dead.add_parser("list", help="list them, the oldest first")
    listing.add_argument("receiver", nargs="?", default="", metavar="RECEIVER")
    listing.set_defaults(run=_list)
    for name, summary, function in (
        ("retry", "have them tried again", _retry),
        ("drop", "remove them", _drop),
    ):
        command = dead.add_parser(name, help=summary)
        command.add_argument("receiver", metavar="RECEIVER")
        command.add_argument(
            "deliveries", nargs="*", metavar="ID", help="as `dead list` shows them (default: all)"
        )
        command.set_defaults(run=function)


def _run(options: argparse.Namespace) -> int:
    from hgfleet.webhooks import former_spool
    from hgfleet.webhooks.daemon import Daemon

    settings = webhook_settings.load(options.config)
    replication = replication_settings.load(options.replication)
    secrets = {
        receiver.name: webhook_settings.secret(receiver.name) for receiver in settings.receivers
    }
    former = list(former_spool.read(settings.spool))
    log = logfmt.events("webhooks")
    service.run(Daemon(settings, replication, secrets, log, former).run(), log)
    return 0


def _check(options: argparse.Namespace) -> int:
    webhook_settings.load(options.config)
    return 0


def _asked(options: argparse.Namespace, ask: Callable[[Settings, Client], Awaitable[None]]) -> int:
    """Ask the brokers, with the rights of the daemon. Raises UnavailableError."""
    from hgfleet.replication.protocol import connection

    settings = webhook_settings.load(options.config)
    replication = replication_settings.load(options.replication)

    async def run() -> None:
        # Only root can read the key.
        tls = connection.tls(replication)
        become(USER)
        async with connection.asking(replication, "hgfleet webhooks", tls) as client:
            await ask(settings, client)

    asyncio.run(run())
    return 0


def _letters(client: Client) -> Letters:
    from hgfleet.replication.protocol.pulling import ANSWER_SECONDS
    from hgfleet.webhooks.letters import Letters

    return Letters(client.jetstream(timeout=ANSWER_SECONDS))


async def _dead(client: Client, receiver: str, *, former: bool = True) -> list[Letter]:
    """Return the dead events of receivers with this name, or of all receivers for "".

    `former` includes events of receivers that are not set any more.
    """
    from hgfleet.webhooks import consumers, letters

    names = {known.identity: known.name for known in await consumers.receivers(client)}
    dead = [
        replace(letter, receiver=names.get(letter.identity, letter.receiver))
        async for letter in _letters(client).read(letters.DEAD)
        if former or letter.identity in names
    ]
    return [letter for letter in dead if receiver in ("", letter.receiver)]


def _status(options: argparse.Namespace) -> int:
    return _asked(options, _show_status)


async def _show_status(settings: Settings, client: Client) -> None:
    from hgfleet.webhooks import consumers, letters

    try:
        states = json.loads((settings.state / webhook_settings.STATE_FILE).read_bytes())
    except (OSError, ValueError):
        states = {}
    dead = Counter(letter.receiver for letter in await _dead(client, ""))
    again = Counter([letter.receiver async for letter in _letters(client).read(letters.AGAIN)])
    waiting = Counter(again)
    for receiver, info in (await consumers.receivers(client)).items():
        waiting[receiver.name] += (info.num_pending or 0) + (info.num_ack_pending or 0)
    now = time.time()
    for name in sorted(
        {receiver.name for receiver in settings.receivers} | dead.keys() | waiting.keys()
    ):
        text, state = "nothing waits", states.get(name, {})
        if waiting[name]:
            text = f"{waiting[name]} wait"
            text += f", the oldest for {now - state['oldest']:.0f} s" if state.get("oldest") else ""
            text += f" ({state['reason']})" if state.get("reason") else ""
        if dead[name]:
            text += f"; {dead[name]} dead: `hgfleet webhooks dead list {name}`"
        former = "" if settings.receiver(name) else "; no receiver of this name is set"
        print(f"{name}: {text}{former}")


def _list(options: argparse.Namespace) -> int:
    async def show(_found: Settings, client: Client) -> None:
        for letter in await _dead(client, options.receiver):
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(letter.received))
            tries = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
            event = letter.event
            print(
                f"{letter.receiver} {event.id} {event.path} push {event.number}, {when}, "
                f"{tries}: {letter.reason}"
            )

    return _asked(options, show)


def _retry(options: argparse.Namespace) -> int:
    return _asked(options, lambda settings, client: _try_again(options, settings, client))


async def _try_again(options: argparse.Namespace, settings: Settings, client: Client) -> None:
    from hgfleet.webhooks import letters

    if settings.receiver(options.receiver) is None:
        names = ", ".join(receiver.name for receiver in settings.receivers)
        raise UsageError(f"receiver {options.receiver}: none of the receivers {names}")
    chosen = _chosen(options, await _dead(client, options.receiver, former=False))
    for letter in chosen:
        again = replace(letter, received=time.time(), attempts=0)
        await _letters(client).add(letters.AGAIN, again)
        await _letters(client).remove(letter.number)
    print(f"{options.receiver}: {len(chosen)} tried again")


def _drop(options: argparse.Namespace) -> int:
    async def drop(_found: Settings, client: Client) -> None:
        chosen = _chosen(options, await _dead(client, options.receiver))
        for letter in chosen:
            await _letters(client).remove(letter.number)
        print(f"{options.receiver}: {len(chosen)} removed")

    return _asked(options, drop)


def _chosen(options: argparse.Namespace, dead: list[Letter]) -> list[Letter]:
    """Return the dead events that a command names. Raises UsageError."""
    if not options.deliveries:
        return dead
    known = {letter.event.id for letter in dead}
    if unknown := [delivery for delivery in options.deliveries if delivery not in known]:
        raise UsageError(
            f"{options.receiver}: no dead delivery {', '.join(unknown)} of this receiver; "
            f"`hgfleet webhooks dead list {options.receiver}` shows them, and also deliveries of "
            "a former receiver of this name, which are not tried again"
        )
    return [letter for letter in dead if letter.event.id in options.deliveries]
