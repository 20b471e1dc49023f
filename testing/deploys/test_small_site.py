"""The site of production-small.example, deployed by an operator on blank machines.

The tests are a story, in the order of this file: each begins with the site as the test before left
it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from testing.deploys.releases import second_release, version_of
from testing.deploys.site import SECONDS_FOR_A_DEPLOY
from testing.e2e.command import wait_until
from testing.support import pace

if TYPE_CHECKING:
    from pathlib import Path

    from controller.cluster.release import Release
    from testing.deploys.site import Site
    from testing.e2e.command import Result

pytestmark = pytest.mark.slow

RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s", re.MULTILINE)
SECONDS_FOR_A_LOST_CONNECTION = 600


@pytest.fixture(scope="module")
def first_deploy(small: Site, built: Release) -> Result:
    """Deploy the blank machines."""
    return small.deploy("--yes", "--release", str(built.archive))


@pytest.fixture
def site(small: Site, first_deploy: Result) -> Site:
    """Return the deployed site."""
    first_deploy.ok()
    return small


@pytest.fixture(scope="module")
def upgrade(built: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of a second release."""
    return second_release(built.archive, tmp_path_factory.mktemp("releases"), "upgrade")


def unchanged(output: str, hosts: list[str]) -> None:
    """Check, by the output of a run, that it reached these hosts and changed none of them."""
    changed = {host: int(number) for host, number in RECAP.findall(output)}
    assert {host: changed.get(host) for host in hosts} == dict.fromkeys(hosts, 0), output[-4000:]


def test_blank_machines_become_a_working_site(
    small: Site, first_deploy: Result, built: Release, tmp_path: Path
) -> None:
    assert f"{built.version} is in effect on" in first_deploy.ok().stdout
    assert set(small.releases().values()) == {built.version}

    service = small.service()
    alice = service.person("alice")
    work = alice.clone(alice.ssh_url("project"), tmp_path / "work")
    pushed = [work.commit(f"file{number}", b"content\n" * 50, "first") for number in range(12)]
    work.hg("push").ok()
    service.make_bundles("project").ok()
    # Through the proxy: the firewall of the web host lets no other client in.
    wait_until("a bundle on offer", lambda: service.manifest("project"), 60)
    bob = service.person("bob")
    clone = bob.clone(service.url("project"), tmp_path / "clone")
    assert "applying clone bundle from https://" in clone.made.output
    assert clone.heads() == {pushed[-1]}


def test_the_deployed_site_is_what_its_inventory_says(site: Site) -> None:
    """The test before has pushed and made a bundle, so clients have something to clone."""
    site.verify().ok()


def test_a_run_by_hand_with_nothing_exported_agrees(site: Site, built: Release) -> None:
    # Ansible is slow without the accelerator, so this is the host with the fewest tasks.
    host = site.first("proxy")
    dry = ("--check", "--diff", "--limit", f"{host},localhost")
    done = site.play("ansible/site.yml", *dry).ok()
    unchanged(done.stdout, [host])
    assert not re.findall(r"^(?:---|\+\+\+|@@) ", done.stdout, re.MULTILINE)
    assert site.releases()[host] == built.version


def test_a_person_and_a_repository_are_added_and_no_service_restarts(
    site: Site, tmp_path: Path
) -> None:
    before = site.services()
    site.add_person("carol", "developers")
    site.add_repository("team/website")
    done = site.deploy("--yes", "--only", "people,registry").ok()
    assert "these files differ: group_vars/all/directory.yml, registry.yml." in done.stderr
    assert "people and registry: changed" in done.stdout
    assert site.services() == before
    carol = site.service().person("carol")
    work = carol.clone(carol.ssh_url("team/website"), tmp_path / "work")
    work.commit("index", b"hello\n", "first")
    work.hg("push").ok()


def test_a_second_deploy_finds_nothing_to_change(site: Site, built: Release) -> None:
    # The run before covered two parts; this run of all parts finds nothing else to change.
    before = site.services()
    done = site.deploy("--yes", "--release", str(built.archive)).ok()
    assert "Plan: nothing to change." in done.stderr
    unchanged(done.stdout, site.hosts)
    assert site.services() == before


