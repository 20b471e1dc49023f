"""What a host had before: the way back of a deploy, from the record on the host. Pure.

A host keeps `/etc/hgfleet/deploy.json`:

| key | content |
| --- | --- |
| now | release, tree and inventory that the last finished deploy gave the host |
| before | the same, before that deploy; missing after the first deploy and after a rollback |
| begun | true while a deploy is changing the host, and after one that was killed |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Way:
    """A release, and names of the tree and the inventory that configured a host with it.

    `tree` and `inventory` are empty where no deploy has recorded them; `release` is empty on a host
    without one.
    """

    release: str = ""
    tree: str = ""
    inventory: str = ""

    @property
    def said(self) -> str:
        """Return the way for a person."""
        tree = f" (tree {self.tree})" if self.tree else ""
        return f"{self.release or 'no release'}{tree}"


def _way(data: object) -> Way | None:
    if not isinstance(data, dict):
        return None
    return Way(*(str(data.get(key, "")) for key in ("release", "tree", "inventory")))


def present(record: Mapping[str, Any], current: str) -> Way:
    """Return what a host has; `current` is the release that its symlink names."""
    now = _way(record.get("now"))
    if now is None or (now.release != current and not record.get("begun")):
        # A playbook by hand, or a deploy from before there were records.
        return Way(current)
    return now


def back(record: Mapping[str, Any], current: str) -> Way | None:
    """Return what a host had before its last change, None if that is not known."""
    now = _way(record.get("now"))
    if now is None:
        return None
    if record.get("begun") or now.release != current:
        return now
    return _way(record.get("before"))


def begun(record: Mapping[str, Any], current: str) -> dict[str, Any]:
    """Return the record of a host that a deploy begins to change."""
    before = record.get("before")
    return {"now": asdict(present(record, current)), "before": before, "begun": True}


def done(had: Way | None, has: Way) -> dict[str, Any]:
    """Return the record of a host that a deploy has changed; `had` is None after a rollback."""
    return {"now": asdict(has), "before": asdict(had) if had else None}
