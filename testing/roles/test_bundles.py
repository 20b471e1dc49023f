"""The promises of the role bundles, on any host that makes clone bundles.

The test of a whole run uses the host's store, credentials and user, but its own repository,
registry and manifests. It leaves nothing in the bucket.
"""

from __future__ import annotations

import json
import tomllib
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Read, Registry, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

    from testing.conftest import WaitFor

SERVICE = "hgfleet-bundles.service"
TIMER = "hgfleet-bundles.timer"
PUSHED = "hgfleet-bundles-pushed"
WITHDRAW = "hgfleet-bundles-withdraw"
SPOOL = "/var/lib/hgfleet/pushed"
OPEN = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).headers)"
HG = "/opt/hgfleet/current/bin/hg"


@pytest.fixture(scope="module")
def settings(host: Host) -> dict[str, Any]:
    """The settings of the host's jobs."""
    return tomllib.loads(host.file("/etc/hgfleet/bundles.toml").content_string)


def stores(settings: dict[str, Any], *, private: bool = False) -> list[dict[str, Any]]:
    return [store for store in settings["store"] if store["private"] is private]


@pytest.fixture(scope="module")
def secrets(settings: dict[str, Any]) -> list[str]:
    """The names of all credentials."""
    return [
        f"{store['name']}-{what}"
        for store in settings["store"]
        for what in ("access-key-id", "secret-access-key")
    ]


def journal(host: Host) -> str:
    return str(host.run("journalctl -u %s -n 40 -o cat --no-pager", SERVICE).stdout)


def test_timer_runs_and_starts_with_the_host(host: Host) -> None:
    timer = host.service(TIMER)
    assert timer.is_enabled
    assert timer.is_running
    assert host.check_output("systemctl show -P NextElapseUSecRealtime %s", TIMER)


@pytest.mark.changes
def test_a_run_succeeds_and_leaves_no_failed_unit(host: Host) -> None:
    # The run is for the host's own repositories, so it makes only the bundles that are due.
    assert host.run("systemctl start %s", SERVICE).rc == 0, journal(host)
    assert "event=bundles.done" in journal(host)
    assert " failed=0" in journal(host)
    # Read by the metrics, which may not read manifests.
    read = "runuser -u nobody -- cat /var/lib/hgfleet-bundles/last-run.json"
    figures = json.loads(host.check_output(read))
    assert figures["failed"] == 0
    assert figures["ended"] >= figures["started"] > 0


def test_everything_published_can_be_downloaded(host: Host) -> None:
    status = host.run("hgfleet bundles status")
    assert status.rc == 0, status.stdout
    assert "DEAD" not in status.stdout


def test_changes_of_readers_are_looked_for_and_after_each_boot(host: Host) -> None:
    path = host.service(f"{WITHDRAW}.path")
    assert path.is_enabled
    assert path.is_running
    watched = host.check_output("systemctl show -P Paths %s", f"{WITHDRAW}.path")
    for file in ("/var/lib/hgfleet/dynamic/registry.json", "/var/lib/hgfleet/registry.json"):
        assert f"{file} (PathChanged)" in watched


def test_pushes_are_looked_for_and_after_each_boot(host: Host) -> None:
    path = host.service(f"{PUSHED}.path")
    assert path.is_enabled
    assert path.is_running
    folder = host.file(SPOOL)
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o2770)


@pytest.mark.changes
def test_a_marker_starts_a_run_that_takes_it(host: Host, wait_for: WaitFor) -> None:
    # A marker of an unknown repository, for which there is nothing to do.
    host.check_output("runuser -u hg -- touch %s/hgfleet-test+gone", SPOOL)
    wait_for("the marker is gone", lambda: host.check_output("ls %s", SPOOL) == "", 60)
    wait_for(
        "the run ends well",
        lambda: host.check_output("systemctl show -P ActiveState %s", PUSHED) == "inactive",
        60,
    )
    assert host.service(f"{PUSHED}.path").is_running


