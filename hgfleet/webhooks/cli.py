"""`hgfleet webhooks`: the daemon (what the unit hgfleet-webhooks runs), and its dead letters."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt, service
from hgfleet.core.errors import HostError, UsageError
from hgfleet.registry.owned_files import become
from hgfleet.replication import settings as replication_settings
from hgfleet.webhooks import settings as webhook_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.webhooks.settings import Settings
    from hgfleet.webhooks.spool import Delivery, Spool

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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=webhook_settings.DEFAULT_PATH,
        metavar="FILE",
        help="settings (default: %(default)s)",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="deliver events until stopped")
    run.add_argument(
        "--replication",
        type=Path,
        default=replication_settings.DEFAULT_PATH,
        metavar="FILE",
        help="settings of replication (default: %(default)s)",
    )
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


def say(event: str, **fields: object) -> None:
    """Write one event to the journal."""
    print(logfmt.line(f"webhooks.{event}", **fields), flush=True)


def _run(options: argparse.Namespace) -> int:
    from hgfleet.webhooks.daemon import Daemon
    from hgfleet.webhooks.spool import Spool

    found = webhook_settings.load(options.config)
    replication = replication_settings.load(options.replication)
    secrets = {one.name: webhook_settings.secret(one.name) for one in found.receivers}

    spool = Spool(found.spool)
    try:
        service.run(Daemon(found, replication, secrets, spool, say).run(), say)
    finally:
        spool.close()
    return 0


def _check(options: argparse.Namespace) -> int:
    webhook_settings.load(options.config)
    return 0


def _opened(options: argparse.Namespace) -> tuple[Settings, Spool]:
    """Open the spool with the rights of the daemon. Raises HostError."""
    from hgfleet.webhooks.spool import Spool

    found = webhook_settings.load(options.config)
    try:
        user = found.spool.owner()
    except (OSError, KeyError) as error:
        raise HostError(
            f"{found.spool}: {error}; hgfleet-webhooks.service makes it at its first start"
        ) from error
    become(user)
    return found, Spool(found.spool)


def _status(options: argparse.Namespace) -> int:
    found, spool = _opened(options)
    counts, now = spool.counts(), time.time()
    for name in sorted({one.name for one in found.receivers} | counts.keys()):
        count = counts.get(name)
        text = "nothing waits"
        if count is not None and count.waiting:
            text = f"{count.waiting} wait, the oldest for {now - count.oldest:.0f} s"
            text += f" ({count.reason})" if count.reason else ""
        if count is not None and count.dead:
            text += f"; {count.dead} dead: `hgfleet webhooks dead list {name}`"
        print(
            f"{name}: {text}{'' if found.receiver(name) else '; no receiver of this name is set'}"
        )
    return 0


def _list(options: argparse.Namespace) -> int:
    _found, spool = _opened(options)
    for one in spool.dead(options.receiver):
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.received))
        tries = "1 attempt" if one.attempts == 1 else f"{one.attempts} attempts"
        print(
            f"{one.receiver} {one.event.id} {one.event.path} push {one.event.number}, {when}, "
            f"{tries}: {one.reason}"
        )
    return 0


def _retry(options: argparse.Namespace) -> int:
    found, spool = _opened(options)
    if found.receiver(options.receiver) is None:
        names = ", ".join(one.name for one in found.receivers)
        raise UsageError(f"receiver {options.receiver}: none of the receivers {names}")
    return _change(options, spool, lambda chosen: spool.retry(chosen, time.time()), "tried again")


def _drop(options: argparse.Namespace) -> int:
    _found, spool = _opened(options)
    return _change(options, spool, spool.drop, "removed")


def _change(
    options: argparse.Namespace,
    spool: Spool,
    change: Callable[[Sequence[Delivery]], None],
    done: str,
) -> int:
    chosen = spool.dead(options.receiver)
    if options.deliveries:
        known = {one.event.id for one in chosen}
        if unknown := [one for one in options.deliveries if one not in known]:
            raise UsageError(
                f"{options.receiver}: no dead delivery {', '.join(unknown)}; "
                f"`hgfleet webhooks dead list {options.receiver}` shows them"
            )
        chosen = [one for one in chosen if one.event.id in options.deliveries]
    change(chosen)
    print(f"{options.receiver}: {len(chosen)} {done}")
    return 0
