"""The intent of a removal: what a killed `hg strip` had left to do. Pure.

Core removes changesets in several transactions, and the record of the removal has another one
after them. A process that is killed between them leaves a store that its push log does not explain.
So a removal begins with a file in the store, the intent, which the next writer completes or
withdraws under the lock (`removing.py`).
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import PushlogError
from hgfleet.core.identity import is_identity
from hgfleet.pushlog.record import Heads, is_hash

if TYPE_CHECKING:
    from hgfleet.pushlog.log_file import Tip
    from hgfleet.pushlog.record import Node

NAME: Final = "pushlog-removal"
"""Name of the file, in the store of a repository."""

VERSION: Final = 1

_NODE: Final = re.compile(r"[0-9a-f]{40}")
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{0,256}")
_BUNDLE: Final = re.compile(r"(?:[0-9a-f]{12}-[0-9a-f]{8}-temp\.hg)?")


@dataclass(frozen=True, slots=True)
class Intent:
    """A removal that is about to begin, and the state of the repository before it."""

    repository: str
    """Identity; "" if neither store nor log has an identity yet."""
    last: int
    hash: str
    """Number and hash of the last record, 0 and `record.FIRST` without a record."""
    heads: tuple[Node, ...]
    bookmarks: tuple[tuple[str, Node], ...]
    gone: tuple[Node, ...]
    """The changesets that are removed, in the order of the store."""
    after: str
    """Digest of the heads that are left."""
    moves: tuple[tuple[str, Node], ...]
    """The bookmarks of removed changesets, and where they go."""
    is_recorded: bool
    """False if the store had already changed without a record: this removal gets none either."""
    user: str
    key: str
    client: str
    kept: str = ""
    """The bundle in `strip-backup` with the changesets that core adds again; "" without any."""

    @property
    def before(self) -> str:
        """Return the digest of the heads before the removal."""
        return Heads.digest_of(self.heads)

    def text(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"v": VERSION, **asdict(self)}, sort_keys=True).encode("ascii") + b"\n"


def parse(text: bytes) -> Intent:
    """Read the content of the file; raises PushlogError."""
    try:
        data = json.loads(text)
        version = data.pop("v")
        if version != VERSION:
            raise PushlogError(
                f"{NAME} has version {version!r:.20}, expected {VERSION}; deploy the newer release "
                "that wrote it"
            )
        return _intent(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PushlogError(
            f"{NAME} is not an intent of a removal ({type(error).__name__}: {error!s:.80})"
        ) from error


def _intent(data: dict[str, Any]) -> Intent:
    intent = Intent(
        **data
        | {name: tuple(data[name]) for name in ("heads", "gone")}
        | {name: tuple((mark, node) for mark, node in data[name]) for name in _MARKS}
    )
    nodes = (*intent.heads, *intent.gone, *(node for _, node in (*intent.bookmarks, *intent.moves)))
    is_right = (
        (intent.repository == "" or is_identity(intent.repository))
        and type(intent.last) is int
        and is_hash(intent.hash)
        and is_hash(intent.after)
        and all(_NODE.fullmatch(node) for node in nodes)
        and all(_PRINTABLE.fullmatch(value) for value in (intent.user, intent.key, intent.client))
        and _BUNDLE.fullmatch(intent.kept)
        and type(intent.is_recorded) is bool
        and intent.gone
    )
    if not is_right:
        raise ValueError("a value has another form")
    return intent


_MARKS: Final = ("bookmarks", "moves")


class Step(enum.Enum):
    """How the next writer treats an intent."""

    STALE = "is of another state of the repository"
    WITHDRAW = "had not begun"
    RECORD = "was complete"
    RESTORE = "had removed changesets that stay"


def decide(intent: Intent, identity: str, tip: Tip, digest: str) -> Step:
    """Decide about an intent that was found in a store without an open transaction.

    `identity` is of the store, `tip` of its push log, `digest` of its heads now. An intent that
    came with a copy of another repository, or with a backup, says nothing about this state.
    """
    own = identity or tip.repository
    if own and intent.repository and own != intent.repository:
        return Step.STALE
    if (tip.id, tip.hash) != (intent.last, intent.hash):
        return Step.STALE
    # The heads of the store show how far the removal came. With the heads of before, it had not
    # begun. With the heads of after, only its record is missing. With any others, core was killed
    # after it had removed changesets that stay, and before it had added them again.
    if digest == intent.before:
        return Step.WITHDRAW
    return Step.RECORD if digest == intent.after else Step.RESTORE
