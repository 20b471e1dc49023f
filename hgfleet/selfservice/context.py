"""The context of a command: the person, the registry, paths on this host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file
from hgfleet.core import hgrc
from hgfleet.core.paths import MANIFESTS
from hgfleet.registry.dynamic import repository_sizes, user_repositories
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.selfservice import service_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.core.principal import Principal
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry

WAIT_S: Final = 5.0
MOST_WAIT_S: Final = 60.0
"""The relay refuses more."""

_SECONDS: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")


@dataclass(frozen=True)
class Context:
    """A session. The registry is read once, when a command needs it."""

    principal: Principal
    registry: str
    dynamic: str
    root: str
    hgrc: str
    fingerprint: str = ""
    manifests: str = MANIFESTS
    tokens: str = token_file.PATH
    progress: Callable[[str], None] = lambda _: None
    """Writes a line for a person who waits; raises OSError once the client has disconnected."""
    inherited: list[int] = field(default_factory=list)
    """Descriptors of locks. A copy holds them too: it may outlive its session for a moment."""

    @cached_property
    def static(self) -> Registry:
        """The repositories that the inventory declares."""
        return load_compiled(self.registry)

    @cached_property
    def entries(self) -> Dynamic:
        """The repositories that people created. Raises RegistryError for a damaged file."""
        return user_repositories.load(self.dynamic)

    @cached_property
    def effective(self) -> Registry:
        """Both parts together, as every other program of this host sees them."""
        return user_repositories.load_effective(self.registry, self.dynamic)

    def place(self, path: str) -> Path:
        """Where a repository is on disk."""
        return Path(self.root) / path

    @cached_property
    def url(self) -> str:
        """The address that people use, without the path."""
        return service_address.configured(self.configuration)

    @cached_property
    def configuration(self) -> str:
        """The text of the host's hgrc, "" without an hgrc."""
        try:
            return Path(self.hgrc).read_text("utf-8")
        except OSError:
            return ""

    @cached_property
    def size_quota(self) -> int:
        """Bytes that all repositories of a person may have together; 0: no limit."""
        return repository_sizes.parse_size(hgrc.setting(self.configuration, "owner-quota"))

    @cached_property
    def disk_free(self) -> int:
        """Bytes that pushes and copies leave free on the disk of the repositories."""
        return repository_sizes.parse_size(hgrc.setting(self.configuration, "push-disk-free"))

    @cached_property
    def relay(self) -> str:
        """The relay's wake socket; "" on a host without replication."""
        return hgrc.setting(self.configuration, "relay")

    @cached_property
    def mirror_wait(self) -> float:
        """Seconds for which a change waits for mirrors, as a push does."""
        text = hgrc.setting(self.configuration, "replication-wait")
        return min(MOST_WAIT_S, float(text)) if _SECONDS.fullmatch(text) else WAIT_S

    @property
    def uid(self) -> int:
        """The owner of the repositories: the user of this process."""
        return os.geteuid()
