"""A store of backups that is reached by SSH: a real sshd, with the runbook's lines for its keys."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup.restic.settings import Settings
from testing.integration.support.applier_process import wait_for
from testing.integration.support.broker import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RUNBOOK: Final = Path(__file__).resolve().parents[3] / "docs/runbooks/hgfleet-backup.md"
FOLDER: Final = "/srv/hgbackups"
PUBLIC_KEY: Final = "ssh-ed25519 AAAA..."
"""Folder and key of the runbook."""

HOSTS: Final = ("hg1", "hg2")
PRUNER: Final = "prune"
USER: Final = pwd.getpwuid(os.geteuid()).pw_name

_CONFIGURATION: Final = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
# The folder of the test is below one that others may write to.
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
PidFile none
"""


def runbook_lines() -> tuple[str, str]:
    """Return the lines of the runbook for the key of hg1 and for the key that prunes."""
    text = RUNBOOK.read_text("utf-8").splitlines()
    host, pruner = (line.strip() for line in text if line.startswith("    restrict,command="))
    return host, pruner


class Store:
    """The account of a store, its sshd and its folder `backups`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backups = folder / "backups"
        self.backups.mkdir(parents=True)
        self.port = free_port()
        for name in ("host", *HOSTS, PRUNER):
            make_key(folder / name)
        for_host, for_pruner = runbook_lines()
        lines = [
            *(self._line(for_host.replace("hg1", name), name) for name in HOSTS),
            self._line(for_pruner, PRUNER),
        ]
        (folder / "authorized_keys").write_text("\n".join(lines) + "\n")
        self.pin(folder / "host.pub")
        (folder / "backup-password").write_text("a password of the test\n")
        configuration = _CONFIGURATION.format(port=self.port, folder=folder)
        (folder / "sshd_config").write_text(configuration)

    def _line(self, line: str, name: str) -> str:
        key = (self.folder / f"{name}.pub").read_text().strip()
        return line.replace(FOLDER, str(self.backups)).replace(PUBLIC_KEY, key)

    def pin(self, public_key: Path) -> None:
        """Have the hosts connect only to a machine with this host key."""
        words = public_key.read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {words[0]} {words[1]}\n")

    @contextlib.contextmanager
    def running(self) -> Iterator[Store]:
        """Run its sshd."""
        if os.geteuid() == 0:
            # sshd wants it, empty, when root starts it; a unit of systemd makes it otherwise.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None
        log = self.folder / "sshd.log"
        words = [program, "-D", "-f", str(self.folder / "sshd_config"), "-E", str(log)]
        process = subprocess.Popen(words)
        try:
            wait_for(self._answers, lambda: log.read_text() if log.exists() else "no log")
            yield self
        finally:
            process.terminate()
            process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def settings(self, host: str, *pruned: str) -> Settings:
        """Return the settings of a host, or of the host that prunes the backups of hosts."""
        secrets = self.folder / f"secrets-{PRUNER if pruned else host}"
        secrets.mkdir(exist_ok=True)
        shutil.copy(self.folder / "backup-password", secrets)
        shutil.copy(self.folder / (PRUNER if pruned else host), secrets / "backup-ssh")
        return Settings(
            host=host,
            repository=f"ssh://{USER}@127.0.0.1:{self.port}{self.backups}/{host}",
            parts=frozenset({"ssh"}),
            state=self.folder / "state",
            cache=self.folder / f"cache-{host}",
            secrets=secrets,
            restic=Path(shutil.which("restic") or "restic"),
            known_hosts=self.folder / "known_hosts",
            pruned=pruned,
        )

    def ssh(self, key: str, *words: str, options: Sequence[str] = ()) -> list[str]:
        """Return the command of a person who has the key, without the settings of hgfleet."""
        return [
            *("ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"),
            *("-o", f"UserKnownHostsFile={self.folder}/known_hosts", "-o", "IdentityAgent=none"),
            *("-i", str(self.folder / key), "-p", str(self.port), *options),
            *(f"{USER}@127.0.0.1", *words),
        ]

    def request(self, key: str, method: str, path: str, *options: str) -> tuple[int, bytes]:
        """Send an HTTP/2 request over the stdin of ssh; return its status and its content."""
        content = self.folder / "content"
        content.write_bytes(b"")
        with socket.create_server(("127.0.0.1", 0)) as server:
            connected = threading.Thread(target=self._connect, args=(server, key))
            connected.start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}{path}"
            done = subprocess.run(
                [
                    *("curl", "--silent", "--show-error", "--max-time", "20", "--path-as-is"),
                    *("--http2-prior-knowledge", "--request", method, *options),
                    *("--output", str(content), "--write-out", "%{http_code}", url),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            connected.join()
        assert done.returncode == 0, done.stderr
        return int(done.stdout), content.read_bytes()

    def _connect(self, server: socket.socket, key: str) -> None:
        connection, _ = server.accept()
        with connection:
            command = self.ssh(key, options=["-T"])
            subprocess.run(
                command,
                stdin=connection,
                stdout=connection,
                stderr=subprocess.DEVNULL,
                check=False,
            )


def make_key(file: Path) -> None:
    """Make a key of SSH."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", file.name, "-f", str(file)],
        check=True,
    )
