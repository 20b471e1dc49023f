"""Life of the cluster: containers from the inventory, converged by the roles, kept as snapshots."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import ROOT, STATE, Step, run
from controller.cluster import images, inotify, marks, release, repair, settings, snapshots
from controller.cluster.plan import plan
from controller.cluster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.cluster.release import Release

INVENTORY = ROOT / "ansible/inventories/cluster/hosts.yml"
# In the same folder: the names of this cluster's containers.
CONTAINER_NAMES = INVENTORY.with_name("constructed.yml")
CONVERGED = STATE / "converged"
SECONDS_FOR_REMOVAL = 60
TASK_LINE = re.compile(r"^(PLAY|TASK|RUNNING HANDLER) \[(?P<name>.*?)\]")


@dataclass(frozen=True)
class Host:
    """A host of the inventory."""

    name: str
    ports: Mapping[str, int]  # name of a published port to the port inside
    groups: list[str]


def read_inventory(cluster: Settings) -> dict[str, Host]:
    """Return the hosts of the cluster's inventory, by name, in the inventory's order."""
    listing = run(
        ["ansible-inventory", "--inventory", str(INVENTORY), "--list"],
        what="Reading the inventory",
        env=environment(cluster, None),
    )
    data = json.loads(listing)
    hostvars = data["_meta"]["hostvars"]
    groups: dict[str, list[str]] = {name: [] for name in hostvars}
    for group, content in data.items():
        for name in content.get("hosts", []) if group != "_meta" else []:
            groups[name].append(group)
    return {
        name: Host(name, hostvars[name].get("cluster_ports", {}), groups[name]) for name in hostvars
    }


def environment(cluster: Settings, built: Release | None) -> dict[str, str]:
    """Return the environment in which Ansible sees the cluster's inventory."""
    env = bootstrap.controller_environment()
    env.update(ansible_variables(cluster, built))
    env["ANSIBLE_FORCE_COLOR"] = "0"
    return env


def ansible_variables(cluster: Settings, built: Release | None) -> dict[str, str]:
    """Return the environment variables that the cluster's inventory looks up."""
    variables = {
        "HGFLEET_CLUSTER_NAME": cluster.name,
        "HGFLEET_CLUSTER_NETWORK": cluster.network,
        "HGFLEET_CLUSTER_STATE": str(STATE),
        "HGFLEET_CLUSTER_SSH_URL": f"ssh://hg@127.0.0.1:{cluster.port('ssh')}",
        "ANSIBLE_INVENTORY": f"{INVENTORY},{CONTAINER_NAMES}",
    }
    if built is not None:
        variables["HGFLEET_RELEASE_VERSION"] = built.version
        variables["HGFLEET_RELEASE_ARCHIVE"] = str(built.archive)
        variables["HGFLEET_VERSITYGW"] = str(built.versitygw)
    return variables


def for_role_tests(cluster: Settings, built: Release) -> dict[str, str]:
    """Return the environment for molecule: further containers, with secrets of their own."""
    beside = Settings(
        f"{cluster.name}-roles", cluster.network.replace("10.213.", "10.214."), 0, cluster.identity
    )
    env = environment(beside, built)
    state = settings.state_folder("roles")
    ensure_people_keys(state / "keys")
    # Each scenario names its own inventory, and people have other keys than on the cluster, whose
    # folder a shell has after `eval "$(./cluster env)"`.
    env.pop("ANSIBLE_INVENTORY")
    return env | {
        "HGFLEET_CLUSTER_STATE": str(state),
        "HGFLEET_KEYS": str(state / "keys"),
        "HGFLEET_BASE_IMAGE": images.ensure_base(),
        "HGFLEET_KEPT_IMAGE": f"{images.PREFIX}/role-release:{cluster.name}",
    }


def containers(cluster: Settings) -> dict[str, str]:
    """Return the cluster's containers: host name to its state, such as running or exited."""
    listed = run(
        [
            "docker", "ps", "--all", "--filter", f"label=hgfleet.cluster={cluster.name}",
            "--format", '{{.Label "hgfleet.host"}} {{.State}}',
        ],
        what="Listing the containers",
    )  # fmt: skip
    return dict(line.split(" ", 1) for line in listed.splitlines())


def settled_containers(cluster: Settings) -> dict[str, str]:
    """Return the containers once none is being removed, as an interrupted `down` leaves them."""
    deadline = time.monotonic() + SECONDS_FOR_REMOVAL
    while "removing" in (states := containers(cluster)).values():
        if time.monotonic() > deadline:
            bootstrap.fail(
                "The Docker Engine does not finish removing containers.",
                "See docker ps --all; restarting the engine helps.",
            )
        time.sleep(0.2)
    return states


