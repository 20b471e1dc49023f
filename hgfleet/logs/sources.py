"""Logs of this host from which entries are read: the journal, and request logs (I/O).

The journal is searched by exact matches of fields and by a regular expression of checked names.
nginx and the web workers log requests to files, which are rotated and compressed.
"""

from __future__ import annotations

import gzip
import socket
import subprocess
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HostError
from hgfleet.logs import following
from hgfleet.logs.log_entry import MICROSECONDS, of_journal, of_request_log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from hgfleet.logs.following import Connection
    from hgfleet.logs.log_entry import Entry

IDENTIFIERS: Final = ("hgfleet-shell",)
"""Programs whose process may have ended before the journal looks for its unit."""

UNITS: Final = ("hgfleet-relay", "hgfleet-applier", "hgfleet-web", "haproxy")

REQUEST_LOGS: Final = {
    "nginx": ("var/log/nginx", "access.log"),
    "hgfleet-web": ("var/log/hgfleet/web", "access.log"),
}
"""Source: folder and file; rotated files have its name as a prefix."""

_FIELDS: Final = "MESSAGE,SYSLOG_IDENTIFIER,_SYSTEMD_UNIT,_HOSTNAME,_TRANSPORT"

_NOTHING_FOUND: Final = 1
"""Exit code of `journalctl --grep` without a match."""


def by_names(wanted: Collection[str], since: float, root: Path) -> list[Entry]:
    """Return the entries since a time (seconds since 1970) that have any of the names.

    Raises HostError where a log of this host cannot be read.
    """
    matches = [f"SYSLOG_IDENTIFIER={name}" for name in IDENTIFIERS]
    for unit in UNITS:
        matches += ["+", f"_SYSTEMD_UNIT={unit}.service"]
    pattern = following.pattern(wanted)
    entries = [
        entry for entry in _journal(matches, pattern, since) if following.belongs(entry, wanted)
    ]
    return [*entries, *requests(wanted, since, root)]


def of_connection(connection: Connection) -> list[Entry]:
    """Return sshd's entries about a connection. Raises HostError."""
    matches = [f"SYSLOG_IDENTIFIER={name}" for name in following.SSHD]
    begin, end = (time / MICROSECONDS for time in (connection.begin, connection.end))
    entries = _journal(matches, connection.pattern, begin, end)
    return [entry for entry in entries if following.is_of(entry, connection)]


def _journal(
    matches: list[str], said: str, since: float, until: float | None = None
) -> Iterator[Entry]:
    command = [
        "journalctl",
        "--no-pager",
        "--quiet",
        "--all",
        "--output=json",
        f"--output-fields={_FIELDS}",
        f"--since=@{since:.6f}",
        *([] if until is None else [f"--until=@{until:.6f}"]),
        f"--grep={said}",
        "--case-sensitive=yes",
        *matches,
    ]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise HostError(f"journalctl does not start ({error})") from error
    if done.returncode not in (0, _NOTHING_FOUND) or (done.returncode and done.stderr):
        reason = done.stderr.decode("utf-8", "replace").strip()[:300]
        raise HostError(f"the journal cannot be read ({reason or done.returncode}); be root")
    for line in done.stdout.splitlines():
        entry = of_journal(line)
        if entry is not None:
            yield entry


def requests(wanted: Collection[str], since: float, root: Path) -> Iterator[Entry]:
    """Yield the requests since a time that have any of the names. Raises HostError."""
    needles = [name.encode("ascii") for name in wanted]
    host = socket.gethostname()
    for source, (folder, name) in REQUEST_LOGS.items():
        for file in sorted((root / folder).glob(f"{name}*")):
            try:
                if file.stat().st_mtime >= since:
                    entries = _of_file(file, needles, (host, source), since)
                    yield from (entry for entry in entries if following.belongs(entry, wanted))
            except (FileNotFoundError, gzip.BadGzipFile, EOFError):
                # The file was rotated at this moment; its lines are read from the rotated file.
                continue
            except OSError as error:
                raise HostError(f"{file} cannot be read ({error}); be root") from error


def _of_file(
    file: Path, needles: list[bytes], place: tuple[str, str], since: float
) -> Iterator[Entry]:
    for line in _lines(file):
        if any(needle in line for needle in needles):
            entry = of_request_log(line, *place)
            if entry is not None and entry.time >= since * MICROSECONDS:
                yield entry


def _lines(file: Path) -> Iterator[bytes]:
    if file.suffix == ".gz":
        with gzip.open(file) as compressed:
            yield from compressed
    else:
        with file.open("rb") as plain:
            yield from plain
