"""The tiers and their steps.

| tier | proves | needs |
| --- | --- | --- |
| lint | style, types, and the rules of this repository | nothing |
| unit | decisions and files of the Python package | nothing |
| goldens | the configuration that site.yml writes is as reviewed | nothing |
| integration | hgext/ in a real hg | nothing |
| mutants | a decision that is wrong fails a unit test; not of the gate | root |
| roles | each role by itself on a throw-away host: it converges and keeps its promises | Docker |
| deploys | ./deploy over SSH, from blank hosts on; not of the gate | Docker |
| e2e | the service as a person meets it, on the local cluster | Docker |
| faults | which services remain while parts of the cluster are broken on purpose | Docker |
| alerts | every alert fires with its fault; not of the gate | Docker |
| bench | each benchmark runs, with small numbers; not of the gate | Docker |
| rolls | ./deploy over the cluster while clients work; not of the gate | Docker |
| site | a deployed site is what its inventory says; runs only when it is named | the site |
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from controller import bootstrap
from controller.bootstrap import ROOT
from controller.tests import benches, goldens, linters, site, worktree
from controller.tests.commands import PROCESSORS, pytest, python, tool
from controller.tests.execution import Room, Step
from controller.tests.hosts import cluster_environment, host_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Only: TypeAlias = "Sequence[str] | None"
"""The files (of the tier `roles`: the roles) that a run is narrowed to; None for all."""


# unit and integration


def unit(words: str, only: Only = None) -> list[Step]:
    """Return the only step of the tier."""
    chosen = ["testing/unit"] if only is None else only
    return [pytest("unit", "pytest", *chosen, words=words, workers=PROCESSORS)]


def integration(words: str, only: Only = None) -> list[Step]:
    """Return the only step of the tier."""
    chosen = ["testing/integration"] if only is None else only
    stories = ("-p", "testing.support.tfiles")
    return [
        pytest(
            "integration",
            "pytest",
            *(*stories, *chosen),
            words=words,
            # They wait for servers, clocks and mirrors a quarter of their time.
            workers=PROCESSORS + 1,
            chatty=True,
        )
    ]


PACKAGES: Final = (
    ("nats-server", "nats-server", "testing/integration/replication/", "testing replication"),
    ("restic", "restic", "testing/integration/backup/", "testing backups"),
    ("rclone", "rclone", "testing/integration/backup/", "testing backups"),
    ("openssh-server", "sshd", "testing/integration/backup/", "testing backups"),
    ("curl", "curl", "testing/integration/backup/", "testing backups"),
    ("vagrant", "vagrant", "testing/integration/test_vagrantfile.py", "testing the Vagrantfile"),
)
"""Debian packages, a program of each, the integration tests that start it, and the reason."""

OF_BENCHES: Final = frozenset({"nats-server"})
"""Packages that benchmarks need too."""


def set_up(tier: str, only: Only = None) -> None:
    """Install what the tests of a tier start themselves; SetupError where that is not possible."""
    if tier not in ("integration", "bench"):
        return
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    missing = {
        package: reason
        for package, program, tests, reason in PACKAGES
        if (tier == "integration" or package in OF_BENCHES)
        and (not only or any(name.startswith(tests) for name in only))
        and shutil.which(program, path=path) is None
    }
    if missing:
        bootstrap.ensure_debian_packages(list(missing), ", ".join(dict.fromkeys(missing.values())))


# mutants

SAMPLE: Final = 60
"""Mutants of a run of the whole, of some 7,200; the seed is fixed, so a survivor is no surprise."""


def mutants(_words: str, _only: Only = None) -> list[Step]:
    """Return the only step of the tier; an interrupted sample goes on."""
    command = python("-m", "controller.checks.mutants", "--sample", str(SAMPLE), "--resume")
    return [Step("mutants", "sample", command, env={"PYTHONPATH": "."})]


# roles


def roles(words: str, only: Only = None) -> list[Step]:
    """Return a step per role that has a scenario."""
    candidates = worktree.scenarios() if only is None else only
    # Hosts of other scenarios begin as the host of `release` has become. Then the scenarios that
    # take longest: `base`, whose tests change their host over and over and mostly wait, and
    # scenarios with the most roles.
    carried = worktree.carried_roles()
    chosen = sorted(
        (n for n in candidates if words in n),
        key=lambda n: (n != "release", n != "base", -len(carried[n])),
    )
    if not chosen:
        return []
    env = _role_environment()
    prefix = env["HGFLEET_CLUSTER_NAME"]
    containers = {name: [f"{prefix}-{host}" for host in worktree.hosts_of(name)] for name in chosen}
    # A scenario of an earlier run, in any checkout, left the note that its host exists.
    notes = bootstrap.STATE / "molecule"
    shutil.rmtree(notes, ignore_errors=True)
    return [
        Step(
            "roles",
            name,
            tool("molecule", "test"),
            cwd=ROOT / "ansible/roles" / name,
            env={
                **env,
                "HGFLEET_HOST_IMAGE": env[f"HGFLEET_{'BASE' if name in BLANK else 'KEPT'}_IMAGE"],
                "MOLECULE_EPHEMERAL_DIRECTORY": str(notes / name),
            },
            cleanup=["docker", "rm", "--force", "--volumes", *containers[name]],
            alone=name == "release",
        )
        for name in chosen
    ]


BLANK: Final = frozenset({"base", "release"})
"""Scenarios whose hosts begin blank: the others begin with both of these roles."""

HOSTS_AT_A_TIME: Final = 8
"""Hosts of the scenarios under way, at most; a scenario has two hosts at most."""


def _role_environment() -> Mapping[str, str]:
    # The stage `build` has made all of it (controller/tests/preparation.py).
    from controller.cluster import cluster, inotify, release, settings

    env = cluster.for_role_tests(settings.load() or settings.ensure(False), release.ensure())
    inotify.ensure(HOSTS_AT_A_TIME)
    _ensure_network(env["HGFLEET_CLUSTER_NAME"], env["HGFLEET_CLUSTER_NETWORK"])
    _begin_blank(env["HGFLEET_BASE_IMAGE"], env["HGFLEET_KEPT_IMAGE"])
    return env


def _begin_blank(base: str, kept: str) -> None:
    # Until the scenario `release` keeps its host; a host of an earlier run may be of another
    # release.
    subprocess.run(["docker", "image", "rm", kept], capture_output=True, check=False)
    bootstrap.run(["docker", "image", "tag", base, kept], what=f"Naming the image {kept}")


def _ensure_network(name: str, network: str) -> None:
    # Scenarios that begin together must not race to create it.
    shown = subprocess.run(["docker", "network", "inspect", name], capture_output=True, check=False)
    if shown.returncode != 0:
        where = ["--subnet", f"{network}.0/24", "--gateway", f"{network}.1"]
        what = f"Creating the network {name}"
        bootstrap.run(["docker", "network", "create", *where, name], what=what)


# deploys


def deploys(words: str, only: Only = None) -> list[Step]:
    """Return the only step of the tier, with a worker per site."""
    chosen = ["testing/deploys"] if only is None else only
    return [pytest("deploys", "pytest", *chosen, words=words, workers=PROCESSORS, chatty=True)]


# e2e, faults, alerts and rolls

ON_CLUSTER: Final = ("-p", "testing.e2e.conftest")
"""Options of pytest for tests on the cluster in other folders."""


OF_HOST: Final = "host-"
"""Prefix of the names of steps that run the tests of roles on a host of the cluster."""


def e2e(words: str, only: Only = None) -> list[Step]:
    """Return a step per host, most tests first, and then the steps of the service."""
    env = cluster_environment()
    chosen = ["testing/e2e"] if only is None else only
    service = shared_cluster("e2e", "service", *chosen, words=words, env=env)
    if only is not None:
        return [service]
    hosts = sorted(host_tests(env), key=lambda entry: -len(entry[2]))
    return [
        *(
            pytest(
                "e2e", f"{OF_HOST}{host}", f"--hosts=docker://{name}", *tests, words=words, env=env
            )
            for host, name, tests in hosts
        ),
        site.of_cluster(words),
        service,
    ]


def shared_cluster(
    tier: str, name: str, *arguments: str, words: str, env: Mapping[str, str]
) -> Step:
    """Return a step whose workers share the cluster by the rules of testing/e2e/turns.py."""
    arguments += ("--no-loadscope-reorder",)
    return pytest(
        *(tier, name, *arguments),
        words=words,
        workers=PROCESSORS,
        env=env,
        chatty=True,
        alone=True,
    )


def faults(words: str, only: Only = None) -> list[Step]:
    """Return the only step of the tier."""
    chosen = ["testing/faults"] if only is None else list(only)
    if only is None and not words:
        chosen.append(WITHOUT_ALERTS)
    env = cluster_environment()
    return [shared_cluster("faults", "pytest", *ON_CLUSTER, *chosen, words=words, env=env)]


ALERTS: Final = "testing/faults/test_fault_alerts.py"
WITHOUT_ALERTS: Final = f"--ignore={ALERTS}"
"""The provocation of every alert is a tier of its own; `faults` has two alerts."""


def alerts(words: str, only: Only = None) -> list[Step]:
    """Return the only step of the tier."""
    chosen = [ALERTS] if only is None else only
    env = cluster_environment()
    return [shared_cluster("alerts", "pytest", *ON_CLUSTER, *chosen, words=words, env=env)]


def of_gate(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without the tests that the gate leaves out.

    Each test of a role runs in a scenario, so the gate runs none on the hosts of the cluster: their
    variables are in the goldens and in the effective configuration.
    """
    return [
        replace(step, command=[*step.command, "--gate"], narrowed=True) if step.junit else step
        for step in steps
        if not (step.tier == "e2e" and step.name.startswith(OF_HOST))
    ]


