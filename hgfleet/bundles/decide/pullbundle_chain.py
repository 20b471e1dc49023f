"""Pull bundle chain of a repository: the plan of its links, and the choice of links for a pull.

A link is a bundle with all changesets between the heads of the link before it (`bases`) and its own
`heads`. All links together have the history up to the heads of the last link; the server computes
newer changesets live. A chain grows at its end. Small links are rolled up into larger links, like
the levels of a log-structured store, so that each changeset is written only a few times and a pull
from any point finds links that begin near it.

`plan` first cuts the chain where it is wrong: behind the last link whose heads the repository has,
then before the first link whose file is missing. With `force`, or if the chain begins in another
way than the limits say, no link is kept. A repository with too many heads gets no new link. If no
link is kept, a new chain begins. Otherwise a new link has the newer changesets, once there are
enough of them, and small links before it are rolled up into it.

Pure: the state of the repository and the chain on disk are arguments.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.wording import newer_than

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from hgfleet.bundles.decide.plan import State

MAX_LINKS: Final = 30
MAX_HEADS: Final = 500
"""The most heads of a link. Every pull reads all heads in the manifest."""

PIECES: Final = 8
"""The number of links of a new chain. No link is rolled up to more than this share of the history,
because a client in the midst of a link gets the rest of the link live."""

SPEC: Final = "zstd-v2"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAME: Final = re.compile(r"[0-9a-f]{64}\.hg|-")
_NODE: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of pull bundles.

    A repository with fewer than `least` changesets has none; a link gets at least `step`. Without
    `whole`, the chain begins where the repository is when the chain is made.
    """

    enabled: bool = True
    least: int = 1000
    step: int = 100
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """A link. `name` is the name of its file, made of its sha256; "-" for a part not on disk.

    `size` is in bytes, `changesets` the number of changesets between `bases` and `heads`.
    """

    name: str
    bases: tuple[str, ...]
    heads: tuple[str, ...]
    changesets: int
    size: int
    made: datetime

    @property
    def on_disk(self) -> bool:
        """Whether there is a file."""
        return self.name != "-"

    @property
    def sha256(self) -> str:
        """The sha256 of the file."""
        return self.name.removesuffix(".hg")

    def line(self) -> str:
        """Render the link as in core's manifest of pull bundles, without the newline."""
        bases = f" bases={';'.join(self.bases)}" if self.bases else ""
        return (
            f"{self.name} BUNDLESPEC={SPEC} heads={';'.join(self.heads)}{bases}"
            f" changesets={self.changesets} size={self.size} made={self.made.strftime(_TIME)}"
        )


Chain = tuple[Link, ...]


def render(chain: Iterable[Link]) -> str:
    """Render a manifest."""
    return "".join(link.line() + "\n" for link in chain)


def parse(text: str) -> Chain:
    """Read a manifest up to the first line that is damaged or does not continue the chain."""
    links: list[Link] = []
    for line in text.splitlines():
        link = _link(line)
        expected = set(links[-1].heads) if links else set()
        if link is None or set(link.bases) != expected or len(links) == 2 * MAX_LINKS:
            break
        links.append(link)
    return tuple(links)


def _link(line: str) -> Link | None:
    name, *attributes = line.split()[:20] or [""]
    values = dict(attribute.partition("=")[::2] for attribute in attributes)
    try:
        bases = tuple(values["bases"].split(";")) if "bases" in values else ()
        heads = tuple(values["heads"].split(";"))
        if not _NAME.fullmatch(name) or not all(map(_NODE.fullmatch, (*bases, *heads))):
            return None
        return Link(
            name=name,
            bases=bases,
            heads=heads,
            changesets=int(values["changesets"]),
            size=int(values["size"]),
            made=datetime.strptime(values["made"], _TIME).replace(tzinfo=UTC),
        )
    except (KeyError, ValueError):
        return None


