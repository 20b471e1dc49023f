"""Repairs hosts on which tests were killed while they broke something.

A restart undoes what a host forgets: stopped and frozen processes, units and settings in /run,
small disks in RAM, rules of the firewall. `site.yml` writes what roles set: files, packages, units,
people. The rest is done here. Repositories and people's data stay.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from controller import bootstrap
from controller.bootstrap import Step, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.cluster.settings import Settings

RESTARTS_AT_A_TIME: Final = 4

UNDO: Final = r"""
rm -f /etc/hgfleet/web.drain
rm -rf /var/tmp/hgfleet-faults /var/tmp/alert-watch
[ ! -d /srv/hg/repos ] || find /srv/hg/repos -path '*/.hg/store/pushlog' -perm 000 \
    -exec sh -c 'for log; do chmod --reference="${log%/*}/00changelog.i" "$log"; done' sh {} +
find /etc/hgfleet /var/lib/hgfleet* -xdev -name '*.away' 2>/dev/null |
    while read -r file; do [ -e "${file%.away}" ] || mv "$file" "${file%.away}"; done
"""
"""Undoes changes of tests that no role would undo: a mirror taken out of use, an unreadable push
log, files put out of the way, folders of tests."""


def let_go_on(cluster: Settings, states: Mapping[str, str]) -> None:
    """Let paused hosts go on: a paused host can neither be asked nor restarted."""
    paused = [f"{cluster.name}-{name}" for name, state in states.items() if state == "paused"]
    if paused:
        run(["docker", "unpause", *paused], what="Letting paused hosts go on")


def restart(cluster: Settings, hosts: Iterable[str]) -> None:
    """Restart hosts, several at a time; the caller waits until they have booted."""
    names = list(hosts)
    with Step("repair", f"restarting {', '.join(names)}"):

        def one(name: str) -> None:
            run(["docker", "restart", f"{cluster.name}-{name}"], what=f"Restarting {name}")

        with ThreadPoolExecutor(RESTARTS_AT_A_TIME) as pool:
            list(pool.map(one, names))


def undo(cluster: Settings, hosts: Iterable[str]) -> None:
    """Undo changes of tests that no role undoes, on hosts that have booted."""
    with Step("repair", "undoing changes of tests"):
        for name in hosts:
            command = ["docker", "exec", f"{cluster.name}-{name}", "sh", "-c", UNDO]
            run(command, what=f"Undoing changes of tests on {name}")


def failed_units(cluster: Settings, host: str) -> list[str]:
    """Return the units of a host that have failed."""
    words = ["systemctl", "--failed", "--plain", "--no-legend"]
    done = subprocess.run(
        ["docker", "exec", f"{cluster.name}-{host}", *words], stdout=subprocess.PIPE, text=True
    )
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]


def require_well(failed: Mapping[str, list[str]]) -> None:
    """Raise SetupError where hosts have failed units after the repair."""
    told = [f"{host} ({', '.join(units)})" for host, units in failed.items() if units]
    if told:
        first = next(host for host, units in failed.items() if units)
        bootstrap.fail(
            f"After the repair units have failed: {', '.join(told)}.",
            f"./cluster rebuild {first} makes that host again (its data is lost); "
            "./cluster up --fresh all of them.",
        )
