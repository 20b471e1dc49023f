"""A deploy on a site as the release before identities left it, with mirrors and bundles.

The tests cannot build that release: a clone may have no history, and a release is built with the
lock of its time. So a site of today gets the state that the old release left: only push logs
contain identities of repositories, bundles are named by paths, and entries and tokens name their
owners only. Messages of that release are tested in
`testing/integration/replication/test_release_before.py`. The tests are a story, in the order of
this file.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.deploys import as_before
from testing.deploys.releases import second_release, version_of
from testing.deploys.small import small_site
from testing.e2e.command import wait_until
from testing.e2e.mirrors import is_equal, log_of, mirrors_of, wait_for_use

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.cluster.release import Release
    from testing.deploys.site import Site
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = pytest.mark.slow

PUBLIC: Final = "project"
PRIVATE: Final = "people/alice/secret"
EMPTY: Final = "people/alice/empty"
REGISTRY: Final = "/var/lib/hgfleet/dynamic/registry.json"
TOKENS: Final = "/var/lib/hgfleet/dynamic/tokens/tokens.json"
WRITERS: Final = (
    "hgfleet-bundles.timer hgfleet-bundles-pushed.path hgfleet-bundles-withdraw.path "
    "hgfleet-token-sweep.service hgfleet-relay.service"
)
SECONDS: Final = 90

ASK: Final = """
import ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
try:
    print(urllib.request.urlopen(sys.argv[1], context=context).status)
except urllib.error.HTTPError as refused:
    print(refused.code)
"""
"""A request without credentials; prints the status of the answer."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, built: Release) -> Iterator[Site]:
    """Yield a deployed site with two mirrors."""
    with small_site(tmp_path_factory.mktemp("before"), "before", mirrors=True) as site:
        site.deploy("--yes", "--release", str(built.archive)).ok()
        yield site


@pytest.fixture(scope="module")
def service(site: Site) -> Cluster:
    """Return the site as its people have it."""
    return site.service()


