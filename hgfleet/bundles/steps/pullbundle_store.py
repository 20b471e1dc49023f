"""Pull bundles on disk: a folder for each repository, with the files of its chain and a manifest.

`.hg/pullbundles` of a repository is a link to its folder, and hgext/pullbundles.py reads it. Files
are named by their content and written before the manifest that names them. A run killed anywhere
leaves files that no manifest names, and the next run deletes them.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide import pullbundle_chain as chains
from hgfleet.bundles.decide.pullbundle_chain import ChainPlan, Link, Move, NewLink
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.hg.budget import CLONE, estimate
from hgfleet.bundles.hg.scratch import remove
from hgfleet.bundles.steps import workspace
from hgfleet.bundles.stores import corruption
from hgfleet.bundles.stores.reader import VerificationError
from hgfleet.core import files
from hgfleet.core.text import size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from hgfleet.bundles.decide.plan import State
    from hgfleet.bundles.decide.pullbundle_chain import Chain
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.steps.workspace import Workspace
    from hgfleet.registry.model.registry import Repository

MANIFEST: Final = "manifest"
FRESH: Final = ".fresh.hg"
"""The file of a link without a name yet; only the holder of the repository's lock writes it."""

FILE_MODE: Final = 0o640
"""Readable for the folder's group only: a pull bundle of a private repository is private."""

GRACE: Final = timedelta(hours=1)
"""The time for which a file stays that no manifest names any more. A server process opens all files
of an answer at its beginning, and can send everything live, so seconds would do."""


