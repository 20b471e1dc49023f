"""A site for the tests of ./deploy: an inventory made from an example, and its machines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller import bootstrap
from controller.bootstrap import ROOT, VENV, run
from controller.cluster import images
from testing.deploys.machines import ACCOUNT, ADMIN_PORTS, Machines
from testing.e2e.cluster import Cluster
from testing.e2e.command import Result, wait_until
from testing.e2e.command import run as run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

EXAMPLES: Final = ROOT / "ansible/inventories"
EXAMPLE_NETWORK: Final = "192.0.2"
SECONDS_FOR_A_DEPLOY: Final = 1800
SECONDS_FOR_A_PLAYBOOK: Final = 300
SECONDS_FOR_TESTS: Final = 1200
PEOPLE: Final = ("alice", "bob")


@dataclass(frozen=True)
class Site:
    """An inventory in a folder, with blank or deployed machines behind it."""

    folder: Path
    machines: Machines

    @classmethod
    def make(cls, example: str, folder: Path, name: str, network: str) -> Site:
        """Copy an example and fill in what an operator fills in."""
        inventory = folder / name
        shutil.copytree(EXAMPLES / example, inventory)
        site = cls(folder, Machines(name, network, inventory / "hosts.yml"))
        site.edit("hosts.yml", lambda text: text.replace(f"{EXAMPLE_NETWORK}.", f"{network}."))
        site.edit(
            "group_vars/all/vault.yml",
            lambda text: re.sub(r'(?m)""$', lambda _: f'"{secrets.token_hex(24)}"', text),
        )
        site.edit(
            "group_vars/all/base.yml",
            lambda text: re.sub(r"(?m)^(base_tls_ca_folder: ).*", rf"\1{folder}/ca", text),
        )
        # The tests' clients use addresses, not names, so the certificates have these too.
        store = site.variables("objectstore")["base_address"]
        site.edit(
            "group_vars/all/bundles.yml",
            lambda text: re.sub(r'(public_url: "https://)[^:]+', rf"\g<1>{store}", text),
        )
        site.write("group_vars/all/zz_tests.yml", {"bundles_refresh_share": 0})
        for person in (*PEOPLE, ACCOUNT):
            site.make_key(person)
        site.give_keys()
        return site

    def start(self, image: str | None = None) -> None:
        """Start blank machines, and write how the controller reaches them."""
        self.machines.start(image or images.ensure_blank(), self.hosts)
        public = (self.keys / f"{ACCOUNT}.pub").read_text()
        host_keys = self.machines.prepare(self.hosts, public)
        known = self.folder / "known_hosts"
        lines = []
        for host, key in host_keys.items():
            address = self.address(host)
            lines += [f"[{address}]:{port} {key}" for port in ADMIN_PORTS if port != 22]
            lines.append(f"{address} {key}")
            self.write(f"host_vars/{host}.yml", {"ansible_host": address})
        known.write_text("\n".join(lines) + "\n")
        self.write(
            "group_vars/all/connection.yml",
            {
                "ansible_user": ACCOUNT,
                "ansible_ssh_private_key_file": str(self.keys / ACCOUNT),
                "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={known}"
                " -o GlobalKnownHostsFile=/dev/null -o IdentityAgent=none -o IdentitiesOnly=yes",
            },
        )

    # --- the inventory ---

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        """Change a file of the inventory; the change must change something."""
        path = self.inventory / name
        before = path.read_text()
        after = change(before)
        assert after != before, f"{path} stays as it is:\n{before}"
        path.write_text(after)
        self.__dict__.pop("_listing", None)

    def write(self, name: str, variables: Mapping[str, Any]) -> None:
        """Write a file of variables."""
        path = self.inventory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(variables), sort_keys=False, width=1000))

    def read(self, name: str) -> Any:
        """Read a file of variables."""
        return yaml.safe_load((self.inventory / name).read_text())

    def make_key(self, name: str) -> str:
        """Make a key pair; return the public key."""
        self.keys.mkdir(exist_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]
        run([*command, str(self.keys / name)], what=f"Making a key for {name}")
        return (self.keys / f"{name}.pub").read_text().strip()

    def give_keys(self) -> None:
        """Give the people of the example the keys that were made for them."""
        name = "group_vars/all/directory.yml"
        variables = self.read(name)
        for person in variables["directory_people"]:
            person["keys"] = [(self.keys / f"{person['name']}.pub").read_text().strip()]
        self.write(name, variables)

    @property
    def inventory(self) -> Path:
        """The folder of the inventory."""
        return self.machines.inventory.parent

    @property
    def keys(self) -> Path:
        """The folder of the private keys."""
        return self.folder / "keys"

    @cached_property
    def _listing(self) -> Mapping[str, Any]:
        command = ["ansible-inventory", "-i", str(self.machines.inventory), "--list"]
        env = bootstrap.controller_environment()
        return dict(json.loads(run(command, what="Reading the inventory", env=env)))

    @property
    def hosts(self) -> list[str]:
        """The hosts of the inventory."""
        return list(self._listing["_meta"]["hostvars"])

    def first(self, group: str) -> str:
        """Return the first host of a group."""
        return str(self._listing[group]["hosts"][0])

    def variables(self, group: str) -> Mapping[str, Any]:
        """Return the variables of the first host of a group."""
        return dict(self._listing["_meta"]["hostvars"][self.first(group)])

    def address(self, host: str) -> str:
        """Return the address of a host."""
        return str(self._listing["_meta"]["hostvars"][host]["base_address"])

    # --- the commands of an operator ---

    def environment(self) -> dict[str, str]:
        """Return the environment of an operator's shell, without this repository's variables."""
        ours = ("HGFLEET_", "ANSIBLE_", "PYTEST_")
        return {k: v for k, v in os.environ.items() if not k.startswith(ours)}

    def command(self, *options: str) -> list[str]:
        """Return the command line of ./deploy for this site."""
        words = [sys.executable, str(ROOT / "deploy"), str(self.inventory), *options]
        # The tree cannot be attested yet: these tests are a part of the run that attests it.
        return [*words, "--untested", "a test of ./deploy"]

    def deploy(self, *options: str, env: Mapping[str, str] | None = None) -> Result:
        """Run ./deploy to its end."""
        done = run_command(
            self.command(*options),
            env={**self.environment(), **(env or {})},
            cwd=ROOT,
            seconds=SECONDS_FOR_A_DEPLOY,
        )
        return replace(done, command=" ".join(["./deploy SITE", *options]))

    def play(self, playbook: str, *options: str) -> Result:
        """Run a playbook as by hand, without exported variables."""
        env = {**self.environment(), "PATH": f"{VENV}/bin:{os.environ['PATH']}"}
        command = ["ansible-playbook", "-i", str(self.machines.inventory), playbook, *options]
        return run_command(command, env=env, cwd=ROOT, seconds=SECONDS_FOR_A_PLAYBOOK)

    def verify(self) -> Result:
        """Run the tests that an operator runs on a deployed site; no host is changed."""
        words = [sys.executable, str(ROOT / "run-tests"), f"site:{self.inventory}"]
        return run_command(words, env=self.environment(), cwd=ROOT, seconds=SECONDS_FOR_TESTS)

    def deploying(self, *options: str) -> subprocess.Popen[str]:
        """Start ./deploy in a process group of its own; output and errors come through a pipe."""
        return subprocess.Popen(
            self.command(*options),
            env={**self.environment(), "PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def kill_run(run: subprocess.Popen[str]) -> str:
        """Kill a run with all of its processes at once; return its output."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        return run.communicate()[0]

    # --- the site as its people have it ---

    def service(self) -> Cluster:
        """Return the deployed site, as the end-to-end tests see a cluster."""
        port = self.variables("ssh").get("ssh_port", 22)
        known = self.folder / "known_hosts.people"
        address = self.address(self.first("ssh"))
        keys = self.on(self.first("ssh"), "cat /etc/hgfleet/ssh/*.pub").splitlines()
        name = address if port == 22 else f"[{address}]:{port}"
        known.write_text("".join(f"{name} {' '.join(line.split()[:2])}\n" for line in keys))
        hgrc = self.folder / "hgrc"
        hgrc.write_text(f"[web]\ncacerts = {self.folder}/ca/ca.pem\n")
        return Cluster(
            {
                "HGFLEET_HTTP_URL": f"https://{self.address(self.first('proxy'))}",
                "HGFLEET_SSH_HOST": address,
                "HGFLEET_SSH_PORT": str(port),
                "HGFLEET_CA_CERT": f"{self.folder}/ca/ca.pem",
                "HGFLEET_KNOWN_HOSTS": str(known),
                "HGFLEET_KEYS": str(self.keys),
                "HGFLEET_HGRC": str(hgrc),
                "HGFLEET_CLUSTER_NAME": self.machines.name,
                "HGFLEET_LDAP_BASE": "dc=example,dc=org",
                "ANSIBLE_INVENTORY": str(self.machines.inventory),
            }
        )

    def on(self, host: str, script: str) -> str:
        """Return the output of a shell script on a machine, as root; it must succeed."""
        command = ["docker", "exec", self.machines.container(host), "sh", "-ec", script]
        return run_command(command).ok().stdout

    @contextlib.contextmanager
    def paused(self, host: str) -> Iterator[None]:
        """Pause every process of a machine, so that it hangs; resume them afterwards."""
        container = self.machines.container(host)
        run(["docker", "pause", container], what=f"Pausing {host}")
        try:
            yield
        finally:
            run(["docker", "unpause", container], what=f"Resuming {host}")

    @contextlib.contextmanager
    def cut_off(self, host: str) -> Iterator[None]:
        """Silently drop packets from the controller; let them through afterwards."""
        drop = (
            f"type filter hook prerouting priority -400; ip saddr {self.machines.network}.1 drop;"
        )
        rules = f"table ip test_cut {{ chain from_controller {{ {drop} }}; }}"
        self.on(host, f"echo '{rules}' | nft -f -")
        try:
            yield
        finally:
            self.on(host, "nft delete table ip test_cut")

    def kill(self, host: str) -> None:
        """Kill every process of a machine at once, as a loss of power does."""
        run(["docker", "kill", self.machines.container(host)], what=f"Killing {host}")

    def boot(self, host: str) -> None:
        """Start a machine that was killed, and wait until its units have started."""
        container = self.machines.container(host)
        run(["docker", "start", container], what=f"Starting {host}")
        state = ["docker", "exec", container, "systemctl", "is-system-running"]
        settled = ("running", "degraded")
        wait_until(f"{host} has booted", lambda: run_command(state).stdout.strip() in settled, 120)

    def require_restart(self, host: str) -> None:
        """Mark a machine as in need of a restart, as a package does, and let it boot by itself."""
        container = self.machines.container(host)
        run(["docker", "update", "--restart=always", container], what=f"Setting up {host}")
        self.on(host, "echo linux-image > /run/reboot-required.pkgs; touch /run/reboot-required")

    def booted_at(self, host: str) -> str:
        """Return when the units of a machine began to start, by the monotonic clock."""
        return self.on(host, "systemctl show --property=UserspaceTimestampMonotonic --value")

    def releases(self) -> dict[str, str]:
        """Return the current release of every host."""
        script = "basename $(readlink /opt/hgfleet/current || echo none)"
        return {host: self.on(host, script).strip() for host in self.hosts}

    def services(self) -> dict[str, set[str]]:
        """Return per host the running services of the site, each with the time of its start."""
        script = "systemctl show --type=service --property=Id,ActiveState,Type,ActiveEnterTimestamp"
        return {host: _running(self.on(host, f"{script} '*'")) for host in self.hosts}

    def add_person(self, name: str, group: str) -> None:
        """Add a person with a new key to the inventory, as a member of a group."""
        file = "group_vars/all/directory.yml"
        variables = self.read(file)
        person = {"name": name, "full_name": name.title(), "mail": f"{name}@example.org"}
        variables["directory_people"].append({**person, "keys": [self.make_key(name)]})
        for entry in variables["directory_groups"]:
            if entry["name"] == group:
                entry["members"].append(name)
        self.write(file, variables)

    def add_repository(self, path: str) -> None:
        """Add a repository to the registry."""
        self.edit("registry.yml", lambda text: f"{text}  {path}:\n    description: New\n")


SERVICES: Final = ("hgfleet-", "nginx", "haproxy", "slapd", "ssh.", "nats")


def _running(shown: str) -> set[str]:
    running = set()
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("ActiveState") == "active" and values.get("Type") != "oneshot":
            running.add(f"{values['Id']} since {values['ActiveEnterTimestamp']}")
    return {line for line in running if line.startswith(SERVICES)}