@pytest.mark.parametrize("service", [SERVICE, f"{PUSHED}.service", f"{WITHDRAW}.service"])
def test_job_is_sandboxed_and_comes_last(host: Host, service: str) -> None:
    shown = host.check_output("systemctl show %s", service)
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    assert values["User"] == "hgbundles"
    assert values["Nice"] == "10"
    assert int(values["CPUWeight"]) < 100
    assert values["ProtectSystem"] == "strict"
    exposure = host.check_output("systemd-analyze security --no-pager %s", service).splitlines()[-1]
    assert float(exposure.split()[-3]) < 2, exposure


def test_job_cannot_write_repositories(host: Host) -> None:
    done = host.run("runuser -u hgbundles -- find /srv/hg/repos -writable ! -type l")
    assert done.stdout == ""


def test_credentials_are_closed_and_in_no_list_of_processes(host: Host, secrets: list[str]) -> None:
    for name in secrets:
        file = host.file(f"/etc/hgfleet/secrets/bundles-{name}")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
        if name.endswith("secret-access-key"):
            secret = file.content_string.strip()
            assert secret not in host.check_output("systemctl show %s", SERVICE)
            assert secret not in host.file("/etc/hgfleet/bundles.toml").content_string


def test_there_are_no_credentials_of_stores_that_are_gone(host: Host, secrets: list[str]) -> None:
    names = host.check_output("ls /etc/hgfleet/secrets").split()
    ours = [name.removeprefix("bundles-") for name in names if name.startswith("bundles-")]
    assert sorted(ours) == sorted(secrets)


def test_everybody_can_open_the_page_of_each_store(host: Host, settings: dict[str, Any]) -> None:
    # The run of an earlier test made the pages.
    for store in stores(settings):
        for name, kind in (("index.html", "text/html"), ("bundles.json", "application/json")):
            asked = f"{store['public_url']}/{name}"
            headers = host.check_output("/opt/hgfleet/current/bin/python -c %s %s", OPEN, asked)
            assert f"content-type: {kind}" in headers.lower()
            assert "max-age=300" in headers


def test_scratch_folder_in_ram_is_gone_with_the_run(host: Host, settings: dict[str, Any]) -> None:
    assert settings["scratch_ram_size"] > 0
    shown = host.check_output("systemctl show -P TemporaryFileSystem %s", SERVICE)
    assert f"size={settings['scratch_ram_size'] // 1024**2}M" in shown
    assert host.run("findmnt /run/hgfleet-bundles").rc != 0


def test_settings_are_fine_for_the_installed_release(host: Host) -> None:
    assert host.run("hgfleet bundles check").rc == 0


def test_without_credentials_a_run_says_how_to_start_one(host: Host) -> None:
    done = host.run("runuser -u hgbundles -- hgfleet bundles run")
    assert done.rc == 78
    assert "systemctl start hgfleet-bundles.service" in done.stderr


