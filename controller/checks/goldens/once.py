"""Pages in which each text stands once, with the hosts that have it. Pure.

A page is a part of the service: texts of many hosts in the order of the run. Hosts that have the
same text share a block:

    === /etc/hgfleet/nats.conf  root:root 0644  from ansible/roles/...
    nats.conf on all
      listen: "0.0.0.0:4222"
    nats.conf on large
      routes: [...]

`on large` is every host of that inventory in the page's second line, `on all` is every host there.
Lines that are missing on some hosts of a block are under an `on` of their own. A text that has
little in common with the text of the other hosts is a block of its own.

Texts are indented: the nearest line above that begins with a letter, which `git diff` shows in the
heading of a hunk, names the file and its hosts.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Key = TypeVar("Key")

ALL: Final = "all"
HOSTS: Final = "# Hosts: "
INDENT: Final = "  "
ON: Final = re.compile(r"^(?:\S+ )?on ([a-z0-9].*)$")
HUNK: Final = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)")

LIKE: Final = 0.6
"""The share of lines that texts of a block have in common."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of an inventory, and the address that other hosts reach it by."""

    inventory: str
    name: str
    address: str

    @property
    def short(self) -> str:
        """The name without its domain."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Text:
    """A text of a host: a file under its heading, or, without a heading, an entry of its set-up."""

    text: str
    heading: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a block, and its hosts; the own name of the first may be in it."""

    text: str
    hosts: list[Host]


@dataclass(slots=True)
class Block:
    """A text of some hosts, line by line."""

    heading: str
    hosts: list[Host]
    lines: list[Line]


def page(head: str, hosts: Mapping[Host, Sequence[Text]]) -> str:
    """Return the page of a part from its texts on each host."""
    known: dict[tuple[str, int], dict[Host, Text]] = {}
    orders = []
    # An entry that no other host has may differ from other hosts' only by the name of the host.
    owners = Counter(text for texts in hosts.values() for text in {each.text for each in texts})
    for host, texts in hosts.items():
        own = _keyed(texts, host, owners)
        orders.append(list(own))
        for key, each in own.items():
            known.setdefault(key, {})[host] = each
    lines = [head.rstrip("\n"), HOSTS + _listed(hosts)]
    last = ""
    for key in merged(orders):
        name = next(iter(known[key].values())).name
        for block in blocks(known[key]):
            if block.heading:
                lines += ["", block.heading]
                last = ""
            for some, run in _runs(block):
                on = f"{name} on {shown(some, hosts)}".strip()
                lines += [] if on == last else [on]
                lines += [f"{INDENT}{line}".rstrip() for line in run]
                last = on
    return "\n".join(lines) + "\n"


def _keyed(
    texts: Sequence[Text], host: Host, owners: Mapping[str, int]
) -> dict[tuple[str, int], Text]:
    """Return the texts of a host by a key that equal texts of other hosts share.

    A file that is written twice is two files; an entry is listed once.
    """
    counts: Counter[str] = Counter()
    result = {}
    for text in texts:
        entry = text.text if owners[text.text] > 1 else _nameless(text.text, host)
        name = text.heading.split("  ")[0] or entry
        if text.heading or not counts[name]:
            result[name, counts[name]] = text
        counts[name] += 1
    return result


def merged(orders: Sequence[Sequence[Key]]) -> list[Key]:
    """Return all keys in an order that fits each host's; the first host wins in a conflict."""
    waiting: list[Key] = []
    before: dict[Key, set[Key]] = {}
    for order in orders:
        place = 0
        for key, former in zip(order, [None, *order], strict=False):
            # Keys of some hosts come after their neighbours where the order leaves a choice.
            if key not in before:
                waiting.insert(place, key)
            before.setdefault(key, set()).update(() if former is None else (former,))
            place = waiting.index(key) + 1
    result: list[Key] = []
    while waiting:
        free = (key for key in waiting if before[key] <= {*result})
        key = next(free, waiting[0])
        waiting.remove(key)
        result.append(key)
    return result


def blocks(texts: Mapping[Host, Text]) -> list[Block]:
    """Return the blocks of a file or entry, from the text of each host."""
    result: list[Block] = []
    for host, text in texts.items():
        lines = text.text.splitlines()
        for block in result:
            if block.heading == text.heading and _joined(block, lines, host):
                break
        else:
            result.append(Block(text.heading, [host], [Line(line, [host]) for line in lines]))
    return result


