"""Command line of ./cluster."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from controller import bootstrap
from controller.bootstrap import ROOT, STATE
from controller.cluster import client, images, lock, release, settings
from controller.cluster import cluster as life

EXAMPLES = """
examples:
  ./cluster up                          bring the whole service up; seconds when snapshots fit
  ./cluster up --fresh                  forget containers and snapshots first
  ./cluster status
  eval "$(./cluster env)"               addresses, keys and certificates for clients and tests
  ./cluster exec hg1 -- hgfleet bundles status
  ./cluster logs hg1 hgfleet-sshd -f    follow a unit's journal
  ./cluster log 1f2e3d4c5b6a7988        a push, on all hosts, by the id that its pusher read
  ./cluster ssh bob                     connect to the SSH service as bob
  ./cluster ssh bob help
  ./cluster rebuild hg1                 make a host again from the base image (its data is lost)
  ./cluster build                       make images and release, and no host yet
  ./cluster down                        remove containers; snapshots stay for the next start
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ./cluster."""
    parser = argparse.ArgumentParser(
        prog="./cluster",
        description="The whole hgfleet service on this machine, built by the roles of production.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="bring the cluster up and check it")
    up.add_argument("--fresh", action="store_true", help="remove containers and snapshots first")
    up.add_argument("--no-snapshots", action="store_true", help="keep none for the next start")
    build = commands.add_parser("build", help="make the images and the release that hosts need")
    build.add_argument("--tests", action="store_true", help="also the parts that only tests need")
    down = commands.add_parser(
        "down", help="remove the containers; what was pushed into them is lost"
    )
    down.add_argument("--snapshots", action="store_true", help="remove the snapshots too")
    commands.add_parser("status", help="show hosts, health, ports and alerts")
    log = commands.add_parser("log", help="follow a push or a clone through all logs")
    log.add_argument("id", help="the id that the pusher read, or an answer's header X-Request-ID")
    commands.add_parser("env", help="print export lines for clients and tests")
    execute = commands.add_parser("exec", help="run a command on a host: exec HOST -- COMMAND")
    execute.add_argument("host")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    logs = commands.add_parser("logs", help="show a host's journal")
    logs.add_argument("host")
    logs.add_argument("unit", nargs="?", help="only this unit")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as new lines come")
    logs.add_argument("-n", "--lines", default="200", help="how many lines (200)")
    ssh = commands.add_parser("ssh", help="connect to the SSH service as a person")
    ssh.add_argument("person", help="a name in .cluster/keys, such as alice")
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    rebuild = commands.add_parser("rebuild", help="make hosts again from the base image")
    rebuild.add_argument("host", nargs="?", help="only this host")
    return parser


def main(argv: list[str]) -> int:
    """Run a command; return the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command](arguments)
    except bootstrap.SetupError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"cluster: interrupted. './cluster {arguments.command}' goes on from here.",
            file=sys.stderr,
        )
        return 130


def command_up(arguments: argparse.Namespace) -> int:
    """Bring the cluster up, fill it with this project's history, check it."""
    with lock.exclusively():
        return bring_up(fresh=arguments.fresh, keep=not arguments.no_snapshots)


def bring_up(fresh: bool, keep: bool = True) -> int:
    """Bring the cluster up; the caller holds the lock."""
    cluster = life.up(fresh, keep)
    hosts = life.read_inventory(cluster)
    client.write_client_files(cluster, hosts)
    client.write_metrics_certificate()
    client.import_own_history(cluster)
    client.smoke(cluster, hosts)
    print(client.summary(cluster))
    return 0


def command_build(arguments: argparse.Namespace) -> int:
    """Make images and release; `up` then begins with the hosts."""
    bootstrap.ensure_engine()
    known = settings.load()
    present = life.containers(known) if known is not None else {}
    settings.ensure(running="running" in present.values())
    # The other steps run in it, so that they do not make it twice.
    images.ensure_builder()
    further = [_ensure_for_tests] if arguments.tests else []
    makers = [release.ensure, images.ensure_host, *further]
    with ThreadPoolExecutor() as pool:
        for made in [pool.submit(make) for make in makers]:
            made.result()
    return 0


def _ensure_for_tests() -> None:
    release.older_clients()
    images.ensure_client()
    if shutil.which("chromium") is None:
        bootstrap.ensure_debian_packages(["chromium"], "testing pages in a browser")


def command_down(arguments: argparse.Namespace) -> int:
    """Remove the containers."""
    with lock.exclusively():
        cluster = settings.load()
        if cluster is None:
            print("There is no cluster of this checkout.", file=sys.stderr)
            return 0
        bootstrap.ensure_engine()
        life.remove(cluster, with_snapshots=arguments.snapshots)
    return 0


