"""Prepared answers: parts of an answer that cost the host nothing are ready before the queue.

`hgext/pullbundles.py` prepares the answer to a pull, and `hgext/admission.py` decides by `live`
whether it needs a slot.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Prepared:
    """An answer of a repository; `live` is the number of changesets that the host computes."""

    repository: Any
    live: int
    chunks: Callable[[], Iterator[bytes]]


_ready: ContextVar[Prepared | None] = ContextVar("hgfleet_prepared_answer", default=None)


def put(answer: Prepared | None) -> None:
    """Replace the prepared answer to the request of this thread; None: there is none."""
    _ready.set(answer)


def of(repository: Any) -> Prepared | None:
    """Return the prepared answer to the request, if it is an answer of this repository."""
    answer = _ready.get()
    return answer if answer is not None and answer.repository is repository else None
