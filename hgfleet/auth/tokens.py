"""Access tokens: secrets that let a person's scripts read over HTTPS, and nothing else.

`ssh hg@HOST token create` shows a token once; what is kept is its SHA-256, with owner, description
and times. (A plain hash is enough: there are 200 random bits to guess, which no dictionary has.)
The SSH shell writes the file as the user hg; `hgfleet-auth` reads it as hgauth, and notices each
change by the file's stat, so that a token is good, or no longer good, with the next request.

    {"format": 1, "tokens": {"k3v9x2ab": {"owner": "bob", "sha256": "...", "description": "CI",
      "created": "2026-11-21T00:00:00Z", "expires": "2027-02-19T00:00:00Z", "scope": "read"}}}

A token is worth what its owner may read at that moment; it ends with the owner, with `token revoke`
or at its time.

This module is imported by the SSH shell, so it imports little at the top.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import AccessDeniedError, HostError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOKENS: Final = "/var/lib/hgfleet/dynamic/tokens/tokens.json"
"""In a folder of its own: its group, hgauth, becomes the group of each new version of the file."""

FORMAT: Final = 1
READ: Final = "read"

PREFIX: Final = "hgt_"
"""Makes tokens easy to find where they should not be, by people and by scanners of secrets."""

_RANDOM_BYTES: Final = 25
_ID_LENGTH: Final = 8

DAYS: Final = 90
MOST_DAYS: Final = 366
MOST_TOKENS: Final = 50
"""Of one person."""
MOST_DESCRIPTION: Final = 100

LARGEST_FILE: Final = 64 * 1024 * 1024
"""Bytes; 200,000 tokens."""

# Base32 in lower case: no letter looks like a digit, and a double click selects all of it.
_TOKEN = re.compile(r"hgt_[a-z2-7]{40}")
_ID = re.compile(r"[a-z2-7]{8}")
_HASH = re.compile(r"[0-9a-f]{64}")

HELP: Final = (
    ("token create [--days N] [DESCRIPTION]", "make a token for reading over HTTPS"),
    ("token list", "your tokens"),
    ("token revoke ID", "end one, at once"),
)
"""Lines for the shell's help."""


class TokensError(HostError):
    """The file of tokens cannot be used."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; times are RFC 3339 in UTC, with seconds."""

    owner: str
    sha256: str
    description: str
    created: str
    expires: str
    scope: str = READ

    def is_valid(self, now: datetime) -> bool:
        """Whether its time has not come, and it is of the kind that this release knows."""
        return self.scope == READ and now < _moment(self.expires)


Tokens = dict[str, Token]
"""By id."""


# --- decisions ------------------------------------------------------------------------------


def looks_like_token(secret: str) -> bool:
    """Whether a secret means to be a token; no password is taken for what begins like one."""
    return secret.startswith(PREFIX)


def digest(secret: str) -> str:
    """What is kept of a token."""
    import hashlib

    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    """Make a token: 200 random bits."""
    return PREFIX + _random_text(_RANDOM_BYTES)


def _random_text(count: int) -> str:
    import base64

    return base64.b32encode(os.urandom(count)).decode("ascii").lower()


def create(
    tokens: Mapping[str, Token], owner: str, description: str, days: int, now: datetime
) -> tuple[Tokens, str, str]:
    """Add a token; return all tokens, the new one's id, and its secret. Expired ones go."""
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"--days: got {days}, expected a number from 1 to {MOST_DAYS}.")
    if len(description) > MOST_DESCRIPTION or not description.isprintable():
        raise UsageError(
            f"The description should be one line of at most {MOST_DESCRIPTION} characters."
        )
    kept = {name: token for name, token in tokens.items() if token.is_valid(now)}
    if sum(token.owner == owner for token in kept.values()) >= MOST_TOKENS:
        raise AccessDeniedError(
            f"You have {MOST_TOKENS} tokens, and more are not given: "
            '"token list" shows them, "token revoke ID" ends one.'
        )
    secret = new_secret()
    identity = _random_text(5)[:_ID_LENGTH]
    while identity in kept:
        identity = _random_text(5)[:_ID_LENGTH]
    kept[identity] = Token(
        owner=owner,
        sha256=digest(secret),
        description=description,
        created=_stamp(now),
        expires=_stamp(now + timedelta(days=days)),
    )
    return kept, identity, secret


def revoke(tokens: Mapping[str, Token], owner: str, identity: str) -> Tokens:
    """Take a token away. One of somebody else is answered as one that does not exist."""
    token = tokens.get(identity)
    if token is None or token.owner != owner:
        raise UsageError('You have no such token; "token list" shows those that you have.')
    return {name: token for name, token in tokens.items() if name != identity}


def list_text(tokens: Mapping[str, Token], owner: str, now: datetime) -> str:
    """Return the answer to `token list`."""
    mine = {n: t for n, t in tokens.items() if t.owner == owner and t.is_valid(now)}
    if not mine:
        return 'You have no tokens; "token create" makes one.\n'
    lines = [f"{'id':<{_ID_LENGTH}}  {'created':<10}  {'expires':<10}  description"]
    for name, token in sorted(mine.items(), key=lambda item: (item[1].created, item[0])):
        line = f"{name}  {token.created[:10]}  {token.expires[:10]}  {token.description}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


