"""A key serves Mercurial and nothing else: no shell, no forwarding, no files, no environment.

Hostile requests are in abuse/.
"""

from __future__ import annotations

import re
import socket
import subprocess
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import wait_until
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Person

NO_COMMAND = "is not a command of this service"
NO_REPOSITORY = "There is no repository"


def test_a_login_gets_a_greeting_and_no_shell(bob: Person) -> None:
    said = bob.ssh(stdin="id\ntouch /tmp/owned\nexit 3\n").ok()

    assert "Hello bob" in said.stdout
    assert "without a shell" in said.stdout
    assert "uid=" not in said.output


def test_hg_itself_gets_the_same_answers(bob: Person, tmp_path: Path) -> None:
    place = str(tmp_path / "clone")
    for path in ("/srv/hg/repos/hgfleet", "sandbox/../hgfleet", "hgfleet/.hg"):
        bob.hg("clone", bob.ssh_url(path), place).refused(f"remote: {NO_REPOSITORY}")
    sneaky = "hg --config extensions.x=/tmp/x.py"
    bob.hg("clone", "--remotecmd", sneaky, bob.ssh_url("hgfleet"), place).refused(NO_COMMAND)
    bob.hg("init", bob.ssh_url("sandbox/mine")).refused("Repositories are not made with")


# --- forwarding, terminals, files -------------------------------------------------------------


