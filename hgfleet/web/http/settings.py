"""The web part's settings; the unit file sets them as environment variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_CPU_SECONDS: Final = 0.1
LEAST_MEMORY_BYTES: Final = 32 * 1024 * 1024
"""With less than these, ordinary pages of a small repository fail."""

_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_URL = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+")
_SSH_URL = re.compile(r"ssh://[A-Za-z0-9._@\[\]:-]+")


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field's comment names its environment variable.

    Without `public_url` pages take the address from the request, which nginx has checked; with it
    they always show the address that people should use.
    """

    registry: Path = Path("/var/lib/hgfleet/registry.json")  # HGFLEET_WEB_REGISTRY
    dynamic: Path = Path("/var/lib/hgfleet/dynamic/registry.json")  # HGFLEET_WEB_DYNAMIC
    root: Path = Path("/srv/hg/repos")  # HGFLEET_WEB_ROOT
    access_log: Path | None = None  # HGFLEET_WEB_ACCESS_LOG; unset: standard error
    public_url: str = ""  # HGFLEET_WEB_PUBLIC_URL, https://host
    ssh_url: str = ""  # HGFLEET_WEB_SSH_URL, ssh://hg@host: where a refused push should go
    title: str = "Mercurial repositories"  # HGFLEET_WEB_TITLE
    cache_bytes: int = 64 * 1024 * 1024  # HGFLEET_WEB_CACHE_BYTES, per worker process
    drain: Path = Path("/etc/hgfleet/web.drain")  # HGFLEET_WEB_DRAIN: exists: take no new clients
    # HGFLEET_WEB_MIRROR_STATE: what replication says of this host; unset: it is no mirror
    mirror_state: Path | None = None
    auth_socket: Path | None = None  # HGFLEET_WEB_AUTH_SOCKET; unset: no sign-in
    request_cpu_seconds: float = 1.9  # HGFLEET_WEB_REQUEST_CPU_SECONDS, of a request
    archive_cpu_seconds: float = 1.9  # HGFLEET_WEB_ARCHIVE_CPU_SECONDS, of an archive
    # HGFLEET_WEB_REQUEST_MEMORY_BYTES, of a request, beyond the memory of an idle renderer
    request_memory_bytes: int = 160 * 1024 * 1024
    renderers: int = 4  # HGFLEET_WEB_RENDERERS: answers of a process computed at a time
    waiting: int = 12  # HGFLEET_WEB_WAITING: requests of a process that wait for their turn
    # HGFLEET_WEB_STREAMS: clones and pulls of an address at a time, of the threads of a process
    streams: int = 8
    clones: int = 16  # HGFLEET_WEB_CLONES: clones of a process that wait or are served
    stream_cpu_seconds: float = 3600.0  # HGFLEET_WEB_STREAM_CPU_SECONDS, of a clone or pull
    # HGFLEET_WEB_STREAM_MEMORY_BYTES, of a clone or pull, beyond the memory of an idle renderer
    stream_memory_bytes: int = 2 * 1024 * 1024 * 1024
    stream_seconds: float = 43200.0  # HGFLEET_WEB_STREAM_SECONDS, of a clone or pull, in all
    health_socket: Path | None = None  # HGFLEET_WEB_HEALTH_SOCKET; unset: /healthz of the pool
    spool: Path | None = None  # HGFLEET_WEB_SPOOL: where nginx writes answers; unset: not checked
    spool_free_bytes: int = 512 * 1024 * 1024  # HGFLEET_WEB_SPOOL_FREE_BYTES, there at least
    counters: Path | None = None  # HGFLEET_WEB_COUNTERS: folder of counts; unset: none
    auth_calls: int = 4  # HGFLEET_WEB_AUTH_CALLS: questions at a time, of the threads of a process


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings; raises ConfigurationError that names the variable."""
    default = Settings()
    public_url = environment.get("HGFLEET_WEB_PUBLIC_URL", "").rstrip("/")
    if public_url and not _URL.fullmatch(public_url):
        raise ConfigurationError(
            f"HGFLEET_WEB_PUBLIC_URL: got {public_url!r}, expected https://host or https://host:port"
        )
    ssh_url = environment.get("HGFLEET_WEB_SSH_URL", "").rstrip("/")
    if ssh_url and not _SSH_URL.fullmatch(ssh_url):
        raise ConfigurationError(
            f"HGFLEET_WEB_SSH_URL: got {ssh_url!r}, expected ssh://user@host or ssh://user@host:port"
        )
    return Settings(
        registry=Path(environment.get("HGFLEET_WEB_REGISTRY", default.registry)),
        dynamic=Path(environment.get("HGFLEET_WEB_DYNAMIC", default.dynamic)),
        root=Path(environment.get("HGFLEET_WEB_ROOT", default.root)),
        access_log=_path(environment, "HGFLEET_WEB_ACCESS_LOG"),
        public_url=public_url,
        ssh_url=ssh_url,
        title=environment.get("HGFLEET_WEB_TITLE", "") or default.title,
        cache_bytes=_number(environment, "HGFLEET_WEB_CACHE_BYTES", default.cache_bytes, 0),
        drain=Path(environment.get("HGFLEET_WEB_DRAIN", default.drain)),
        mirror_state=_path(environment, "HGFLEET_WEB_MIRROR_STATE"),
        auth_socket=_path(environment, "HGFLEET_WEB_AUTH_SOCKET"),
        auth_calls=_number(environment, "HGFLEET_WEB_AUTH_CALLS", default.auth_calls),
        request_cpu_seconds=_seconds(
            environment, "HGFLEET_WEB_REQUEST_CPU_SECONDS", default.request_cpu_seconds
        ),
        archive_cpu_seconds=_seconds(
            environment, "HGFLEET_WEB_ARCHIVE_CPU_SECONDS", default.archive_cpu_seconds
        ),
        request_memory_bytes=_number(
            environment,
            "HGFLEET_WEB_REQUEST_MEMORY_BYTES",
            default.request_memory_bytes,
            LEAST_MEMORY_BYTES,
        ),
        renderers=_number(environment, "HGFLEET_WEB_RENDERERS", default.renderers),
        waiting=_number(environment, "HGFLEET_WEB_WAITING", default.waiting),
        streams=_number(environment, "HGFLEET_WEB_STREAMS", default.streams),
        clones=_number(environment, "HGFLEET_WEB_CLONES", default.clones),
        stream_cpu_seconds=_seconds(
            environment, "HGFLEET_WEB_STREAM_CPU_SECONDS", default.stream_cpu_seconds
        ),
        stream_memory_bytes=_number(
            environment,
            "HGFLEET_WEB_STREAM_MEMORY_BYTES",
            default.stream_memory_bytes,
            LEAST_MEMORY_BYTES,
        ),
        stream_seconds=_seconds(environment, "HGFLEET_WEB_STREAM_SECONDS", default.stream_seconds),
        health_socket=_path(environment, "HGFLEET_WEB_HEALTH_SOCKET"),
        spool=_path(environment, "HGFLEET_WEB_SPOOL"),
        spool_free_bytes=_number(
            environment, "HGFLEET_WEB_SPOOL_FREE_BYTES", default.spool_free_bytes, 0
        ),
        counters=_path(environment, "HGFLEET_WEB_COUNTERS"),
    )


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name, "")
    return Path(value) if value else None


def _number(environment: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    value = environment.get(name, str(default))
    if not value.isdecimal() or int(value) < least:
        raise ConfigurationError(f"{name}: got {value!r}, expected a number of {least} or more")
    return int(value)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    value = environment.get(name, str(default))
    if not _SECONDS.fullmatch(value) or float(value) < LEAST_CPU_SECONDS:
        raise ConfigurationError(
            f"{name}: got {value!r}, expected seconds, {LEAST_CPU_SECONDS:g} or more"
        )
    return float(value)
