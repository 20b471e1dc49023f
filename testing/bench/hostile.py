"""Hostile requests against time, memory and the answers of others, on the running cluster.

    ./cluster up
    python -m testing.bench.hostile                            # all phases, and one table
    python -m testing.bench.hostile --phase tokens --phase partial     # some of them
    python -m testing.bench.hostile --phase at-once --only revset      # cases revset...
    python -m testing.bench.hostile --phase at-once --every 5          # a fifth of the cases
    python -m testing.bench.hostile --phase alone --outcomes FILE      # writes FILE
    python -m testing.bench.hostile --phase at-once --outcomes FILE    # makes groups from FILE

| phase         | hostile requests                              | others                          |
| ------------- | --------------------------------------------- | ------------------------------- |
| `alone`       | each case (`hostile_cases.py`)                | none                            |
| `at-once`     | each case as 32 requests at the same time     | pages and clones                |
| `connections` | 300 connections on an expensive page          | pages                           |
| `failing`     | 100 archives that fail (`hostile_failing.py`) | 100 archives and 1,000 pages    |
| `tokens`      | 40 connections with tokens that are refused   | sign-in with another's token    |
| `partial`     | 24 partial clones of a large repository       | pages and small pulls           |

In the phase `failing`, half of the others' archives and pages are of a private repository.

The bench sets the cluster up, and restores it at the end, even after an error or Ctrl-C
(`hostile_setup.py`). It makes repositories and tokens, and drains the mirrors, so that all readers
go to the primary. The history of 100,000 changesets takes some three minutes.

`alone` and `at-once` print a line for each case: status, wall time, the mean processor time of
hgfleet-web.service for a request (ended processes included), the processor time of the most
expensive request (from the access log), and the growth of memory: the largest growth of any
process, and the growth of all processes together. Cases that take renderers long are sent in groups
of three, 96 requests at once, so that `at-once` takes some 20 minutes instead of more than an hour;
`hostile_groups.py` says why this is no weaker, and which cases are sent by themselves. Both phases
begin with new workers, which have no stored answers.

Bars, in the table at the end: no client gets wrong bytes, no refused token gets a page, and no
request of others fails. 95 of 100 of the others' pages, sign-ins and small pulls take at most 1 s.
No case takes more than 2 s of CPU for a request, both for the mean and for the most expensive
request, and no process grows by more than 200 MB. Clones succeed, and no server of the proxy's
backends goes DOWN.

The exit code is 0 if all bars are held, 3 if wrong bytes or a refused token were let through, and 1
if another bar is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.bootstrap import SetupError
from testing.bench import (
    hostile_archives,
    hostile_at_once,
    hostile_groups,
    hostile_history,
    hostile_setup,
    hostile_site,
    hostile_witness,
)
from testing.bench.hostile_bars import exit_code, table
from testing.bench.hostile_cases import cases
from testing.bench.hostile_groups import Outcome
from testing.e2e.cluster import Cluster
from testing.e2e.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from testing.bench.hostile_bars import Bar
    from testing.bench.hostile_cases import Case
    from testing.bench.hostile_setup import Prepared

PARALLEL: Final = 32
CHANGESETS: Final = 100_000
LEAST_CHANGESETS: Final = hostile_history.LAST + 2
PHASES: Final = ("alone", "at-once", "connections", "failing", "tokens", "partial")
WITHOUT_HISTORY: Final = frozenset({"failing", "tokens"})


class Run:
    """A run on a prepared cluster."""

    def __init__(self, cluster: Cluster, made: Prepared, options: argparse.Namespace) -> None:
        self._options = options
        self._made = made
        self._hosts = hostile_witness.Hosts(
            *(cluster.host(name) for name in (options.web, options.proxy)),
            *(cluster.host(name) for name in (options.attacker, options.other)),
        )
        env = cluster.env
        self._site = hostile_site.Site(
            env["HGFLEET_HTTP_URL"], env["HGFLEET_CA_CERT"], made.history, env["HGFLEET_HGRC"]
        )
        self._chosen: Sequence[Case] = [
            case for case in cases() if case.name.startswith(options.only)
        ][:: options.every]
        self._alone: Mapping[str, Outcome] = {}

    def run(self, phases: Sequence[str]) -> list[Bar]:
        """Run phases; return the bars of all."""
        if not WITHOUT_HISTORY.issuperset(phases):
            self._make_history()
        bars: list[Bar] = []
        for name in phases:
            print(f"--- {name}", flush=True)
            measured = self._phases()[name]()
            print("\n".join(table(measured)), flush=True)
            bars += measured
        return bars

    def _phases(self) -> Mapping[str, Callable[[], list[Bar]]]:
        hosts, made, options = self._hosts, self._made, self._options
        return {
            "alone": self._run_alone,
            "at-once": self._run_at_once,
            "connections": lambda: hostile_witness.connections(
                hosts, made, options.page, options.seconds
            ),
            "failing": self._run_failing,
            "tokens": lambda: hostile_witness.tokens(hosts, made, options.seconds),
            "partial": lambda: hostile_witness.partial(hosts, made, options.seconds),
        }

    def _make_history(self) -> None:
        path = f"/srv/hg/repos/{self._made.history}"
        argv = (*hostile_setup.AS_HG, "-", path, str(self._options.changesets))
        source = Path(hostile_history.__file__).read_text()
        print(hostile_site.finish(self._hosts.web, *argv, stdin=source), end="", flush=True)

    def _run_alone(self) -> list[Bar]:
        singles = [[case] for case in self._chosen]
        timeout, outcomes = self._options.timeout, self._options.outcomes
        bars, measured = hostile_at_once.phase(
            self._site, self._hosts.web, singles, 1, timeout, "alone"
        )
        self._alone = {outcome.name: outcome for outcome in measured}
        if outcomes:
            outcomes.write_text(json.dumps([outcome.to_json() for outcome in measured], indent=1))
        return bars

    def _run_at_once(self) -> list[Bar]:
        site, web, timeout = self._site, self._hosts.web, self._options.timeout
        outcomes = self._options.outcomes
        if not self._alone and outcomes and outcomes.exists():
            kept = [Outcome(**fields) for fields in json.loads(outcomes.read_text())]
            self._alone = {outcome.name: outcome for outcome in kept}
        if not self._alone:
            self._alone = hostile_at_once.tried_alone(site, web, self._chosen, timeout)
        groups = hostile_groups.plan(self._chosen, self._alone)
        return hostile_at_once.phase(site, web, groups, PARALLEL, timeout, "at-once")[0]

    def _run_failing(self) -> list[Bar]:
        made, hosts = self._made, self._hosts
        nodes = hostile_archives.fill(hosts.web, made.failing, hostile_setup.AS_HG)
        return hostile_archives.failing(
            self._site, hosts.attacker, made, nodes, self._options.share
        )


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--phase", action="append", choices=PHASES, help="may be repeated (default: all)"
    )
    parser.add_argument("--changesets", type=int, default=CHANGESETS, help="default: %(default)s")
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    parser.add_argument("--every", type=int, default=1, help="try only every Nth case")
    parser.add_argument(
        "--outcomes", type=Path, help="file of phase alone, from which at-once makes its groups"
    )
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a request")
    parser.add_argument(
        "--seconds", type=float, default=40, help="of phases connections, tokens and partial"
    )
    parser.add_argument(
        "--share", type=int, default=1, help="of phase failing: 1 of so many requests"
    )
    parser.add_argument("--page", default="/graph?revcount=1000", help="of phase connections")
    parser.add_argument("--web", default="hg1", help="host of the web part: the primary")
    parser.add_argument("--proxy", default="proxy1", help="host of the proxy")
    parser.add_argument("--attacker", default="s3-2", help="host with the hostile connections")
    parser.add_argument("--other", default="ldap1", help="host that is the other address")
    return parser


def main() -> int:
    """Measure and print; return the exit code."""
    parser = arguments()
    options = parser.parse_args()
    if options.changesets < LEAST_CHANGESETS:
        parser.error(
            f"--changesets: got {options.changesets}, expected at least {LEAST_CHANGESETS}"
        )
    phases = [name for name in PHASES if name in (options.phase or PHASES)]
    # Ctrl-C and SIGTERM both restore the cluster.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = Cluster(environment())
    try:
        bars = hostile_setup.around(cluster, lambda made: Run(cluster, made, options).run(phases))
    except SetupError as problem:
        raise SystemExit(str(problem)) from None
    print("=== all phases")
    print("\n".join(table(bars)))
    return exit_code(bars)


if __name__ == "__main__":
    sys.exit(main())
