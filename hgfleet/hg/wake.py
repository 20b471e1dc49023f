"""Client of the relay's wake socket, and the sentence about the mirrors after a change.

Each push runs this, so it imports nothing but sockets and JSON.
"""

from __future__ import annotations

import json
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

MAX_LINE: Final = 16 * 1024
"""Bytes of a request or an answer."""

MARGIN_SECONDS: Final = 1.0
"""How much longer than its wait the relay may take to answer."""

PAUSE_SECONDS: Final = 0.2
"""Between two attempts to reach a relay that is being restarted."""

MAX_NAMES: Final = 5

REGISTRY: Final = "registry"
"""Document of the user repositories and their readers."""

TOKENS: Final = "tokens"
"""Document of the access tokens."""

# Sentences about mirrors: that have the change; a single one that is late; several that are late;
# all mirrors while replication is down.
SHOWN: Final = (
    "visible on",
    "does not show it yet",
    "do not show it yet",
    "replication is down, mirrors will show it later",
)
GONE: Final = (
    "gone from",
    "may still show it",
    "may still show it",
    "replication is down, mirrors may show it until it is back",
)
ACCEPTED: Final = (
    "accepted on",
    "does not accept it yet",
    "do not accept it yet",
    "replication is down, mirrors will accept it later",
)
REFUSED: Final = (
    "refused on",
    "may still accept it",
    "may still accept it",
    "replication is down, mirrors may accept it until it is back",
)


def push_request(
    path: str, repository: str, number: int, hash_: str, session: str = ""
) -> dict[str, Any]:
    """Return the request that wakes the relay for a push: its repository's identity, its record.

    `session` is the id of its session. The path is for a relay of an older release.
    """
    request = {"path": path, "repository": repository, "id": number, "hash": hash_}
    return {**request, "session": session} if session else request


def document_request(name: str) -> dict[str, Any]:
    """Return the request that wakes the relay for a change of a document."""
    return {"document": name}


def line(request: Mapping[str, Any], wait: float) -> bytes:
    """Return the line of a request; `wait` is for how many seconds the session waits."""
    return json.dumps({**request, "wait": round(wait, 2)}).encode("ascii") + b"\n"


def ask(relay: str, request: Mapping[str, Any], wait: float) -> dict[str, Any] | None:
    """Wake the relay and return its answer; None without an answer in time.

    A relay that is being restarted is asked again: until it answers, mirrors that do not show the
    push yet are in use.
    """
    end = time.monotonic() + wait
    while True:
        left = max(0.0, end - time.monotonic())
        try:
            said = _exchange(relay, line(request, left), left + MARGIN_SECONDS)
        except OSError:
            said = b""
        if said.endswith(b"\n"):
            return _object(said)
        if time.monotonic() + PAUSE_SECONDS > end:
            return None
        time.sleep(PAUSE_SECONDS)


def _exchange(relay: str, said: bytes, seconds: float) -> bytes:
    """Send a line and return the relay's answer, incomplete if the relay has died."""
    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(MARGIN_SECONDS)
        connection.connect(relay)
        connection.sendall(said)
        answer = b""
        while not answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or len(answer) > MAX_LINE:
                break
            connection.settimeout(left)
            piece = connection.recv(MAX_LINE)
            if not piece:
                break
            answer += piece
    return answer


def _object(said: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(said)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def sentence(number: int, answer: Mapping[str, Any] | None, wait: float) -> str:
    """Return the sentence for the pusher; `answer` None: the relay gave none."""
    problem = answer.get("problem") if answer else None
    if isinstance(problem, str) and problem.isprintable() and problem:
        return f"push {number} recorded, {problem}"
    return f"push {number} recorded; {mirrors(answer, wait)}"


def mirrors(
    answer: Mapping[str, Any] | None, wait: float, words: tuple[str, str, str, str] = SHOWN
) -> str:
    """Return which mirrors have a change; `answer` None: the relay gave none."""
    have, is_late, are_late, later = words
    if answer is None or not answer.get("broker"):
        return later
    try:
        visible, of, seconds = int(answer["visible"]), int(answer["of"]), float(answer["seconds"])
        slow, down = _names(answer.get("slow")), _names(answer.get("down"))
    except (KeyError, TypeError, ValueError):
        return later
    text = f"{have} {visible}/{of} mirrors"
    if slow:
        late = is_late if len(slow) == 1 else are_late
        text = f"{_list(slow)} {late} (waited {wait:g} s); {text}"
    elif visible:
        text = f"{text} in {seconds:.2f} s"
    if down:
        text += f"; {_list(down)} {'is' if len(down) == 1 else 'are'} down"
    return text


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError("not a list of names")
    return value


def _list(names: list[str]) -> str:
    shown = [name for name in names if name.isprintable()][:MAX_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more
