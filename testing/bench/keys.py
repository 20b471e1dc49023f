"""The key lookup at a site's size: 10,000 people with 2 keys each, on the cluster's own hosts.

    python -m testing.bench.keys                  # a table, and whether the bar is met
    python -m testing.bench.keys --people 100000

Throw-away directory servers are started on the directory's host and on the ssh host. They have the
configuration of the cluster's directory (schema, indexes, access rules, TLS), made-up people, and
separate ports and folders. They are removed at the end; the cluster's directory is only read. The
real command is then run as sshd runs it, by its user and without an environment, in two ways that
take turns, so that a busy machine hurts both:

- `provider`: the server on the directory's host, over ldaps
- `replica`: the server on the ssh host, over its socket (ldapi)

`python` is only the start of the interpreter, the floor under everything. Every answer is checked:
a lookup that does not name the right person fails the run.

CPU is the mean time on a processor, which is the figure to compare on a busy machine.

Bar: 95 of 100 lookups at the replica take at most 60 ms, singly and 4 at a time, on 2 cores.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.directory import publickey
from testing.bench.firewall import opened
from testing.e2e.cluster import Cluster
from testing.e2e.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.host import Host

    Times = dict[tuple[str, int], list[tuple[float, float]]]

BAR_S: Final = 0.060
KEYS_EACH: Final = 2
GROUP_SIZE: Final = 100
PORT: Final = 16360
UNIT: Final = "hgfleet-bench-slapd"
FOLDER: Final = "/var/tmp/hgfleet-bench-keys"
SOCKET: Final = f"{FOLDER}/ldapi"
LONGEST_RUN_S: Final = 3600
"""After this time systemd stops a server that a killed benchmark has left behind."""

COMMAND: Final = "/opt/hgfleet/current/bin/hgfleet-keys"
FLOOR: Final = ["/opt/hgfleet/current/bin/python", "-IS", "-c", ""]

# Runs on the ssh host as the lookup's user; the standard library of the host's Python only.
DRIVER: Final = """
import concurrent.futures, json, os, subprocess, sys, time

def run(job):
    command, expected = job
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={})
    said = child.stdout.read()
    _, child.returncode, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.stdout.close()
    if child.returncode or expected.encode() not in said:
        raise SystemExit(f"{' '.join(command)}: wanted {expected!r}, got {said!r}")
    return seconds, used.ru_utime + used.ru_stime

jobs, clients = json.load(sys.stdin)
with concurrent.futures.ThreadPoolExecutor(clients) as pool:
    print(json.dumps(list(pool.map(run, jobs))))
"""


def made_up(people: int, suffix: str, seed: int) -> tuple[str, list[tuple[str, list[str]]]]:
    """Return the LDIF of people and groups, and for every key its person and sshd's arguments."""
    chance = random.Random(seed)
    text = io.StringIO()
    questions = []
    for number in range(people):
        name = f"person{number:06}"
        text.write(
            f"dn: uid={name},ou=people,{suffix}\nobjectClass: inetOrgPerson\n"
            f"objectClass: ldapPublicKey\nuid: {name}\ncn: Person {number}\nsn: {number}\n"
        )
        keys = [
            publickey.from_parts("ssh-ed25519", [chance.randbytes(32)]) for _ in range(KEYS_EACH)
        ]
        # slapadd wants the values of an attribute together; it stores an attribute twice otherwise.
        text.writelines(f"sshPublicKey: {key.type} {key.blob} {name}\n" for key in keys)
        text.writelines(f"sshPublicKeyId: {key.fingerprint}\n" for key in keys)
        questions += [(name, [key.fingerprint, key.type, key.blob]) for key in keys]
        text.write("\n")
    for start in range(0, people, GROUP_SIZE):
        text.write(f"dn: cn=team{start},ou=groups,{suffix}\nobjectClass: groupOfNames\n")
        text.write(f"cn: team{start}\n")
        for number in range(start, min(start + GROUP_SIZE, people)):
            text.write(f"member: uid=person{number:06},ou=people,{suffix}\n")
        text.write("\n")
    return text.getvalue(), questions


def throw_away_config(ldif: str) -> str:
    """Return a server's configuration with separate folders, and without replication."""
    kept = [
        re.sub(r"^olcDbDirectory: .*", f"olcDbDirectory: {FOLDER}/data", line)
        for line in ldif.splitlines()
        if not re.match(r"olc(PidFile|ArgsFile|Syncrepl|MultiProvider|UpdateRef)\b", line)
    ]
    return "\n".join(kept) + "\n"