@pytest.fixture(scope="module")
def made(service: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Make repositories, pushes, bundles and a token; return the heads by path."""
    alice, folder, heads = service.person("alice"), tmp_path_factory.mktemp("made"), {}
    alice.ssh("repo", "create", PRIVATE, "--read", "private").ok()
    alice.ssh("repo", "create", EMPTY, "--read", "private").ok()
    alice.ssh("token", "create", "before").ok()
    for path in (PUBLIC, PRIVATE):
        work = alice.clone(alice.ssh_url(path), folder / path.replace("/", "-"))
        for number in range(12):
            heads[path] = work.commit(f"file{number}", b"content\n" * 50, "first")
        work.hg("push").ok()
    service.make_bundles(PUBLIC).ok()
    wait_until("a bundle on offer", lambda: service.manifest(PUBLIC), SECONDS)
    for host in mirrors_of(service):
        wait_until(f"{host.name} is equal", partial(is_equal, host), SECONDS)
    return heads


@pytest.fixture(scope="module")
def before(site: Site, service: Cluster, made: Mapping[str, str]) -> Mapping[str, str]:
    """Give the site the state of the release before; return the identities that it had."""
    assert made
    primary = site.first("ssh")
    mirrors = [host.name for host in mirrors_of(service)]
    for name in mirrors:
        site.on(name, "systemctl stop hgfleet-applier.service")
    site.on(primary, f"systemctl stop {WRITERS}")
    program = Path(as_before.__file__).read_text("utf-8")
    script = f"/opt/hgfleet/current/bin/python - <<'PROGRAM'\n{program}\nPROGRAM\n"
    had = {name: json.loads(site.on(name, script)) for name in (primary, *mirrors)}
    for path, own in had[primary].items():
        site.on(site.first("objectstore"), as_before.MOVE.format(own=own, path=path))
    site.on(primary, f"systemctl start {WRITERS}")
    for name in mirrors:
        site.on(name, "systemctl start hgfleet-applier.service")
    assert {PUBLIC, PRIVATE, EMPTY} <= had[primary].keys()
    assert all(had[name] == had[primary] for name in mirrors)
    return dict(had[primary])


@pytest.fixture(scope="module")
def updated(
    site: Site,
    service: Cluster,
    before: Mapping[str, str],
    built: Release,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """Deploy this release on that site; return its version."""
    assert before
    archive = second_release(built.archive, tmp_path_factory.mktemp("releases"), "update")
    site.deploy("--yes", "--no-plan", "--release", str(archive)).ok()
    for host in mirrors_of(service):
        wait_for_use(service, host)
    return version_of(archive)


def status_on(host: Host, url: str) -> int:
    """Return the status of a host's request to itself: its firewall admits no other client."""
    return int(host.run("/opt/hgfleet/current/bin/python", "-c", ASK, url).ok().stdout)


def registry(site: Site) -> Any:
    """Return the registry of the primary."""
    return json.loads(site.on(site.first("ssh"), f"cat {REGISTRY}"))


def test_each_host_has_the_release_and_each_mirror_is_equal(
    site: Site, service: Cluster, updated: str
) -> None:
    assert set(site.releases().values()) == {updated}
    for host in mirrors_of(service):
        wait_until(f"{host.name} is equal", partial(is_equal, host), SECONDS)
        for path in (PUBLIC, PRIVATE):
            assert log_of(host, path) == log_of(service.first("ssh"), path)


@pytest.mark.usefixtures("updated")
def test_repositories_get_the_identities_of_their_push_logs(
    site: Site, service: Cluster, before: Mapping[str, str]
) -> None:
    entries = registry(site)
    given = {path: entry["identity"] for path, entry in entries["repositories"].items()}
    given |= entries["identities"]
    # Nothing identifies the repository without a push log, so it gets another identity.
    for path in (PUBLIC, PRIVATE):
        assert given[path] == before[path]
    for host in (service.first("ssh"), *mirrors_of(service)):
        for path in (PUBLIC, PRIVATE, EMPTY):
            file = f"/srv/hg/repos/{path}/.hg/store/identity"
            wait_until(
                f"{path} has its identity on {host.name}",
                lambda host=host, file=file: host.shell(f"cat {file} || :"),  # type: ignore[misc]
                SECONDS,
            )
            assert host.shell(f"cat {file}").strip() == given[path]


@pytest.mark.usefixtures("updated")
def test_entries_and_tokens_are_bound_to_their_people(site: Site) -> None:
    primary = site.first("ssh")
    site.on(primary, "systemctl reload-or-restart hgfleet-token-sweep")

    def is_bound() -> bool:
        entries = registry(site)["repositories"].values()
        tokens = json.loads(site.on(primary, f"cat {TOKENS}"))
        return all(entry.get("owner_id") for entry in entries) and bool(tokens.get("owner_ids"))

    wait_until("entries and tokens are bound", is_bound, SECONDS)
    said = site.on(primary, "hgfleet owners")
    assert re.search(r"^owners=\d+ others=0$", said, re.MULTILINE), said


@pytest.mark.usefixtures("updated")
def test_a_private_repository_stays_private_on_each_host(
    service: Cluster, made: Mapping[str, str], tmp_path: Path
) -> None:
    for path in (PRIVATE, EMPTY):
        assert service.get(f"{path}?cmd=heads").status in (401, 404)
        for host in mirrors_of(service):
            assert status_on(host, service.url_past_proxy(host, f"{path}?cmd=heads")) in (401, 404)
    alice = service.person("alice")
    clone = alice.clone(alice.ssh_url(PRIVATE), tmp_path / "secret")
    assert clone.heads() == {made[PRIVATE]}


@pytest.mark.usefixtures("updated")
def test_public_bundles_are_taken_over_and_offered_everywhere(
    service: Cluster, before: Mapping[str, str], made: Mapping[str, str], tmp_path: Path
) -> None:
    wait_until("a bundle on offer", lambda: service.manifest(PUBLIC), SECONDS)
    names = {Path(name).name for name in service.manifests()}
    assert f"{before[PUBLIC]}.manifest" in names
    assert f"{PUBLIC}.manifest" not in names
    clone = service.person("bob").clone(service.url(PUBLIC), tmp_path / "clone")
    assert "applying clone bundle from https://" in clone.made.output
    assert clone.heads() == {made[PUBLIC]}


@pytest.mark.usefixtures("updated")
def test_pushes_and_bundles_go_on(service: Cluster, tmp_path: Path) -> None:
    alice = service.person("alice")
    for path in (PUBLIC, PRIVATE):
        work = alice.clone(alice.ssh_url(path), tmp_path / path.replace("/", "-"))
        work.commit("later", b"content\n", "later")
        said = work.hg("push").ok().output
        assert "2/2 mirrors" in said, said
    service.make_bundles(PUBLIC).ok()
    for host in mirrors_of(service):
        wait_until(f"{host.name} is equal", partial(is_equal, host), SECONDS)