# --- the file -------------------------------------------------------------------------------


def parse(text: str) -> Tokens:
    """Check the file's text. Raises TokensError that repeats nothing of it."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise TokensError(f"tokens of another format than {FORMAT}; a newer release wrote them")
        return {name: _token(name, value) for name, value in data["tokens"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TokensError(f"no file of tokens ({type(error).__name__})") from None


def _token(name: str, value: dict[str, Any]) -> Token:
    token = Token(**value)
    fields = asdict(token).values()
    if not _ID.fullmatch(name) or not all(isinstance(field, str) for field in fields):
        raise ValueError("bad entry")
    if not _HASH.fullmatch(token.sha256):
        raise ValueError("bad hash")
    _moment(token.created)
    _moment(token.expires)
    return token


def dump(tokens: Mapping[str, Token]) -> str:
    """Render the file, the same text for the same tokens."""
    entries = {name: asdict(tokens[name]) for name in sorted(tokens)}
    return json.dumps({"format": FORMAT, "tokens": entries}, indent=1) + "\n"


def load(path: str = TOKENS) -> Tokens:
    """Read the file; before the first token there is none. Raises TokensError."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            return parse(file.read(LARGEST_FILE))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise TokensError(f"{path}: {type(error).__name__}") from error


@contextlib.contextmanager
def update(path: str = TOKENS) -> Iterator[Tokens]:
    """Change the tokens in place, alone; the file is replaced at the end, complete and on disk.

    Raises TokensError, and then nothing has changed.
    """
    import fcntl

    folder = os.path.dirname(path)  # noqa: PTH120  (pathlib is slow to import)
    try:
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TokensError(f"{folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = load(path)
        before = dict(tokens)
        yield tokens
        if tokens != before:
            _replace(path, dump(tokens))
    finally:
        os.close(lock)


def _replace(path: str, text: str) -> None:
    folder = os.path.dirname(path)  # noqa: PTH120
    new = f"{path}.new"
    try:
        # Under the lock, a file of that name is what a killed process left. The folder is setgid:
        # the group that may read is its group.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)  # noqa: PTH108
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
            os.fchmod(descriptor, 0o640)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.rename(new, path)  # noqa: PTH104
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        raise TokensError(f"{path}: {error.strerror}") from error


class Watched:
    """The tokens by hash, read again when the file's stat says that it changed. Safe in threads."""

    def __init__(self, path: str = TOKENS) -> None:
        import threading

        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._by_hash: dict[str, tuple[str, Token]] = {}

    def find(self, secret: str) -> tuple[str, Token] | None:
        """The id and token of a secret, valid or not. Raises TokensError."""
        if not _TOKEN.fullmatch(secret):
            return None
        import hmac

        wanted = digest(secret)
        found = self._current().get(wanted)
        # Found by a hash that nobody can choose freely, so the dictionary's time tells nothing.
        if found is None or not hmac.compare_digest(found[1].sha256, wanted):
            return None
        return found

    def _current(self) -> dict[str, tuple[str, Token]]:
        with self._lock:
            try:
                found = os.stat(self._path)  # noqa: PTH116
            except FileNotFoundError:
                stamp: tuple[int, ...] = ()
            except OSError as error:
                raise TokensError(f"{self._path}: {error.strerror}") from error
            else:
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if stamp != self._stamp:
                tokens = load(self._path)
                self._by_hash = {token.sha256: (name, token) for name, token in tokens.items()}
                self._stamp = stamp
            return self._by_hash


# --- the shell's commands -------------------------------------------------------------------


def command(
    words: Sequence[str], person: str, path: str = TOKENS, now: datetime | None = None
) -> str:
    """Carry out `token WORDS...` for a person; return what to print.

    Raises UsageError, AccessDeniedError and TokensError.
    """
    moment = now or datetime.fromtimestamp(int(time.time()), UTC)
    match list(words):
        case ["create", *rest]:
            days, description = _create_arguments(rest)
            with update(path) as tokens:
                kept, identity, secret = create(tokens, person, description, days, moment)
                tokens.clear()
                tokens.update(kept)
            expires = kept[identity].expires[:10]
            return (
                f"{secret}\n\n"
                f"This is token {identity}. It is shown this once, reads what you may read, and\n"
                f"ends on {expires}. Use it as the password of {person} over HTTPS.\n"
            )
        case ["list"]:
            return list_text(load(path), person, moment)
        case ["revoke", identity]:
            with update(path) as tokens:
                left = revoke(tokens, person, identity)
                tokens.clear()
                tokens.update(left)
            return f"Token {identity} is revoked.\n"
    forms = ", ".join(f'"{form}"' for form, _ in HELP)
    raise UsageError(f"Expected one of {forms}.")


def _create_arguments(words: Sequence[str]) -> tuple[int, str]:
    days = DAYS
    rest = list(words)
    if rest and rest[0] == "--days":
        if len(rest) < 2 or not re.fullmatch(r"[0-9]{1,4}", rest[1]):
            raise UsageError("--days: expected a number of days behind it.")
        days = int(rest[1])
        rest = rest[2:]
    if rest and rest[0].startswith("-"):
        raise UsageError('"token create" has one option, --days N, in front of the description.')
    return days, " ".join(rest)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(stamp: str) -> datetime:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
