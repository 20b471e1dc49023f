"""The small site with two mirrors, on blank machines over SSH.

The tests are a story, in the order of this file.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from testing.deploys.releases import second_release, version_of
from testing.deploys.site import SECONDS_FOR_A_DEPLOY
from testing.e2e.cluster import Cluster
from testing.e2e.command import wait_until
from testing.e2e.mirrors import is_equal, mirrors_of, wait_for_use
from testing.rolls.clients import Clients
from testing.support import pace

if TYPE_CHECKING:
    from pathlib import Path

    from controller.cluster.release import Release
    from testing.deploys.site import Site

pytestmark = pytest.mark.slow

REPOSITORY: Final = "project"
HELD_SECONDS: Final = 5.0


@pytest.fixture(scope="module")
def site(mirrored: Site, built: Release) -> Site:
    """Deploy the blank machines."""
    mirrored.deploy("--yes", "--release", str(built.archive)).ok()
    return mirrored


@pytest.fixture(scope="module")
def service(site: Site) -> Cluster:
    """Return the site as its people have it."""
    return site.service()


@pytest.fixture(scope="module")
def upgrade(built: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of a second release."""
    return second_release(built.archive, tmp_path_factory.mktemp("releases"), "upgrade")


def require_whole(site: Site, service: Cluster, version: str) -> None:
    """Check that each host has the release, none is drained, mirrors are equal, no lock is held."""
    assert set(site.releases().values()) == {version}
    for host in mirrors_of(service):
        wait_for_use(service, host)
        wait_until(f"{host.name} is equal", partial(is_equal, host), 90)
        assert not host.shell("ls /etc/hgfleet/web.drain 2>/dev/null || :")
    assert "at work" not in site.deploy("--log").ok().stdout


def test_blank_machines_become_a_site_with_mirrors(
    site: Site, service: Cluster, built: Release, tmp_path: Path
) -> None:
    alice, bob = service.person("alice"), service.person("bob")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    node = work.commit("file", b"content\n", "first")
    work.hg("push").ok()
    for host in mirrors_of(service):
        wait_until(f"{host.name} has the push", partial(is_equal, host), 90)
    assert bob.clone(service.url(REPOSITORY), tmp_path / "clone").heads() == {node}
    require_whole(site, service, built.version)


def test_the_deployed_site_is_what_its_inventory_says(site: Site) -> None:
    site.verify().ok()


def test_clients_do_not_notice_a_release_on_all_hosts(
    site: Site, service: Cluster, upgrade: Path, tmp_path: Path
) -> None:
    with Clients(service, tmp_path, REPOSITORY) as clients:
        clients.wait_for_more()
        done = site.deploy("--yes", "--no-plan", "--release", str(upgrade)).ok()
        clients.wait_for_more()
    print(clients.said, done.stdout[-2000:], sep="\n")
    assert not clients.failed, "\n".join(clients.failed)
    primary = site.first("ssh")
    held = re.search(rf"^{re.escape(primary)} .* (\d+\.\d+) s$", done.stdout, re.MULTILINE)
    assert held, done
    assert float(held[1]) <= HELD_SECONDS
    require_whole(site, service, version_of(upgrade))


def test_clients_do_not_notice_that_mirrors_restart_for_debian(
    site: Site, service: Cluster, upgrade: Path, tmp_path: Path
) -> None:
    mirrors = [host.name for host in mirrors_of(service)]
    for name in mirrors:
        site.require_restart(name)
    before = {host: site.booted_at(host) for host in site.hosts}
    with Clients(service, tmp_path, REPOSITORY) as clients:
        clients.wait_for_more()
        done = site.deploy("--yes", "--upgrade-os", "--limit", ",".join(mirrors)).ok()
        clients.wait_for_more()
    print(clients.said, done.stdout[-2000:], sep="\n")
    assert not clients.failed, "\n".join(clients.failed)
    after = {host: site.booted_at(host) for host in site.hosts}
    assert {host for host in site.hosts if after[host] != before[host]} == set(mirrors)
    require_whole(site, service, version_of(upgrade))
    dry = site.deploy("--upgrade-os", "--check", "--limit", ",".join(mirrors)).ok()
    assert "no package waits, and no host has to restart" in dry.stderr


