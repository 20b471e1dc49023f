"""A host of a deployed site, as its inventory describes it, and how testinfra connects to it.

Uses the standard library only: ./run-tests reads the inventory before the controller's tools run.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

FACTS: Final = "Host as the inventory describes it"
PORT: Final = "Port of the administrators that answers"
"""Tasks of addresses.yml whose results are read."""

RULE: Final = re.compile(
    r"(?:ip6? saddr \{ (?P<networks>[^}]*) \} )?tcp dport \{ (?P<ports>[^}]*) \}"
)
"""A rule of nftables, as ansible/plugins/filter/firewall.py writes it."""


@dataclass(frozen=True)
class Machine:
    """A host; `host`, `user`, `port` and `key` are Ansible's, empty for the defaults.

    `address` is its address for other hosts and clients, `rules` are its firewall's rules.
    `redirect_host` is the host in the redirect to HTTPS, None where the inventory does not set it.
    `brokers` are the brokers of the site, `admin_accounts` the break-glass accounts.
    """

    name: str
    groups: Sequence[str]
    connection: str
    host: str
    user: str
    port: str
    key: str
    ssh_args: str
    address: str
    public_url: str
    https_port: int
    http_port: int
    ssh_port: int
    ca: str
    registry: str
    firewall: bool
    rules: Sequence[str]
    redirect_host: str | None
    redirect_port: int
    brokers: Sequence[str]
    admin_accounts: Sequence[str]


@dataclass(frozen=True)
class Entrance:
    """Where clients enter over HTTPS: an address, and the name that they ask for."""

    address: str
    port: int
    http_port: int
    name: str

    @property
    def url(self) -> str:
        """The URL that names the address."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{shown}" + (f":{self.port}" if self.port != 443 else "")


def read(output: str) -> list[Machine]:
    """Read the output of addresses.yml through the callback ansible.posix.json.

    Raises ValueError for any other output. A host that does not answer gets the inventory's port.
    """
    plays = json.loads(output[output.index("{") :])["plays"]
    machines: dict[str, dict[str, object]] = {}
    for task in (task for play in plays for task in play["tasks"]):
        for name, result in task["hosts"].items():
            if task["task"]["name"] == FACTS and isinstance(result.get("msg"), dict):
                machines[name] = {"name": name, **result["msg"]}
            elif task["task"]["name"] == PORT and name in machines and "msg" in result:
                machines[name]["port"] = str(result["msg"])
    return [Machine(**facts) for facts in machines.values()]  # type: ignore[arg-type]


def save(machines: Sequence[Machine], path: Path) -> None:
    """Write machines to a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps([asdict(machine) for machine in machines]))


def load(path: Path) -> list[Machine]:
    """Read what `save` wrote."""
    return [Machine(**facts) for facts in json.loads(path.read_text())]


def this() -> Machine | None:
    """Return the host that this process tests; None if it belongs to no site."""
    record, name = os.environ.get("HGFLEET_SITE"), os.environ.get("HGFLEET_SITE_HOST")
    if not record or not name:
        return None
    return next(machine for machine in load(Path(record)) if machine.name == name)


def redirect(machine: Machine, asked: str) -> str:
    """Return the beginning of the URL that plain HTTP leads to, for a request to a host."""
    host = machine.redirect_host
    if host is None:
        public = urlsplit(machine.public_url).hostname or ""
        host = f"[{public}]" if ":" in public else public
    port = "" if machine.redirect_port == 443 else f":{machine.redirect_port}"
    return f"https://{host or asked}{port}"


def accounts_problem(accounts: Sequence[str], machine: Machine | None) -> str:
    """Return the problem with the break-glass accounts of a host, empty if there is none.

    A host of no site has at least one break-glass account, for the tests of such accounts.
    """
    if machine is None:
        return "" if accounts else "no break-glass account: nobody enters when the service is down"
    if set(accounts) == set(machine.admin_accounts):
        return ""
    return f"got the accounts {sorted(accounts)}, expected {sorted(machine.admin_accounts)}"


def connection(machine: Machine) -> list[str]:
    """Return the options of testinfra that connect to a host as root; none if it cannot."""
    if machine.connection in ("docker", "community.docker.docker"):
        return [f"--hosts=docker://{machine.host}"]
    if machine.connection not in ("ssh", "smart", "ansible.builtin.ssh"):
        return []
    at = f"{quote(machine.user)}@" if machine.user else ""
    host = f"[{machine.host}]" if ":" in machine.host else machine.host
    port = f":{machine.port}" if machine.port else ""
    options = [f"--hosts=ssh://{at}{host}{port}"]
    if machine.user != "root":
        options.append("--sudo")
    if machine.key:
        options.append(f"--ssh-identity-file={machine.key}")
    # testinfra joins the arguments into the command line of a shell.
    args = shlex.join(["-o", "BatchMode=yes", *shlex.split(machine.ssh_args)])
    return [*options, f"--ssh-extra-args={args}"]


def entrances(machines: Sequence[Machine]) -> list[Entrance]:
    """Return where clients enter: each proxy, or the public URL of a site without proxies."""
    public = urlsplit(next((machine.public_url for machine in machines if machine.public_url), ""))
    proxies = [machine for machine in machines if "proxy" in machine.groups]
    if proxies:
        return [
            Entrance(
                machine.address,
                machine.https_port,
                machine.http_port,
                public.hostname or machine.address,
            )
            for machine in proxies
        ]
    name = public.hostname or ""
    return [Entrance(name, public.port or 443, 0, name)] if name else []


def let_in(rules: Sequence[str], client: str) -> set[int]:
    """Return the TCP ports that the rules of a firewall open to an address."""
    address = ipaddress.ip_address(client)
    ports = set()
    for rule in rules:
        match = RULE.match(rule)
        networks = (match["networks"] or "").split(", ") if match else []
        if match and (
            not match["networks"]
            or any(address in ipaddress.ip_network(network) for network in networks)
        ):
            ports |= {int(port) for port in match["ports"].split(", ")}
    return ports
