"""What a host had before: the way back of a deploy, from the record on the host. Pure.

A host keeps `/etc/hgfleet/deploy.json`:

| key | content |
| --- | --- |
| now | release, tree and inventory that the last finished deploy gave the host |
| before | the same, before that deploy; missing after the first deploy and after a rollback |
| at | when the deploy began that gave it `now`, in seconds since the epoch; the same on its hosts |
| begun | when the deploy began that is changing the host, or was killed; false otherwise |

A rollback takes back the last change of the site. A host that this change left alone stays: before
its own last change, it may have had another release than the other hosts.
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


def changed_last(hosts: Mapping[str, tuple[Mapping[str, Any], str]]) -> list[str]:
    """Return the hosts that the last deploy of the site has changed; each has record and release.

    A host whose release another program has changed since is one of them.
    """
    times = {name: _changed_at(record) for name, (record, _current) in hosts.items()}
    last = max(times.values(), default=0.0)
    return [
        name
        for name, (record, current) in hosts.items()
        if times[name] == last or present(record, current) != _way(record.get("now"))
    ]


def _changed_at(record: Mapping[str, Any]) -> float:
    found = (record.get("at"), record.get("begun"))
    return max(float(value) if isinstance(value, (int, float)) else 0.0 for value in found)


def begun(record: Mapping[str, Any], current: str, at: float) -> dict[str, Any]:
    """Return the record of a host that the deploy of this time begins to change."""
    former = {key: record.get(key) for key in ("before", "at")}
    return {"now": asdict(present(record, current)), **former, "begun": at}


def as_it_was(record: Mapping[str, Any], current: str) -> dict[str, Any]:
    """Return the record of a host whose change has been taken back."""
    return begun(record, current, 0) | {"begun": False}


def done(had: Way | None, has: Way, at: float) -> dict[str, Any]:
    """Return the record of a host that a deploy has changed; `had` is None after a rollback."""
    return {"now": asdict(has), "before": asdict(had) if had else None, "at": at}
