"""Copy of a push that the site requires on another host before a push may begin. Pure.

Each push runs this on a site with such a requirement, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

NONE: Final = "none"
BROKER: Final = "broker"
MIRROR: Final = "mirror"

CHOICES: Final = (NONE, BROKER, MIRROR)
"""Values of `replication_require`; a mirror gets its copy from the broker."""

_WAY_OUT: Final = "nothing was changed; push again in a minute, or tell the operators"


def request(required: str) -> dict[str, Any]:
    """Return the request that asks the relay whether this copy can be made."""
    return {"require": required}


def can_be_had(required: str, *, takes: bool, live: int) -> bool:
    """Whether a push gets the copy now; `takes` says that the broker takes pushes.

    `live` is the number of mirrors that are connected and have caught up.
    """
    return takes and (required != MIRROR or live > 0)


def refusal(required: str, answer: Mapping[str, Any] | None) -> str:
    """Return why a push may not begin, "" if it may; `answer` None: the relay gave none."""
    if required == NONE:
        return ""
    if required not in CHOICES:
        return (
            f"the setting replication-require is {required!r:.40}, expected {', '.join(CHOICES)}; "
            "nothing was changed; tell the operators (role `mercurial`)"
        )
    if answer is None:
        cause = "the relay of this host does not answer"
    elif answer.get("broker") is not True:
        cause = "the broker is away, or takes no pushes"
    elif required == MIRROR and not _is_count(answer.get("visible")):
        cause = "no mirror is connected and up to date"
    else:
        return ""
    where = "on a mirror" if required == MIRROR else "at the broker"
    return f"each push needs a copy {where} here (replication_require), and {cause}: {_WAY_OUT}"


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0