class Move(enum.Enum):
    """The change that a run makes to a chain."""

    KEEP = "keep"
    EXTEND = "extend"
    ROLL_UP = "roll up"
    REBASE = "rebase"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link to generate: from `bases` to `heads`, or to all heads of the repository (None).

    With several `pieces`, as many links share its changesets. Without `on_disk` it is a part that
    only marks the beginning of the chain.
    """

    bases: tuple[str, ...]
    heads: tuple[str, ...] | None = None
    pieces: int = 1
    on_disk: bool = True


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """The decision for a repository: `parts` is the chain as it will be, `reason` for people."""

    move: Move
    reason: str
    parts: tuple[Link | NewLink, ...] = ()

    @property
    def new_links(self) -> tuple[NewLink, ...]:
        """The links to generate."""
        return tuple(part for part in self.parts if isinstance(part, NewLink))


def heads_to_look_up(chain: Sequence[Link]) -> set[str]:
    """Return the heads that the plan looks up in the repository."""
    return set(chain[-1].heads) if chain else set()


def intact(chain: Sequence[Link], there: Collection[str]) -> Chain:
    """Return the links from the beginning whose changesets the repository still has.

    The heads of a link have the heads of all earlier links as ancestors, so the last intact link
    keeps all before it.
    """
    for count in range(len(chain), 0, -1):
        if all(head in there for head in chain[count - 1].heads):
            return tuple(chain[:count])
    return ()


def plan(
    chain: Chain,
    state: State,
    limits: Limits,
    *,
    missing: Collection[str] = (),
    tips: Collection[str] = (),
    aligned: bool = False,
    force: bool = False,
) -> ChainPlan:
    """Decide about the chain of a repository.

    `state.covered` has the heads of `heads_to_look_up` that the repository has; if a head is
    missing, the heads of all links. `missing` are the names of files that are missing or not whole.
    `tips` are the tips of the published clone bundles: a link that ends with a tip is not rolled up
    into the next link, so that the pull after a clone finds a link that begins there. For the same
    reason `aligned`, new clone bundles in this run, extends the chain by any number of changesets.
    `force` makes all links again.
    """
    if (early := _without_change(chain, state, limits)) is not None:
        return early
    kept = intact(chain, state.covered)
    is_cut = len(kept) < len(chain)
    first_missing = next((n for n, link in enumerate(kept) if link.name in missing), len(kept))
    is_lost, kept = first_missing < len(kept), kept[:first_missing]
    if force or (kept and kept[0].on_disk != limits.whole):
        kept = ()
    if len(state.heads) > MAX_HEADS:
        many = f"{len(state.heads):,} heads, more than {MAX_HEADS:,}: the chain stays as it is"
        return ChainPlan(Move.REBASE if is_cut or is_lost else Move.KEEP, many, kept)
    why = ""
    if is_cut:
        why = "the repository no longer has the heads of some links"
    elif is_lost:
        why = "a file is missing or not whole"
    elif force:
        why = "new links were asked for"
    if not kept:
        pieces = max(1, min(PIECES, state.changesets // max(1, limits.step)))
        whole = NewLink((), None, pieces) if limits.whole else NewLink((), None, on_disk=False)
        return ChainPlan(Move.REBASE, why or "no chain yet", (whole,))

    newer = _newer(kept, state)
    if newer < (1 if aligned or is_lost else max(1, limits.step)):
        if is_cut:
            return ChainPlan(Move.REBASE, why, kept)
        rest = f"covers all but {newer:,} of {state.changesets:,} changesets"
        return ChainPlan(Move.KEEP, rest if newer else "current", kept)
    parts = _compact(_extended(kept, newer, state.changesets, limits, tips), tips)
    return ChainPlan(
        Move.REBASE if why else Move.EXTEND if len(parts) == len(kept) + 1 else Move.ROLL_UP,
        why or f"{newer_than('chain', newer)} (limit {limits.step:,})",
        parts,
    )


def _without_change(chain: Chain, state: State, limits: Limits) -> ChainPlan | None:
    """Return the plan of a repository that gets no new link now, None for any other repository."""
    drop = Move.DROP if chain else Move.KEEP
    if not limits.enabled:
        return ChainPlan(drop, "switched off on this host")
    if not state.exists:
        return ChainPlan(Move.KEEP, "not on this host", chain)
    if not state.heads:
        return ChainPlan(drop, "empty")
    if state.changesets < limits.least:
        few = f"{state.changesets:,} changesets, fewer than {limits.least:,}: pulls are cheap"
        return ChainPlan(drop, few)
    return None


def _newer(kept: Chain, state: State) -> int:
    """Return the number of changesets that are newer than the chain."""
    if set(kept[-1].heads) == state.heads:
        return 0
    covered = max((state.covered.get(head, 0) for head in kept[-1].heads), default=0)
    return max(1, state.changesets - covered)


def _extended(
    kept: Chain, newer: int, changesets: int, limits: Limits, tips: Collection[str]
) -> tuple[Link | NewLink, ...]:
    """Add a link, and roll up the links before it that are hardly larger.

    Each link is then at least twice as large as the next link, except the largest links.
    """
    largest = max(limits.step, changesets // PIECES)
    first = len(kept)
    while first > 0:
        before = kept[first - 1]
        if not _joins(before, tips) or before.changesets >= 2 * newer:
            break
        if before.changesets + newer > largest:
            break
        newer += before.changesets
        first -= 1
    return (*kept[:first], NewLink(kept[first - 1].heads if first else ()))


def _joins(link: Link, tips: Collection[str]) -> bool:
    """Whether a link may be rolled up with the link after it."""
    return link.on_disk and not any(head in tips for head in link.heads)


def _compact(
    parts: tuple[Link | NewLink, ...], tips: Collection[str]
) -> tuple[Link | NewLink, ...]:
    """Join the two smallest neighbours of a chain that has become too long over the years."""
    if len(parts) <= MAX_LINKS:
        return parts
    links = [part for part in parts if isinstance(part, Link)]
    pairs = [n for n in range(len(links) - 1) if links[n].on_disk]
    best = min(
        pairs,
        key=lambda n: (
            not _joins(links[n], tips),
            links[n].changesets + links[n + 1].changesets,
        ),
    )
    joined = NewLink(links[best].bases, links[best + 1].heads)
    return (*parts[:best], joined, *parts[best + 2 :])


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of an answer: a link from disk, or all changesets up to `heads` live."""

    heads: tuple[str, ...]
    link: Link | None = None


