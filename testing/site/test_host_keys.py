"""Clients meet the SSH service of the host itself, and it lets no stranger in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.e2e.command import run
from testing.e2e.people import DENIED

if TYPE_CHECKING:
    from pathlib import Path

    from testinfra.host import Host

    from testing.site.machine import Machine

KEYS = "/etc/hgfleet/ssh/known_hosts"


def published(host: Host) -> set[str]:
    """Return type and key of each host key that the host publishes."""
    lines = host.file(KEYS).content_string.splitlines()
    return {" ".join(line.split()[1:3]) for line in lines}


def test_clients_meet_the_host_keys_that_are_published(host: Host, here: Machine) -> None:
    words = ["ssh-keyscan", "-T", "10", "-t", "ed25519,rsa", "-p", str(here.ssh_port)]
    met = run([*words, here.address]).ok().stdout.splitlines()
    offered = {" ".join(line.split()[1:3]) for line in met if not line.startswith("#")}
    assert {line.split()[0] for line in offered} == {"ssh-ed25519", "ssh-rsa"}
    # During a rotation, the host publishes keys before it uses them.
    assert offered <= published(host)


def test_a_stranger_is_asked_for_a_key_and_refused(
    host: Host, here: Machine, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    port = here.ssh_port
    name = here.address if port == 22 else f"[{here.address}]:{port}"
    known.write_text("".join(f"{name} {key}\n" for key in published(host)))
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]).ok()
    words = ["ssh", "-F", "none", "-i", str(tmp_path / "key"), "-p", str(port)]
    for option in (
        *("IdentitiesOnly=yes", "IdentityAgent=none", "BatchMode=yes", "ConnectTimeout=10"),
        *("GlobalKnownHostsFile=/dev/null", f"UserKnownHostsFile={known}"),
    ):
        words += ["-o", option]
    run([*words, f"hg@{here.address}", "whoami"]).refused(DENIED)