@contextmanager
def connection(person: Person, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Hold an SSH session in which the server waits for the client: hg serve without input."""
    command = ["ssh", *person.ssh_options, *options, *person.ssh_target]
    command.append("hg -R sandbox/playground serve --stdio")
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=person.environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("hello\n")
            process.stdin.flush()
            length = process.stdout.readline()
            assert length.strip().isdecimal(), f"no hg answers, but: {length!r}"
            yield process
        finally:
            complaints(process)


def complaints(process: subprocess.Popen[str]) -> str:
    """End a session as a client does, and return the messages of ssh.

    Not by a signal: the ssh of Debian 12 may not react before the server's next sign of life.
    """
    assert process.stdin is not None
    assert process.stderr is not None
    if process.stdin.closed:
        return ""
    process.stdin.close()
    said = process.stderr.read()
    pace.wait(process, 20)
    return said


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answer_through(port: int, question: bytes = b"") -> bytes:
    """Connect to a forwarded port and send a question; return the answer, empty if closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        try:
            link.sendall(question)
            return link.recv(1000)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("target", ["ldap1:636", "127.0.0.1:2222", "s3-1:7443"])
def test_no_connection_is_forwarded_to_other_hosts_or_ports(bob: Person, target: str) -> None:
    bob.ssh(options=["-W", target]).refused("administratively prohibited")


def test_a_local_port_leads_nowhere(bob: Person) -> None:
    port = free_port()
    with connection(bob, "-L", f"127.0.0.1:{port}:127.0.0.1:2222") as process:
        said = wait_until("the client listens", lambda: [answer_through(port)], 10)

        assert said == [b""], f"the admin's sshd answers: {said}"
        assert "open failed: " in complaints(process)


def test_a_socks_proxy_leads_nowhere(bob: Person) -> None:
    port = free_port()
    # SOCKS 4: connect to 127.0.0.1:2222. 90 is the answer "granted".
    question = b"\x04\x01" + (2222).to_bytes(2, "big") + b"\x7f\x00\x00\x01" + b"\x00"
    with connection(bob, "-D", f"127.0.0.1:{port}") as process:
        said = wait_until("the client listens", lambda: [answer_through(port, question)], 10)

        assert b"SSH-2.0" not in said[0]
        assert "open failed: " in complaints(process)


@pytest.mark.parametrize("listen", ["0", "127.0.0.1:9999", "/tmp/owned.sock"])
def test_the_server_listens_for_nobody(bob: Person, listen: str) -> None:
    options = ["-o", "ExitOnForwardFailure=yes", "-R", f"{listen}:127.0.0.1:1"]

    bob.ssh("whoami", options=options).refused("remote port forwarding failed")


def test_no_unix_socket_is_forwarded(bob: Person, tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with connection(bob, "-L", f"{place}:/run/dbus/system_bus_socket") as process:

        def ask() -> list[bytes]:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(10)
                link.connect(str(place))
                link.sendall(b"\0AUTH\r\n")
                try:
                    return [link.recv(100)]
                except ConnectionError:
                    return [b""]

        assert wait_until("the client listens", ask, 10) == [b""]
        assert "open failed: " in complaints(process)


def test_no_terminal_is_given(bob: Person) -> None:
    bob.ssh(options=["-tt"]).refused("PTY allocation request failed")


def test_no_x11_is_forwarded(bob: Person) -> None:
    display = {**bob.environment, "DISPLAY": ":99"}
    command = ["ssh", *bob.ssh_options, "-X", *bob.ssh_target, "whoami"]
    done = subprocess.run(command, capture_output=True, text=True, env=display, check=False)

    assert "X11 forwarding request failed" in done.stderr, done


@pytest.mark.parametrize("protocol", ["sftp", "scp", "scp -O"])
def test_no_files_are_transferred(bob: Person, protocol: str, tmp_path: Path) -> None:
    program, *legacy = protocol.split()
    place = tmp_path / "stolen"
    env = bob.cluster.env
    source = f"hg@{env['HGFLEET_SSH_HOST']}:/etc/passwd"
    options = [*bob.ssh_options, "-P", env["HGFLEET_SSH_PORT"]]
    done = pace.run(
        [program, *legacy, *options, source, str(place)],
        30,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=bob.environment,
    )

    assert done.returncode != 0, done
    assert not place.exists()
    expected = NO_COMMAND if legacy else "subsystem request failed|Connection closed"
    assert re.search(expected, done.stderr), done


# --- the environment --------------------------------------------------------------------------

TRICKS = {
    "HGFLEET_USER": "alice",
    "HGFLEET_GROUPS": "maintainers",
    "HGRCPATH": "/tmp/rc",
    "PYTHONPATH": "/tmp",
    "LD_PRELOAD": "/tmp/x.so",
    "SSH_ORIGINAL_COMMAND": "help",
    "LC_ALL": "tr_TR.UTF-8",
}


def set_env(tricks: Sequence[str]) -> list[str]:
    """Return options that send variables. Only the first SetEnv of a command line counts."""
    return ["-o", "SetEnv=" + " ".join(tricks)]


def test_nobody_becomes_somebody_else_by_the_environment(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    tricks = set_env([f"{name}={value}" for name, value in TRICKS.items()])
    before = cluster.remote_heads("hgfleet")

    assert "name:      bob" in bob.ssh("whoami", options=tricks).ok().stdout

    work = bob.clone(bob.ssh_url("hgfleet"), tmp_path / "work")
    work.commit("sneak.txt", uuid.uuid4().bytes, "sneak in")
    sneaky = " ".join(["ssh", *bob.ssh_options, *set_env(["HGFLEET_USER=alice"])])
    work.hg("push", "--ssh", sneaky).refused("bob may not push to hgfleet")
    assert cluster.remote_heads("hgfleet") == before


def test_a_session_has_neither_an_agent_nor_variables_of_the_client(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    host = cluster.first("ssh")
    agent = tmp_path / "agent"
    mark = uuid.uuid4().hex
    options = ["-A", "-o", f"IdentityAgent={agent}", *set_env([f"LC_MARK={mark}"])]
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(agent)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_until("the agent listens", agent.exists, 10)
            with connection(bob, *options):
                shown = host.shell(
                    "for p in $(pgrep -u hg -f 'hgfleet-shell --user bob'); do"
                    " echo process; tr '\\0' '\\n' </proc/$p/environ || :; done"
                )
        finally:
            process.terminate()
            pace.wait(process, 10)
    assert "process" in shown, "no session of bob was found on the host"
    assert "SSH_ORIGINAL_COMMAND=hg -R sandbox/playground" in shown
    assert "SSH_AUTH_SOCK" not in shown
    assert mark not in shown