def rolls(words: str, only: Only = None) -> list[Step]:
    """Return the only step of the tier."""
    chosen = ["testing/rolls"] if only is None else only
    env = cluster_environment()
    return [pytest("rolls", "pytest", *ON_CLUSTER, *chosen, words=words, env=env, chatty=True)]


TIERS: Final[dict[str, Callable[[str, Only], list[Step]]]] = {
    "lint": linters.steps,
    "unit": unit,
    "goldens": goldens.steps,
    "integration": integration,
    "mutants": mutants,
    "roles": roles,
    "deploys": deploys,
    "e2e": e2e,
    "faults": faults,
    "alerts": alerts,
    "bench": benches.steps,
    "rolls": rolls,
    "site": site.steps,
}

BY_NAME: Final = frozenset({"mutants", "deploys", "alerts", "bench", "rolls", "site"})
"""Tiers that run only when they are named, or with --all."""

PARALLEL: Final = {
    "lint": PROCESSORS,
    "goldens": PROCESSORS,
    "roles": PROCESSORS + 1,
    "e2e": PROCESSORS + 1,
    "site": PROCESSORS,
}
"""Tiers whose steps do not disturb each other, and how many of them run at a time.

A scenario waits for the network, boots and restarts a third of its time, tests of a host on the
cluster for its timers and caches. A step that is `alone` runs by itself.
"""

