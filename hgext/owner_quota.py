"""refuse pushes that take the repositories of an owner above a limit of size.

The limit holds for all repositories together that a person created over SSH, including archived
repositories, and for every push to them::

  [hgfleet]
  # "0": no limit
  owner-quota = 5 GB

The owner and the path of a repository are in its own hgrc, written by ``hgfleet registry apply``.
The registry (``dynamic``, see the extension ``access``) has the other repositories of that person.
Repositories without an owner have no limit here.

==============================  ==============================================================
state                           answer
==============================  ==============================================================
below the limit                 allowed; the new size is recorded in ``.hg/hgfleet-disk-size``
above it                        refused; the sentence has the sizes and the way out
nothing is added                allowed: phases, bookmarks, and ``hg debugstrip`` of an operator
``operator:NAME``               allowed, and recorded
the dynamic registry is damaged only the size of this repository counts
reservations cannot be made     compared with the current sizes, and logged
==============================  ==============================================================

Sizes are blocks on the disk. A push reserves its bytes until its transaction is permanent, so
pushes and forks of an owner at the same time are compared with each other
(``hgfleet/registry/dynamic/size_reservations.py``).

Enable it for all processes that write on the server::

  [extensions]
  owner_quota = /opt/hgfleet/current/hgext/owner_quota.py
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mercurial import registrar

from hgfleet.core.errors import RegistryError, TemporaryError
from hgfleet.core.principal import Principal
from hgfleet.hg import store_size
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer
from hgfleet.registry.dynamic import repository_sizes, size_reservations, user_repositories

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.registry.dynamic.size_reservations import Owner, Reservation

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"owner-quota", default=0)


def reposetup(_ui: Any, repo: Any) -> None:
    """Check every transaction of a user repository on this host's disk before it is permanent."""
    if repo.local() and repo.ui.config(b"hgfleet", b"owner"):
        repo.ui.setconfig(b"hooks", b"pretxnopen.owner_quota", measure, b"owner_quota")
        repo.ui.setconfig(b"hooks", b"pretxnclose.owner_quota", check, b"owner_quota")


def measure(repo: Any, **_news: object) -> None:
    """Record the size before a transaction (a hook): during it, a store has some files twice."""
    repository_sizes.remembered(Path(os.fsdecode(repo.root)))


def check(ui: Any, repo: Any, **_news: object) -> None:
    """Refuse a transaction above the limit (a hook); record the size after any other."""
    change = Change(repo, lengths(repo))
    added = change.growth(is_open=True)
    before = size_before(change.place, added)
    allowed = ui.configbytes(b"hgfleet", b"owner-quota")
    owner = text(ui.config(b"hgfleet", b"owner"))
    reservation: Reservation | None = None
    if allowed and added > 0 and not OPERATOR.fullmatch(writer().name):
        with locked(ui, owner) as lock:
            used = before + others(ui, change.place, owner, lock)
            sentence = repository_sizes.refusal(owner, used, added, allowed)
            if sentence is not None:
                refuse(ui, sentence, reason="quota")
            reservation = reserve(ui, lock, added)
    transaction = repo.currenttransaction()

    def end(_transaction: Any) -> None:
        if reservation is not None:
            reservation.release()

    def record(_transaction: Any) -> None:
        size = before + change.growth(is_open=False)
        if reservation is None:
            if size != before:
                repository_sizes.remember(change.place, size)
            return
        with contextlib.ExitStack() as stack:
            # Without the lock, another change may count both the new size and the reservation.
            with contextlib.suppress(OSError, TemporaryError):
                stack.enter_context(size_reservations.locked(folder_of(ui), owner, wait=1))
            repository_sizes.remember(change.place, size)
            reservation.release()

    transaction.addpostclose(b"owner_quota", record)
    transaction.addabort(b"owner_quota", end)


def folder_of(ui: Any) -> str:
    """Return the folder of reservations of this host."""
    return size_reservations.folder_of(os.fsdecode(ui.config(b"hgfleet", b"dynamic")))


