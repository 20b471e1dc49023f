"""restic: the program that encrypts, deduplicates and stores backups.

The password and the keys of the store are files that restic reads itself: they are in no command
line, environment or log.

A bucket may let a host create objects, but neither delete nor replace them (object lock). Then the
lock of a backup stays until the lock of the object ends, and restic ends a backup that takes longer
than 22 minutes, because it cannot renew its lock. Uploaded data stays, and the next run continues
from there. A store over SSH lets a host delete and renew only locks. Commands that only read take
no lock.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup.restic import snapshot_times, ssh_address, store
from hgfleet.backup.restic.settings import CREDENTIALS, PASSWORD, SSH_KEY
from hgfleet.backup.restic.snapshot_times import Group
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import HostError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hgfleet.backup.restic.settings import Settings

LOCK_MINUTES: Final = 10
"""How long a backup waits for the pruner."""

INCOMPLETE: Final = 3
"""Exit code of a backup that left files out."""

MISSING: Final = 10
"""Exit code where there is no repository (restic 0.17 and later)."""

NOT_IN_SNAPSHOT: Final = "not found in snapshot"
"""restic's words for a path that a snapshot does not have; its exit code is the same for every
failure. If a later release uses other words, a missing file counts as a failure, which shows."""

MAX_ERROR: Final = 1000
"""Characters of restic's error output that a message quotes."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A backup. `time` is as restic writes it, with a zone; `paths` are the paths backed up."""

    id: str
    time: str
    paths: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """The time in seconds since 1970."""
        return snapshot_times.seconds(self.time)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a backup: the snapshot, bytes that were new, and files that were left out."""

    snapshot: str
    files: int
    added: int
    errors: tuple[tuple[str, str], ...]
    """(path, reason)."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check: packs whose content is corrupt, and the number of all errors."""

    packs: tuple[str, ...]
    errors: int


