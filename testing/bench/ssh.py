"""A whole `hg id ssh://...` over the cluster's SSH against a plain sshd, side by side.

    ./cluster up
    python -m testing.bench.ssh

Both sides run on the ssh host of the cluster, from the same sshd, the same release's hg and the
same repository, with the same key exchange and host key. The difference is the cost of the service:

| side | identification | command |
| --- | --- | --- |
| plain | a line of a static authorized_keys | its shell runs `hg -R PATH serve --stdio` |
| plain, PAM | the same with `UsePAM yes`, as Debian has it | the same |
| service | the directory is asked, twice a login | hgfleet-shell, hg with the service's hgrc |

The sides take turns, so that a busy machine hurts all. `seconds` is the time that a person waits,
client included; `CPU` is the time that the kernel counted for the sshd's control group on the host.
Then the phases of sessions are measured by the output of `ssh -v`, and lookups by their log. Bar:
the median of the service is at most 1.25 times the median of plain.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.bootstrap import VENV
from testing.bench.firewall import opened
from testing.e2e.cluster import Cluster
from testing.e2e.command import run, wait_until
from testing.e2e.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from testing.e2e.host import Host

BAR: Final = 1.25
FOLDER: Final = "/run/hgfleet-bench"
REPOSITORIES: Final = "/srv/hg/repos"
HG: Final = "/opt/hgfleet/current/bin/hg"
SERVICE: Final = "service"
PLAIN: Final = "plain"
PORTS: Final = {PLAIN: 22001, "plain, PAM": 22002}

# Debian's sshd_config, with the crypto of the service and only a static key.
CONFIG: Final = """\
Port {port}
PidFile none
{same}
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
KbdInteractiveAuthentication no
PasswordAuthentication no
UsePAM {pam}
X11Forwarding yes
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp /usr/lib/openssh/sftp-server
"""
SAME: Final = ("HostKey", "KexAlgorithms", "Ciphers", "MACs", "HostKeyAlgorithms", "UseDNS")

PHASES: Final = (
    ("connected", "Connection established."),
    ("key exchange", "SSH2_MSG_SERVICE_ACCEPT received"),
    ("login", "Authenticated to "),
    ("session", "Sending command:"),
)
"""The line of `ssh -v` that ends each phase; the first output of hg and the end follow."""


@dataclass(frozen=True)
class Side:
    """An sshd: its port, its unit, and the command and path of hg there."""

    name: str
    port: int
    unit: str
    remote: str
    path: str

    def cpu(self, host: Host) -> float:
        """Return the seconds of CPU that the unit and all its sessions used so far."""
        file = f"/sys/fs/cgroup/system.slice/{self.unit}.service/cpu.stat"
        return int(host.shell(f"sed -n 's/^usage_usec //p' {file}")) / 1e6


@contextlib.contextmanager
def plain_servers(host: Host, key: str) -> Iterator[None]:
    """Run the plain sshd next to the service, with open ports, until the block ends."""
    service = host.shell("cat /etc/hgfleet/sshd_config").splitlines()
    same = "\n".join(line for line in service if line.split(" ")[0] in SAME)
    host.shell(f"install -d -m 755 {FOLDER}")
    write(host, f"{FOLDER}/authorized_keys", f"{key}\n")
    try:
        for number, (name, port) in enumerate(PORTS.items()):
            pam = "yes" if "PAM" in name else "no"
            file = f"{FOLDER}/{number}.conf"
            write(host, file, CONFIG.format(port=port, same=same, folder=FOLDER, pam=pam))
            words = ["systemd-run", f"--unit=hgfleet-bench-{number}", "--service-type=notify"]
            host.run(*words, "/usr/sbin/sshd", "-D", "-f", file).ok()
        with opened(host, *PORTS.values()):
            yield
    finally:
        for number in range(len(PORTS)):
            host.systemctl("stop", f"hgfleet-bench-{number}.service")
        host.shell(f"rm -rf {FOLDER}")


def write(host: Host, path: str, text: str) -> None:
    """Write a file on the host that every user may read."""
    host.run("sh", "-ec", f"cat >{path} && chmod 644 {path}", stdin=text).ok()


@dataclass(frozen=True)
class Client:
    """The hg and ssh of a person, for any of the sides."""

    address: str
    ssh: Sequence[str]
    env: Mapping[str, str]
    hg: str

    def identify(self, side: Side, repository: str) -> tuple[str, float]:
        """Run the whole command; return its output and its duration."""
        command = [self.hg, "--config", f"ui.ssh={shlex.join(self.ssh)}"]
        command += ["--config", f"ui.remotecmd={side.remote}"]
        url = f"ssh://hg@{self.address}:{side.port}/{side.path}{repository}"
        done = run([*command, "identify", "--debug", "--id", url], env=self.env)
        match = re.search(r"^[0-9a-f]{40}$", done.ok().stdout, re.MULTILINE)
        assert match, done
        return match[0], done.seconds

    def phases(self, side: Side, repository: str) -> dict[str, float]:
        """Return the milliseconds of each part of a session, as the client saw it."""
        path = shlex.quote(f"{side.path}{repository}")
        words = [*self.ssh, "-v", "-p", str(side.port), f"hg@{self.address}"]
        words.append(f"{side.remote} -R {path} serve --stdio")
        began = last = time.monotonic()
        phases: dict[str, float] = {}
        awaited = list(PHASES)
        # Both streams in one pipe keep their order; ssh -v writes each line at once.
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(self.env),
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"hello\n")
            process.stdin.close()
            for line in process.stdout:
                now = time.monotonic()
                if awaited and awaited[0][1].encode() in line:
                    phases[awaited.pop(0)[0]] = (now - last) * 1000
                    last = now
                elif b"capabilities: " in line:
                    phases["hg answers"] = (now - last) * 1000
                    last = now
        assert "hg answers" in phases, f"no hg answered {shlex.join(words)}"
        phases["end"] = (time.monotonic() - last) * 1000
        phases["whole session"] = (time.monotonic() - began) * 1000
        return phases


def quantile(values: Sequence[float], part: int) -> float:
    """Return a percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[part - 1]


