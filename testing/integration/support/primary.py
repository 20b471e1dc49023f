"""A primary's repository: pushes of all kinds with their records, and an in-process source."""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from typing import TYPE_CHECKING, Any

from mercurial import changegroup, context, discovery, obsolete, phases
from mercurial import ui as ui_module
from mercurial.node import nullid
from mercurial.repo import factory

from hgfleet.core import identity as identities
from hgfleet.core.errors import UnavailableError
from hgfleet.pushlog import log_file, writing
from hgfleet.pushlog.record import FIRST, Heads, Record
from hgfleet.replication.protocol import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from random import Random
    from typing import BinaryIO

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.source.requests import Selection

State = dict[str, Any]


def new_ui() -> Any:
    ui = ui_module.ui.load()
    for section, name, value in (
        (b"ui", b"username", b"test"),
        (b"ui", b"quiet", b"yes"),
        (b"phases", b"publish", b"no"),
        (b"experimental", b"evolution", b"all"),
    ):
        ui.setconfig(section, name, value, b"test")
    return ui


def create(path: Path, identity: str = "") -> Any:
    """Create an empty repository, with its identity, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    repo = factory.repository(new_ui(), os.fsencode(path), create=True).unfiltered()
    if identity:
        (path / identities.FILE).write_text(identities.text(identity))
    return repo


def state(path: Path) -> State:
    """Return all that replication has to keep equal."""
    repo = factory.repository(new_ui(), os.fsencode(path)).unfiltered()
    cl = repo.changelog
    return {
        "changesets": sorted(cl.node(rev).hex() for rev in cl),
        "heads": sorted(head.hex() for head in cl.heads() if head != nullid),
        "phases": {cl.node(rev).hex(): repo[rev].phasestr().decode() for rev in cl},
        "bookmarks": {name.decode(): node.hex() for name, node in repo._bookmarks.items()},
        "markers": sorted(repr(marker[:3]) for marker in repo.obsstore),
        "log": repo.svfs.tryread(b"pushlog"),
    }


class Primary:
    """A repository whose every change is a transaction with a record."""

    def __init__(self, path: Path, identity: str = "7d" * 16) -> None:
        self.path = path
        self.identity = identity
        self.epoch = 1
        self.repo = create(path, identity)
        self.log = path / ".hg/store/pushlog"

    def entries(self) -> list[Entry]:
        return list(log_file.entries(self.log))

    def commit(self, content: bytes = b"", *, parent: bytes | None = None) -> bytes:
        """Commit a file within the open transaction."""
        repo = self.repo
        number = len(repo)

        def file(_repo: Any, ctx: Any, path: bytes) -> Any:
            return context.memfilectx(repo, ctx, path, content or b"content %d\n" % number)

        parents = [repo.changelog.tip() if parent is None else parent, nullid]
        name = b"file%d" % (number % 7)
        node: bytes = context.memctx(
            repo, parents, b"change %d" % number, [name], file, user=b"test", date=b"0 0"
        ).commit()
        return node

    @contextlib.contextmanager
    def push(self) -> Iterator[Any]:
        """Open a transaction; at its end the record is made and appended."""
        repo = self.repo
        with repo.wlock(), repo.lock():
            tip = log_file.tip(self.log)
            heads = {head.hex() for head in repo.changelog.heads() if head != nullid}
            known = len(repo)
            with repo.transaction(b"push") as tr:
                yield tr
                self._record(tr, tip, heads, known)

    def _record(self, tr: Any, tip: log_file.Tip, heads: set[str], known: int) -> None:
        repo, cl = self.repo, self.repo.changelog
        now = {head.hex() for head in cl.heads() if head != nullid}
        moved = []
        for revisions, (old, new) in tr.changes[b"phases"]:
            names = [None if p is None else phases.phasenames[p].decode() for p in (old, new)]
            moved += [(cl.node(rev).hex(), *names) for rev in revisions if names[0] != names[1]]
        markers = obsolete.encodemarkers(sorted(tr.changes[b"obsmarkers"]), version=1)
        record = Record(
            id=tip.id + 1,
            repository=self.identity,
            kind="push",
            user="alice",
            time=1795440000000 + tip.id,
            previous=tip.hash,
            changesets=tuple(cl.node(rev).hex() for rev in range(known, len(repo))),
            heads=Heads(
                tuple(sorted(heads - now)), tuple(sorted(now - heads)), Heads.digest_of(now)
            ),
            phases=tuple(sorted(moved)),
            bookmarks=tuple(
                (name.decode(), old and old.hex(), new and new.hex())
                for name, (old, new) in sorted(tr.changes[b"bookmarks"].items())
            ),
            markers=tuple(marker.hex() for marker in markers),
            epoch=self.epoch,
        )
        line = record.line()
        tr.addfinalize(b"pushlog", lambda tr: writing.append(repo.svfs, tr, tip, [line]))

    def adopt(self, changesets: int) -> None:
        """Make changesets without records, and then the record that stands for them."""
        repo, cl = self.repo, self.repo.changelog
        with repo.wlock(), repo.lock(), repo.transaction(b"commit"):
            for _number in range(changesets):
                self.commit()
        with repo.wlock(), repo.lock(), repo.transaction(b"adoption") as tr:
            digest = Heads.digest_of(repo.changelog.node(rev).hex() for rev in cl.headrevs())
            record = Record(1, self.identity, "adoption", "", 0, FIRST, heads=Heads(digest=digest))
            lines = [record.line()]
            tr.addfinalize(
                b"pushlog", lambda tr: writing.append(repo.svfs, tr, log_file.Tip(), lines)
            )

    def push_commits(self, count: int = 1) -> None:
        """Push a line of changesets."""
        with self.push():
            for _number in range(count):
                self.commit()

    def push_anything(self, random: Random) -> None:
        """Push one to three changesets, or move phases and bookmarks, or obsolete a changeset."""
        repo, cl = self.repo, self.repo.changelog
        with self.push() as tr:
            kind = random.choice(("line", "head", "bookmark", "phase", "amend", "unbookmark"))
            if kind in ("line", "head") or len(cl) < 3:
                parent = cl.node(random.randrange(-1, len(cl))) if kind == "head" else None
                for _number in range(random.randint(1, 3)):
                    parent = self.commit(parent=parent)
                return
            node = cl.node(random.randrange(len(cl)))
            marks = repo._bookmarks
            if kind == "bookmark":
                marks.applychanges(repo, tr, [(random.choice((b"@", b"a mark")), node)])
            elif kind == "unbookmark" and marks:
                marks.applychanges(repo, tr, [(random.choice(sorted(marks)), None)])
            elif kind == "amend" and repo[node].mutable():
                made = self.commit(b"amended %d\n" % len(cl), parent=repo[node].p1().node())
                obsolete.createmarkers(repo, [((repo[node],), (repo[made],))])
            else:
                number = random.choice((phases.public, phases.draft, phases.secret))
                phases.advanceboundary(repo, tr, number, [node])
                phases.retractboundary(repo, tr, number, [node])

    def changegroup(self, nodes: Sequence[str]) -> bytes:
        """Return the changegroup of exactly these changesets, compressed."""
        repo = self.repo
        wanted = {repo.changelog.rev(bytes.fromhex(node)) for node in nodes}
        if not wanted:
            return b""
        parents = {parent for rev in wanted for parent in repo.changelog.parentrevs(rev)}
        outgoing = discovery.outgoing(
            repo,
            commonheads=[repo.changelog.node(rev) for rev in parents - wanted],
            ancestorsof=[repo.changelog.node(rev) for rev in wanted],
        )
        made = changegroup.makestream(repo, outgoing, b"03", b"replication")
        return zlib.compress(b"".join(made))

    def messages(self) -> list[tuple[bytes, bytes]]:
        """Return all records with their changegroups."""
        return [(e.line, self.changegroup(e.record.changesets)) for e in self.entries()]


class InProcessSource:
    """The source of a mirror, answered from repositories of this process, by identity."""

    def __init__(self, *primaries: Primary) -> None:
        self.primaries = {p.identity: p for p in primaries}
        self.down = False
        self.asked = 0

    def _of(self, identity: str) -> Primary:
        self.asked += 1
        if self.down:
            raise UnavailableError("the source does not answer")
        return self.primaries[identity]

    def log_after(self, identity: str, after: int) -> Iterator[bytes]:
        for entry in self._of(identity).entries():
            if entry.record.id > after:
                yield entry.line

    @contextlib.contextmanager
    def changegroup(self, identity: str, nodes: Sequence[str]) -> Iterator[BinaryIO]:
        yield io.BytesIO(self._of(identity).changegroup(nodes))

    @contextlib.contextmanager
    def changesets(self, identity: str, selection: Selection) -> Iterator[BinaryIO]:
        primary = self._of(identity)
        cl = primary.repo.changelog
        common, heads = (
            [bytes.fromhex(node) for node in some] for some in (selection.common, selection.heads)
        )
        wanted = cl.findmissing(common, heads)
        yield io.BytesIO(primary.changegroup([node.hex() for node in wanted]))

    def state(self, identity: str) -> snapshot.State:
        primary = self._of(identity)
        return snapshot.read(primary.path, lambda: primary.repo)
