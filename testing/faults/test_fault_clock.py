"""Wrong clocks on the SSH host: either they do not matter for a login, or it is refused.

Containers share the machine's clock, so libfaketime, from the client host with the same Debian,
gives a program another time. It runs the real lookup against the real servers, as its real user.
The decisions are in `testing/unit/directory/test_sync_check.py` and
`testing/unit/ssh/test_certificate.py`.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import Result, run, wait_until
from testing.e2e.people import Directory, Person, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = pytest.mark.whole

FOLDER: Final = "/var/tmp/hgfleet-faults"
KEYS: Final = "/opt/hgfleet/current/bin/hgfleet-keys"
SKEWS: Final = ["-1d", "-1h", "+1h", "+1d", "+10y"]


@pytest.fixture(scope="module")
def host(cluster: Cluster, client_host: Host) -> Iterator[Host]:
    """The SSH host, with the library that tells programs another time."""
    primary = cluster.first("ssh")
    library = client_host.shell("ls /usr/lib/*/faketime/libfaketime.so.1").strip()
    primary.shell(f"install -d -m 755 {FOLDER}")
    read = ["docker", "exec", client_host.container, "cat", library]
    content = subprocess.run(read, capture_output=True, check=True).stdout
    write = ["docker", "exec", "--interactive", primary.container, "sh", "-ec"]
    write.append(f"cat >{FOLDER}/libfaketime.so.1; chmod 644 {FOLDER}/libfaketime.so.1")
    subprocess.run(write, input=content, check=True)
    yield primary
    primary.shell(f"rm -r {FOLDER}")


def at(host: Host, skew: str, *command: str, user: str = "root") -> Result:
    """Run a command with a wrong clock."""
    fake = [f"LD_PRELOAD={FOLDER}/libfaketime.so.1", f"FAKETIME={skew}"]
    return host.run("runuser", "-u", user, "--", "env", *fake, *command)


def lookup(host: Host, skew: str, person: Person) -> str:
    """Return the lookup's answer to sshd about a person's key."""
    kind, blob = person.key.with_suffix(".pub").read_text().split()[:2]
    words = [KEYS, fingerprint(person.key), kind, blob]
    return at(host, skew, *words, user="hgkeys").ok().stdout


def test_the_clock_is_wrong_for_what_is_asked(host: Host) -> None:
    now = int(host.shell("date +%s"))

    ahead = int(at(host, "+10y", "date", "+%s").ok().stdout)

    assert ahead - now > 9 * 365 * 86400


@pytest.mark.parametrize("skew", SKEWS)
def test_the_replica_answers_whatever_the_clock_says(
    cluster: Cluster, host: Host, skew: str
) -> None:
    assert "--user alice " in lookup(host, skew, cluster.person("alice"))
    assert lookup(host, skew, cluster.person("mallory")) == ""


@pytest.mark.parametrize("skew", ["-10y", "+10y"])
def test_a_provider_is_not_believed_beyond_the_time_of_its_certificate(
    host: Host, skew: str
) -> None:
    said = at(host, skew, KEYS, "--probe", user="hgkeys")

    replica, provider = said.ok().stdout.splitlines()
    assert replica.startswith("ldapi://")
    assert " answers " in replica
    assert provider.startswith("ldaps://")
    assert "certificate" in provider.lower()


def test_a_host_whose_clock_is_behind_is_alarmed_not_one_that_is_ahead(
    host: Host, carols_entry: Directory
) -> None:
    identity, key = carols_entry.keys().popitem()
    carols_entry.change("delete", identity, key)
    carols_entry.change("add", identity, key)
    status = ["hgfleet", "replica", "status"]
    wait_until("the replica has what was changed just now", lambda: host.run(*status).ok())

    assert "from the future" in at(host, "-2m", *status).refused().output
    assert "every change" in at(host, "+1h", *status).ok().output


def certificate(cluster: Cluster, folder: Path) -> list[str]:
    """Return %t and %k of a certificate for alice that is valid for an hour."""
    (folder / "key.pub").write_bytes(cluster.person("alice").key.with_suffix(".pub").read_bytes())
    words = ["ssh-keygen", "-q", "-s", str(cluster.person("user-ca").key), "-I", "of an hour"]
    run([*words, "-n", "alice", "-V", "-1m:+1h", str(folder / "key.pub")]).ok()
    return (folder / "key-cert.pub").read_text().split()[:2]


def test_a_certificate_counts_within_its_time_only(
    cluster: Cluster, host: Host, tmp_path: Path
) -> None:
    words = [KEYS, "--principals", *certificate(cluster, tmp_path)]

    assert "--user alice " in at(host, "+0", *words, user="hgkeys").ok().stdout
    assert at(host, "+1d", *words, user="hgkeys").ok().stdout == ""
    assert at(host, "-1d", *words, user="hgkeys").ok().stdout == ""
