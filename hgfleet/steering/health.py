"""Health of endpoints and objects, as a state that probes change.

On each host that serves clones, a prober probes every endpoint all the time. A single failed probe
takes an endpoint down, because a client that is sent to a dead endpoint loses its clone. The
endpoint comes up again after several good probes in a row, so an endpoint that answers every other
time stays down. An answer that is too slow is a failed probe: to a client, 1 B/s is as bad as
silence.

The state consists of two files. The first has the conditions of the endpoints. The prober replaces
it after each round; a file older than `MAX_AGE_SECONDS` means that no prober is running, and is
ignored. The second has a line for each object about which the manifest does not say enough: dead
objects, and copies that were read. It is sorted by URL, so that a request for a manifest finds its
few objects among tens of thousands by bisection. The prober replaces it only when a finding
changes, and always before the first file.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import stored_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

FORMAT: Final = 3
GOOD_IN_A_ROW: Final = 3
"""Good probes in a row before a failed endpoint is advertised again."""

MAX_AGE_SECONDS: Final = 15.0
"""The age beyond which a state is ignored: once the prober has stopped, clients must not be sent to
an endpoint that died since."""

_DEAD: Final = b"dead "
_READ: Final = b"read"


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of an endpoint; `problem` describes the last failed probe."""

    is_up: bool = False
    good: int = 0
    problem: str = "not probed yet"

    def after(self, problem: str | None) -> Condition:
        """Return the condition after another probe; `problem` is None for a good probe."""
        if problem is not None:
            return Condition(False, 0, problem)
        good = min(self.good + 1, GOOD_IN_A_ROW)
        # The very first probe decides at once, so a prober that starts does not leave clients
        # without bundles for some rounds.
        is_up = self.is_up or good >= GOOD_IN_A_ROW or self == Condition()
        return Condition(is_up, good, "" if is_up else self.problem)


@dataclass(frozen=True, slots=True)
class Health:
    """The conditions of all endpoints by name.

    `written` is in seconds since 1970.
    """

    written: float
    endpoints: Mapping[str, Condition] = field(default_factory=dict)

    def down(self, names: Collection[str]) -> frozenset[str]:
        """Return the endpoints that must not be advertised, those without a probe included."""
        return frozenset(name for name in names if not self.endpoints.get(name, Condition()).is_up)

    def is_current(self, now: float) -> bool:
        """Whether the state counts; a time in the future is as wrong as an old time."""
        return stored_time.age(self.written, now, MAX_AGE_SECONDS) <= MAX_AGE_SECONDS


@dataclass(frozen=True, slots=True)
class Findings:
    """The URLs of dead objects with the reasons, and the URLs of copies that may be advertised.

    `read` has the URLs of copies (`Endpoint.origin`) whose content was read and is right; manifests
    do not name them. An object in both sets is dead.
    """

    dead: Mapping[str, str] = field(default_factory=dict)
    read: Collection[str] = frozenset()


def objects_file(health: Path) -> Path:
    """Return the path of the findings about objects, in the folder of the endpoints' state."""
    return health.with_suffix(".objects")


def dump(health: Health) -> str:
    """Render the state of the endpoints as JSON."""
    return json.dumps(
        {
            "format": FORMAT,
            "written": health.written,
            "endpoints": {
                name: {"up": condition.is_up, "good": condition.good, "problem": condition.problem}
                for name, condition in sorted(health.endpoints.items())
            },
        },
        indent=1,
    )


def parse(text: str) -> Health | None:
    """Parse the state of the endpoints; None for any other text."""
    try:
        data: Any = json.loads(text)
        if data["format"] != FORMAT:
            return None
        return Health(
            written=float(data["written"]),
            endpoints={
                name: Condition(
                    condition["up"] is True, int(condition["good"]), str(condition["problem"])
                )
                for name, condition in data["endpoints"].items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def dump_findings(findings: Findings) -> bytes:
    """Render the findings: `URL dead REASON` or `URL read`, sorted by the bytes of the URL."""
    lines = {url.encode("utf-8"): _READ for url in findings.read}
    for url, reason in findings.dead.items():
        # URLs contain no blanks: a blank ends the URL in a manifest.
        lines[url.encode("utf-8")] = _DEAD + " ".join(reason.split()).encode("utf-8")
    return b"".join(b"%s %s\n" % (url, lines[url]) for url in sorted(lines))


def parse_findings(data: bytes) -> Findings:
    """Parse all findings."""
    return _findings(line.partition(b" ")[::2] for line in data.splitlines())


def look_up(path: Path, urls: Iterable[str]) -> Findings:
    """Return the findings about these objects only; raises OSError if the file is missing."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return Findings()
        # The prober replaces the file by a rename and never writes to it, so the map stays valid.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
            sought = {url.encode("utf-8") for url in urls}
            states = ((url, bisect(lines, url)) for url in sought)
            return _findings((url, state) for url, state in states if state is not None)


def bisect(lines: bytes | mmap.mmap, url: bytes) -> bytes | None:
    """Return the text after a URL in sorted lines, or None if the URL has no line."""
    low, high = 0, len(lines)
    while low < high:
        start = max(low, lines.rfind(b"\n", low, (low + high) // 2) + 1)
        end = lines.find(b"\n", start)
        end = len(lines) if end < 0 else end
        key, _, state = lines[start:end].partition(b" ")
        if key == url:
            return state
        if key < url:
            low = end + 1
        else:
            high = start
    return None


def _findings(states: Iterable[tuple[bytes, ...]]) -> Findings:
    dead, read = {}, set()
    for url, state in states:
        if state == _READ:
            read.add(url.decode("utf-8", "replace"))
        else:
            # A damaged line is a reason to leave the object out.
            reason = state.removeprefix(_DEAD).decode("utf-8", "replace")
            dead[url.decode("utf-8", "replace")] = reason
    return Findings(dead, frozenset(read))
