"""pytest on a deployed site, by `./run-tests site:INVENTORY`: no test changes a host.

The plugin connects as Ansible does. It skips the tests that are marked as changing a host or as
needing the key of a person, and reports the reason of each.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import testinfra
import testinfra.backend
from testinfra.backend.ssh import SshBackend

from controller import bootstrap
from testing.site import machine
from testing.site.client import Client

if TYPE_CHECKING:
    from testing.site.machine import Entrance, Machine

LEFT_OUT: Final = {
    "changes": "it changes the host",
    "disruptive": "it stops a part of the host",
    "person": "it needs the key of a person",
}
"""Markers of tests that do not run on a site, and the reasons."""

PASSWORD: Final = "ANSIBLE_BECOME_PASSWORD_FILE"
SHELL: Final = 'script=$(cat); exec </dev/null; eval "$script"'
STATUS: Final = b"hgfleet-status="
SOCKETS: Final = pytest.StashKey[str]()


class Ssh(SshBackend):  # type: ignore[misc]  # published without types
    """SSH connections as Ansible makes them. Commands come through the standard input.

    sudo writes its command line to the journal, and some commands of tests have secrets. A password
    that sudo asks for is the first line. The status comes at the end of stderr, because ssh itself
    exits with 255 for its own errors.
    """

    # testinfra (10.2) does not hand its option --ssh-extra-args on to the backend.
    arguments = ""
    password = b""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.ssh_extra_args = self.arguments

    def run(self, command: str, *args: str, **_: object) -> testinfra.backend.base.CommandResult:
        """Run a command, with sudo where the account is not root."""
        asks = "-k -S -p ''" if self.password else "-n"
        sudo = f"sudo {asks} -u root " if self.sudo else ""
        remote = f"{sudo}/bin/sh -c {shlex.quote(SHELL)}; printf '{STATUS.decode()}%s' $? >&2"
        words, quoted = self._build_ssh_command(remote)
        line = self.quote(" ".join(words), *quoted)
        script = self.encode(self.quote(command, *args))
        done = subprocess.run(  # noqa: S602  (testinfra joins the words for a shell)
            line, shell=True, input=self.password + script, capture_output=True
        )
        errors, mark, status = done.stderr.rpartition(STATUS)
        if not mark:
            raise RuntimeError(self.result(done.returncode, script, done.stdout, done.stderr))
        return self.result(int(status), script, done.stdout, errors)


def pytest_configure(config: pytest.Config) -> None:
    """Share a connection per host."""
    if config.option.hosts and config.option.hosts.startswith("ssh://"):
        config.stash[SOCKETS] = tempfile.mkdtemp(prefix="hgfleet-site-")
        shared = "-o ControlMaster=auto -o ControlPersist=60s -o ControlPath="
        Ssh.arguments = f"{config.option.ssh_extra_args} {shared}{config.stash[SOCKETS]}/%C"
        testinfra.backend.BACKENDS["ssh"] = f"{__name__}.{Ssh.__name__}"


def password_of(file: Path) -> bytes:
    """Return the line in a password file, or a program's output, as Ansible does."""
    if os.access(file, os.X_OK):
        return (
            subprocess.run([str(file)], stdout=subprocess.PIPE, check=True).stdout.strip() + b"\n"
        )
    return file.read_bytes().strip() + b"\n"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of the shared connection, which ends by itself."""
    if SOCKETS in config.stash:
        shutil.rmtree(config.stash[SOCKETS], ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """End at once where the host does not answer or sudo refuses, rather than in every test."""
    option = session.config.option
    if not option.hosts:
        return
    name = os.environ["HGFLEET_SITE_HOST"]
    identity = option.ssh_identity_file
    host = testinfra.get_host(option.hosts, sudo=option.sudo, ssh_identity_file=identity)
    problem = problem_of(host)
    if problem and os.environ.get(PASSWORD):
        Ssh.password = password_of(Path(os.environ[PASSWORD]))
        problem = problem_of(host)
    if problem:
        pytest.exit(f"{name} gives the tests no root: {problem}", 1)


def problem_of(host: testinfra.host.Host) -> str:
    """Return why commands do not run as root, empty if they do."""
    try:
        done = host.run("id -u")
    except RuntimeError as error:
        done = error.args[0]
    if done.stdout.strip() == "0":
        return ""
    return str((done.stderr.strip().splitlines() or ["no reason given"])[-1])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that do not run on a site."""
    for item in items:
        reasons = [why for marker, why in LEFT_OUT.items() if item.get_closest_marker(marker)]
        if reasons:
            item.add_marker(pytest.mark.skip(reason=reasons[0]))


def machines() -> list[Machine]:
    """Return all hosts of the site."""
    record = os.environ.get("HGFLEET_SITE", "")
    if not record:
        raise pytest.UsageError("These tests are of a site: ./run-tests site:INVENTORY")
    return machine.load(Path(record))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with an argument `each_entrance` once for each place where clients enter."""
    if "each_entrance" in metafunc.fixturenames:
        entrances = machine.entrances(machines())
        metafunc.parametrize(
            "each_entrance", entrances, ids=[entrance.address for entrance in entrances]
        )


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Return a client without an account, which trusts what the site and this machine trust."""
    trusted = tmp_path_factory.mktemp("trust") / "ca.pem"
    own = Path(next((host.ca for host in machines() if host.ca), "/nonexistent")) / "ca.pem"
    texts = [path.read_text() for path in (bootstrap.ca_bundle(), own) if path and path.is_file()]
    trusted.write_text("\n".join(texts))
    return Client(trusted)


@pytest.fixture(scope="session")
def entrances() -> list[Entrance]:
    """Return where clients enter."""
    return machine.entrances(machines())


@pytest.fixture(scope="session")
def here() -> Machine:
    """Return the host of this run, as the inventory describes it."""
    host = machine.this()
    if host is None:
        raise pytest.UsageError("These tests are of a host of a site: ./run-tests site:INVENTORY")
    return host


@pytest.fixture(scope="session")
def registry() -> str:
    """Return the registry of the inventory, empty if there is none."""
    return next((host.registry for host in machines() if host.registry), "")
