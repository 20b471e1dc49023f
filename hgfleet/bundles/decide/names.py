"""Names of the state of repositories: of manifests, pull bundles and files of the scratch folder.

State is named by the identity of its repository, so a rename changes none of it, and a repository
that is made again at the same path begins without any. The release before named state by path
(`hgfleet.bundles.steps.adoption`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core.identity import is_identity

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository


def of(repository: Repository) -> str:
    """Return the name of the state of a repository."""
    return repository.identity or repository.path


def is_former(name: str) -> bool:
    """Whether state was named by the release before."""
    return not is_identity(name)
