"""Repositories of the primary that take no pushes: mirrors have pushes that their logs do not have.

A power cut, a copy of an older backup or a mistake has put a repository back: the brokers, and so
the mirrors, have pushes that are not in its log. Another push would get the number of a lost one.
So the relay fences the repository: a file `fences/IDENTITY` in the folder of the term, which
sessions read (`hgfleet/pushlog/repository_fence.py`). The first line is the sentence for people,
the second one the facts for programs. Only an operator's command removes the file
(`hgfleet replication lift`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import PushlogError
from hgfleet.core.identity import is_identity

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "fences"
"""In the folder of the term."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A repository, and the push that is missing in its log."""

    repository: str
    path: str
    number: int = 0
    hash: str = ""
    epoch: int = 1
    """Of the push that is missing, the last one that was published; 0 where the file is damaged."""
    here: int = 0
    """The last push of the log when it was fenced."""
    time: int = 0
    """Of the fence, in seconds since 1970."""

    @property
    def sentence(self) -> str:
        """Why the repository takes no pushes, for its pushers."""
        return (
            f"mirrors have a push {self.number} of this repository that this host lost, so it "
            "takes no pushes until the operators have brought that push back or given it up"
        )

    @property
    def pusher(self) -> str:
        """What the person reads whose push was recorded before the relay saw the loss."""
        return (
            f"but mirrors do not get it: they have a push {self.number} of this repository that "
            "this host lost, and operators have to decide which one stays; keep your clone"
        )

    @property
    def operators(self) -> str:
        """The same for operators, with the way out."""
        return (
            f"fenced: push {self.number} ({self.hash[:12] or 'of unknown hash'}), which mirrors "
            f"have, is not in the push log of {self.path}, whose last push is {self.here}; bring "
            f"it back, or give it up: `hgfleet replication lift {self.path}` (runbook "
            "hgfleet-relay)"
        )

    def text(self) -> str:
        """Return the content of the file."""
        return f"{self.sentence}\n{json.dumps(asdict(self))}\n"


class ForkedError(PushlogError):
    """A log is not the one that mirrors have; or, where it is not `new`, it has a fence already."""

    def __init__(self, fenced: Fenced, *, new: bool = True) -> None:
        super().__init__(fenced.operators)
        self.fenced, self.new = fenced, new


def fence(terms: Path, fenced: Fenced) -> None:
    """Have sessions refuse pushes to a repository (I/O). Raises OSError."""
    folder = terms / FOLDER
    folder.mkdir(exist_ok=True)
    # Sessions of other users of the host do not write it.
    folder.chmod(0o755)
    files.replace(folder / fenced.repository, fenced.text())


def find(terms: Path, repository: str) -> Fenced | None:
    """Return the fence of a repository, None without one (I/O)."""
    try:
        text = (terms / FOLDER / repository).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return Fenced(repository, repository)
    return parse(repository, text)


def parse(repository: str, text: bytes) -> Fenced:
    """Read the file of a repository; a damaged one fences it too."""
    try:
        data = json.loads(text.partition(b"\n")[2])
        made = Fenced(**data)
    except (ValueError, TypeError, RecursionError):
        return Fenced(repository, repository)
    numbers = (made.number, made.epoch, made.here, made.time)
    texts = (made.path, made.hash)
    is_right = all(type(one) is int for one in numbers) and all(isinstance(o, str) for o in texts)
    if not is_right or made.repository != repository:
        return Fenced(repository, repository)
    return made


def read(terms: Path) -> dict[str, Fenced]:
    """Return the fences of this host by identity (I/O). Raises OSError."""
    try:
        names = sorted(one.name for one in (terms / FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {name: find(terms, name) for name in names if is_identity(name)}
    return {name: one for name, one in found.items() if one is not None}


def lift(terms: Path, repository: str) -> None:
    """Have sessions take pushes to a repository again (I/O)."""
    (terms / FOLDER / repository).unlink(missing_ok=True)
    files.sync(terms / FOLDER)
