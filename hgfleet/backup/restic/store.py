"""How restic reaches the store of backups. Pure.

`s3:https://HOST/BUCKET/NAME` is a folder of a bucket, `ssh://USER@HOST:PORT/FOLDER/NAME` a folder
of a machine that is reached by SSH. The key of a host runs `rclone serve restic --stdio
--append-only` there, as a forced command of the store. restic speaks the protocol of its REST
server to this command, over stdin and stdout of ssh, and the command refuses to delete or replace a
file. The key of the host that prunes is for SFTP, which can delete.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.backup.restic import ssh_address
from hgfleet.backup.restic.settings import CREDENTIALS, SSH_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hgfleet.backup.restic.settings import Settings
    from hgfleet.backup.restic.ssh_address import SSHStore

_OPTIONS: Final = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=none",
    "UpdateHostKeys=no",
    "PreferredAuthentications=publickey",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "ConnectTimeout=20",
    # If the store goes away, the run ends after two minutes, and the timer starts the next run.
    "ServerAliveInterval=30",
    "ServerAliveCountMax=4",
)


@dataclass(frozen=True, slots=True)
class Access:
    """The repository as restic names it, and restic's options and environment for it."""

    repository: str
    options: tuple[str, ...]
    environment: Mapping[str, str]


def access(settings: Settings, secrets: Mapping[str, Path], log: Path | None = None) -> Access:
    """Return how restic reaches the store; `secrets` has the files of the credentials by name.

    ssh writes its messages to `log`: restic passes them on, but may end before it has.
    """
    if not ssh_address.is_ssh(settings.repository):
        return Access(
            settings.repository,
            (),
            {
                "RESTIC_CACERT": str(settings.ca),
                "AWS_SHARED_CREDENTIALS_FILE": str(secrets[CREDENTIALS]),
                "AWS_DEFAULT_REGION": settings.region,
            },
        )
    # `settings.load` has refused every other address.
    store = ssh_address.parse(settings.repository)
    assert store is not None, settings.repository
    ssh = _ssh(settings, store, secrets[SSH_KEY])
    if log is not None:
        ssh += ["-E", str(log)]
    if settings.pruned:
        command = shlex.join([*ssh, "-s", "--", store.host, "sftp"])
        repository = f"sftp:{store.user}@{store.host}:{store.folder}/{store.name}"
        return Access(repository, ("-o", f"sftp.command={command}"), {})
    # restic appends `serve restic --stdio ...` and the name; the forced command takes no notice.
    command = shlex.join([*ssh, "--", store.host])
    return Access(f"rclone:{store.name}", ("-o", f"rclone.program={command}"), {})


def _ssh(settings: Settings, store: SSHStore, key: Path) -> list[str]:
    """Return the command of ssh up to the name of the host, without any file of a person."""
    options = [*_OPTIONS, f"UserKnownHostsFile={settings.known_hosts}", f"IdentityFile={key}"]
    words = [word for option in options for word in ("-o", option)]
    return [str(settings.ssh), "-F", "none", "-T", *words, "-p", str(store.port), "-l", store.user]
