"""answer pulls with pull bundles from disk, and compute only the other changesets.

The bundle jobs keep a chain of bundles for a repository, ``.hg/pullbundles/manifest``: each goes on
where the one before it ends (``hgfleet.bundles.pullbundle_chain``). A client that pulls is sent
the bundles of the changesets that it is missing, and live those that no bundle has: the newer ones,
and the rest of the bundle in whose midst the client is. Phases, bookmarks and the other parts of a
pull are always sent live.

Core has pull bundles too (``.hg/pullbundles.manifest``, ``server.pullbundle``), and this extension
answers at the same point. But core sends the bundle alone and has the client ask again: 7.2 clients
then take phases and bookmarks for received. All bookmarks of such a pull are lost, and if the last
bundle has everything, changesets of a publishing server stay drafts. Hence one answer, with several
changegroups in it, and files that core does not know of.

A bundle is passed over and its changesets are sent live when

* its heads are not all visible: stripped, secret or obsolete since it was made;
* the client did not ask for all of its heads (``hg pull -r``, ``-b``);
* its file is not there, or not of the size that the manifest gives.

Each answer is logged with the event ``pullbundles`` (see :hg:`help -e blackbox`) and in the
system log::

  event=pullbundle repository=team/project links=2 from_disk=1200 live=17 size=812345

Enable it on hosts that answer clients::

  [extensions]
  pullbundles = /opt/hgfleet/current/hgext/pullbundles.py

  [hgfleet]
  # answer everything live
  pullbundles = no
"""

from __future__ import annotations

import os
import syslog
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mercurial import bundle2, exchange, extensions, node, pycompat, registrar, util
from mercurial import wireprotov1server as server
from mercurial.utils import urlutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from hgfleet.bundles.pullbundle_chain import Link, Segment

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pullbundles", default=True)

FOLDER: Final = b"pullbundles"
VERSION: Final = b"02"
"""Of the changegroups in the bundles (pullbundle_chain.SPEC)."""
COPIED: Final = frozenset({b"changegroup", b"hgtagsfnodes", b"cache:rev-branch-cache"})
"""Parts of a bundle that are sent. Those of the second and third are caches."""
ASKED: Final = frozenset(
    {"bundlecaps", "cg", "common", "heads", "phases", "bookmarks", "listkeys", "obsmarkers"}
    | {"cbattempted", "remote_sidedata"}
)
"""Arguments of a pull that this answers; with any other (a stream, a narrow clone) core does."""

OF_A_PULL: Final = ("phases", "bookmarks", "listkeys")
"""Arguments that a pull has and `hg incoming` has not.

`hg incoming` of 5.9 to 7.2, and tools that poll with it, open the answer as a bundle repository. A
bundle repository takes one changegroup (NotImplementedError: can't process multiple changegroups).
"""


def extsetup(_ui: Any) -> None:
    """Replace core's search (7.2); a test fails when core no longer calls it."""
    extensions.wrapfunction(server, "find_pullbundle", find)


def find(
    _original: Callable[..., Any],
    repo: Any,
    proto: Any,
    opts: dict[bytes, Any],
    _served_heads: set[bytes],
    heads: set[bytes],
    common: set[bytes],
) -> Any:
    """Return a file with the whole answer to a getbundle, or None to have core make it."""
    try:
        return _find(repo, proto, dict(pycompat.strkwargs(opts)), heads, common)
    except Exception as problem:
        # Core can answer without pull bundles.
        repo.ui.log(b"pullbundles", b"%s\n", repr(problem).encode("ascii", "replace"))
        return None


def _find(
    repo: Any, proto: Any, asked: dict[str, Any], heads: set[bytes], common: set[bytes]
) -> Any:
    if not repo.ui.configbool(b"hgfleet", b"pullbundles"):
        return None
    if not heads or not asked.get("cg", True) or any(asked[name] for name in {*asked} - ASKED):
        return None
    capabilities = urlutil.b2_caps_from_bundle_caps(asked.get("bundlecaps") or set())
    if VERSION not in (capabilities.get(b"changegroup") or ()):
        return None
    # Not by repo.vfs, which goes through no link to a folder.
    folder = Path(os.fsdecode(repo.vfs.join(FOLDER)))
    try:
        text = (folder / "manifest").read_text("ascii", "replace")
    except OSError:
        return None
    answer = _Answer(repo, heads, common, folder, text)
    if not answer.segments:
        return None
    # Counting searches the changelog, so a pull, the usual request, passes without it.
    if not any(asked.get(name) for name in OF_A_PULL) and answer.changegroups > 1:
        return None
    bundler = answer.bundler(asked, capabilities)
    if b"zstd" in server.clientcompressionsupport(proto):
        # As core's own answers over HTTP; the result of find_pullbundle is sent as it is.
        level = repo.ui.configint(b"server", b"zstdlevel")
        bundler.setcompression(b"ZS", {b"level": level})
    _log(repo, answer)
    return util.chunkbuffer(bundler.getchunks())


