from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest

from hgfleet.backup.restic import prune as prune_module
from hgfleet.backup.restic.prune import of_host, prune
from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import Settings, load
from hgfleet.backup.restic.ssh_address import SSHStore, parse
from hgfleet.backup.restic.store import access
from hgfleet.core.errors import ConfigurationError, UnavailableError
from hgfleet.core.report import Report

ADDRESS = "ssh://backup@store.example.org:2022/srv/backups/hg1"
SECRETS = {name: Path("/run/credentials", name) for name in ("backup-s3", "backup-ssh")}


def settings(repository: str, *pruned: str) -> Settings:
    return Settings("hg1", repository, frozenset({"ssh"}), pruned=pruned)


def test_an_address_over_ssh_has_a_user_a_folder_and_the_name_of_the_host() -> None:
    assert parse(ADDRESS) == SSHStore("backup", "store.example.org", 2022, "/srv/backups", "hg1")
    assert parse("ssh://b@192.0.2.1/b/hg1") == SSHStore("b", "192.0.2.1", 22, "/b", "hg1")


@pytest.mark.parametrize(
    "address",
    [
        "ssh://store/srv/backups/hg1",
        "ssh://backup@store/hg1",
        "ssh://backup@-oProxyCommand=id/srv/hg1",
        "ssh://-oProxyCommand=id@store/srv/hg1",
        "ssh://backup:secret@store/srv/hg1",
        "ssh://backup@store host/srv/hg1",
        "ssh://backup@store/srv/back ups/hg1",
        "ssh://backup@store/srv/'/hg1",
        'ssh://backup@store/srv/"/hg1',
        "ssh://backup@store/srv/$(id)/hg1",
        "ssh://backup@store/srv/../hg1",
        "ssh://backup@store/srv/-o/hg1",
        "ssh://backup@store/srv//hg1",
        "ssh://backup@store/srv/hg1/",
        "ssh://backup@store/srv/hg1\n",
        "ssh://backup@store:0/srv/hg1",
        "ssh://backup@store:65536/srv/hg1",
        "ssh://backup@store:/srv/hg1",
    ],
)
def test_another_address_is_refused_before_a_program_gets_it(tmp_path: Path, address: str) -> None:
    assert parse(address) is None
    file = tmp_path / "backup.toml"
    text = address.replace('"', '\\"').replace("\n", "\\n")
    file.write_text(f'host = "hg1"\nparts = ["ssh"]\nrepository = "{text}"\n')
    with pytest.raises(ConfigurationError, match=r"repository: got .*, expected "):
        load(file)


def test_settings_have_a_store_over_ssh(tmp_path: Path) -> None:
    file = tmp_path / "backup.toml"
    file.write_text(f'host = "hg1"\nparts = ["ssh"]\nrepository = "{ADDRESS}"\n')
    assert load(file).repository == ADDRESS


def test_a_host_gets_the_protocol_that_cannot_delete() -> None:
    target = access(settings(ADDRESS), SECRETS)
    assert target.repository == "rclone:hg1"
    option, value = target.options
    assert option == "-o"
    name, _, command = value.partition("=")
    assert name == "rclone.program"
    assert shlex.split(command)[-4:] == ["-l", "backup", "--", "store.example.org"]
    assert target.environment == {}


def test_the_host_that_prunes_gets_the_folder_over_sftp() -> None:
    target = access(settings(ADDRESS, "hg1"), SECRETS)
    assert target.repository == "sftp:backup@store.example.org:/srv/backups/hg1"
    name, _, command = target.options[1].partition("=")
    assert name == "sftp.command"
    assert shlex.split(command)[-4:] == ["-s", "--", "store.example.org", "sftp"]


@pytest.mark.parametrize("pruned", [(), ("hg1",)])
def test_ssh_asks_nobody_and_trusts_one_file(pruned: tuple[str, ...]) -> None:
    words = shlex.split(access(settings(ADDRESS, *pruned), SECRETS).options[1].partition("=")[2])
    assert words[:4] == ["/usr/bin/ssh", "-F", "none", "-T"]
    assert words[words.index("-p") + 1] == "2022"
    options = {word for before, word in itertools.pairwise(words) if before == "-o"}
    assert {
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=none",
        "UserKnownHostsFile=/etc/hgfleet/backup-known-hosts",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "IdentityFile=/run/credentials/backup-ssh",
    } <= options


@pytest.mark.parametrize("pruned", [(), ("hg1",)])
def test_ssh_tells_a_file_what_restic_may_not_pass_on(pruned: tuple[str, ...]) -> None:
    log = Path("/tmp/run/ssh")
    target = access(settings(ADDRESS, *pruned), SECRETS, log)
    words = shlex.split(target.options[1].partition("=")[2])
    assert words[words.index("-E") + 1] == str(log)
    assert words.index("-E") < words.index("--")


def test_a_bucket_gets_neither_options_nor_ssh() -> None:
    target = access(settings("s3:https://s3.example.org/backup/hg1"), SECRETS)
    assert target.repository == "s3:https://s3.example.org/backup/hg1"
    assert target.options == ()
    assert target.environment["AWS_SHARED_CREDENTIALS_FILE"] == "/run/credentials/backup-s3"


def fake(tmp_path: Path, code: int) -> Path:
    """A program in the place of restic that notes its arguments, and ends with a code."""
    program = tmp_path / "restic"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/arguments\nexit {code}\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("repository", "expected"),
    [("s3:https://s3/b/hg1", "unlock --remove-all"), (ADDRESS, "unlock")],
)
def test_locks_of_backups_under_way_stay_where_nothing_else_keeps_a_backup_out(
    tmp_path: Path, repository: str, expected: str
) -> None:
    restic = Restic(Settings("hg1", repository, frozenset(), restic=fake(tmp_path, 0)))
    restic.repair_snapshots()
    unlock, repair = (tmp_path / "arguments").read_text().splitlines()
    assert unlock.endswith(expected)
    assert ("--retry-lock=10m" in repair) == (expected == "unlock")


def test_a_failed_connection_is_no_empty_store(tmp_path: Path) -> None:
    restic = Restic(Settings("hg1", ADDRESS, frozenset(), restic=fake(tmp_path, 1)))
    with pytest.raises(UnavailableError, match="restic cat ended with 1"):
        restic.exists()
    assert not Restic(Settings("hg1", ADDRESS, frozenset(), restic=fake(tmp_path, 10))).exists()


def test_a_prune_over_ssh_needs_no_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_module, "Bucket", None)
    store_settings = Settings(
        "store", ADDRESS, frozenset(), restic=fake(tmp_path, 10), pruned=("hg2",)
    )
    assert (
        of_host(store_settings, "hg2")
        .environment()["RESTIC_REPOSITORY"]
        .endswith("/srv/backups/hg2")
    )
    assert prune(store_settings, Report(part="backup"), ["hg2"]) == []
