"""The promises of the role backup, on any host with backups.

A test of a whole run uses the host's store and credentials. Its backup stays in the store, because
the host cannot delete it.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

SERVICE = "hgfleet-backup.service"
DRILL = "hgfleet-backup-drill.service"
PRUNE = "hgfleet-backup-prune.service"
HG = "/opt/hgfleet/current/bin/hg"
PYTHON = "/opt/hgfleet/current/bin/python"
REPOSITORIES = "/srv/hg/repos"
MADE = "hgfleet-test-backup"

# Runs on the host, with the credentials of its backups: tries to delete and to replace an object.
ATTACK = """
import configparser, sys
import boto3, botocore.config, botocore.exceptions
endpoint, bucket, prefix = sys.argv[1:]
keys = configparser.ConfigParser()
keys.read("/etc/hgfleet/secrets/backup-s3")
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="us-east-1",
    verify="/etc/ssl/certs/ca-certificates.crt",
    aws_access_key_id=keys["default"]["aws_access_key_id"],
    aws_secret_access_key=keys["default"]["aws_secret_access_key"],
    config=botocore.config.Config(s3={"addressing_style": "path"}),
)
key = client.list_objects_v2(Bucket=bucket, Prefix=prefix + "/snapshots/")["Contents"][0]["Key"]
before = client.get_object(Bucket=bucket, Key=key)["Body"].read()
def attempt(name, **arguments):
    try:
        getattr(client, name)(Bucket=bucket, **arguments)
    except botocore.exceptions.ClientError as error:
        client.close()
        print(name, error.response["Error"]["Code"])
    else:
        print(name, "done")
attempt("delete_object", Key=key)
attempt("put_object", Key=key, Body=b"nothing")
attempt("copy_object", Key=key, CopySource={"Bucket": bucket, "Key": prefix + "/config"})
attempt("delete_bucket_policy")
attempt("put_object_lock_configuration", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"})
print("kept", client.get_object(Bucket=bucket, Key=key)["Body"].read() == before)
"""

# The same over SSH. restic repeats a refused request, so it is ended at the first refusal.
ATTACK_OVER_SSH = """
import pathlib, subprocess
from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import DEFAULT_PATH, load
restic = Restic(load(DEFAULT_PATH))
before = restic.snapshots()
argv = restic.command("forget", before[0].id, "--prune")
done = subprocess.Popen(argv, env=restic.environment(), stderr=subprocess.PIPE, text=True)
print(next((line for line in done.stderr if "403 Forbidden" in line), "not refused").strip())
done.terminate()
done.wait()
restic.run("unlock", "--remove-all")
print("kept", restic.snapshots() == before)
"""


@pytest.fixture(scope="module")
def settings(host: Host) -> dict[str, Any]:
    return tomllib.loads(host.file("/etc/hgfleet/backup.toml").content_string)


@pytest.fixture
def source(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a host that backs its state up; on another host the test is skipped."""
    if "pruned" in settings:
        pytest.skip("only on a host with state")
    return settings


@pytest.fixture
def repository(host: Host, settings: dict[str, Any]) -> Iterator[str]:
    """A repository with a changeset, made before a test and removed after it."""
    if "ssh" not in settings["parts"]:
        pytest.skip("only on a host with repositories")
    place = f"{REPOSITORIES}/{MADE}"
    script = (
        f"set -e; rm -rf {place}; umask 027; cd /; {HG} init {place}; cd {place}; "
        f"echo content > file; {HG} commit -A -q -m first -u test"
    )
    host.check_output("runuser -u hg -- env HGRCPATH= sh -c %s", script)
    yield MADE
    host.check_output("rm -rf %s", place)


def is_over_ssh(settings: dict[str, Any]) -> bool:
    return str(settings["repository"]).startswith("ssh://")


def shown(host: Host, unit: str) -> dict[str, str]:
    text = host.check_output("systemctl show %s", unit)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def journal(host: Host, unit: str = SERVICE) -> str:
    return str(host.run("journalctl -u %s -n 40 -o cat --no-pager", unit).stdout)


def run(host: Host, unit: str = SERVICE) -> None:
    done: CommandResult = host.run("systemctl start %s", unit)
    assert done.rc == 0, journal(host, unit)


def units(settings: dict[str, Any]) -> list[str]:
    if "pruned" in settings:
        return [PRUNE]
    return [SERVICE, *([DRILL] if "ssh" in settings["parts"] else [])]


def test_timers_run_and_start_with_the_host(host: Host, settings: dict[str, Any]) -> None:
    for unit in units(settings):
        timer = host.service(unit.replace(".service", ".timer"))
        assert timer.is_enabled
        assert timer.is_running
        assert shown(host, timer.name)["NextElapseUSecRealtime"]


def test_settings_are_fine_for_the_installed_release(host: Host) -> None:
    assert host.run("hgfleet backup check").rc == 0


def test_secrets_are_closed(host: Host, settings: dict[str, Any]) -> None:
    for name in ("backup-password", "backup-ssh" if is_over_ssh(settings) else "backup-s3"):
        file = host.file(f"/etc/hgfleet/secrets/{name}")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o600)