def command_rebuild(arguments: argparse.Namespace) -> int:
    """Remove a host's container, or all, then bring the cluster up without the snapshots."""
    with lock.exclusively():
        cluster = life.require_running()
        if arguments.host is None:
            return bring_up(fresh=True)
        require_host(cluster, arguments.host)
        life.remove(cluster, only=arguments.host)
        return bring_up(fresh=False)


def require_host(cluster: settings.Settings, host: str) -> None:
    """Refuse a host that the cluster does not have."""
    known = life.containers(cluster)
    if host not in known:
        bootstrap.fail(f"There is no host {host}.", f"The hosts are: {', '.join(sorted(known))}.")


def command_status(_arguments: argparse.Namespace) -> int:
    """Print a table of the hosts; exit code 1 unless all are well."""
    cluster = settings.load()
    states = life.containers(cluster) if cluster is not None else {}
    if cluster is None or not states:
        print("down: ./cluster up brings it up")
        return 1
    bootstrap.ensure_controller()
    well = True
    print(f"{'host':<10} {'container':<10} {'systemd':<10} {'ports on 127.0.0.1':<32} failed units")
    for name, host in life.read_inventory(cluster).items():
        state = states.get(name, "missing")
        health, failed = "-", ""
        if state == "running":
            health = _ask(cluster, name, ["systemctl", "is-system-running"])
            units = _ask(cluster, name, ["systemctl", "--failed", "--plain", "--no-legend"])
            failed = " ".join(line.split()[0] for line in units.splitlines() if line.strip())
        well = well and health == "running"
        ports = " ".join(f"{port}:{cluster.port(port)}" for port in host.ports)
        print(f"{name:<10} {state:<10} {health:<10} {ports:<32} {failed}".rstrip())
    alerts = _alerts(cluster)
    print("\nalerts that fire:\n" + "\n".join(f"  {line}" for line in alerts or ["none"]))
    return 0 if well and not alerts else 1


def _alerts(cluster: settings.Settings) -> list[str]:
    try:
        return client.firing(cluster)
    except OSError as error:
        return [f"Prometheus does not answer: {error}"]


def _ask(cluster: settings.Settings, host: str, command: list[str]) -> str:
    done = subprocess.run(
        ["docker", "exec", f"{cluster.name}-{host}", *command], stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def command_env(_arguments: argparse.Namespace) -> int:
    """Print the export lines of the contract."""
    cluster = life.require_running()
    for name, value in client.contract(cluster).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def command_exec(arguments: argparse.Namespace) -> int:
    """Run a command on a host; return its exit code."""
    cluster = life.require_running()
    require_host(cluster, arguments.host)
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    return life.execute(cluster, arguments.host, argv or ["bash"])


def command_logs(arguments: argparse.Namespace) -> int:
    """Show a host's journal."""
    cluster = life.require_running()
    require_host(cluster, arguments.host)
    command = ["journalctl", "--no-pager", "--lines", arguments.lines]
    command += ["--unit", arguments.unit] if arguments.unit else []
    command += ["--follow"] if arguments.follow else []
    return life.execute(cluster, arguments.host, command)


def command_log(arguments: argparse.Namespace) -> int:
    """Print the log lines of all hosts that have an id; exit code 1 if there are none."""
    cluster = life.require_running()
    bootstrap.ensure_controller()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        extra = {"log_id": arguments.id, "log_file": str(file)}
        book = ROOT / "ansible/playbooks/log.yml"
        life.playbook(cluster, None, book, extra, "cluster", "reading the logs of all hosts")
        lines = file.read_text("utf-8")
    print(lines, end="")
    return 0 if lines else 1


def command_ssh(arguments: argparse.Namespace) -> int:
    """Become an ssh client with a person's key."""
    cluster = life.require_running()
    people = sorted(file.stem for file in (STATE / "keys").glob("*.pub"))
    if arguments.person not in people:
        bootstrap.fail(
            f"There is no key of {arguments.person}.", f"The people are: {', '.join(people)}."
        )
    command = shlex.split(client.ssh_command(arguments.person))
    command += ["-p", str(cluster.port("ssh")), "hg@127.0.0.1", *arguments.argv]
    return subprocess.call(command)


COMMANDS = {
    "up": command_up,
    "build": command_build,
    "down": command_down,
    "status": command_status,
    "env": command_env,
    "exec": command_exec,
    "log": command_log,
    "logs": command_logs,
    "ssh": command_ssh,
    "rebuild": command_rebuild,
}
