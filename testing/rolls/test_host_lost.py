"""The primary loses its disk: a command restores it on a blank machine, with every push.

Changes after its last backup come back from mirrors, and a revoked token stays revoked.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from controller.cluster import cluster as life
from controller.cluster import images, release, settings
from testing.e2e.command import wait_until
from testing.e2e.mirrors import REPOSITORY, SECONDS, log_of, mirrors_of, wait_for_use
from testing.e2e.people import basic
from testing.faults.mirrors import number_of, pushed, wait_for_equality
from testing.rolls.pushers import Pushers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.host import Host
    from testing.e2e.people import Person

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

PLAYBOOK: Final = "ansible/playbooks/restore-primary.yml"
FROM_BACKUP: Final = "ansible/playbooks/restore.yml"
SITE: Final = "ansible/site.yml"
BACKUP_ALONE: Final = "ansible/playbooks/internal/restored_host.yml"
"""The part of the playbook that restores without the mirrors."""
HG: Final = "runuser -u hg -- /opt/hgfleet/current/bin/hg"
PUSHED: Final = ("e2e/backup", "e2e/push", "e2e/replication", "e2e/sessions")
"""Repositories that alice may push to."""
SECONDS_TO_RESTORE: Final = 600
LAST: Final = 5
"""Number of pushes after the backup."""
PRIVATE: Final = "e2e/private?cmd=heads"
"""The page that alice reads with a token."""

KEYS: Final = "cat /etc/hgfleet/ssh/host_*_key /etc/hgfleet/ssh/host_*.pub | sha256sum"


def replace_by_a_blank_machine(host: Host) -> None:
    """Replace a host's container and its volumes by a new container of the base image."""
    site = settings.load()
    assert site is not None
    hosts = life.read_inventory(site)
    life.remove(site, only=host.name)
    others = [name for name in hosts if name != host.name]
    chosen = {**images.of_containers(site.name, others), "base": images.ensure_base()}
    life.start_containers(site, release.ensure(), hosts, chosen)


def play(cluster: Cluster, book: str, *words: str) -> Result:
    """Run a playbook; the caller checks its result."""
    return cluster.ansible("ansible-playbook", book, *words, seconds=3 * SECONDS_TO_RESTORE)


def refused(done: Result, *words: str) -> str:
    """Return the output of a refused run as a single line, since Ansible breaks lines anywhere."""
    told = " ".join(done.refused().output.split())
    for word in words:
        assert word in told, done
    return told


def made_token(person: Person) -> tuple[str, str]:
    """Make a token; return its id and its secret."""
    said = person.ssh("token", "create", "--days", "1", "lives", "longer").ok().stdout
    match = re.match(r"(hgt_[a-z2-7]{40})\n\nThis is token ([a-z2-7]{8})\.", said)
    assert match, said
    return match[2], match[1]


def statuses(cluster: Cluster, secret: str) -> set[int]:
    """Return the statuses with which the web hosts answer a token of alice, past the proxy."""
    who = basic("alice", secret)
    urls = [cluster.url_past_proxy(host, PRIVATE) for host in cluster.all("web")]
    return {cluster.get(url, headers=who).status for url in urls}


@pytest.fixture
def later(cluster: Cluster) -> Iterator[str]:
    """The path of a repository that a user creates after the backup."""
    path = f"people/bob/later-{uuid.uuid4().hex[:8]}"
    yield path
    host = cluster.first("ssh")
    host.run("hgfleet", "repo", "archive", path)
    host.run("hgfleet", "repo", "purge", "--now", path, path)


