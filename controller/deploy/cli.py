"""The command line of ./deploy, and its steps in their order."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from controller import bootstrap
from controller.bootstrap import CACHE, ROOT, Step
from controller.deploy import (
    attested,
    batches,
    decide,
    formats,
    gate,
    lease,
    only,
    plan,
    processes,
    questions,
    run,
    survey,
    trees,
    upgrade_os,
    verify,
    ways,
)
from controller.deploy.decide import UNKNOWN, DeployError
from controller.deploy.roll import Roll, Target, target_of
from controller.deploy.ways import Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from controller.deploy.decide import HostState
    from controller.deploy.run import Built, Site
    from controller.deploy.trees import Taken

EXAMPLES = """\
INVENTORY is a folder with a hosts.yml, a file, or a name in ansible/inventories.

examples:
  ./deploy production --check             the plan: what would change, nothing is touched
  ./deploy production                     build, plan, ask, apply
  ./deploy production --limit hg1,hg2     only these hosts (any pattern of Ansible)
  ./deploy production --only people       people and groups of the inventory, nothing else
  ./deploy production --only people,registry --check
                                          the plan of these two; names the files that it leaves out
  ./deploy production --yes               do not ask (for automation)
  ./deploy production --release .cache/release/hgfleet-0.1.0-1a2b3c.tar.gz
                                          a release that was built before; needs no Docker
  ./deploy production --verify            the same, then ./run-tests site:production
  ./deploy production --upgrade-os        packages of Debian, host by host; with --check the plan
  ./deploy production --status            which release each host has, and which it could go back to
  ./deploy production --rollback          each host back to what it had before its last change
  ./deploy production --rollback 0.1.0-1a2b3c
                                          back to a release that is still on the hosts
  ./deploy production --log               who deployed what and when, and whose run is at work
  eval "$(./cluster env)"; ./deploy cluster
                                          the local cluster, as if it were production

Passwords come from files, so that one run may start Ansible several times:
  ANSIBLE_VAULT_PASSWORD_FILE=FILE        secrets of the inventory
  ANSIBLE_BECOME_PASSWORD_FILE=FILE       sudo on the hosts, where it asks for a password