class Trial:
    """A repository of the test, with the host's store."""

    def __init__(self, host: Host, settings: dict[str, Any], secrets: list[str]) -> None:
        self.host, self.secrets = host, secrets
        self.path = f"hgfleet-test/{uuid.uuid4()}"
        self.root = host.check_output("mktemp -d /var/tmp/hgfleet-test.XXXXXX")
        self.repository = f"{self.root}/repos/{self.path}"
        self.identity = uuid.uuid4().hex
        self.manifest = f"{self.root}/manifests/{self.identity}.manifest"
        self.settings = settings
        host.check_output(f"mkdir -p {self.root}/manifests {self.root}/scratch {self.root}/dynamic")
        host.check_output(f"mkdir -p {self.repository}")
        host.check_output(f"chown -R hgbundles: {self.root}")
        self.hg(f"init {self.repository}")
        self.write("dynamic/registry.json", json.dumps(self.dynamic()))
        self.host.check_output(
            "printf %%s %s > %s", f"{self.identity}\n", f"{self.repository}/.hg/store/identity"
        )

    def dynamic(self) -> dict[str, Any]:
        """Return the dynamic registry, with the identity of the repository."""
        return {"format": 1, "repositories": {}, "identities": {self.path: self.identity}}

    def write(self, name: str, text: str) -> None:
        """Write a file below the folder of the trial."""
        self.host.check_output("printf %%s %s > %s", text, f"{self.root}/{name}")

    def hg(self, arguments: str, hgrc: str = "") -> str:
        output: str = self.host.check_output(
            f"cd / && runuser -u hgbundles -- env HGRCPATH={hgrc} HGUSER=test {HG} {arguments}"
        )
        return output

    def commit(self, count: int) -> None:
        for number in range(count):
            self.hg(
                f"--cwd {self.repository} --config ui.allowemptycommit=yes commit -m {number}"
                f" --config extensions.x=! -d '{number} 0'"
            )

    def run(
        self, *, kinds: tuple[str, ...], retention: float = 7, read: Read = "public"
    ) -> CommandResult:
        repository = Repository(self.path, "a test", read, (), publishing=True, bundles=kinds)
        registry = dump_compiled(Registry({self.path: repository}))
        lines = [
            f"{name} = {json.dumps(f'{self.root}/{folder}')}"
            for name, folder in (
                ("registry", "registry.json"),
                ("dynamic", "dynamic/registry.json"),
                ("repositories", "repos"),
                ("manifests", "manifests"),
                ("scratch", "scratch"),
                ("pull_bundles", "pullbundles"),
            )
        ]
        lines += [f"retention_days = {retention}", f"ca = {json.dumps(self.settings['ca'])}"]
        for store in self.settings["store"]:
            lines += ["[[store]]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in store.items()]
        self.write("registry.json", registry)
        self.write("bundles.toml", "\n".join(lines))
        credentials = " ".join(
            f"-p LoadCredential={name}:/etc/hgfleet/secrets/bundles-{name}" for name in self.secrets
        )
        return self.host.run(
            f"systemd-run --quiet --pipe --wait -p User=hgbundles {credentials} "
            # Names the repository, since a run without names is over all repositories.
            f"hgfleet bundles run --config {self.root}/bundles.toml {self.path}"
        )

    def entries(self) -> list[str]:
        file = self.host.file(self.manifest)
        return file.content_string.splitlines() if file.exists else []


@pytest.fixture
def trial(host: Host, settings: dict[str, Any], secrets: list[str]) -> Iterator[Trial]:
    made = Trial(host, settings, secrets)
    yield made
    # The run withdraws all bundles and, without retention, deletes them from the bucket.
    done = made.run(kinds=(), retention=0)
    host.check_output(f"rm -rf {made.root}")
    assert done.rc == 0, done.stdout + done.stderr


def test_pull_bundles_are_for_hg_and_nobody_else(host: Host) -> None:
    """Private repositories have pull bundles too."""
    folder = host.file("/var/lib/hgfleet/pullbundles")
    assert (folder.user, folder.group, folder.mode) == ("hgbundles", "hg", 0o2750)
    unit = host.file("/etc/systemd/system/hgfleet-bundles.service").content_string
    assert "/var/lib/hgfleet/pullbundles" in unit.split("ReadWritePaths=")[1].splitlines()[0]


@pytest.mark.changes
def test_a_repository_gets_bundles_from_which_hg_clones(host: Host, trial: Trial) -> None:
    """From a commit to a clone from the object store."""
    empty = trial.run(kinds=("stream", "zstd", "gzip"))
    assert empty.rc == 0, empty.stdout + empty.stderr
    assert trial.entries() == []

    trial.commit(3)
    done = trial.run(kinds=("stream", "zstd", "gzip"))
    assert done.rc == 0, done.stdout + done.stderr
    entries = trial.entries()
    public = stores(trial.settings)
    specs = [entry.split(" BUNDLESPEC=")[1].split(";")[0].split()[0] for entry in entries]
    assert specs == [spec for spec in ("none-v2", "zstd-v2", "gzip-v2") for _ in public]
    for entry, store in zip(entries, public * 3, strict=True):
        assert entry.startswith(f"{store['public_url']}/")
    assert "stream=v2;requirements%3D" in entries[0]
    assert all(" DIGEST=sha256:" in entry for entry in entries)

    again = trial.run(kinds=("stream", "zstd", "gzip"))
    assert "action=keep" in again.stdout
    assert trial.entries() == entries

    # A client takes the first entry. These settings make hg trust the CA; the repository's own
    # settings make the server advertise the manifest, as the service does.
    offered = f"{trial.repository}/.hg/clonebundles.manifest"
    host.check_output("install -o hgbundles %s %s", trial.manifest, offered)
    own = f"{trial.repository}/.hg/hgrc"
    host.check_output("printf '[extensions]\\nclonebundles =\\n' > %s", own)
    # hg trusts only settings of its own user.
    host.check_output("chown hgbundles: %s", own)
    cloned = trial.hg(
        f"""--config ui.ssh='sh -c "eval \\"\\$2\\"" ssh' --config ui.remotecmd={HG} """
        f"clone -U ssh://localhost/{trial.repository} {trial.root}/scratch/clone",
        hgrc="/etc/hgfleet/bundles.hgrc",
    )
    assert f"applying clone bundle from {entries[0].split()[0]}" in cloned
    assert "no changes found" in cloned
    identified = trial.hg(f"-R {trial.root}/scratch/clone log -r tip -T '{{node}}'")
    assert identified == trial.hg(f"-R {trial.repository} log -r tip -T '{{node}}'")


@pytest.mark.changes
def test_new_changesets_get_new_bundles_and_old_ones_stay_for_a_while(trial: Trial) -> None:
    trial.commit(2)
    assert trial.run(kinds=("zstd",)).rc == 0
    before = trial.entries()
    trial.commit(1)
    done = trial.run(kinds=("zstd",))
    assert "are newer than the bundle" in done.stdout
    assert trial.entries() != before
    assert "event=bundles.pruned" not in done.stdout
    # Without a retention time, only objects that the manifest names stay.
    pruned = trial.run(kinds=("zstd",), retention=0)
    assert pruned.stdout.count("event=bundles.pruned") == len(before)
    assert before[0].split()[0].rpartition("/")[2] in pruned.stdout


ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.changes
def test_bundles_follow_who_may_read_the_repository(host: Host, trial: Trial) -> None:
    """Public, private, public again: bundles are only in the stores for the present readers."""
    (closed,) = stores(trial.settings, private=True)

    def answers(urls: list[str]) -> set[str]:
        """Return the statuses that an anonymous user gets."""
        return {
            str(host.check_output("/opt/hgfleet/current/bin/python -c %s %s", ASK, url))
            for url in urls
        }

    def run(read: Read) -> list[str]:
        done = trial.run(kinds=("zstd",), read=read)
        assert done.rc == 0, done.stdout + done.stderr
        assert "X-Amz" not in done.stdout + done.stderr
        return [entry.split(" ")[0] for entry in trial.entries()]

    trial.commit(2)
    public = run("public")
    assert len(public) == len(stores(trial.settings))
    assert answers(public) == {"200"}

    private = run(("team",))
    assert [url.startswith(f"{closed['public_url']}/") for url in private] == [True]
    assert all("private=yes" in entry.split(" ") for entry in trial.entries())
    # Anonymous users can download neither the former objects nor the private bundle.
    assert answers(public) == {"404"}
    assert answers(private) == {"403"}

    assert run("public") == public
    assert answers(public) == {"200"}
    assert answers(private) == {"403"}


def test_strangers_get_nothing_from_a_private_store(host: Host, settings: dict[str, Any]) -> None:
    for store in stores(settings, private=True):
        for name in ("", "/", "/closed.txt", "/index.html", "/?list-type=2"):
            asked = store["public_url"] + name
            said = host.check_output("/opt/hgfleet/current/bin/python -c %s %s", ASK, asked)
            assert said == "403", asked
