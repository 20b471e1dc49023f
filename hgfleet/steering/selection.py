"""Selection of the objects that one round of probes requests and reads. Pure.

Each object has a state between rounds; the round number is the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.steering.connection import EndpointError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hgfleet.bundles.manifest import Entry

ROUNDS: Final = 3
"""Rounds in which every object is requested once, and read once if all of them are small."""

MOST: Final = 200
"""Objects requested in one round at one endpoint; about 2 ms each within a region."""

OTHERS: Final = 10
"""Further objects requested after a 403 for all objects of a round."""

REFUSED: Final = "the answer is 403"
"""For every object: the bucket has lost its policy, or refuses the reader's key.

For one object: it is missing. S3 answers 403 AccessDenied for a missing key to a client without
s3:ListBucket, and 404 with it (AWS, API reference of GetObject); clients of bundles list nothing.
"""


class ObjectError(Exception):
    """The endpoint answers, but not with the object that the manifest names."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The headers that change when an object is replaced."""

    etag: str
    modified: str


@dataclass
class ObjectState:
    """The state of one object between rounds.

    `asked` is the last round in which the object answered a request for its headers, `compared` the
    last round that read the end of its content; 0 before the first. `headers` and `content` are the
    problems of either, or "".
    """

    is_urgent: bool = False
    """To be read before all objects that are not urgent."""
    seen: Validators | None = None
    asked: int = 0
    compared: int = 0
    headers: str = ""
    content: str = ""


def classify(status: int, length: int, expected: int) -> None:
    """Check the headers of an object; raises EndpointError or ObjectError.

    A 403 counts as an error of the object until the other answers are known (`is_closed`).
    """
    if status in (403, 404, 410):
        raise ObjectError(f"the answer is {status}")
    if status not in (200, 206):
        raise EndpointError(f"the answer is {status}")
    if length != expected:
        raise ObjectError(f"it has {length:,} bytes instead of {expected:,}")


def is_closed(answers: Collection[str]) -> bool:
    """Whether a 403 is an error of the endpoint; `answers` are the problems of the objects.

    As long as one object of the endpoint answers well (""), a 403 is an error of the object.
    """
    return REFUSED in answers and "" not in answers


def witnesses(known: Mapping[Entry, ObjectState], asked: Collection[Entry]) -> list[Entry]:
    """Return the objects to request after a 403 for all of `asked`.

    Objects that answered well come first, the latest of them before the others: objects that are
    missing together were uploaded together, and are requested in the same rounds.
    """
    others = [entry for entry in known if entry not in asked]
    return sorted(others, key=lambda e: (bool(known[e].headers), -known[e].asked))[:OTHERS]


def batch(known: Mapping[Entry, ObjectState]) -> list[Entry]:
    """Return the objects of one round: the new ones, and a third of the others, oldest first.

    At most `MOST` of each.
    """
    new = [entry for entry, one in known.items() if not one.asked]
    old = sorted((e for e, one in known.items() if one.asked), key=lambda e: known[e].asked)
    return new[:MOST] + old[: min(MOST, -(-len(old) // ROUNDS))]


def next_to_read(known: Mapping[Entry, ObjectState], number: int) -> Entry | None:
    """Return the object to read next: the smallest urgent one, else the longest unread one.

    An object that does not answer cannot be read. An object that was compared in this round, which
    is `number`, is read again in a later one.
    """
    return min(
        (e for e, one in known.items() if one.asked and not one.headers and one.compared < number),
        key=lambda e: (not known[e].is_urgent, known[e].compared, e.size),
        default=None,
    )