def playbook(
    cluster: Settings,
    built: Release | None,
    book: Path,
    extra: Mapping[str, object],
    subject: str,
    what: str,
) -> None:
    """Run a playbook with its progress on a line a play, its whole output in .cluster/logs."""
    log = settings.state_folder("logs") / f"{book.stem}.log"
    command = [
        "ansible-playbook",
        str(book),
        "--extra-vars",
        json.dumps(extra),
    ]
    with (
        Step(subject, f"{what} (log: {log.relative_to(ROOT)})") as progress,
        log.open("w") as output,
    ):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(cluster, built),
        )
        assert process.stdout is not None
        failed_from: int | None = None
        lines: list[str] = []
        try:
            for line in process.stdout:
                output.write(line)
                output.flush()
                lines.append(line.rstrip())
                heading = TASK_LINE.match(line)
                if heading and line.startswith("PLAY "):
                    Step.say(subject, heading["name"])
                if heading:
                    progress.what = heading["name"]
                if failed_from is None and line.startswith(
                    ("fatal:", "failed:", "[ERROR]", "ERROR")
                ):
                    failed_from = max(0, len(lines) - 2)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code != 0:
            shown = (
                lines[failed_from : failed_from + 40] if failed_from is not None else lines[-40:]
            )
            tail = "\n".join(f"  | {line}" for line in shown)
            bootstrap.fail(f"{book.name} failed:\n{tail}", f"The whole run is in {log}.")


def up(fresh: bool, keep: bool) -> Settings:
    """Bring the cluster up: from snapshots where they fit, else from the base image.

    Hosts that were converged are kept as snapshots if that is asked for.
    """
    bootstrap.check_platform()
    for program, package in (("ssh-keygen", "openssh-client"), ("git", "git")):
        if shutil.which(program) is None:
            bootstrap.ensure_debian_packages([package], f"{program} on the controller")
    bootstrap.ensure_controller()
    bootstrap.ensure_engine()
    known = settings.load()
    remove_foreign(known)
    if fresh and known is not None:
        remove(known, with_snapshots=True)
    present = settled_containers(known) if known is not None else {}
    cluster = settings.ensure(running="running" in present.values())
    ensure_people_keys(STATE / "keys")
    base = images.ensure_host()
    built = release.ensure()
    hosts = read_inventory(cluster)
    key = snapshots.key_of(cluster, built)

    _converge(cluster, built, hosts, present, key, base, keep=keep)
    CONVERGED.write_text(key)
    remember_release(cluster, built)
    return cluster


def _converge(
    cluster: Settings,
    built: Release,
    hosts: Mapping[str, Host],
    present: Mapping[str, str],
    key: str,
    base: str,
    *,
    keep: bool,
) -> None:
    """Converge the hosts, by the cheapest way that their state allows."""
    kept = {name: snapshots.name_of(cluster, name, key) for name in hosts}
    left = marks.left()
    todo = plan(
        hosts,
        present,
        recorded=CONVERGED.exists() and CONVERGED.read_text() == key,
        snapshots=not present and all(images.exists(image) for image in kept.values()),
        left_by_tests=bool(left),
        keep=keep,
    )
    if not (present or todo.from_snapshots):
        Step.say("snapshots", "none fits roles, variables and release: hosts are made again")
    chosen = {"base": base}
    if todo.from_snapshots:
        chosen.update(kept)
    elif present:
        # Keep the containers that are there: they are converged further, not made again.
        chosen.update(images.of_containers(cluster.name, list(present)))
    if todo.converge:
        CONVERGED.unlink(missing_ok=True)
    if todo.repair:
        Step.say("repair", marks.sentence(left))
        repair.let_go_on(cluster, present)
    start_containers(cluster, built, hosts, chosen)
    if todo.repair:
        # They have their network now. The second time waits until they have booted.
        repair.restart(cluster, present)
        start_containers(cluster, built, hosts, chosen)
        repair.undo(cluster, hosts)
    if todo.converge:
        playbook(cluster, built, ROOT / "ansible/site.yml", {}, "converge", "ansible/site.yml")
    if todo.repair:
        repair.require_well({name: repair.failed_units(cluster, name) for name in hosts})
    if todo.take_snapshots:
        snapshots.take(cluster, hosts, key)
    marks.forget()


def remember_release(cluster: Settings, built: Release) -> None:
    """Keep the release's variables for `./cluster env`, and only its archive in the cache."""
    variables = ansible_variables(cluster, built)
    (STATE / "release.json").write_text(json.dumps(variables, indent=2) + "\n")
    release.prune(built)