@contextlib.contextmanager
def locked(ui: Any, owner: str) -> Iterator[Owner | None]:
    """Compare with the quota while no other change of the owner does, if possible."""
    with contextlib.ExitStack() as stack:
        lock = None
        try:
            lock = stack.enter_context(size_reservations.locked(folder_of(ui), owner))
        except OSError as problem:
            # A folder that cannot be used must not end every push.
            log(ui, problem)
        except TemporaryError as problem:
            refuse(ui, str(problem), reason="locked")
        yield lock


def reserve(ui: Any, lock: Owner | None, added: int) -> Reservation | None:
    """Reserve the bytes of the push, if possible."""
    if lock is None:
        return None
    try:
        return lock.reserve(size_reservations.Reserved(added))
    except OSError as problem:
        log(ui, problem)
        return None


def log(ui: Any, problem: Exception) -> None:
    """Log for operators why the quota is compared with less than it should be."""
    ui.log(b"owner_quota", b"%s\n", str(problem).encode("utf-8", "replace"))


def size_before(place: Path, added: int) -> int:
    """Return the size before the open transaction, which has added so many bytes.

    A size that is measured now has these bytes already.
    """
    known = repository_sizes.recorded(place)
    return repository_sizes.measured(place) - added if known is None else known


def lengths(repo: Any) -> dict[bytes, int]:
    """Return the lengths before the open transaction of the files of the store that it changed.

    A transaction knows how long each file was (7.2: `_offsetmap`, and `_newfiles`).
    """
    transaction = repo.currenttransaction()
    before: dict[bytes, int] = dict.fromkeys(transaction._newfiles, 0)  # noqa: SLF001
    before |= transaction._offsetmap  # noqa: SLF001
    return before


@dataclass(frozen=True, slots=True)
class Change:
    """A transaction: the repository, and the lengths of its files before."""

    repo: Any
    before: dict[bytes, int]

    @property
    def place(self) -> Path:
        """The folder of the repository."""
        return Path(os.fsdecode(self.repo.root))

    def growth(self, *, is_open: bool) -> int:
        """Return the bytes of the blocks that the transaction has added to the store."""
        added = 0
        new: set[str] = set()
        for name, length in self.before.items():
            now = self._length(name, is_open=is_open)
            added += store_size.blocks(now) - store_size.blocks(length)
            if not length:
                new.add(os.fsdecode(self.repo.svfs.join(name)))
        return added + store_size.made_folders(new) * store_size.BLOCK

    def _length(self, name: bytes, *, is_open: bool) -> int:
        # Core writes some indexes to another file until the end of the transaction. The index of a
        # file that gets data of its own (a split) still has all data in it until then.
        for candidate in (*(replacements(name) if is_open else ()), name):
            try:
                return int(self.repo.svfs.stat(candidate).st_size)
            except FileNotFoundError:
                continue
        return 0


def replacements(name: bytes) -> tuple[bytes, ...]:
    """Return the files that may become this index at the end of a transaction (7.2). Pure.

    `revlog._split_index_file` has the first name, `revlog._InnerRevlog` the second, for the
    changelog.
    """
    if not name.endswith(b".i"):
        return ()
    above, slash, rest = name.partition(b"/")
    return (above + b"-s/" + rest,) if slash else (name + b".s", name + b".a")


def others(ui: Any, place: Path, owner: str, lock: Owner | None) -> int:
    """Return the bytes of the owner's other repositories, and bytes that other changes reserved."""
    path = text(ui.config(b"hgfleet", b"path") or b"")
    root = str(place).removesuffix(f"/{path}")
    if root == str(place):
        return 0
    try:
        entries = user_repositories.load(os.fsdecode(ui.config(b"hgfleet", b"dynamic")))
        own = entries.repositories.get(path)
        paths = entries.owned_by(Principal(owner, person_id=own.owner_id if own else ""))
    except RegistryError as problem:
        log(ui, problem)
        return 0
    reserved = lock.reserved(paths) if lock is not None else 0
    return reserved + repository_sizes.total(
        Path(root), [other for other in paths if other != path]
    )