HGFLEET_MITOGEN=0 does without Ansible's accelerator. Logs are kept in .cache/deploy.
"""


PREVIOUS = "previous"
"""The value of a --rollback without a version."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ./deploy."""
    parser = argparse.ArgumentParser(
        prog="./deploy",
        description="Bring the hosts of an inventory to the release of this checkout.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("inventory", metavar="INVENTORY")
    parser.add_argument("--limit", metavar="HOSTS", help="only these hosts")
    parser.add_argument("--yes", action="store_true", help="apply without asking")
    parser.add_argument(
        "-e",
        "--extra-vars",
        action="append",
        default=[],
        metavar="VARS",
        help="variables for this run only, as ansible-playbook takes them; may be repeated",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every task")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="end after the plan")
    action.add_argument(
        "--no-plan",
        action="store_true",
        help="apply without a plan, where check mode cannot make one",
    )
    action.add_argument(
        "--status", action="store_true", help="show the hosts' releases, do nothing"
    )
    action.add_argument(
        "--log", action="store_true", help="show who deployed what and when, do nothing"
    )
    attested.add_options(parser)
    verify.add_option(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--release", metavar="ARCHIVE", type=Path, help="a release built before, instead of a build"
    )
    which.add_argument(
        "--rollback",
        metavar="VERSION",
        nargs="?",
        const=PREVIOUS,
        help="go back: each host to what it had before its last change, or all to a release",
    )
    which.add_argument(
        "--only",
        metavar="PART[,PART]",
        type=only.parts,
        help="bring people, registry or both, and leave all else as it is: nothing restarts",
    )
    which.add_argument(
        "--upgrade-os",
        action="store_true",
        help="upgrade the packages of Debian instead, host by host, with the restarts they need",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Deploy; the exit code is 0 if everything is as asked, 1 if not, 130 after Ctrl-C."""
    options = build_parser().parse_args(arguments)
    try:
        bootstrap.ensure_controller()
        site = run.read_site(
            options.inventory, options.limit, options.extra_vars, verbose=options.verbose
        )
        if options.status:
            states = run.read_states(site)
            print(decide.status_table(states, site.hosts))
            return int(any(states.get(name, UNKNOWN).problem for name in site.hosts))
        if options.log:
            print(lease.show(site))
            return 0
        questions.require_answer(options)
        with processes.interrupts(), _alone(site):
            site, taken = run.with_copies(site)
            code = _steps(options)(site, options, taken)
        return code or verify.after(site, options)
    except (DeployError, bootstrap.SetupError) as error:
        sys.stdout.flush()
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "deploy: interrupted. Every step can be repeated: the same command goes on from here.",
            file=sys.stderr,
        )
        return 130


def _steps(options: argparse.Namespace) -> Callable[[Site, argparse.Namespace, Taken], int]:
    """Return what the options ask for."""
    if options.upgrade_os:
        return upgrade_os.main
    if options.only:
        return only.main
    return _rollback if options.rollback else _deploy


@contextlib.contextmanager
def _alone(site: Site) -> Iterator[None]:
    """Let one deploy at a time work on an inventory, as far as this checkout knows.

    The lock lasts until every command that was started below it has ended, even if this one dies.
    """
    folder = CACHE / "deploy"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{site.path.parent.name}.lock").open("a+") as lock:
        if not processes.locked(lock):
            raise DeployError(
                f"Another ./deploy of this checkout is at work on {site.said}, or Ansible of a"
                " killed ./deploy has not ended.",
                "Wait until it is done, then try again.",
            )
        with processes.kept_by_children(lock.fileno()):
            yield


def _deploy(site: Site, options: argparse.Namespace, taken: Taken) -> int:
    verdict = attested.judge(taken, options)
    if not options.check:
        gate.require(verdict)
    given = None if options.release is None else run.take_archive(options.release)
    states = survey.look(site, list(site.hosts), planned=not options.no_plan)
    built = given or run.build()
    if not options.check:
        gate.require_release(verdict, built.version)
    return _bring(site, states, built, options, Judged(taken, verdict), list(site.hosts))


def _rollback(site: Site, options: argparse.Namespace, taken: Taken) -> int:
    """Go back, by the same roll and with the same checks; nothing is built."""
    if options.rollback == PREVIOUS:
        return _roll_back(site, options, taken)
    version = decide.check_version(options.rollback)
    hosts = site.in_group("release")
    if not hosts:
        raise DeployError("None of these hosts is in the group release.", "Nothing was changed.")
    verdict = attested.judge(taken, options)
    if not options.check:
        # The release was deployed before; this tree, which configures the hosts, may be new.
        gate.require(verdict)
    states = survey.look(site, hosts, planned=not options.no_plan)
    built = run.known_release(version)
    if built.archive is None:
        decide.require_present(version, states, hosts)
        names = [path.name for path in (ROOT / "hgext").glob("*.py")]
        decide.require_extensions(version, states, hosts, names)
    return _bring(site, states, built, options, Judged(taken, verdict), hosts)


class Judged(NamedTuple):
    """The copies of a run, and what the gate says of them."""

    taken: Taken
    verdict: gate.Verdict


def _bring(
    site: Site,
    states: Mapping[str, HostState],
    built: Built,
    options: argparse.Namespace,
    judged: Judged,
    hosts: Sequence[str],
) -> int:
    """Plan, ask, roll, look."""
    taken, verdict = judged
    _require_way(built, states, hosts)
    new = decide.new_hosts(states, site.hosts, hosts, run.parts())
    changing = list(hosts)
    said = "none (--no-plan)"
    if not options.no_plan:
        known = [name for name in hosts if name not in new]
        changed, said = plan.make(site, built, known, new)
        # The plan of a host does not show what it takes from a host that is not there yet.
        changing = changing if new else _to_change(hosts, changed, states)
        if options.check or not changing:
            return 0
    Step.say("tests", verdict.said)
    if not options.yes:
        questions.ask(f"Apply release {built.version} to {decide.joined(changing)}?")
    order = batches.order(site.everything, changing, new, _primary(states))
    targets = {name: Target(built, way) for name, way in _ways(site, states, built, taken).items()}
    rolled = Roll(site, states, targets, new)
    log = lease.record(built.version, changing, verdict.tree, verdict.said, said)
    with lease.held(site, log) as rolled.lock:
        survey.require_same(site, states, hosts)
        rolled.run(order)
    running = [name for name in site.in_group("release") if name in changing]
    if any(states[name].current != built.version for name in running):
        decide.require_current(built.version, run.read_states(site), running)
    print(f"\n{rolled.summary()}")
    print(f"\n{built.version} is in effect on {decide.joined(changing)} ({verdict.said}).")
    if set(changing) != set(new):
        print(f"To go back: ./deploy {site.said} --rollback")
    return 0


def _to_change(
    hosts: Sequence[str], changed: Sequence[str], states: Mapping[str, HostState]
) -> list[str]:
    """Return the hosts with changes in a plan, and hosts that an earlier run left half changed."""
    unfinished = [name for name in hosts if states[name].is_unfinished]
    if unfinished:
        Step.say("plan", f"an earlier run broke off on {decide.joined(unfinished)}")
    return [name for name in hosts if name in changed or name in unfinished]


def _roll_back(site: Site, options: argparse.Namespace, taken: Taken) -> int:
    """Bring each host of the site's last change to what it had before."""
    verdict = attested.judge(taken, options)
    states = run.read_states(site)
    decide.require_reached(states, list(site.hosts))
    decide.require_fit(states, list(site.hosts))
    last = ways.changed_last(
        {name: (states[name].record, states[name].current) for name in site.hosts}
    )
    targets = {}
    for name in last:
        way = ways.back(states[name].record, states[name].current)
        if way is not None:
            if way.release:
                decide.require_present(way.release, states, [name])
                _require_way(run.known_release(way.release), states, [name])
            targets[name] = target_of(run.known_release(way.release), way)
    without = [name for name in last if name not in targets]
    if not targets:
        raise DeployError(
            f"The release before the last change of {decide.joined(without)} is not known: no"
            " deploy has recorded it, or a rollback was the last one.",
            "Nothing was changed. Name a release: ./deploy INVENTORY --rollback VERSION;"
            " --status lists them.",
        )
    for name, target in targets.items():
        inventory = ", with the inventory of then" if target.kept else ""
        Step.say("plan", f"{name}: back to {target.way.said}{inventory}")
    if without:
        Step.say("plan", f"nothing is known to go back to on {decide.joined(without)}")
    if options.check:
        return 0
    Step.say("tests", verdict.said)
    if not options.yes:
        questions.ask(f"Take the last change of {decide.joined(targets)} back?")
    rolled = Roll(site, states, targets, is_rollback=True)
    releases = sorted({target.way.release for target in targets.values() if target.way.release})
    said = f"back to {decide.joined(releases) or 'the configuration before'}"
    log = lease.record(", ".join(releases), list(targets), verdict.tree, verdict.said, said)
    with lease.held(site, log) as rolled.lock:
        survey.require_same(site, states, list(site.hosts))
        rolled.run(batches.order(site.everything, list(targets), [], _primary(states)))
    print(f"\n{rolled.summary()}")
    print(f"\n{decide.joined(targets)} have what they had before.")
    return 0


def _require_way(built: Built, states: Mapping[str, HostState], hosts: Sequence[str]) -> None:
    """Refuse a release that does not read the state of the present releases, or vice versa."""
    present = {states[name].current: states[name].formats for name in hosts if states[name].current}
    declared = {version: by_version.get(version, {}) for version, by_version in present.items()}
    of_hosts = [states[name].formats.get(built.version, {}) for name in hosts]
    new = run.formats_of(built) or next(filter(None, of_hosts), {})
    formats.require_way(declared, built.version, new)


def _ways(
    site: Site, states: Mapping[str, HostState], built: Built, taken: Taken
) -> dict[str, Way]:
    """Return what each host is to have; remove the copies that no host could go back to."""
    trees.prune(set().union(*(ways.names(state.record) for state in states.values())))
    program = trees.keep_program(built.versitygw)
    return {
        name: Way(
            built.version if "release" in groups else "",
            taken.tree,
            taken.inventory,
            versitygw=program if "objectstore" in groups else "",
        )
        for name, groups in site.hosts.items()
    }


def _primary(states: Mapping[str, HostState]) -> str:
    return next((state.primary for state in states.values() if state.primary), "")
