"""The order in which a deploy changes hosts. Pure: no host is asked here.

| stage | hosts | a batch is |
| --- | --- | --- |
| support | brokers, the directory, object stores, caches, other such hosts | one host |
| new | hosts whose parts were not all there before | all of them |
| canary | the first mirror | one host |
| mirrors | the other web hosts | a quarter of all mirrors, at least one |
| proxies | | one host |
| primary | the host that takes pushes | one host |

A host of several stages belongs to the latest stage. Where every host is new, all are a single
batch: no client is served yet. New hosts come after the brokers, which have to know them, and
before hosts that send clients to them. The firewalls of the other hosts let them in before the
first batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SUPPORT = ("broker", "directory", "objectstore", "cdn")
"""In this order; other hosts follow."""

ALONE = frozenset({"broker"})
"""Groups whose hosts never change together: most of them have to be there."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Hosts that change together; `stage` is a stage of the table above."""

    stage: str
    hosts: tuple[str, ...]

    @property
    def said(self) -> str:
        """Return the batch for a line of progress."""
        return f"{self.stage}: {', '.join(self.hosts)}"


def stage_of(groups: Collection[str], *, is_primary: bool) -> str:
    """Return the latest stage that a host of these groups belongs to, "new" aside."""
    if is_primary:
        return "primary"
    if "proxy" in groups:
        return "proxies"
    if {"web", "ssh"}.intersection(groups):
        return "mirrors"
    return "support"


def order(
    hosts: Mapping[str, Collection[str]],
    changing: Collection[str],
    new: Collection[str],
    primary: str,
) -> list[Batch]:
    """Return the batches of the changing hosts, in their order.

    `hosts` are all hosts with their groups, in the order of the inventory; the size of batches
    depends on the whole site and not on the hosts that change. `primary` may be empty.
    """
    old = [name for name in hosts if name in changing and name not in new]
    arrived = tuple(name for name in hosts if name in changing and name in new)
    if not old:
        return [Batch("new", arrived)] if arrived else []
    stages: dict[str, list[str]] = {}
    for name in old:
        stages.setdefault(stage_of(hosts[name], is_primary=name == primary), []).append(name)
    support = sorted(stages.get("support", ()), key=lambda name: _rank(hosts[name]))
    result = [Batch("support", (name,)) for name in support]
    result += [Batch("new", arrived)] if arrived else []
    mirrors = stages.get("mirrors", [])
    result += [Batch("canary", (mirrors[0],))] if mirrors else []
    result += _mirrors(mirrors[1:], hosts, max(1, _count(hosts, primary) // 4))
    result += [Batch("proxies", (name,)) for name in stages.get("proxies", ())]
    return result + [Batch("primary", (name,)) for name in stages.get("primary", ())]


def _rank(groups: Collection[str]) -> int:
    return next((at for at, group in enumerate(SUPPORT) if group in groups), len(SUPPORT))


def _count(hosts: Mapping[str, Collection[str]], primary: str) -> int:
    return sum(
        stage_of(groups, is_primary=name == primary) == "mirrors" for name, groups in hosts.items()
    )


def _mirrors(names: Sequence[str], hosts: Mapping[str, Collection[str]], size: int) -> list[Batch]:
    alone = [name for name in names if ALONE.intersection(hosts[name])]
    together = [name for name in names if name not in alone]
    chunks = [together[at : at + size] for at in range(0, len(together), size)]
    return [Batch("mirrors", tuple(chunk)) for chunk in [*([name] for name in alone), *chunks]]