class Restic:
    """The restic repository of a host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def environment(self) -> dict[str, str]:
        """Return the environment, which holds names of files in place of secrets."""
        access = self._access(None)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/nonexistent",
            "RESTIC_REPOSITORY": access.repository,
            "RESTIC_PASSWORD_FILE": str(self._secret(PASSWORD)),
            "RESTIC_CACHE_DIR": str(self._cache()),
            "RESTIC_PROGRESS_FPS": "0.01",
            **access.environment,
            # Otherwise restic compresses and encrypts on every processor, which slows pushes.
            "GOMAXPROCS": "1",
        }

    def command(self, *arguments: str, log: Path | None = None) -> list[str]:
        """Return the argv of restic with its options for the store, without secrets."""
        return [str(self._settings.restic), *self._access(log).options, *arguments]

    def _access(self, log: Path | None) -> store.Access:
        names = (CREDENTIALS, SSH_KEY)
        return store.access(self._settings, {name: self._secret(name) for name in names}, log)

    def _secret(self, name: str) -> Path:
        return systemd.credential(name) or self._settings.secrets / name

    @property
    def keeps_locks(self) -> bool:
        """Whether the lock of a backup stays in the store when the backup ends."""
        return not ssh_address.is_ssh(self._settings.repository)

    def _cache(self) -> Path:
        """Return the folder of the index. Root has another, because the units cannot write it."""
        cache = self._settings.cache
        return cache.with_name(f"{cache.name}-root") if os.geteuid() == 0 else cache

    def run(
        self,
        *arguments: str,
        accepted: Sequence[int] = (0,),
        text: Iterable[str] = (),
        folder: Path | str = "/",
    ) -> tuple[int, str]:
        """Run restic in a folder with `text` as its input; return exit code and output.

        Raises UnavailableError for an exit code that is not accepted.
        """
        code, out, said = self._said(arguments, text, folder)
        if code not in accepted:
            raise self._failed(arguments, code, said)
        return code, out

    def _said(
        self, arguments: Sequence[str], text: Iterable[str] = (), folder: Path | str = "/"
    ) -> tuple[int, str, str]:
        """Run restic; return exit code, output, and the errors of restic and of ssh."""
        with tempfile.TemporaryDirectory(prefix="hgfleet-restic-") as made:
            log = Path(made) / "ssh"
            done = self._run(self.command(*arguments, log=log), text, folder)
            more = log.read_text("utf-8", "surrogateescape") if log.exists() else ""
        return done.returncode, done.stdout, " ".join(f"{done.stderr} {more}".split())

    def _failed(self, arguments: Sequence[str], code: int, said: str) -> UnavailableError:
        return UnavailableError(
            f"restic {_command(arguments)} ended with {code}: {said[-MAX_ERROR:]}; "
            f"the repository is {self._settings.repository}"
        )

    def _run(
        self, command: Sequence[str], text: Iterable[str], folder: Path | str
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                env=self.environment(),
                input="".join(text),
                capture_output=True,
                text=True,
                errors="surrogateescape",
                check=False,
                cwd=folder,
            )
        except OSError as error:
            raise HostError(
                f"{command[0]}: cannot run restic ({error.strerror}); `apt-get install restic` "
                "installs it"
            ) from error

    def exists(self) -> bool:
        """Whether the repository is there. Raises UnavailableError if this cannot be found out.

        A store that does not answer, a wrong password or a damaged repository must not pass for an
        empty store.
        """
        return self.run("--no-lock", "cat", "config", accepted=(0, MISSING))[0] == 0

    def create(self) -> bool:
        """Create the repository unless it is there; return whether it was created.

        Raises UnavailableError as `exists` does.
        """
        if self.exists():
            return False
        self.run("init")
        return True

    def backup(self, paths: Iterable[str], excludes: Path, tags: Iterable[str]) -> Result:
        """Back up files and folders. Raises UnavailableError."""
        options = [f"--tag={tag}" for tag in tags]
        options += [f"--host={self._settings.host}", f"--exclude-file={excludes}"]
        options += ["--files-from-raw=-", "--group-by=host,tags", "--json"]
        options += [f"--retry-lock={LOCK_MINUTES}m"]
        text = (f"{path}\0" for path in paths)
        _, out = self.run("backup", *options, accepted=(0, INCOMPLETE), text=text)
        return result_of(out.splitlines())

    def snapshots(self) -> list[Snapshot]:
        """Return the backups of this host, the newest first.

        Backups that are later than the clock of this host count as never made: see `from_future`.
        """
        now = time.time()
        raw = self.raw_snapshots()
        future = {snapshot["id"] for snapshot in snapshot_times.from_future(raw, now)}
        return [snapshot for snapshot in _newest_first(raw) if snapshot.id not in future]

    def from_future(self) -> list[Snapshot]:
        """Return the backups that are later than the clock of this host, the latest first."""
        return _newest_first(snapshot_times.from_future(self.raw_snapshots(), time.time()))

    def raw_snapshots(self) -> list[dict[str, Any]]:
        """Return the backups of this host as restic describes them."""
        _, out = self.run("--no-lock", "snapshots", f"--host={self._settings.host}", "--json")
        return json.loads(out) or []

    def all_snapshots(self) -> list[dict[str, Any]]:
        """Return every snapshot of the repository, also any that claims to be of another host."""
        _, out = self.run("--no-lock", "snapshots", "--json")
        return json.loads(out) or []

    def locks(self) -> list[dict[str, Any]]:
        """Return the locks as restic stores them."""
        _, out = self.run("--no-lock", "list", "locks")
        # If a lock is gone by now, its backup has ended.
        accepted = (0,) if self.keeps_locks else (0, 1)
        answers = (
            self.run("--no-lock", "cat", "lock", name, accepted=accepted) for name in out.split()
        )
        return [json.loads(text) for code, text in answers if code == 0]

    def plan(self, options: Sequence[str]) -> list[Group]:
        """Return the snapshots that these options would keep and remove; nothing is changed."""
        _, out = self.run("--no-lock", "forget", "--dry-run", "--json", *options)
        return [
            Group(tuple(group.get("keep") or ()), tuple(group.get("remove") or ()))
            # Without any snapshot restic prints nothing.
            for group in json.loads(out or "[]") or []
        ]

    def forget(self, snapshots: Sequence[str]) -> None:
        """Remove the locks and these snapshots, with the data that no other snapshot needs.

        The caller has made sure that no backup is under way.
        """
        self._unlock()
        if snapshots:
            self.run("forget", "--prune", *self._patience(), *snapshots)

    def check(self, part: int, parts: int) -> Check:
        """Check indexes and trees, and read the packs of `part`, of `parts` parts in all."""
        options = [f"--read-data-subset={part}/{parts}", "--json"]
        _, out = self.run("--no-lock", "check", *options, accepted=(0, 1))
        return check_of(out.splitlines())

    def repair_packs(self, packs: Sequence[str], folder: Path) -> None:
        """Store the good parts of packs again, then remove the packs; copies go to the folder.

        The caller has made sure that no backup is under way.
        """
        self._unlock()
        self.run("repair", "packs", *self._patience(), *packs, folder=folder)

    def repair_snapshots(self) -> None:
        """Remove lost files from the backups that refer to them; see `repair_packs`."""
        self._unlock()
        self.run("repair", "snapshots", *self._patience(), "--forget")

    def _unlock(self) -> None:
        """Remove the locks that backups left.

        Over SSH only restic's locks keep a backup from starting now. So the locks of a running
        backup stay, and only stale locks of killed backups are removed.
        """
        self.run("unlock", *(["--remove-all"] if self.keeps_locks else []))

    def _patience(self) -> list[str]:
        """Return the option to wait for a backup that has started since; see `_unlock`."""
        return [] if self.keeps_locks else [f"--retry-lock={LOCK_MINUTES}m"]

    def dump(self, snapshot: str, path: str) -> str | None:
        """Return the content of a file of a backup; None if the backup has no such file.

        Raises UnavailableError if the backup cannot be read: it is damaged, or the store does not
        answer.
        """
        arguments = ("--no-lock", "dump", snapshot, path)
        code, out, said = self._said(arguments)
        if code == 0:
            return out
        if NOT_IN_SNAPSHOT in said:
            return None
        raise self._failed(arguments, code, said)

    def restore(self, snapshot: str, path: str, target: Path) -> None:
        """Restore a file or folder below a target, with its whole path."""
        self.run("--no-lock", "restore", snapshot, f"--target={target}", f"--include={path}")


def _newest_first(raw: Iterable[dict[str, Any]]) -> list[Snapshot]:
    snapshots = [
        Snapshot(
            snapshot["id"],
            snapshot["time"],
            tuple(snapshot["paths"]),
            tuple(snapshot.get("tags") or ()),
        )
        for snapshot in raw
    ]
    # Compare moments: the texts have the zone of the host, which changes with the season.
    return sorted(snapshots, key=lambda snapshot: (snapshot.seconds, snapshot.time), reverse=True)


def _command(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def result_of(lines: Iterable[str]) -> Result:
    """Read the messages of `restic backup --json`. Raises UnavailableError without a summary."""
    errors: list[tuple[str, str]] = []
    summary: dict[str, Any] | None = None
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if message.get("message_type") == "error":
            error = message.get("error") or {}
            errors.append((str(message.get("item", "")), str(error.get("message", error))))
        elif message.get("message_type") == "summary":
            summary = message
    if summary is None:
        raise UnavailableError("restic backup ended without a summary; the next run tries again")
    return Result(
        snapshot=str(summary.get("snapshot_id", "")),
        files=int(summary.get("total_files_processed", 0)),
        added=int(summary.get("data_added", 0)),
        errors=tuple(errors),
    )


def check_of(lines: Iterable[str]) -> Check:
    """Read the messages of `restic check --json`. Raises UnavailableError without a summary."""
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("message_type") == "summary":
            return Check(
                tuple(message.get("broken_packs") or ()), int(message.get("num_errors", 0))
            )
    raise UnavailableError("restic check ended without a summary; the next check tries again")