def test_the_last_change_is_taken_back_with_its_person_and_repository(site: Site) -> None:
    site.deploy("--yes", "--rollback").ok()
    carol = site.service().person("carol")
    wait_until("carol is no user", lambda: carol.ssh("whoami").code != 0, 60)
    alice = site.service().person("alice")
    alice.ssh("whoami").ok()
    alice.hg("identify", alice.ssh_url("team/website")).refused("There is no repository")


def test_a_host_that_is_away_is_named_and_nothing_is_touched(site: Site, upgrade: Path) -> None:
    away = site.first("objectstore")
    with site.paused(away):
        done = site.deploy("--yes", "--release", str(upgrade))
    done.refused(f"| {away}: ", "Nothing was changed.", "left out: --limit 'all:!HOST'")
    assert "PLAY [" not in done.stdout
    assert version_of(upgrade) not in site.releases().values()


def test_a_killed_controller_leaves_a_site_that_the_next_run_finishes(
    site: Site, upgrade: Path, tmp_path: Path
) -> None:
    version = version_of(upgrade)
    killed = site.deploying("--yes", "--no-plan", "--release", str(upgrade))
    proxy = site.first("proxy")
    try:
        wait_until(
            "the release on one host",
            lambda: killed.poll() is not None or site.releases()[proxy] == version,
            SECONDS_FOR_A_DEPLOY,
        )
        assert killed.poll() is None, killed.communicate()[0][-4000:]
    finally:
        site.kill_run(killed)

    done = site.deploy("--yes", "--release", str(upgrade)).ok()
    assert f"To go back: ./deploy {site.inventory} --rollback" in done.stdout
    assert set(site.releases().values()) == {version}
    alice = site.service().person("alice")
    work = alice.clone(alice.ssh_url("team/tools"), tmp_path / "work")
    work.commit("file", b"content\n", "after the upgrade")
    work.hg("push").ok()


def test_a_restart_that_a_killed_run_still_owed_is_made(site: Site, upgrade: Path) -> None:
    """Where its files are already right, a killed run leaves only this mark."""
    host, order = site.first("web"), "systemctl show --value --property=MainPID "
    workers, nginx = order + "hgfleet-web.service", order + "nginx.service"
    before = site.on(host, workers), site.on(host, nginx)
    site.on(host, "touch /etc/hgfleet/unfinished")

    done = site.deploy("--yes", "--release", str(upgrade)).ok()
    assert f"an earlier run broke off on {host}" in done.stderr
    assert site.on(host, workers) != before[0]
    assert site.on(host, nginx) == before[1], "nginx reads its files without a restart"
    assert not site.on(host, "ls /etc/hgfleet/unfinished 2>/dev/null || :")


def test_a_rollback_is_one_command(site: Site, built: Release, tmp_path: Path) -> None:
    site.deploy("--yes", "--rollback", built.version).ok()
    assert set(site.releases().values()) == {built.version}
    service = site.service()
    bob = service.person("bob")
    assert bob.clone(service.url("project"), tmp_path / "clone").heads()


def test_a_lost_connection_ends_the_run_and_the_next_one_finishes(
    site: Site, upgrade: Path, tmp_path: Path
) -> None:
    """The connection breaks as on a broken route: no packet tells of its end."""
    version, lost = version_of(upgrade), site.first("ssh")
    run = site.deploying("--yes", "--no-plan", "--release", str(upgrade))
    try:
        wait_until(
            f"{lost} is being changed",
            lambda: run.poll() is not None or site.releases()[lost] == version,
            SECONDS_FOR_A_DEPLOY,
        )
        assert run.poll() is None, run.communicate()[0][-4000:]
        with site.cut_off(lost):
            told = pace.communicate(run, SECONDS_FOR_A_LOST_CONNECTION)[0]
    finally:
        site.kill_run(run)
    assert run.returncode == 1, told
    assert f"{lost} failed: " in told, told

    site.deploy("--yes", "--release", str(upgrade)).ok()
    assert set(site.releases().values()) == {version}
    assert "at work" not in site.deploy("--log").ok().stdout
    alice = site.service().person("alice")
    work = alice.clone(alice.ssh_url("project"), tmp_path / "work")
    work.commit("file", b"content\n", "after a lost connection")
    work.hg("push").ok()