class PullbundleStore:
    """The chains of pull bundles; the caller holds the lock of each repository."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def folder(self, repository: Repository) -> Path:
        """Return the folder of a repository."""
        return self._job.config.pull_bundles / files.file_name(names.of(repository))

    def wanted(self, repository: Repository) -> bool:
        """Whether a repository has readers, and pull bundles are enabled."""
        return self._job.config.pull.enabled and bool(repository.read)

    def chain(self, repository: Repository) -> Chain:
        """Read the manifest; without a manifest the chain is empty."""
        try:
            text = (self.folder(repository) / MANIFEST).read_text("ascii", "replace")
        except FileNotFoundError:
            return ()
        return chains.parse(text)

    def problems(self, repository: Repository, chain: Chain) -> dict[str, str]:
        """Return the problems of files that are missing or of another size, by name."""
        problems = {}
        for link in chain:
            if link.on_disk:
                try:
                    there = (self.folder(repository) / link.name).stat().st_size
                except FileNotFoundError:
                    problems[link.name] = "missing"
                else:
                    if there != link.size:
                        problems[link.name] = f"it has {there:,} bytes instead of {link.size:,}"
        return problems

    def plan(
        self,
        repository: Repository,
        state: State,
        *,
        tips: Collection[str] = (),
        aligned: bool = False,
    ) -> ChainPlan:
        """Decide about the chain; see `pullbundle_chain.plan` for the parameters."""
        chain, limits = self.chain(repository), self._job.config.pull
        if not self.wanted(repository):
            is_there = self.folder(repository).exists()
            reason = "it has no readers any more" if limits.enabled else "none on this host"
            return ChainPlan(Move.DROP if is_there else Move.KEEP, reason)
        return chains.plan(
            chain,
            state,
            limits,
            missing=self.problems(repository, chain),
            tips=tips,
            aligned=aligned,
            force=self._job.options.force,
        )

    def carry_out(self, repository: Repository, decision: ChainPlan) -> None:
        """Carry out a plan."""
        if decision.move is Move.KEEP:
            return
        if decision.move is Move.DROP:
            (self.folder(repository) / MANIFEST).unlink(missing_ok=True)
            remove(self.folder(repository))
            self._job.report.step(
                "pull-dropped", repository.path, f"pull bundles: deleted: {decision.reason}"
            )
            return
        chain = tuple(part for part in decision.parts if isinstance(part, Link))
        if decision.new_links:
            with workspace.opened(self._job, repository, 2) as work:
                chain = tuple(self._made(work, decision))
        self._publish(repository, chain)

    def _made(self, work: Workspace, decision: ChainPlan) -> Iterator[Link]:
        """Generate the new links; yield the links of the chain in order."""
        for part in decision.parts:
            if isinstance(part, Link):
                yield part
                continue
            heads = part.heads or tuple(sorted(work.state.heads))
            if not part.on_disk:
                # A link without a file marks the beginning of the chain.
                yield Link("-", (), heads, work.state.changesets, 0, self._now())
                continue
            bases = part.bases
            for upto in (*self._boundaries(work, part), heads):
                if not set(upto) <= set(bases):
                    yield self._link(work, bases, upto)
                    bases = upto

    def _boundaries(self, work: Workspace, make: NewLink) -> Iterator[tuple[str, ...]]:
        """Cut a whole history into pieces, in the order of the snapshot's revisions."""
        for number in range(1, make.pieces):
            count = work.state.changesets * number // make.pieces
            heads = hg_side.heads_of_first(self._job.hg, work.snapshot, count)
            if len(heads) <= chains.MAX_HEADS:
                yield heads

    def _link(self, work: Workspace, bases: tuple[str, ...], heads: tuple[str, ...]) -> Link:
        """Generate a link, apply it to a clone that ends where it begins, and name its file."""
        started, config = time.monotonic(), self._job.config
        folder = self.folder(work.repository)
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / FRESH
        with self._job.gate.enter(estimate("zstd", work.store, config.zstd_level)):
            bundle, changesets = hg_side.generate_link(
                self._job.hg, work.snapshot, bases, heads, work.folder, fresh, config.zstd_level
            )
        files.sync(fresh, FILE_MODE)
        path = work.repository.path
        if not config.is_large(path):
            trial = work.folder / "pull-trial"
            try:
                with self._job.gate.enter(estimate(CLONE, work.store)):
                    applied = hg_side.apply_link(self._job.hg, work.snapshot, fresh, bases, trial)
            finally:
                remove(trial)
            if applied != set(heads):
                raise VerificationError(
                    f"pull bundle of {changesets:,} changesets: a clone that it was applied to has "
                    f"{len(applied)} heads that are not the {len(heads)} expected"
                )
        name = f"{bundle.sha256}.hg"
        fresh.replace(folder / name)
        took = time.monotonic() - started
        self._job.report.step(
            "pull-generated",
            path,
            f"pull bundle of {changesets:,} changesets: {size(bundle.size)} in {took:.1f} s",
            changesets=changesets,
            size_bytes=bundle.size,
            duration_s=took,
        )
        return Link(name, bases, heads, changesets, bundle.size, self._now())

    def _publish(self, repository: Repository, chain: Chain) -> None:
        """Replace the manifest atomically, last."""
        before = self.chain(repository)
        folder = self.folder(repository)
        files.replace(folder / MANIFEST, chains.render(chain), mode=FILE_MODE)
        # `prune` counts the time from now on, however old the files are.
        for link in {*before} - {*chain}:
            with contextlib.suppress(FileNotFoundError):
                os.utime(folder / link.name)
        self._job.report.step(
            "pull-published",
            repository.path,
            f"pull bundles: {len(chain)} links, {size(sum(link.size for link in chain))}",
            links=len(chain),
            size_bytes=sum(link.size for link in chain),
        )

    def prune(self, repository: Repository) -> None:
        """Delete files that no manifest has named for a while."""
        folder = self.folder(repository)
        try:
            names = {path.name for path in folder.iterdir()}
        except FileNotFoundError:
            return
        before = (datetime.now(UTC) - GRACE).timestamp()
        for name in sorted(names - {MANIFEST} - {link.name for link in self.chain(repository)}):
            # An unfinished file is from a killed run: this run has the repository's lock.
            status = (folder / name).stat()
            if name.startswith(".") or status.st_mtime < before:
                if not self._job.options.dry_run:
                    (folder / name).unlink()
                would = "would delete" if self._job.options.dry_run else "deleted"
                self._job.report.step(
                    "pull-pruned",
                    repository.path,
                    f"{would} the pull bundle {name} ({size(status.st_size)})",
                    key=name,
                    size_bytes=status.st_size,
                    dry_run=self._job.options.dry_run,
                )

    def delete_corrupt(self, repository: Repository) -> None:
        """Read the whole chain, where that is due, and delete the files that differ from it.

        The plan finds them missing and makes them again; until then the server skips them.
        """
        times, name = self._job.schedule.pull_reads, files.file_name(names.of(repository))
        chain = self.chain(repository)
        if self._job.options.dry_run or not chain or not times.due(name, self._job.options.now):
            return
        for file, digest in self._corrupt(repository, chain).items():
            (self.folder(repository) / file).unlink(missing_ok=True)
            self._job.report.step(
                "pull-corrupt",
                repository.path,
                f"deleted the pull bundle {file}: got sha256 {digest or 'nothing'}",
                key=file,
                sha256=digest,
            )
        times.done(name, self._job.options.now)

    def verify(self, repository: Repository) -> None:
        """Compare each file with its name. Raises VerificationError for the first that differs.

        The next run deletes all that differ, and makes them again.
        """
        for file, digest in self._corrupt(repository, self.chain(repository)).items():
            self._job.schedule.pull_reads.request(files.file_name(names.of(repository)))
            raise VerificationError(
                f"{self.folder(repository) / file}: got sha256 {digest or 'nothing'}; "
                "`hgfleet bundles run` makes it again"
            )

    def _corrupt(self, repository: Repository, chain: Chain) -> dict[str, str]:
        """Return the sha256 of each file whose name has another sha256."""
        names = {link.name: link.sha256 for link in chain if link.on_disk}
        digests = {name: hg_side.digest(self.folder(repository) / name) for name in names}
        if any(got and got != names[name] for name, got in digests.items()):
            self._job.note_corrupt(corruption.PULL_BUNDLES)
        return {name: got for name, got in digests.items() if got != names[name]}

    def repositories(self) -> set[str]:
        """Return the names of all repositories with a folder."""
        with contextlib.suppress(OSError):
            folders = self._job.config.pull_bundles.iterdir()
            return {files.repository_of(path.name) for path in folders}
        return set()

    def _now(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)
