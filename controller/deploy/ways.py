"""The former state of a host: the way back of a deploy, from the record on the host. Pure.

A host keeps `/etc/hgfleet/deploy.json`:

| key | content |
| --- | --- |
| now | release, tree and inventory that the last finished deploy gave the host |
| before | the same, before that deploy; missing after the first deploy and after a rollback |
| at | when the deploy began that gave it `now`, in seconds since the epoch; the same on its hosts |
| begun | when the deploy began that is changing the host, or was killed; false otherwise |

`now` and `before` have `later` if deploys with --only brought parts after that: each part, with
the tree and the inventory that it came from.

A rollback takes back the last change of the site. A host that this change did not touch stays:
before its own last change, it may have had another release than the other hosts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Later:
    """A part that a deploy with --only brought afterwards, with the tree and inventory it had."""

    part: str
    tree: str
    inventory: str

    @property
    def said(self) -> str:
        """Return the part for a person."""
        return f"{self.part} (tree {self.tree})"


@dataclass(frozen=True, slots=True)
class Way:
    """A release, and names of the tree and the inventory that configured a host with it.

    `tree` and `inventory` are empty where no deploy has recorded them; `release` is empty on a host
    without one. `later` has the parts that came afterwards, each once. `versitygw` is the checksum
    of the store's program, on a host with an object store.
    """

    release: str = ""
    tree: str = ""
    inventory: str = ""
    later: tuple[Later, ...] = ()
    versitygw: str = ""

    @property
    def said(self) -> str:
        """Return the way for a person."""
        tree = f" (tree {self.tree})" if self.tree else ""
        parts = "".join(f", {later.part} of a later deploy" for later in self.later)
        return f"{self.release or 'no release'}{tree}{parts}"


def _way(data: object) -> Way | None:
    if not isinstance(data, dict):
        return None
    # A release before --only wrote no `later`.
    later = [of for of in data.get("later", ()) if isinstance(of, dict)]
    return Way(
        *_texts(data, "release", "tree", "inventory"),
        later=tuple(Later(*_texts(of, "part", "tree", "inventory")) for of in later),
        # A release before that wrote none.
        versitygw=str(data.get("versitygw", "")),
    )


def _texts(data: Mapping[str, Any], first: str, second: str, third: str) -> tuple[str, str, str]:
    return str(data.get(first, "")), str(data.get(second, "")), str(data.get(third, ""))


def written(way: Way) -> dict[str, Any]:
    """Return a way as a record has it."""
    needed = ("release", "tree", "inventory")
    return {key: value for key, value in asdict(way).items() if value or key in needed}


def with_parts(had: Way, parts: Sequence[str], has: Way) -> Way:
    """Return the way of a host after the tree and inventory of `has` brought it these parts."""
    others = tuple(later for later in had.later if later.part not in parts)
    return replace(
        had, later=others + tuple(Later(part, has.tree, has.inventory) for part in parts)
    )


def names(record: Mapping[str, Any]) -> set[str]:
    """Return the names of trees, inventories and programs that a host could go back to."""
    reachable = set()
    for way in (_way(record.get("now")), _way(record.get("before"))):
        if way:
            reachable |= {way.tree, way.inventory, way.versitygw}
            reachable |= {name for later in way.later for name in (later.tree, later.inventory)}
    return reachable - {""}


def present(record: Mapping[str, Any], current: str) -> Way:
    """Return the present way of a host; `current` is the release that its symlink names."""
    now = _way(record.get("now"))
    if now is None or (now.release != current and not record.get("begun")):
        # Changed by a playbook run by hand, or by a deploy from before there were records.
        return Way(current)
    return now


def back(record: Mapping[str, Any], current: str) -> Way | None:
    """Return the way of a host before its last change, None if that is not known."""
    now = _way(record.get("now"))
    if now is None:
        return None
    if record.get("begun") or now.release != current:
        return now
    return _way(record.get("before"))


def changed_last(hosts: Mapping[str, tuple[Mapping[str, Any], str]]) -> list[str]:
    """Return the hosts that the last deploy of the site has changed; each has record and release.

    They include a host whose release another program has changed since.
    """
    times = {name: changed_at(record) for name, (record, _current) in hosts.items()}
    last = max(times.values(), default=0.0)
    return [
        name
        for name, (record, current) in hosts.items()
        if times[name] == last or present(record, current) != _way(record.get("now"))
    ]


def changed_at(record: Mapping[str, Any]) -> float:
    """Return when a deploy last began to change a host, 0 if none is known."""
    times = (record.get("at"), record.get("begun"))
    return max(float(value) if isinstance(value, (int, float)) else 0.0 for value in times)


def begun(record: Mapping[str, Any], current: str, at: float) -> dict[str, Any]:
    """Return the record of a host that the deploy of this time begins to change."""
    former = {key: record.get(key) for key in ("before", "at")}
    return {"now": written(present(record, current)), **former, "begun": at}


def as_it_was(record: Mapping[str, Any], current: str) -> dict[str, Any]:
    """Return the record of a host whose change has been taken back."""
    return begun(record, current, 0) | {"begun": False}


def done(had: Way | None, has: Way, at: float) -> dict[str, Any]:
    """Return the record of a host that a deploy has changed; `had` is None after a rollback."""
    return {"now": written(has), "before": written(had) if had else None, "at": at}
