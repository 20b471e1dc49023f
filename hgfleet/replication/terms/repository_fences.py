"""Fenced repositories of the primary: they take no pushes, because they lost published pushes.

After a power cut, a copy of an older backup or a mistake, the brokers, and so the mirrors, have
pushes that are not in the log of a repository. Another push would get the number of a lost push. So
the relay fences the repository: a file `fences/IDENTITY` in the folder of the term, which sessions
read (`hgfleet/pushlog/repository_fence.py`). The first line is the sentence for people, the second
line has the facts for programs. Only an operator's command removes the file
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
"""Folder of the fences, in the folder of the term."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A repository, and the push that is missing in its log."""

    repository: str
    path: str
    number: int = 0
    hash: str = ""
    epoch: int = 1
    """Epoch of the missing push, the last published push; `number` is 0 if the file is damaged."""
    here: int = 0
    """The last push of the log when it was fenced."""
    time: int = 0
    """Time of the fence, in seconds since 1970."""

    @property
    def sentence(self) -> str:
        """Why the repository takes no pushes, for its pushers."""
        return (
            f"mirrors have a push {self.number} of this repository that this host lost, so it "
            "takes no pushes until the operators have brought that push back or given it up"
        )

    @property
    def pusher(self) -> str:
        """Why mirrors do not get a push that was recorded before the relay saw the loss."""
        return (
            f"but mirrors do not get it: they have a push {self.number} of this repository that "
            "this host lost, and operators have to decide which push stays; keep your clone"
        )

    @property
    def operators(self) -> str:
        """Why the repository is fenced, for operators, with the way out."""
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
    """A log differs from the mirrors' log; or, if it is not `new`, it is fenced already."""

    def __init__(self, fenced: Fenced, *, new: bool = True) -> None:
        super().__init__(fenced.operators)
        self.fenced, self.new = fenced, new


def fence(terms: Path, fenced: Fenced) -> None:
    """Make sessions refuse pushes to a repository (I/O). Raises OSError."""
    folder = terms / FOLDER
    folder.mkdir(exist_ok=True)
    # Sessions of other users of the host must not write to it.
    folder.chmod(0o755)
    files.replace(folder / fenced.repository, fenced.text())


def find(terms: Path, repository: str) -> Fenced | None:
    """Return the fence of a repository; None if it has none (I/O)."""
    try:
        text = (terms / FOLDER / repository).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return Fenced(repository, repository)
    return parse(repository, text)


def parse(repository: str, text: bytes) -> Fenced:
    """Read the file of a repository; a damaged file fences it too."""
    try:
        data = json.loads(text.partition(b"\n")[2])
        made = Fenced(**data)
    except (ValueError, TypeError, RecursionError):
        return Fenced(repository, repository)
    numbers = (made.number, made.epoch, made.here, made.time)
    texts = (made.path, made.hash)
    is_right = all(type(n) is int for n in numbers) and all(isinstance(t, str) for t in texts)
    if not is_right or made.repository != repository:
        return Fenced(repository, repository)
    return made


def read(terms: Path) -> dict[str, Fenced]:
    """Return the fences of this host by identity (I/O). Raises OSError."""
    try:
        names = sorted(file.name for file in (terms / FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    fences = {name: find(terms, name) for name in names if is_identity(name)}
    return {name: fenced for name, fenced in fences.items() if fenced is not None}


def lift(terms: Path, repository: str) -> None:
    """Let sessions take pushes to a repository again (I/O)."""
    (terms / FOLDER / repository).unlink(missing_ok=True)
    files.sync(terms / FOLDER)