class _Answer:
    """The answer to one pull: segments from disk, and live ones.

    All files are open before the answer begins: the bundle jobs may delete them meanwhile.
    """

    def __init__(
        self, repo: Any, heads: set[bytes], common: set[bytes], folder: Path, manifest: str
    ) -> None:
        from hgfleet.bundles import pullbundle_chain

        self._repo, self._heads, self._folder = repo, heads, folder
        # Only visible changesets: core refuses a pull of any other.
        changelog = self._changelog = repo.changelog
        self.segments: list[Segment] = []
        self._files: dict[str, BinaryIO] = {}
        if not all(map(changelog.hasnode, heads)):
            return
        self._common = {one for one in common if changelog.hasnode(one)}
        has, wants = (
            changelog.ancestors([changelog.rev(one) for one in nodes], inclusive=True)
            for nodes in (self._common, heads)
        )
        self._has = has
        links = pullbundle_chain.parse(manifest)
        revisions = {link.name: self._revisions(link) for link in links}

        def within(link: Link, ancestors: Any) -> bool:
            found = revisions[link.name]
            return found is not None and all(revision in ancestors for revision in found)

        self.segments = pullbundle_chain.segments(
            links,
            known=lambda link: within(link, has),
            wanted=lambda link: within(link, wants),
            missing=lambda link: len(
                changelog.findmissingrevs(
                    common=[changelog.rev(one) for one in self._common],
                    heads=revisions[link.name],
                )
            ),
            usable=self._open,
        )

    @property
    def links(self) -> list[Link]:
        """The links that are sent from disk."""
        return [segment.link for segment in self.segments if segment.link is not None]

    @property
    def live(self) -> int:
        """The number of changesets that no link has, between the segments and behind them."""
        return sum(self._gaps())

    @property
    def changegroups(self) -> int:
        """The number of changegroups in the answer: one per link, one per gap."""
        return len(self.links) + sum(1 for gap in self._gaps() if gap)

    def _gaps(self) -> list[int]:
        """Count the changesets of each part that is sent live."""
        has, gaps = self._common, []
        for segment in [*self.segments, None]:
            nodes = set(self._heads) if segment is None else set(map(node.bin, segment.heads))
            if segment is None or segment.link is None:
                missing = self._changelog.findmissingrevs(
                    common=[self._changelog.rev(one) for one in has],
                    heads=[self._changelog.rev(one) for one in nodes],
                )
                gaps.append(len(missing))
            has = has | nodes
        return gaps

    def _revisions(self, link: Link) -> list[int] | None:
        """The revisions of a link's heads; None if not all of them are visible."""
        nodes = list(map(node.bin, link.heads))
        if not all(map(self._changelog.hasnode, nodes)):
            return None
        return [self._changelog.rev(one) for one in nodes]

    def _open(self, link: Link) -> bool:
        """Open the file of a link; False if it is missing or of another size."""
        try:
            file = (self._folder / link.name).open("rb")
        except OSError:
            return False
        if os.fstat(file.fileno()).st_size != link.size:
            file.close()
            return False
        self._files[link.name] = file
        return True

    def bundler(self, asked: dict[str, Any], capabilities: Any) -> Any:
        """Put the parts of the answer together; as exchange.getbundlechunks of core 7.2."""
        bundler = bundle2.bundle20(self._repo.ui, capabilities)
        has = set(self._common)

        def add(name: bytes, heads: set[bytes], common: set[bytes]) -> None:
            arguments = {**asked, "heads": list(heads), "common": list(common)}
            exchange.getbundle2partsmapping[name](
                bundler, self._repo, b"serve", b2caps=capabilities, **arguments
            )

        for name in exchange.getbundle2partsorder:
            if name == b"changegroup":
                for segment in self.segments:
                    heads = set(map(node.bin, segment.heads))
                    if segment.link is None:
                        add(name, heads, has)
                    else:
                        file = self._files[segment.link.name]
                        bundler.addpart(_Copied(self._repo.ui, file))
                    has |= heads
            # Caches too are sent for live changesets; the bundles have their own.
            add(name, self._heads, has)
        return bundler


class _Copied:
    """The parts of a bundle on disk, in the role of one part of the bundle that is sent."""

    type = b"changegroup"

    def __init__(self, ui: Any, file: BinaryIO) -> None:
        self.id: int | None = None
        self._ui, self._file = ui, file

    def getchunks(self, ui: Any) -> Iterator[bytes]:
        """Read the parts one after the other and send each again."""
        with self._file:
            for part in bundle2.getunbundler(self._ui, self._file).iterparts():
                if part.type not in COPIED:
                    continue
                copy = bundle2.bundlepart(
                    part.type,
                    part.mandatoryparams,
                    part.advisoryparams,
                    util.filechunkiter(part, size=2**16),
                    mandatory=part.mandatory,
                )
                copy.id = self.id
                yield from copy.getchunks(ui)


def _log(repo: Any, answer: _Answer) -> None:
    from hgfleet.core import logfmt

    links = answer.links
    line = logfmt.line(
        "pullbundle",
        repository=os.fsdecode(repo.ui.config(b"hgfleet", b"path") or repo.root),
        links=len(links),
        from_disk=sum(link.changesets for link in links),
        live=answer.live,
        size=sum(link.size for link in links),
    )
    repo.ui.log(b"pullbundles", b"%s\n", line.encode("ascii"))
    # The identifier is that of the program.
    syslog.syslog(syslog.LOG_INFO, line)
