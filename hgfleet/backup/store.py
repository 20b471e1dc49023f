"""Store of backups: its address, and how restic reaches it. Pure.

`s3:https://HOST/BUCKET/NAME` is a folder of a bucket, `ssh://USER@HOST:PORT/FOLDER/NAME` one of a
machine that is reached by SSH. The key of a host runs `rclone serve restic --stdio --append-only`
there, a forced command of the store: restic speaks the protocol of its REST server to it, over
stdin and stdout of ssh, and the command refuses to delete or replace a file. The key of the host
that prunes is for SFTP, which can delete.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hgfleet.backup.settings import Settings

PASSWORD: Final = "backup-password"  # noqa: S105  (the name of a file)
CREDENTIALS: Final = "backup-s3"
SSH_KEY: Final = "backup-ssh"
"""Names of files in `secrets`, and of credentials of the units."""

SCHEME: Final = "ssh://"

EXPECTED: Final = "ssh://USER@HOST/FOLDER/NAME, with a port or without, and without blanks or quotes"

# restic splits the command of ssh as a shell does, so no other character reaches it. Neither a name
# of a host nor one of a user begins with a dash, which ssh would take for an option.
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_ADDRESS: Final = re.compile(
    rf"{SCHEME}(?P<user>[a-z_][a-z0-9_-]{{0,31}})@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)"
    rf"(:(?P<port>[0-9]{{1,5}}))?(?P<folder>(/{_NAME})+)/(?P<name>{_NAME})"
)

_OPTIONS: Final = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=none",
    "UpdateHostKeys=no",
    "PreferredAuthentications=publickey",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "ConnectTimeout=20",
    # A store that went away ends the run after two minutes; its timer starts the next one.
    "ServerAliveInterval=30",
    "ServerAliveCountMax=4",
)


@dataclass(frozen=True, slots=True)
class SSHStore:
    """The folder of one host's backups on a machine that is reached by SSH."""

    user: str
    host: str
    port: int
    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Access:
    """The repository as restic names it, and restic's options and environment for it."""

    repository: str
    options: tuple[str, ...]
    environment: Mapping[str, str]


def is_ssh(repository: str) -> bool:
    """Whether a repository is on a machine that is reached by SSH."""
    return repository.startswith(SCHEME)


def parse(repository: str) -> SSHStore | None:
    """Read an address `ssh://`; None if it is not one."""
    found = _ADDRESS.fullmatch(repository)
    if found is None or not 0 < (port := int(found["port"] or 22)) < 65536:
        return None
    return SSHStore(found["user"], found["host"], port, found["folder"], found["name"])


def access(settings: Settings, secrets: Mapping[str, Path]) -> Access:
    """Return how restic reaches the store; `secrets` has the files of the credentials by name."""
    if not is_ssh(settings.repository):
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
    found = parse(settings.repository)
    assert found is not None, settings.repository
    ssh = _ssh(settings, found, secrets[SSH_KEY])
    if settings.pruned:
        command = shlex.join([*ssh, "-s", "--", found.host, "sftp"])
        repository = f"sftp:{found.user}@{found.host}:{found.folder}/{found.name}"
        return Access(repository, ("-o", f"sftp.command={command}"), {})
    # restic appends `serve restic --stdio ...` and the name; the forced command takes no notice.
    command = shlex.join([*ssh, "--", found.host])
    return Access(f"rclone:{found.name}", ("-o", f"rclone.program={command}"), {})


def _ssh(settings: Settings, store: SSHStore, key: Path) -> list[str]:
    """Return the command of ssh up to the name of the host, without any file of a person."""
    options = [*_OPTIONS, f"UserKnownHostsFile={settings.known_hosts}", f"IdentityFile={key}"]
    words = [word for option in options for word in ("-o", option)]
    return [str(settings.ssh), "-F", "none", "-T", *words, "-p", str(store.port), "-l", store.user]
