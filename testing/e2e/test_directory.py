"""People are looked up in the replica of their host, which is as new as the provider.

That a change counts at the next login is in `test_person.py`; who gets in while the provider or a
replica is away or wrong is in `testing/faults/test_fault_directory.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

SECONDS: Final = 2.0
"""Time within which a change of the provider reaches a replica."""


def newest_change(host: Host, suffix: str) -> list[str]:
    """Return the newest change in the directory of a host, as root sees it."""
    words = ("ldapsearch", "-Q", "-LLL", "-o", "ldif-wrap=no", "-Y", "EXTERNAL")
    told = host.run(*words, "-H", "ldapi:///", "-b", suffix, "-s", "base", "contextCSN").ok()
    return [line for line in told.stdout.splitlines() if line.startswith("contextCSN: ")]


def sources(host: Host, cursor: str) -> set[str]:
    """Return the servers from which the key lookup got its answers."""
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    words = (word for line in lines for word in line.split())
    return {word.removeprefix("source=") for word in words if word.startswith("source=")}


def test_both_have_the_same_newest_change_and_people_are_looked_up_on_their_host(
    cluster: Cluster, alice: Person
) -> None:
    suffix, replica = cluster.env["HGFLEET_LDAP_BASE"], cluster.first("ssh")
    newest = newest_change(cluster.first("directory"), suffix)
    assert newest
    wait_until("the replica is as new", lambda: newest_change(replica, suffix) == newest, SECONDS)
    cursor = replica.journal_cursor()
    alice.ssh("whoami").ok()
    (source,) = sources(replica, cursor)
    assert source.startswith("ldapi://")