def send(host: Host, files: dict[str, str]) -> None:
    """Write files into the benchmark's folder on a host."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            data = content.encode()
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    subprocess.run(
        ["docker", "cp", "--quiet", "-", f"{host.container}:{FOLDER}"],
        input=packed.getvalue(),
        check=True,
    )


@contextlib.contextmanager
def server(host: Host, config: str, data: str) -> Iterator[None]:
    """Run a throw-away directory server on a host until the block ends."""
    if host.run("sh", "-c", "command -v slapd").code:
        raise SystemExit(f"{host.name} has no slapd, so it has no replica: ./cluster up brings one")
    stop = f"systemctl stop {UNIT} 2>/dev/null || true; rm -rf {FOLDER}"
    host.shell(f"{stop}; install -d -o openldap -g openldap {FOLDER} {FOLDER}/conf {FOLDER}/data")
    try:
        send(host, {"config.ldif": config, "data.ldif": data})
        host.shell(
            f"cd {FOLDER} && run='runuser -u openldap --' && "
            f"$run slapadd -n 0 -F conf -l config.ldif && "
            f"$run slapadd -q -n 1 -F conf -l data.ldif && rm config.ldif data.ldif && "
            f"systemd-run --quiet --unit={UNIT} -p Type=notify -p User=openldap -p Group=openldap "
            f"-p SupplementaryGroups=ssl-cert -p RuntimeMaxSec={LONGEST_RUN_S} "
            f"/usr/sbin/slapd -d 0 -F {FOLDER}/conf "
            f"-h 'ldaps://:{PORT} ldapi://{SOCKET.replace('/', '%2F')}'"
        )
        with opened(host, PORT):
            yield
    finally:
        host.shell(stop)


def measure(host: Host, side: str, questions: list[tuple[str, list[str]]], at_once: int) -> Any:
    """Run a lookup per question on a host; return the wall and CPU seconds of each lookup."""
    jobs = [(FLOOR, "")] * len(questions)
    # Only this process and its children see the benchmark's settings instead of the host's.
    place = f"mount --bind {FOLDER}/{side}.toml /etc/hgfleet/keys.toml && " if side else ""
    if side:
        jobs = [([COMMAND, *question], f"--user {name} ") for name, question in questions]
    script = f'{place}exec runuser -u hgkeys -- python3 -c "$1"'
    done = host.run(
        *("unshare", "--mount", "sh", "-ec", script, "sh", DRIVER),
        stdin=json.dumps([jobs, at_once]),
    ).ok()
    return json.loads(done.stdout)


def percentile(times: list[float], percent: int) -> float:
    """Return the time that this share of the times does not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def main() -> int:
    """Measure, print the table, and say whether the bar is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--lookups", type=int, default=100, help="of each kind in each round")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cluster = Cluster(environment())
    ssh, directory = cluster.first("ssh"), cluster.first("directory")
    suffix = cluster.env["HGFLEET_LDAP_BASE"]

    print(f"making {options.people} people with {KEYS_EACH} keys each", file=sys.stderr)
    data, questions = made_up(options.people, suffix, options.seed)
    config = throw_away_config(directory.shell("slapcat -n 0 -o ldif-wrap=no"))
    base = directory.shell("slapcat -n 1 -o ldif-wrap=no")
    own = ssh.shell("cat /etc/hgfleet/keys.toml")
    uris = {
        "provider": f"ldaps://{directory.name}:{PORT}",
        "replica": f"ldapi://{SOCKET.replace('/', '%2F')}",
    }
    times: Times = {}
    with server(directory, config, base + data), server(ssh, config, base + data):
        settings = {
            f"{side}.toml": re.sub(r"(?m)^uris = .*$", f'uris = ["{uri}"]', own)
            for side, uri in uris.items()
        }
        send(ssh, settings)
        chance = random.Random(options.seed)
        for number in range(options.rounds + 1):
            for at_once in (1, 4):
                for side in ("", "provider", "replica"):
                    asked = chance.sample(questions, options.lookups)
                    measured = measure(ssh, side, asked, at_once)
                    if number:  # the first round fills caches
                        times.setdefault((side, at_once), []).extend(measured)
            print(f"round {number} of {options.rounds}", file=sys.stderr)
    return report(times, options.people)


def report(times: Times, people: int) -> int:
    """Print the table; return the exit code."""
    busy = Path("/proc/loadavg").read_text().split()[1]
    print(
        f"\n{people} people, {people * KEYS_EACH} keys, {os.cpu_count()} cores; "
        f"the machine's load in these minutes was {busy}; milliseconds"
    )
    print(
        f"{'what':<20}{'at once':>8}{'lookups':>9}{'p50':>8}{'p95':>8}{'p99':>8}{'CPU':>8}"
        f"{'bar p95':>9}"
    )
    failed = False
    names = {"": "python alone", "provider": "provider, ldaps", "replica": "replica, ldapi"}
    for (side, at_once), measured in times.items():
        taken = [seconds for seconds, _ in measured]
        cells = "".join(f"{percentile(taken, p) * 1000:>8.1f}" for p in (50, 95, 99))
        cpu = sum(used for _, used in measured) / len(measured)
        bar = f"{BAR_S * 1000:.0f}" if side == "replica" else ""
        print(f"{names[side]:<20}{at_once:>8}{len(taken):>9}{cells}{cpu * 1000:>8.1f}{bar:>9}")
        failed = failed or (side == "replica" and percentile(taken, 95) > BAR_S)
    print("FAILED" if failed else "bar met")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
