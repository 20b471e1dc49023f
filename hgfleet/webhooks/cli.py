"""`hgfleet webhooks`: the daemon (what the unit hgfleet-webhooks runs), and its dead letters."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt, service
from hgfleet.core.errors import UsageError
from hgfleet.registry.owned_files import become
from hgfleet.replication import settings as replication_settings
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
  hgfleet webhooks dead retry ci       have all dead deliveries of the receiver ci tried again
  hgfleet webhooks dead drop ci ID     remove one of them
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

    found = webhook_settings.load(options.config)
    replication = replication_settings.load(options.replication)
    secrets = {one.name: webhook_settings.secret(one.name) for one in found.receivers}
    former = list(former_spool.read(found.spool))
    log = logfmt.events("webhooks")
    service.run(Daemon(found, replication, secrets, log, former).run(), log)
    return 0


def _check(options: argparse.Namespace) -> int:
    webhook_settings.load(options.config)
    return 0


def _asked(options: argparse.Namespace, ask: Callable[[Settings, Client], Awaitable[None]]) -> int:
    """Ask the brokers, with the rights of the daemon. Raises UnavailableError."""
    from hgfleet.replication import connection

    found = webhook_settings.load(options.config)
    replication = replication_settings.load(options.replication)

    async def run() -> None:
        # root alone reads the key.
        tls = connection.tls(replication)
        become(USER)
        async with connection.asking(replication, "hgfleet webhooks", tls) as client:
            await ask(found, client)

    asyncio.run(run())
    return 0


def _letters(client: Client) -> Letters:
    from hgfleet.replication.pulling import ANSWER_SECONDS
    from hgfleet.webhooks.letters import Letters

    return Letters(client.jetstream(timeout=ANSWER_SECONDS))


async def _dead(client: Client, receiver: str, *, former: bool = True) -> list[Letter]:
    """Return the dead events of receivers of a name, `former` ones too; of all without a name."""
    from hgfleet.webhooks import consumers, letters

    names = {one.identity: one.name for one in await consumers.receivers(client)}
    found = [
        replace(one, receiver=names.get(one.identity, one.receiver))
        async for one in _letters(client).read(letters.DEAD)
        if former or one.identity in names
    ]
    return [one for one in found if receiver in ("", one.receiver)]


def _status(options: argparse.Namespace) -> int:
    return _asked(options, _show_status)


async def _show_status(found: Settings, client: Client) -> None:
    from hgfleet.webhooks import consumers, letters

    try:
        told = json.loads((found.state / webhook_settings.STATE_FILE).read_bytes())
    except (OSError, ValueError):
        told = {}
    dead = Counter(one.receiver for one in await _dead(client, ""))
    again = Counter([one.receiver async for one in _letters(client).read(letters.AGAIN)])
    waiting = Counter(again)
    for one, info in (await consumers.receivers(client)).items():
        waiting[one.name] += (info.num_pending or 0) + (info.num_ack_pending or 0)
    now = time.time()
    for name in sorted({one.name for one in found.receivers} | dead.keys() | waiting.keys()):
        text, state = "nothing waits", told.get(name, {})
        if waiting[name]:
            text = f"{waiting[name]} wait"
            text += f", the oldest for {now - state['oldest']:.0f} s" if state.get("oldest") else ""
            text += f" ({state['reason']})" if state.get("reason") else ""
        if dead[name]:
            text += f"; {dead[name]} dead: `hgfleet webhooks dead list {name}`"
        print(
            f"{name}: {text}{'' if found.receiver(name) else '; no receiver of this name is set'}"
        )


def _list(options: argparse.Namespace) -> int:
    async def show(_found: Settings, client: Client) -> None:
        for one in await _dead(client, options.receiver):
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.received))
            tries = "1 attempt" if one.attempts == 1 else f"{one.attempts} attempts"
            print(
                f"{one.receiver} {one.event.id} {one.event.path} push {one.event.number}, {when}, "
                f"{tries}: {one.reason}"
            )

    return _asked(options, show)


def _retry(options: argparse.Namespace) -> int:
    return _asked(options, lambda found, client: _try_again(options, found, client))


async def _try_again(options: argparse.Namespace, found: Settings, client: Client) -> None:
    from hgfleet.webhooks import letters

    if found.receiver(options.receiver) is None:
        names = ", ".join(one.name for one in found.receivers)
        raise UsageError(f"receiver {options.receiver}: none of the receivers {names}")
    chosen = _chosen(options, await _dead(client, options.receiver, former=False))
    for one in chosen:
        again = replace(one, received=time.time(), attempts=0)
        await _letters(client).add(letters.AGAIN, again)
        await _letters(client).remove(one.number)
    print(f"{options.receiver}: {len(chosen)} tried again")


def _drop(options: argparse.Namespace) -> int:
    async def drop(_found: Settings, client: Client) -> None:
        chosen = _chosen(options, await _dead(client, options.receiver))
        for one in chosen:
            await _letters(client).remove(one.number)
        print(f"{options.receiver}: {len(chosen)} removed")

    return _asked(options, drop)


def _chosen(options: argparse.Namespace, dead: list[Letter]) -> list[Letter]:
    """Return the dead events that a command names. Raises UsageError."""
    if not options.deliveries:
        return dead
    known = {one.event.id for one in dead}
    if unknown := [one for one in options.deliveries if one not in known]:
        raise UsageError(
            f"{options.receiver}: no dead delivery {', '.join(unknown)} of this receiver; "
            f"`hgfleet webhooks dead list {options.receiver}` shows them, and those of a former "
            "receiver of this name, which are not tried again"
        )
    return [one for one in dead if one.event.id in options.deliveries]