def lookups(host: Host, cursor: str) -> list[float]:
    """Return the seconds of each lookup since a place in the journal, by its log."""
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    return [float(m[1]) for line in lines if (m := re.search(r"\bseconds=([0-9.]+)", line))]


def measure(options: argparse.Namespace) -> int:
    """Run everything, print the tables, return the exit code."""
    cluster = Cluster(environment())
    host = cluster.first("ssh")
    alice = cluster.person("alice")
    inside = int(host.shell("sed -n 's/^Port //p' /etc/hgfleet/sshd_config"))
    address = host.shell("hostname -I").split()[0]
    sides = [
        Side(name, port, f"hgfleet-bench-{number}", HG, f"{REPOSITORIES}/")
        for number, (name, port) in enumerate(PORTS.items())
    ]
    sides.append(Side(SERVICE, inside, "hgfleet-sshd", "hg", ""))
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as name:
        known = Path(name) / "known_hosts"
        keys = host.shell("cat /etc/hgfleet/ssh/*.pub").splitlines()
        where = ",".join([address, *(f"[{address}]:{side.port}" for side in sides)])
        known.write_text("".join(f"{where} {' '.join(key.split()[:2])}\n" for key in keys))
        # ssh takes the first value that it is given of an option.
        ssh = ["ssh", "-o", f"UserKnownHostsFile={known}", *alice.ssh_options]
        client = Client(address, ssh, alice.environment, str(VENV / "bin/hg"))
        public = alice.key.with_suffix(".pub").read_text().strip()
        with plain_servers(host, public):
            for side in sides:
                wait_until(
                    f"{side.name} answers", partial(client.identify, side, options.repository)
                )
            return report(client, host, sides, options)


def report(client: Client, host: Host, sides: Sequence[Side], options: argparse.Namespace) -> int:
    """Measure in turns and print."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    cpu: dict[str, float] = {side.name: 0.0 for side in sides}
    said: set[str] = set()
    cursor = host.journal_cursor()
    for number in range(options.runs):
        # The order differs each time, so that no side always runs after the same side.
        for side in [*sides[number % len(sides) :], *sides[: number % len(sides)]]:
            before = side.cpu(host)
            node, took = client.identify(side, options.repository)
            cpu[side.name] += side.cpu(host) - before
            seconds[side.name].append(took)
            said.add(node)
    asked = lookups(host, cursor)
    print(f"hg id of {options.repository}, {options.runs} runs a side in turns, seconds")
    print(f"{'':<14}{'p50':>8}{'p95':>8}{'factor p50':>12}{'factor p95':>12}{'CPU ms/run':>12}")
    for side in sides:
        mine, base = seconds[side.name], seconds[PLAIN]
        row = [quantile(mine, 50), quantile(mine, 95)]
        factors = [statistics.median(mine) / statistics.median(base), row[1] / quantile(base, 95)]
        print(
            f"{side.name:<14}{row[0]:>8.3f}{row[1]:>8.3f}{factors[0]:>11.2f}x{factors[1]:>11.2f}x"
            f"{cpu[side.name] / options.runs * 1000:>12.0f}"
        )
    split(client, sides, options)
    print(
        f"\nlookups of {options.runs} logins: {len(asked)}, each"
        f" {statistics.median(asked) * 1000:.0f} ms (p50), {quantile(asked, 95) * 1000:.0f} ms"
        " (p95) by its own clock, which starts after the interpreter has"
    )
    factor = statistics.median(seconds[SERVICE]) / statistics.median(seconds[PLAIN])
    failed = factor > BAR or len(said) != 1
    print(f"factor {factor:.2f}, bar {BAR}: {'FAILED' if failed else 'met'}")
    return int(failed)


def split(client: Client, sides: Sequence[Side], options: argparse.Namespace) -> None:
    """Print where the time of a session goes, without hg's own client."""
    parts: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for _ in range(options.runs):
        for side in sides:
            parts[side.name].append(client.phases(side, options.repository))
    names = list(parts[PLAIN][0])
    print("\nwhere the time of a session goes, ms (p50)")
    print(f"{'':<14}" + "".join(f"{name:>14}" for name in names))
    for side in sides:
        row = [statistics.median(phases[name] for phases in parts[side.name]) for name in names]
        print(f"{side.name:<14}" + "".join(f"{value:>14.0f}" for value in row))


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="hg over the service's SSH against a plain sshd")
    parser.add_argument("--runs", type=int, default=30, help="of each side (30)")
    parser.add_argument("--repository", default="e2e/clone", help="a small one (e2e/clone)")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
