"""The web part's settings; the unit file sets them as environment variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    auth_socket: Path | None = None  # HGFLEET_WEB_AUTH_SOCKET; unset: no sign-in
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
    cache_bytes = environment.get("HGFLEET_WEB_CACHE_BYTES", str(default.cache_bytes))
    if not cache_bytes.isdecimal():
        raise ConfigurationError(
            f"HGFLEET_WEB_CACHE_BYTES: got {cache_bytes!r}, expected a number of bytes"
        )
    auth_calls = environment.get("HGFLEET_WEB_AUTH_CALLS", str(default.auth_calls))
    if not auth_calls.isdecimal() or int(auth_calls) < 1:
        raise ConfigurationError(
            f"HGFLEET_WEB_AUTH_CALLS: got {auth_calls!r}, expected a number of 1 or more"
        )
    access_log = environment.get("HGFLEET_WEB_ACCESS_LOG", "")
    auth_socket = environment.get("HGFLEET_WEB_AUTH_SOCKET", "")
    return Settings(
        registry=Path(environment.get("HGFLEET_WEB_REGISTRY", default.registry)),
        dynamic=Path(environment.get("HGFLEET_WEB_DYNAMIC", default.dynamic)),
        root=Path(environment.get("HGFLEET_WEB_ROOT", default.root)),
        access_log=Path(access_log) if access_log else None,
        public_url=public_url,
        ssh_url=ssh_url,
        title=environment.get("HGFLEET_WEB_TITLE", "") or default.title,
        cache_bytes=int(cache_bytes),
        drain=Path(environment.get("HGFLEET_WEB_DRAIN", default.drain)),
        auth_socket=Path(auth_socket) if auth_socket else None,
        auth_calls=int(auth_calls),
    )
