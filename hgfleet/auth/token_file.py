"""The file of access tokens: read by hgfleet-auth, changed by the SSH shell.

    {"format": 1, "tokens": {"k3v7x2ab": {"owner": "bob", "sha256": "...", "description": "CI",
      "created": "2026-11-21T00:00:00Z", "expires": "2027-02-19T00:00:00Z", "scope": "read"}},
     "owner_ids": {"k3v7x2ab": "b862b310-7ccc-103d-..."}, "generation": {"number": 7, "term": 1}}

`owner_ids` has the person id of the owner (the entryUUID of the directory) by token: a token works
for the person who made it, and not for a later person of the same name. It is separate because a
mirror of an older release refuses a token with a further value. `generation` is the version of the
file (`core/generation.py`). A file without a generation was written by an older release. It is
older than the current file if it has a token that was removed: `.tokens-last.json` has the ids that
were written last.

The SSH shell writes the file as the user hg. `hgfleet-auth` reads it as hgauth, and notices each
change by the file's stat, so that a token is valid, or no longer valid, with the next request.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import re
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.auth.tokens import Token, Tokens, digest, is_token, moment, stamp_of
from hgfleet.core import files, generation, paths
from hgfleet.core.errors import HgfleetError, HostError
from hgfleet.core.names import is_person_id
from hgfleet.pushlog import term

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

PATH: Final = "/var/lib/hgfleet/dynamic/tokens/tokens.json"
"""In a folder of its own: its group, hgauth, becomes the group of each new version of the file."""

FORMAT: Final = 1
LARGEST_FILE: Final = 64 * 1024 * 1024
"""Bytes; 200,000 tokens."""

LAST: Final = ".tokens-last.json"
"""A file in the same folder: the ids that a writer of this release wrote last, and when."""

_ID = re.compile(r"[a-z2-7]{8}")
_HASH = re.compile(r"[0-9a-f]{64}")


class TokensError(HostError):
    """The file of tokens cannot be used."""


def parse(text: str) -> Tokens:
    """Check the file's text. Raises TokensError without any part of the text."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise TokensError(f"tokens of another format than {FORMAT}; a newer release wrote them")
        ids = data.get("owner_ids", {})
        return {name: _token(name, value, ids) for name, value in data["tokens"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TokensError(f"not a file of tokens ({type(error).__name__})") from None


def _token(name: str, value: dict[str, Any], ids: dict[str, Any]) -> Token:
    token = Token(**value, owner_id=ids.get(name, ""))
    fields = asdict(token).values()
    if not _ID.fullmatch(name) or not all(isinstance(field, str) for field in fields):
        raise ValueError("bad entry")
    if not _HASH.fullmatch(token.sha256):
        raise ValueError("bad hash")
    if token.owner_id and not is_person_id(token.owner_id):
        raise ValueError("bad id of an owner")
    moment(token.created)
    moment(token.expires)
    return token


def dump(tokens: Mapping[str, Token], version: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Render the file, the same text for the same tokens and generation."""
    entries = {name: asdict(tokens[name]) for name in sorted(tokens)}
    ids = {name: value.pop("owner_id") for name, value in entries.items()}
    known = {name: person_id for name, person_id in ids.items() if person_id}
    own = {"owner_ids": known} if known else {}
    known_as = {generation.KEY: version} if version else {}
    return json.dumps({"format": FORMAT, "tokens": entries, **own, **known_as}, indent=1) + "\n"


def load(path: str = PATH) -> Tokens:
    """Read the file; it does not exist before the first token. Raises TokensError."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            return parse(file.read(LARGEST_FILE))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise TokensError(f"{path}: {type(error).__name__}") from error


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    """Exclude other changes of the file; yields its folder, open. Raises TokensError."""
    folder = Path(path).parent
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TokensError(f"{folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with files.open_folder(folder) as descriptor:
            yield descriptor
    except OSError as error:
        raise TokensError(f"{path}: {error.strerror}") from error
    finally:
        os.close(lock)


@contextlib.contextmanager
def update(
    path: str = PATH, *, epoch: Path | str = paths.EPOCH, renews: bool = False
) -> Iterator[Tokens]:
    """Change the tokens in place, under a lock; the file is replaced at the end.

    `renews` gives an existing file another generation, if that is due, even without a change;
    `epoch` is the file with the epoch of this primary. Raises TokensError, also if the file is
    older than before; the file has not changed then.
    """
    with _locked(path) as folder:
        name, tokens = Path(path).name, load(path)
        before = dict(tokens)
        try:
            writer = generation.Writer(folder, name, _version(path), term.epoch(os.fspath(epoch)))
        except HgfleetError as error:
            raise TokensError(str(error)) from error
        if writer.may_be_older and (back := came_back(_last(path), before)):
            raise TokensError(str(writer.has_gone_back(f"token {min(back)} that was removed")))
        yield tokens
        if tokens != before or (renews and writer.is_due):
            text = dump(tokens, writer.next())
            writer.remember(text.encode())
            # The folder is setgid: the group that may read the file is the folder's group.
            files.replace_at(folder, name, text, mode=0o640, temporary=f"{name}.new")
            files.replace_at(folder, LAST, _record(tokens), mode=0o640, durable=False)
            writer.done()


class Last(NamedTuple):
    """The ids of the tokens that a writer of this release wrote last, and when."""

    ids: Collection[str]
    written: datetime


def came_back(last: Last | None, tokens: Tokens) -> list[str]:
    """Return tokens that were made before the last write, and that it did not write.

    A token that was made since then comes from a session of an older release.
    """
    if last is None:
        return []
    return [
        name
        for name, token in tokens.items()
        if name not in last.ids and moment(token.created) < last.written
    ]


def _record(tokens: Tokens) -> str:
    return json.dumps({"tokens": sorted(tokens), "written": stamp_of(datetime.now(UTC))}) + "\n"


def _last(path: str) -> Last | None:
    """Return the last written ids; None if they cannot be read, as may happen after a crash."""
    try:
        data = json.loads(Path(path).with_name(LAST).read_bytes())
        return Last(frozenset(map(str, data["tokens"])), moment(data["written"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def renew(path: str = PATH, epoch: Path | str = paths.EPOCH) -> None:
    """Give the tokens of a primary the generation that is due, if there are any."""
    if os.path.lexists(path):
        with update(path, epoch=epoch, renews=True):
            pass


def begin_term(path: str = PATH, epoch: Path | str = paths.EPOCH) -> None:
    """Make the tokens the newest, even if mirrors have later tokens: a new term.

    If the file was removed with all its tokens, a file without tokens is written.
    """
    name = Path(path).name
    if not os.path.lexists(path) and generation.read_beside(Path(path)).generation is None:
        return
    with _locked(path) as folder:
        if not os.path.lexists(path):
            files.replace_at(folder, name, dump({}), mode=0o640, temporary=f"{name}.new")
        generation.begin_term(folder, name, _version(path), term.epoch(os.fspath(epoch)))
    renew(path, epoch)


def _version(path: str) -> generation.Version | None:
    """Return the version of the file, None where there is none."""
    try:
        return generation.version(Path(path).read_bytes())
    except FileNotFoundError:
        return None


class Watched:
    """The tokens by hash, read again when the file's stat says that it changed. Safe in threads."""

    def __init__(self, path: str = PATH) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._by_hash: dict[str, tuple[str, Token]] = {}

    def find(self, secret: str) -> tuple[str, Token] | None:
        """Return id and token of a secret, expired or not. Raises TokensError."""
        if not is_token(secret):
            return None
        wanted = digest(secret)
        match = self._current().get(wanted)
        # A client cannot choose the hash freely, so the time of the dictionary reveals nothing.
        if match is None or not hmac.compare_digest(match[1].sha256, wanted):
            return None
        return match

    def _current(self) -> dict[str, tuple[str, Token]]:
        with self._lock:
            try:
                status = Path(self._path).stat()
            except FileNotFoundError:
                stamp: tuple[int, ...] = ()
            except OSError as error:
                raise TokensError(f"{self._path}: {error.strerror}") from error
            else:
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if stamp != self._stamp:
                tokens = load(self._path)
                self._by_hash = {token.sha256: (name, token) for name, token in tokens.items()}
                self._stamp = stamp
            return self._by_hash
