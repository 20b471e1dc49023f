"""Copy of a repository's state at the source: changesets, phases, bookmarks, markers, push log.

It is built in a folder that no program reads, so its transactions need no order and no hooks. By
such a folder a mirror fills an empty repository, and replaces a corrupt repository (`resync`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.bundles.decide.manifest import Manifests
from hgfleet.bundles.stores.reader import Reader
from hgfleet.core import files
from hgfleet.core.errors import HgfleetError, PushlogError, UnavailableError
from hgfleet.hg import bundle_parts
from hgfleet.pushlog import chain, index, index_step, log_file
from hgfleet.pushlog.record import Heads
from hgfleet.registry import owned_files
from hgfleet.registry.provision import provisioning
from hgfleet.replication.mirror import apply
from hgfleet.replication.protocol import snapshot
from hgfleet.replication.source import changesets
from hgfleet.replication.source.client import GoneError, RepositoryError
from hgfleet.replication.source.requests import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.protocol.snapshot import State
    from hgfleet.replication.source.client import SourceClient

KINDS: Final = ("zstd", "gzip")
"""Kinds of clone bundles to start from; a stream bundle has the primary's storage format."""

BUNDLE_TIMEOUT_S: Final = 30.0

_SOURCE: Final = b"replication"


class Rebuild:
    """A fresh copy of a repository, which is named by its identity."""

    def __init__(
        self,
        settings: Settings,
        source: SourceClient,
        place: Path,
        identity: str,
        say: Callable[[str], None],
        certificates: Path,
    ) -> None:
        self._settings = settings
        self._source = source
        self._place = place
        self._identity = identity
        self._say = say
        self._reader = Reader(certificates, BUNDLE_TIMEOUT_S)
        self._ui = changesets.new_ui(settings.hgrc)

    def make(self) -> State:
        """Make the repository, from the newest usable clone bundle if there is any.

        Returns its state. Raises UnavailableError, GoneError and PushlogError.
        """
        if self._create_from_bundle():
            try:
                return self.bring_up()
            except (GoneError, _UnequalError) as error:
                # The bundle has changesets that have left the primary since.
                self._say(f"the clone bundle does not fit ({error}); all is read from the source")
        self._create()
        return self.bring_up()

    def bring_up(self) -> State:
        """Bring the repository to the state of the source, and compare both; return it."""
        state = self._source.state(self._identity)
        self._log(state)
        repo = self._open()
        with repo.wlock(), repo.lock(), repo.transaction(_SOURCE) as tr:
            self._changesets(repo, tr, state)
            _phases(repo, tr, state)
            _bookmarks(repo, tr, state)
            apply.add_markers(repo, tr, state.markers)
        # No other process writes there, so there is no need to wait for a quiet moment.
        here = snapshot.of(self._open(), self._place)
        if differences := snapshot.differences(here.digests(), state.digests()):
            raise _UnequalError(f"the copy has other {', '.join(differences)} than the source")
        return state

    def is_current(self, state: State) -> bool:
        """Whether the source has no record beyond a state."""
        now = self._source.digests(self._identity)
        return (now.id, now.hash) == (state.id, state.hash)

    def _open(self) -> Any:
        repo = changesets.open_repository(self._ui.copy(), self._place)
        # The primary has decided about the pushes, so no hooks of this host run.
        for name, _command in list(repo.ui.configitems(b"hooks", untrusted=True)):
            repo.ui.setconfig(b"hooks", name, b"", b"resync")
        return repo

    def _create(self) -> None:
        from mercurial.repo import factory

        shutil.rmtree(self._place, ignore_errors=True)
        self._place.parent.mkdir(mode=0o700, exist_ok=True)
        with files.open_folder(self._place.parent) as above:
            owned_files.make_folder(self._place.name, above, provisioning.DIRECTORY_MODE)
        factory.repository(self._ui.copy(), os.fsencode(self._place), create=True)

    def _create_from_bundle(self) -> bool:
        """Start from a clone bundle; False if no bundle is available and whole."""
        entries = Manifests(self._settings.manifests).read(self._identity)
        usable = [entry for entry in entries if entry.kind in KINDS]
        for entry in sorted(usable, key=lambda old: (KINDS.index(old.kind), -old.changesets)):
            with tempfile.TemporaryDirectory(dir=self._place.parent, prefix="bundle-") as folder:
                file = Path(folder) / "bundle.hg"
                try:
                    self._reader.check(entry, file)
                    self._create()
                    self._apply_bundle(file)
                except HgfleetError as error:
                    self._say(f"clone bundle: {error}")
                    continue
                return True
        return False

    def _apply_bundle(self, file: Path) -> None:
        from mercurial import bundle2, bundle2_part_handlers, error, exchange

        # The handlers of the parts register themselves; Mercurial does this only in `hg`.
        bundle2_part_handlers.init()
        repo = self._open()
        try:
            with (
                repo.wlock(),
                repo.lock(),
                repo.transaction(_SOURCE) as tr,
                file.open("rb") as opened,
                _listed_parts(),
            ):
                unbundler = exchange.readbundle(repo.ui, opened, os.fsencode(file))
                bundle2.applybundle(repo, unbundler, tr, _SOURCE)
        except (error.Error, error.StorageError, error.BundleValueError) as problem:
            raise UnavailableError(f"cannot be applied: {changesets.text(problem)}") from problem

    def _changesets(self, repo: Any, tr: Any, state: State) -> None:
        known = repo.changelog.hasnode
        if all(known(bytes.fromhex(head)) for head in state.heads):
            return
        heads = [repo.changelog.node(rev).hex() for rev in repo.changelog.headrevs() if rev >= 0]
        selection = Selection(heads=state.heads, common=tuple(heads))
        with self._source.changesets(self._identity, selection) as data:
            changesets.add(repo, tr, data)

    def _log(self, state: State) -> None:
        """Write the push log up to the record of the state.

        Its chain is checked, and the heads in its last record: a primary that lost changesets has
        other heads.
        """
        log = self._place / ".hg/store" / log_file.NAME
        if not state.id:
            return
        lines = itertools.islice(self._source.log_after(self._identity, 0), state.id)
        fresh = log.with_name(f"{log_file.NAME}.new")
        with fresh.open("wb") as file:
            file.writelines(line + b"\n" for line in lines)
        last = None
        for last in chain.checked(log_file.entries(fresh)):  # noqa: B007
            pass
        if last is None or (last.record.id, last.hash) != (state.id, state.hash):
            raise RepositoryError(
                f"the source sent a log that does not end with record {state.id}, as its state does"
            )
        if last.record.repository != self._identity:
            raise PushlogError(f"the source sent the log of repository {last.record.repository}")
        digest = last.record.heads.digest
        if digest and Heads.digest_of(state.heads) != digest:
            raise RepositoryError(
                f"the source has other heads ({len(state.heads)}) than its record {state.id} "
                "names: it lost changesets; `hgfleet pushlog verify` on the primary lists them"
            )
        files.sync(fresh, 0o640)
        fresh.rename(log)
        # Otherwise no transaction would refresh the index until the next push.
        index.refresh(str(log), str(self._place / ".hg/cache" / index_step.NAME))


