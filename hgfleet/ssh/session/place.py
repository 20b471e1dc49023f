"""Check that the registered repository of a session is at its path on this host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hgfleet.core import identity
from hgfleet.core.errors import RegistryError, TemporaryError
from hgfleet.ssh.session.original_command import Refuse

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository


def refusal(path: str, repository: Repository) -> Refuse | None:
    """Refuse a repository that is not at its path on this host; None where it is."""
    if not os.path.isdir(f"{path}/.hg"):  # noqa: PTH112  (pathlib is slow to import)
        return Refuse(
            f"The repository {repository.path} is registered, but this host does not have it "
            "yet. The operators can see this in their log.",
            "not-on-this-host",
            RegistryError.exit_code,
        )
    if identity.problem(path, repository.identity):
        return Refuse(
            f"The repository {repository.path} is being brought to its place on this host, and "
            "nothing was sent. Try again in a minute.",
            "not-in-its-place",
            TemporaryError.exit_code,
        )
    return None
