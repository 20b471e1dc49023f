"""Names of the state of repositories (manifests, pull bundles, scratch files), keys of bundles.

State is named by the identity of its repository, so a rename changes none of it, and a repository
that is made again at the same path begins without any. The release before named state by path
(`hgfleet.bundles.steps.adoption`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.kinds import KINDS
from hgfleet.core.identity import is_identity

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository

DIGEST_IN_KEY: Final = 16
"""Hexadecimal digits of the sha256 in a key: 64 bits tell all bundles of a tip apart."""

_LABELS: Final = "|".join(re.escape(kind.label) for kind in KINDS.values())
_KEY: Final = re.compile(
    r"(?P<repository>.+)/(?P<tip>[0-9a-f]{40})"
    rf"\.(?P<digest>[0-9a-f]{{{DIGEST_IN_KEY}}})\.(?P<label>{_LABELS})\.hg"
)
_BY_LABEL: Final = {kind.label: kind.name for kind in KINDS.values()}


def of(repository: Repository) -> str:
    """Return the name of the state of a repository."""
    return repository.identity or repository.path


def is_former(name: str) -> bool:
    """Whether state was named by the release before."""
    return not is_identity(name)


@dataclass(frozen=True, slots=True)
class Key:
    """The key of an object: `<identity>/<tip>.<sha256 prefix>.<label>.hg`.

    `repository` is the identity of the repository; in keys of the release before, its path. The tip
    shows which changesets a bundle covers. The digest makes the key a name of the content,
    so an object never changes and no copy of it in a cache is ever wrong.
    """

    repository: str
    tip: str
    digest: str
    kind: str

    @property
    def is_former(self) -> bool:
        """Whether the release before made the key, with the path of the repository."""
        return not is_identity(self.repository)

    def __str__(self) -> str:
        return f"{self.repository}/{self.tip}.{self.digest}.{KINDS[self.kind].label}.hg"


def make_key(identity: str, tip: str, sha256: str, kind: str) -> Key:
    """Name the object of a bundle with this tip (40 hexadecimal digits) and sha256 (64)."""
    return Key(identity, tip, sha256[:DIGEST_IN_KEY], kind)


def parse_key(text: str) -> Key | None:
    """Read a key back, or None if this package never made such a key."""
    match = _KEY.fullmatch(text)
    if match is None:
        return None
    return Key(match["repository"], match["tip"], match["digest"], _BY_LABEL[match["label"]])