@contextlib.contextmanager
def _listed_parts() -> Iterator[None]:
    """Let Mercurial accept only the parts that a clone bundle may have: no raw files, no caches.

    The state of the result is compared with the source; other files of its store are not.
    """
    from mercurial import bundle2

    before = bundle2.parthandlermapping
    listed = {name.encode("ascii") for name in bundle_parts.REBUILT}
    bundle2.parthandlermapping = {name: before[name] for name in listed & before.keys()}
    try:
        yield
    finally:
        bundle2.parthandlermapping = before


class _UnequalError(RepositoryError):
    """The state of the copy differs from the state of the source."""


def _phases(repo: Any, tr: Any, state: State) -> None:
    from mercurial import phases

    for name, nodes in sorted(
        (phases.phasenumber[name.encode("ascii")], nodes)
        for name, nodes in (state.phases or {}).items()
    ):
        binary = [bytes.fromhex(node) for node in nodes]
        phases.advanceboundary(repo, tr, name, binary)
        if name > phases.draft:
            phases.retractboundary(repo, tr, name, binary)


def _bookmarks(repo: Any, tr: Any, state: State) -> None:
    from mercurial import encoding

    wanted = {
        encoding.tolocal(name.encode("utf-8", "surrogateescape")): bytes.fromhex(node)
        for name, node in state.bookmarks
    }
    marks = repo._bookmarks  # noqa: SLF001  (core has no other name for them)
    gone: list[tuple[bytes, bytes | None]] = [(name, None) for name in marks if name not in wanted]
    marks.applychanges(repo, tr, [*gone, *wanted.items()])
