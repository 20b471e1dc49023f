"""The running service, reached by the addresses of `./cluster env`: hosts, pages, logs, state."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from controller import bootstrap
from controller.bootstrap import ROOT, VENV
from testing.e2e.command import Result, run, wait_until
from testing.e2e.host import Host, Journals, RequestLog, SessionLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from email.message import Message
    from pathlib import Path

# Runs on a host: prints checksums of files that mirrors copy, and the user repositories.
DOCUMENTS: Final = """
import glob, hashlib, json, os
folder = "/var/lib/hgfleet/"
files = glob.glob(folder + "dynamic/registry.json") + glob.glob(folder + "dynamic/tokens/*.json")
files += glob.glob(folder + "manifests/**/*.manifest", recursive=True)
for file in sorted(files):
    print(file, hashlib.sha256(open(file, "rb").read()).hexdigest()[:16])
try:
    paths = json.load(open(folder + "dynamic/registry.json"))["repositories"]
except OSError:
    paths = {}
for path in sorted(paths):
    print(path, os.path.isdir(f"/srv/hg/repos/{path}/.hg"))
"""


@dataclass(frozen=True)
class Page:
    """An answer of the web part; the names of headers are in lower case."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass(frozen=True)
class Service:
    """The running service, by the variables of `./cluster env`.

    `hg` is the program that people run on this machine.
    """

    env: Mapping[str, str]
    hg: Path = VENV / "bin/hg"

    @cached_property
    def inventory(self) -> Mapping[str, Any]:
        """The inventory, as Ansible reads it."""
        return dict(json.loads(self.ansible("ansible-inventory", "--list").ok().stdout))

    def host(self, name: str) -> Host:
        """Return a host by its name in the inventory."""
        return Host(name, f"{self.env['HGFLEET_CLUSTER_NAME']}-{name}")

    @property
    def hosts(self) -> list[Host]:
        """All hosts."""
        return [self.host(name) for name in self.inventory["_meta"]["hostvars"]]

    def all(self, group: str) -> list[Host]:
        """Return the hosts of a group."""
        return [self.host(name) for name in self.inventory[group]["hosts"]]

    def first(self, group: str) -> Host:
        """Return the first host of a group."""
        return self.host(self.inventory[group]["hosts"][0])

    def address(self, host: Host) -> str:
        """Return the address of a host in the cluster's network."""
        network = self.env["HGFLEET_CLUSTER_NAME"]
        template = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
        asked = run(["docker", "inspect", "--format", template, host.container])
        return asked.ok().stdout.strip()

    def ansible(self, program: str, *words: str, seconds: float = 300) -> Result:
        """Run a program of Ansible on the cluster's inventory, as `./cluster up` does."""
        env = {**bootstrap.controller_environment(), **self.env, "ANSIBLE_FORCE_COLOR": "0"}
        return run([program, *words], env=env, cwd=ROOT, seconds=seconds)

    def url(self, path: str) -> str:
        """Return an address of the web part, through the proxy."""
        return f"{self.env['HGFLEET_HTTP_URL']}/{path}"

    def primary_url(self, path: str) -> str:
        """Return an address of the web part of the host that takes pushes, past the proxy."""
        return self.url_past_proxy(self.first("ssh"), path)

    def url_past_proxy(self, host: Host, path: str) -> str:
        """Return an address of the web part of a host, past the proxy."""
        return f"https://{self.address(host)}:8443/{path}"

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        trust = ssl.create_default_context(cafile=self.env["HGFLEET_CA_CERT"])
        # No proxy of this machine stands between it and its own containers.
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )

    def get(
        self,
        url: str,
        data: bytes | None = None,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Ask for a URL, or a path of the web part; any status is an answer."""
        whole = url if url.startswith("https://") else self.url(url)
        request = urllib.request.Request(  # noqa: S310  (https only)
            whole, data, dict(headers or {}), method=method
        )
        try:
            with self._opener.open(request, timeout=30) as answer:
                body = answer.read().decode("utf-8", "replace")
                return Page(answer.status, body, _lower(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                body = error.read().decode("utf-8", "replace")
                return Page(error.code, body, _lower(error.headers))
        except OSError as error:
            raise AssertionError(f"{whole} does not answer: {error}") from None

    def lines(self, path: str) -> Iterator[str]:
        """Yield the lines of a continuing answer as they come; 30 s without a line end it."""
        with self._opener.open(self.url(path), timeout=30) as answer:
            for line in answer:
                yield line.decode().rstrip("\n")

    def requests(self, repository: str) -> RequestLog:
        """Begin to read the requests for a repository here, on any web host."""
        hosts = self.all("web")
        show = "systemctl show --property=Environment --value hgfleet-web.service"
        unit = hosts[0].shell(show)
        match = re.search(r"\bHGFLEET_WEB_ACCESS_LOG=(\S+)", unit)
        assert match, f"hgfleet-web.service names no HGFLEET_WEB_ACCESS_LOG: {unit}"
        # A host without any request so far has no log yet, and the test does not create it.
        stat = f"stat -c '%i %s' {match[1]} 2>/dev/null || echo 0 0"
        places = tuple((host, host.shell(stat)) for host in hosts)
        return RequestLog(places, repository, match[1])

    def journals(self, group: str) -> Journals:
        """Begin to read the journals of all hosts of a group here."""
        return Journals.begin(self.all(group))

    def sessions(self, repository: str, person: str) -> SessionLog:
        """Begin to read the sessions of a repository and person here, in the SSH shell's log."""
        host = self.first("ssh")
        return SessionLog(host, repository, person, host.journal_cursor())

    def manifest(self, repository: str) -> list[str]:
        """Return the URLs that a client is offered for a repository over HTTPS."""
        return self._manifest(self.url(repository))

    def manifest_of_all(self, repository: str) -> list[str]:
        """Return the URLs that every web host offers; while they differ, raise an error for waits.

        Each host probes the stores itself, and the proxy may send a client to any of them.
        """
        offers = {
            host.name: self._manifest(self.url_past_proxy(host, repository))
            for host in self.all("web")
        }
        first, *others = offers.values()
        assert all(other == first for other in others), offers
        return first

    def _manifest(self, url: str) -> list[str]:
        page = self.get(f"{url}?cmd=clonebundles")
        assert page.status == 200, page
        return [line.split()[0] for line in page.body.splitlines() if line]

    def identity(self, repository: str) -> str:
        """Return the identity of a repository, which names its state on each host."""
        place = f"/srv/hg/repos/{repository}/.hg/store/identity"
        return self.first("ssh").shell(f"cat {place}").strip()

    def manifests(self) -> Mapping[str, str]:
        """Return all manifests on the host that writes them: path to content."""
        script = "cd /var/lib/hgfleet/manifests; find . -name '*.manifest' -exec sha256sum {} +"
        lines = self.first("bundles").shell(script).splitlines()
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}

    def make_bundles(self, repository: str) -> Result:
        """Run the bundle job for all repositories to its end, as its timer would.

        The run that a push to this repository has started ends first: a run skips a repository on
        which another run is at work.
        """
        self.wait_for_bundles(repository)
        done = self.first("bundles").systemctl("start", "hgfleet-bundles.service")
        self.wait_for_mirrors()
        return done

    def wait_for_bundles(self, repository: str) -> None:
        """Wait until the run that follows each push has made the bundles of a repository."""
        marker = f"/var/lib/hgfleet/pushed/{repository.replace('/', '+')}"
        script = f"[ ! -e {marker} ] && [ ! -e {marker}+ ] && echo done || :"
        host = self.first("bundles")
        wait_until(f"bundles of {repository}", lambda: host.shell(script) == "done\n", 60)
        self.wait_for_mirrors()

    def wait_for_mirrors(self) -> None:
        """Wait until each web host has those files of the primary that are outside of repositories.

        A push waits for the mirrors itself, but user repositories, tokens and manifests follow
        later.
        """
        primary = self.first("ssh")
        mirrors = [host for host in self.all("web") if host != primary]
        if not mirrors:
            return

        def is_equal() -> bool:
            wanted = primary.run("python3", "-c", DOCUMENTS).ok().stdout
            shown = {host.name: host.run("python3", "-c", DOCUMENTS).ok() for host in mirrors}
            behind = [name for name, result in shown.items() if result.stdout != wanted]
            assert not behind, f"{', '.join(behind)}: {shown[behind[0]].stdout}\nnot {wanted}"
            return True

        wait_until("the mirrors have the documents of the primary", is_equal, 60)

    def remote_heads(self, repository: str) -> set[str]:
        """Return the heads of a repository, as the web part shows them."""
        page = self.get(f"{repository}?cmd=heads")
        assert page.status == 200, f"{repository}: {page}"
        return set(page.body.split())