def test_clients_who_trust_both_do_not_notice_a_new_ca(
    site: Site, service: Cluster, upgrade: Path, tmp_path: Path
) -> None:
    folder, trusted, hgrc = site.folder / "ca", tmp_path / "trusted.pem", tmp_path / "hgrc"
    former = (folder / "ca.pem").read_text()
    trusted.write_text(former)
    hgrc.write_text(f"[web]\ncacerts = {trusted}\n")
    own = {"HGFLEET_CA_CERT": str(trusted), "HGFLEET_HGRC": str(hgrc)}
    with Clients(Cluster({**service.env, **own}), tmp_path, REPOSITORY) as clients:
        for step in ("begin", "take the place", "leave"):
            site.play("ansible/playbooks/ca.yml").ok()
            if step == "begin":
                trusted.write_text(former + (folder / "next/ca.pem").read_text())
            site.deploy("--yes", "--no-plan", "--release", str(upgrade)).ok()
        new = (folder / "ca.pem").read_text()
        trusted.write_text(new)
        clients.wait_for_more()
    print(clients.said)
    assert not clients.failed, "\n".join(clients.failed)
    assert new != former
    assert {site.on(host, "cat /etc/hgfleet/tls/ca.pem") for host in site.hosts} == {new}
    require_whole(site, service, version_of(upgrade))


def test_a_mirror_that_dies_while_it_is_changed_is_named_and_the_next_run_goes_on(
    site: Site, service: Cluster, built: Release, upgrade: Path, tmp_path: Path
) -> None:
    dying = mirrors_of(service)[1]
    with Clients(service, tmp_path, REPOSITORY) as clients:
        run = site.deploying("--yes", "--no-plan", "--release", str(built.archive))
        try:
            wait_until(
                f"{dying.name} is being changed",
                lambda: run.poll() is not None or site.releases()[dying.name] == built.version,
                SECONDS_FOR_A_DEPLOY,
            )
        finally:
            site.kill(dying.name)
            told = pace.communicate(run, SECONDS_FOR_A_DEPLOY)[0]
        clients.wait_for_more()
    assert run.returncode == 1, told
    assert f"{dying.name} failed: " in told, told
    assert f"{dying.name} could not be drained: " in told, told
    assert not clients.failed, "\n".join(clients.failed)
    primary = site.first("ssh")
    assert site.on(primary, "basename $(readlink /opt/hgfleet/current)").strip() == version_of(
        upgrade
    )

    site.boot(dying.name)
    site.deploy("--yes", "--no-plan", "--release", str(built.archive)).ok()
    require_whole(site, service, built.version)


def test_a_dead_proxy_does_not_block_a_mirror(site: Site, service: Cluster, upgrade: Path) -> None:
    mirror, proxy = mirrors_of(service)[0], site.first("proxy")
    with site.paused(proxy):
        words = ("--yes", "--no-plan", "--release", str(upgrade), "--limit", mirror.name)
        done = site.deploy(*words).ok()
    assert f"no answer from {proxy}: met from {mirror.name}" in done.stderr
    assert site.releases()[mirror.name] == version_of(upgrade)


def test_a_mirror_is_not_left_drained_because_the_primary_is_dead(
    site: Site, service: Cluster, built: Release
) -> None:
    """The mirror restarts, and catches up when the primary is back."""
    mirror, primary = mirrors_of(service)[0], site.first("ssh")
    with site.paused(primary):
        words = ("--yes", "--no-plan", "--release", str(built.archive), "--limit", mirror.name)
        done = site.deploy(*words)
        assert done.code == 1, done
        assert f"no answer from the primary {primary}: compared with " in done.stderr
        assert "stay drained" not in done.stderr
        assert not mirror.shell("ls /etc/hgfleet/web.drain 2>/dev/null || :")
    wait_for_use(service, mirror)


def test_a_controller_that_alone_is_killed_takes_its_ansible_along(
    site: Site, service: Cluster, upgrade: Path
) -> None:
    changed = mirrors_of(service)[1].name
    run = site.deploying("--yes", "--no-plan", "--release", str(upgrade))
    try:
        wait_until(
            f"{changed} is being changed",
            lambda: run.poll() is not None or site.releases()[changed] == version_of(upgrade),
            SECONDS_FOR_A_DEPLOY,
        )
        assert run.poll() is None, run.communicate()[0][-4000:]
    finally:
        run.kill()
        pace.communicate(run, SECONDS_FOR_A_DEPLOY)
    # It waits for the Ansible of the run that was killed.
    site.deploy("--yes", "--no-plan", "--release", str(upgrade)).ok()
    require_whole(site, service, version_of(upgrade))