def test_a_run_reads_everything_and_writes_nothing_of_the_service(
    host: Host, settings: dict[str, Any]
) -> None:
    for unit in units(settings):
        values = shown(host, unit)
        assert values["User"] == "hgbackup"
        assert values["ProtectSystem"] == "strict"
        assert values.get("ReadWritePaths", "") == ""
        assert values["Nice"] == "15"
        # The unit sees a read-only system, although its capability would allow more.
        expected = "cap_dac_override" if unit == SERVICE else ""
        assert values.get("CapabilityBoundingSet", "") == expected
        assert values.get("AmbientCapabilities", "") == expected
        line = host.check_output("systemd-analyze security --no-pager %s", unit).splitlines()[-1]
        assert float(line.split()[-3]) < 2, line


@pytest.mark.changes
def test_a_run_backs_the_state_of_the_host_up(host: Host, source: dict[str, Any]) -> None:
    settings = source
    run(host)
    assert " failed=0 " in journal(host)
    listed = host.check_output("hgfleet backup list").splitlines()[0]
    expected = {"/var/lib/hgfleet/registry.json"} if "mercurial" in settings["parts"] else set()
    if "ssh" in settings["parts"]:
        expected |= {REPOSITORIES, "/etc/hgfleet/ssh", "/var/lib/hgfleet/dynamic"}
    if "directory" in settings["parts"]:
        expected |= {"/var/lib/hgfleet-backup/directory"}
    assert expected <= set(listed.split()), listed


@pytest.mark.changes
def test_host_keys_of_ssh_are_restored_as_they_are(host: Host, settings: dict[str, Any]) -> None:
    if "ssh" not in settings["parts"]:
        pytest.skip("only on a host with host keys of SSH")
    folder = host.check_output("mktemp -d")
    try:
        host.check_output("hgfleet backup restore-files /etc/hgfleet/ssh --to %s", folder)
        assert host.run("diff -r /etc/hgfleet/ssh %s/etc/hgfleet/ssh", folder).stdout == ""
    finally:
        host.check_output("rm -r %s", folder)


@pytest.mark.changes
def test_the_directory_is_exported(host: Host, settings: dict[str, Any]) -> None:
    if "directory" not in settings["parts"]:
        pytest.skip("only on a provider of the directory")
    folder = host.check_output("mktemp -d")
    try:
        host.check_output(
            "hgfleet backup restore-files /var/lib/hgfleet-backup/directory --to %s", folder
        )
        place = f"{folder}/var/lib/hgfleet-backup/directory"
        people = host.check_output("grep -c '^sshPublicKeyId' %s/data.ldif", place)
        assert int(people) > 0
        assert "olcDatabase" in host.check_output("grep -m1 '^olcDatabase' %s/config.ldif", place)
    finally:
        host.check_output("rm -r %s", folder)


@pytest.mark.changes
def test_a_backup_counts_once_a_drill_has_restored_it(host: Host, repository: str) -> None:
    try:
        run(host)
        host.run("rm -f /var/lib/hgfleet-backup/drills.json")
        before = json.loads(host.run("hgfleet backup status --json").stdout)["lost"][repository]
        assert before["reason"] == "no backup of it was restored yet"
        run(host, DRILL)
        assert "event=backup.done" in journal(host, DRILL)
        status = json.loads(host.run("hgfleet backup status --json").stdout)["lost"]
        assert any(drill["reason"] == "" for drill in status.values()), status
        assert host.run("ls /var/lib/hgfleet-backup/drill").rc != 0
    finally:
        host.check_output("rm -r %s", f"{REPOSITORIES}/{repository}")


@pytest.mark.disruptive
def test_a_host_gets_lost_repositories_back(
    host: Host, settings: dict[str, Any], repository: str
) -> None:
    """The command for a host that lost its disk keeps repositories with changesets as they are."""
    if "replication" in settings["parts"]:
        pytest.skip("only on a host without mirrors, which a promotion replaces otherwise")
    place = f"{REPOSITORIES}/{repository}"
    try:
        run(host)
        host.check_output("rm -r %s", place)
        done = host.run("hgfleet backup restore-host --format events")
        assert done.rc == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if f"repository={repository} " in line]
        assert len(lines) == 1, done.stdout
        assert "event=backup.restored" in lines[0]
        assert "changesets=1" in lines[0]
        restored = host.run("runuser -u hg -- env HGRCPATH= %s -R %s verify", HG, place)
        assert restored.rc == 0, restored.stdout + restored.stderr
        assert "checked 1 changesets" in restored.stdout
    finally:
        host.check_output("rm -rf %s", place)


@pytest.mark.changes
def test_the_host_cannot_delete_or_replace_a_backup(host: Host, source: dict[str, Any]) -> None:
    run(host)
    if is_over_ssh(source):
        done = host.run(f"{PYTHON} -c {shlex.quote(ATTACK_OVER_SSH)}")
        refused, kept = done.stdout.splitlines()[-2:]
        assert "403 Forbidden" in refused
        assert kept == "kept True"
        return
    words = source["repository"].removeprefix("s3:").rsplit("/", 2)
    done = host.run(f"{PYTHON} -c {shlex.quote(ATTACK)} {shlex.join(words)}")
    assert done.stdout.splitlines() == [
        "delete_object AccessDenied",
        "put_object AccessDenied",
        "copy_object AccessDenied",
        "delete_bucket_policy AccessDenied",
        "put_object_lock_configuration AccessDenied",
        "kept True",
    ], done.stdout + done.stderr