def segments(
    chain: Sequence[Link],
    *,
    known: Callable[[Link], bool],
    wanted: Callable[[Link], bool],
    missing: Callable[[Link], int],
    usable: Callable[[Link], bool],
) -> list[Segment]:
    """Choose the segments of the answer to a pull, in order; none if no link can be used.

    `known` says whether the client has all heads of a link, `wanted` whether it asked for all of
    them (or for descendants), `usable` whether the file is on disk; `missing` counts the changesets
    of a link that the client does not have. Newer changesets are sent live after the last segment.

    If the client has more than half of a link, its other changesets are sent live: that costs the
    server less than a whole link costs the client.
    """
    first = next((n + 1 for n in reversed(range(len(chain))) if known(chain[n])), 0)
    last = next((n for n in reversed(range(len(chain))) if wanted(chain[n])), -1)
    chosen: list[Segment] = []
    for number in range(first, last + 1):
        link = chain[number]
        fresh = link.changesets if number > first else missing(link)
        if link.on_disk and 2 * fresh >= link.changesets and usable(link):
            chosen.append(Segment(link.heads, link))
        elif chosen and chosen[-1].link is None:
            chosen[-1] = Segment(link.heads)
        else:
            chosen.append(Segment(link.heads))
    while chosen and chosen[-1].link is None:
        chosen.pop()
    return chosen