def start_containers(
    cluster: Settings, built: Release, hosts: Mapping[str, Host], chosen: Mapping[str, str]
) -> None:
    """Make sure that the network and every container is there and has booted."""
    published = {
        name: [f"127.0.0.1:{cluster.port(port)}:{inside}" for port, inside in host.ports.items()]
        for name, host in hosts.items()
    }
    extra = {
        "cluster_images": dict(chosen),
        "cluster_published": published,
        "cluster_identity": cluster.identity,
    }
    book = ROOT / "docker/containers.yml"
    inotify.ensure(len(hosts))
    try:
        playbook(cluster, built, book, extra, "containers", "network and containers")
    except bootstrap.SetupError:
        ended = [name for name, state in containers(cluster).items() if state != "running"]
        if ended and inotify.LIMIT.exists():
            inotify.explain(ended[0], inotify.instances(), int(inotify.LIMIT.read_text()))
        raise


def remove(cluster: Settings, with_snapshots: bool = False, only: str | None = None) -> None:
    """Remove all containers, the network and, if asked, snapshots; or `only` a host's container."""
    names = [name for name in containers(cluster) if only in (None, name)]
    CONVERGED.unlink(missing_ok=True)
    if names:
        with Step("containers", f"removing {', '.join(names)}"):
            run(
                [
                    "docker",
                    "rm",
                    "--force",
                    "--volumes",
                    *(f"{cluster.name}-{name}" for name in names),
                ],
                what="Removing the containers",
            )
    if only is None:
        marks.forget()
        subprocess.run(
            ["docker", "network", "rm", cluster.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if with_snapshots:
            snapshots.remove(cluster)


def remove_foreign(known: Settings | None) -> None:
    """Remove the hosts of a deleted checkout at this path, to which this checkout has no keys.

    Name and addresses come from the path, so no cluster could start while they are there.
    """
    name = known.name if known else settings.name_of(str(ROOT))
    for cluster in (Settings(name, "", 0, ""), Settings(f"{name}-roles", "", 0, "")):
        listed = run(
            [
                "docker", "ps", "--all", "--filter", f"label=hgfleet.cluster={cluster.name}",
                "--format", '{{.Label "hgfleet.host"}} {{.Label "hgfleet.identity"}}',
            ],
            what="Listing the containers",
        )  # fmt: skip
        identities = {
            host: label for host, _, label in (x.partition(" ") for x in listed.splitlines())
        }
        foreign = settings.foreign_hosts(identities, known)
        if not identities and known is None:
            remove(cluster)  # only the network may be left
        if not foreign:
            continue
        Step.say(
            "containers",
            f"{', '.join(foreign)}: made by another checkout at this path, which is gone; removed",
        )
        if len(foreign) == len(identities):
            remove(cluster, with_snapshots=True)
            continue
        for host in foreign:
            remove(cluster, only=host)


PEOPLE_KEYS = ("alice", "bob", "carol", "carol-second", "mallory", "probe")
OTHER_KEYS = ("admin", "user-ca")
"""Of the break-glass account, and of the CA whose certificates the SSH service trusts."""


def ensure_people_keys(folder: Path) -> None:
    """Make the key pairs that the cluster's inventory names."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in PEOPLE_KEYS + OTHER_KEYS:
        if not (folder / f"{name}.pub").exists():
            (folder / name).unlink(missing_ok=True)
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@hgfleet.test"]
            run([*words, "-f", str(folder / name)], what=f"Making a key for {name}")


def execute(cluster: Settings, host: str, command: list[str]) -> int:
    """Run a command on a host with this terminal; return its exit code."""
    terminal = ["--interactive"] + (["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else [])
    return subprocess.call(["docker", "exec", *terminal, f"{cluster.name}-{host}", *command])


def on_host(cluster: Settings, host: str, command: list[str], what: str) -> str:
    """Run a command on a host and return its output; SetupError if it fails."""
    return run(["docker", "exec", f"{cluster.name}-{host}", *command], what=what)


def require_running() -> Settings:
    """Return the settings of a cluster whose containers run; SetupError if there is none."""
    cluster = settings.load()
    states = containers(cluster) if cluster is not None else {}
    if cluster is None or not states:
        bootstrap.fail("This checkout has no running cluster.", "Bring it up: ./cluster up")
    stopped = [name for name, state in states.items() if state != "running"]
    if stopped:
        bootstrap.fail(
            f"Not running: {', '.join(stopped)}.", "Bring the cluster up again: ./cluster up"
        )
    return cluster