def _joined(block: Block, lines: Sequence[str], host: Host) -> bool:
    """Add a host to a block if its text is alike; the hosts of each line keep their order."""
    # A line that lists all hosts is the same in both as it is, before own names are compared.
    whole = {line.text for line in block.lines}
    named = {_nameless(line.text, line.hosts[0]): line.text for line in block.lines}
    own = [line if line in whole else named.get(_nameless(line, host), line) for line in lines]
    matcher = difflib.SequenceMatcher(None, [line.text for line in block.lines], own, False)
    longer = max(len(own), sum(block.hosts[0] in line.hosts for line in block.lines), 1)
    common = sum(match.size for match in matcher.get_matching_blocks())
    if not block.heading and (common < len(block.lines) or common < len(own)):
        return False
    if common < LIKE * longer:
        return False
    result: list[Line] = []
    for kind, start, end, own_start, own_end in matcher.get_opcodes():
        if kind == "equal":
            result += [Line(line.text, [*line.hosts, host]) for line in block.lines[start:end]]
        else:
            result += block.lines[start:end]
            result += [Line(line, [host]) for line in lines[own_start:own_end]]
    block.hosts.append(host)
    block.lines = result
    return True


def _nameless(line: str, host: Host) -> str:
    for own, place in ((host.name, "HOST"), (host.address, "ADDRESS")):
        line = re.sub(rf"(?<![\w.-]){re.escape(own)}(?![\w-])", place, line)
    return line


def _runs(block: Block) -> Iterator[tuple[list[Host], list[str]]]:
    """Yield the hosts of a block with its first lines, then hosts and lines of each further run."""
    hosts, run = block.hosts, list[str]()
    for line in block.lines:
        if line.hosts != hosts:
            if run or hosts is block.hosts:
                yield hosts, run
            hosts, run = line.hosts, []
        run.append(line.text)
    yield hosts, run


def _by_inventory(hosts: Iterable[Host]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for host in hosts:
        names.setdefault(host.inventory, []).append(host.short)
    return names


def _listed(hosts: Iterable[Host]) -> str:
    groups = _by_inventory(hosts).items()
    return "; ".join(f"{inventory}: {' '.join(names)}" for inventory, names in groups)


def shown(some: Iterable[Host], every: Iterable[Host]) -> str:
    """Return the shortest name of some hosts of a page."""
    chosen, whole = _by_inventory(some), _by_inventory(every)
    if chosen == whole:
        return ALL
    return "; ".join(
        inventory if names == whole[inventory] else f"{inventory}: {' '.join(names)}"
        for inventory, names in chosen.items()
    )


def of_host(text: str, inventory: str, name: str) -> str:
    """Return the text of a page for a host, by its inventory and short name; empty for none.

    Lines that differ only by the host are as the first host of the block has them.
    """
    every: dict[str, list[str]] = {}
    result: list[str] = []
    heading, is_here = "", False
    for line in text.splitlines():
        if line.startswith(HOSTS):
            every = _hosts(line.removeprefix(HOSTS), {})
        elif line.startswith("=== "):
            if is_here and result and not result[-1]:
                result.pop()
            heading, is_here = line, False
        elif on := ON.match(line):
            is_here = name in _hosts(on[1], every).get(inventory, ())
            result += [heading] if is_here and heading else []
            heading = ""
        elif is_here:
            result.append(line.removeprefix(INDENT))
    return "\n".join(result)


def _hosts(listed: str, every: dict[str, list[str]]) -> dict[str, list[str]]:
    if listed == ALL:
        return every
    groups = (group.partition(": ") for group in listed.split("; "))
    return {
        inventory: names.split() if names else every.get(inventory, [])
        for inventory, _, names in groups
    }


def differences(present: Mapping[str, str], wanted: Mapping[str, str], place: str) -> Iterator[str]:
    """Yield a unified diff of each page that differs; each hunk names its file and hosts."""
    for name in sorted({*present, *wanted}):
        before, after = present.get(name, ""), wanted.get(name, "")
        if before != after:
            yield "\n".join(_difference(before, after, f"{place}/{name}"))


def _difference(before: str, after: str, path: str) -> Iterator[str]:
    lines = after.splitlines()
    for line in difflib.unified_diff(
        before.splitlines(), lines, path, f"{path} (now)", lineterm="", n=2
    ):
        hunk = HUNK.match(line)
        yield f"{line} {_above(lines[: int(hunk[1])])}".rstrip() if hunk else line


def _above(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if ON.match(line)), "")