ON_THE_CLUSTER: Final = frozenset({"e2e", "faults", "alerts", "bench", "rolls"})
"""Tiers that share the cluster: in turn, during the tiers that need no cluster."""

Lane: TypeAlias = "list[tuple[str, str]]"
"""Tiers that run in turn, each with its words."""


def lanes(chosen: Sequence[tuple[str, str]]) -> list[Lane]:
    """Return the tiers of a run by lane; lanes run at the same time, the first before others.

    Tests on the cluster mostly wait for the parts that they break, and the run is as long as their
    lane.
    """
    cluster = [named for named in chosen if named[0] in ON_THE_CLUSTER]
    others = [named for named in chosen if named not in cluster]
    return [lane for lane in (cluster, others) if lane]


BEHIND: Final = 19
"""Nice value of the steps behind the first lane: 1/68 of the weight of steps in it.

The first lane ends with tests that break a single thing at a time and leave processors idle. Its
tests wait for jobs of the hosts too, some of which have a nice value of 15.
"""


def room(tier: str, asked: int | None) -> Room:
    """Return how many steps of a tier run at a time; `asked` is the number that a person gave.

    A scenario waits a third of its time. Another scenario fills that, but not during tests on the
    cluster, which measure how long people wait: containers do not have the nice value of their
    step.
    """
    if tier not in PARALLEL:
        return Room(1)
    if tier == "roles":
        return Room(asked or PROCESSORS, alone=asked or PARALLEL[tier])
    return Room(asked or PARALLEL[tier])


COUNTED_BY_PYTEST: Final = frozenset(
    {"unit", "integration", "deploys", "e2e", "faults", "alerts", "rolls"}
)
"""Tiers where TIER:WORDS chooses tests (pytest's -k)."""

NAMED_BY_WORDS: Final = frozenset({"site"})
"""Tiers where the words name what is tested; in tiers of neither set they choose steps by name."""