def test_the_primary_comes_back_from_backup_and_mirrors_without_the_loss_of_a_push(
    cluster: Cluster, alice: Person, bob: Person, later: str, tmp_path: Path
) -> None:
    primary, *standbys = cluster.all("ssh")
    keys = primary.shell(KEYS)
    kept, revoked = made_token(alice), made_token(alice)
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    pushed(work, uuid.uuid4().bytes)
    primary.systemctl("start", "hgfleet-backup.service").ok()
    # After the backup: pushes that mirrors show, a new repository, and a revoked token.
    acknowledged = {}
    for _ in range(LAST):
        node, said = pushed(work, uuid.uuid4().bytes)
        acknowledged[number_of(said)] = node
    bob.ssh("repo", "create", later).ok()
    made = bob.clone(bob.ssh_url(later), tmp_path / "later")
    created, _ = pushed(made, uuid.uuid4().bytes)
    alice.ssh("token", "revoke", revoked[0]).ok()
    cluster.wait_for_mirrors()
    wait_until("it is refused", lambda: statuses(cluster, revoked[1]) == {401}, SECONDS)
    assert statuses(cluster, kept[1]) == {200}
    log = log_of(standbys[0])
    assert all(node in log for node in acknowledged.values())
    host = ["-e", f"restore_host={primary.name}"]
    living = play(cluster, PLAYBOOK, *host)
    refused(living, f"restore_over={primary.name}", "repositories with changesets", "changed=0")
    pushed(work, uuid.uuid4().bytes)
    log = log_of(standbys[0])
    replace_by_a_blank_machine(primary)
    assert primary.run("test", "-e", "/srv/hg").code == 1
    assert primary.run("test", "-e", "/opt/hgfleet").code == 1

    # A restore from only the backup would lose pushes that mirrors have, so it is refused.
    pushes = f"{min(acknowledged)}-{max(acknowledged) + 1}"
    refused(
        play(cluster, FROM_BACKUP, *host),
        f"{later} is not in the backup, and has 1 pushes",
        f"{REPOSITORY} has pushes {pushes} after the backup",
    )
    assert primary.run("test", "-e", "/var/lib/hgfleet/dynamic/tokens/tokens.json").code == 1
    assert '"begun"' in primary.shell("cat /var/lib/hgfleet-deploy/restore.json")
    begun = time.time()
    done = play(cluster, PLAYBOOK, *host).ok()
    took = time.time() - begun

    print(done.stdout[-2000:])
    back = float(primary.shell("stat -c %.Y /var/lib/hgfleet-replication/epoch.json")) - begun
    print(f"{primary.name} was the primary again after {back:.0f} s, all done after {took:.0f} s")
    assert "Now run ./deploy" in " ".join(done.stdout.split())
    refused(play(cluster, PLAYBOOK, *host), "was finished on")
    for deploy in (False, True):
        if deploy:
            # In the place of ./deploy.
            play(cluster, SITE).ok()
        assert statuses(cluster, revoked[1]) == {401}, "a revoked token works again"
        assert_all_is_back(cluster, keys, log, created, later)
    assert statuses(cluster, kept[1]) == {200}
    # With the former known hosts.
    after, said = pushed(work, uuid.uuid4().bytes)
    assert number_of(said) == max(acknowledged) + 2
    lines = log_of(primary).splitlines()
    assert all(node in lines[number - 1] for number, node in acknowledged.items())
    wait_until("readers see the push", lambda: after in cluster.remote_heads(REPOSITORY), SECONDS)
    pushed(made, uuid.uuid4().bytes)
    alice.ssh("token", "revoke", kept[0]).ok()
    for mirror in mirrors_of(cluster):
        wait_for_use(cluster, mirror)
    wait_for_equality(cluster)
    primary.run("hgfleet", "integrity", "run", "--days", "1").ok()
    assert back <= SECONDS_TO_RESTORE


def assert_all_is_back(cluster: Cluster, keys: str, log: str, created: str, later: str) -> None:
    """Assert that the host has its former state, and the changes after its backup."""
    primary = cluster.first("ssh")
    assert primary.shell(KEYS) == keys, "clients are alarmed by other host keys"
    assert primary.shell("find /var/lib/hgfleet/dynamic/tokens ! -group hgauth") == "", (
        "the sign-in cannot read the tokens"
    )
    assert log_of(primary).splitlines()[: len(log.splitlines())] == log.splitlines()
    assert created in log_of(primary, later)


def repositories(host: Host) -> list[str]:
    """Return the paths of all repositories of a host."""
    listed = host.shell("cd /srv/hg/repos && find . -name .hg -prune -printf '%h\n' | sort")
    return [line.removeprefix("./") for line in listed.splitlines()]


def changesets(host: Host, repository: str) -> set[str]:
    """Return the changesets of a repository, including hidden changesets."""
    told = host.shell(f"{HG} -R /srv/hg/repos/{repository} log --hidden -T '{{node}}\n'")
    return set(told.split())


def test_a_backup_beside_pushes_comes_back_on_a_blank_machine_as_states_that_were(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    """First from the backup only; then the host is restored as an operator does it."""
    primary, standby, *_ = cluster.all("ssh")
    paths = repositories(primary)
    works = [alice.clone(alice.ssh_url(path), tmp_path / path.replace("/", "-")) for path in PUSHED]
    with Pushers(works) as pushers:
        before = {path: log_of(primary, path).splitlines() for path in paths}
        primary.systemctl("start", "hgfleet-backup.service").ok()
        pushers.wait_for_more()
    assert not pushers.failed, pushers.failed
    print(f"{pushers.rate:.1f} pushes/s beside the backup")
    wait_for_equality(cluster)
    # The changesets are read first: a later push of the probes is in the logs, and is subtracted.
    there = {path: changesets(standby, path) for path in paths}
    whole = {path: log_of(standby, path).splitlines() for path in paths}
    replace_by_a_blank_machine(primary)

    words = [BACKUP_ALONE, "-e", f"restore_host={primary.name}"]
    cluster.ansible("ansible-playbook", *words, seconds=3 * SECONDS_TO_RESTORE).ok()

    assert repositories(primary) == paths
    for path in paths:
        lines = log_of(primary, path).splitlines()
        # The restored state is from the start of the backup or later.
        assert lines == whole[path][: len(lines)]
        assert len(lines) >= len(before[path])
        print(f"{path}: {len(before[path])} pushes, {len(lines)} restored, {len(whole[path])} now")
        later = {
            node for line in whole[path][len(lines) :] for node in json.loads(line)["changesets"]
        }
        assert changesets(primary, path) == there[path] - later
    # Verify chain, changesets and heads of each push log, and run hg verify on each repository.
    primary.run("hgfleet", "pushlog", "verify").ok()
    for path in paths:
        primary.shell(f"{HG} -R /srv/hg/repos/{path} verify --quiet")

    words = [PLAYBOOK, "-e", f"restore_host={primary.name}"]
    cluster.ansible("ansible-playbook", *words, seconds=3 * SECONDS_TO_RESTORE).ok()
    # In the place of ./deploy.
    play(cluster, SITE).ok()

    assert all(
        log_of(primary, path).splitlines()[: len(whole[path])] == whole[path] for path in paths
    )
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
    wait_for_equality(cluster)
