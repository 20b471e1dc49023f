"""answer pulls with pull bundles from disk, and compute only the other changesets.

The bundle jobs keep a chain of bundles for a repository, ``.hg/pullbundles/manifest``: each bundle
begins where the bundle before it ends (``hgfleet.bundles.decide.pullbundle_chain``). A client that
pulls gets the bundles of the changesets that it is missing. Changesets that no bundle has are sent
live: the newer changesets, and the rest of a bundle of which the client has a part. Phases,
bookmarks and the other parts of a pull are always sent live.

Core has pull bundles too (``.hg/pullbundles.manifest``, ``server.pullbundle``), and this extension
answers at the same point. But core sends only the bundle and lets the client ask again: 7.2 clients
then take phases and bookmarks for received. All bookmarks of such a pull are lost, and if the last
bundle has everything, changesets of a publishing server stay drafts. So this extension sends a
single answer, from files that core does not know. The answer has a single changegroup, merged from
the bundles and the live changesets while it is sent (``hgfleet.bundles.hg.changegroup_merge``): `hg
incoming` and tools that poll with it open the answer as a bundle repository, which accepts only
one.

A bundle is skipped and its changesets are sent live if

* its heads are not all visible: stripped, secret or obsolete since it was made;
* the client did not ask for all of its heads (``hg pull -r``, ``-b``);
* its file is missing, or its content does not match the digest in its name (also logged as
 ``event=pullbundle-corrupt``; the next read by the bundle jobs replaces it).

The extension ``admission`` counts only the live changesets.

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

import hashlib
import os
import syslog
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mercurial import (
    bundle2,
    changegroup,
    discovery,
    error,
    exchange,
    extensions,
    node,
    pycompat,
    registrar,
    scmutil,
    util,
)
from mercurial import wireprotov1server as server
from mercurial.interfaces import repository
from mercurial.utils import urlutil

from hgfleet.admission import prepared
from hgfleet.admission.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from hgfleet.bundles.decide.pullbundle_chain import Link, Segment

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pullbundles", default=True)

FOLDER: Final = b"pullbundles"
VERSION: Final = b"02"
"""Of the changegroups in the bundles (pullbundle_chain.SPEC)."""
CACHES: Final = frozenset({b"hgtagsfnodes", b"cache:rev-branch-cache"})
"""Parts of a bundle that are sent after its changegroup."""
HINT: Final = b"try again; `hgfleet bundles verify` on the server finds the corrupt file"
ASKED: Final = frozenset(
    {"bundlecaps", "cg", "common", "heads", "phases", "bookmarks", "listkeys", "obsmarkers"}
    | {"cbattempted", "remote_sidedata"}
)
"""Arguments of a pull that this extension answers; with any other, core answers."""


def uisetup(_ui: Any) -> None:
    """Replace core's search and the answer that follows it (7.2).

    In `uisetup`, so that the wrapper of the extension admission is around this answer.
    """
    extensions.wrapfunction(server, "find_pullbundle", find)
    extensions.wrapfunction(exchange, "getbundlechunks", _getbundlechunks)


def _getbundlechunks(
    original: Callable[..., Any], repo: Any, source: bytes, *arguments: Any, **options: Any
) -> Any:
    answer = prepared.of(repo) if source == b"serve" else None
    if answer is None:
        return original(repo, source, *arguments, **options)
    prepared.put(None)
    return {b"bundleversion": 2, b"prefercompressed": True}, answer.chunks()


def find(
    _original: Callable[..., Any],
    repo: Any,
    _proto: Any,
    opts: dict[bytes, Any],
    _served_heads: set[bytes],
    heads: set[bytes],
    common: set[bytes],
) -> None:
    """Prepare the whole answer to a getbundle, or leave it to core to make it.

    Core compresses the answer like its own, so this function returns no file.
    """
    prepared.put(None)
    try:
        prepared.put(_find(repo, dict(pycompat.strkwargs(opts)), heads, common))
    except Exception as problem:
        # Core can answer without pull bundles.
        repo.ui.log(b"pullbundles", b"%s\n", repr(problem).encode("ascii", "replace"))


def _find(
    repo: Any, asked: dict[str, Any], heads: set[bytes], common: set[bytes]
) -> Prepared | None:
    if not repo.ui.configbool(b"hgfleet", b"pullbundles"):
        return None
    if not heads or not asked.get("cg", True) or any(asked[name] for name in {*asked} - ASKED):
        return None
    capabilities = urlutil.b2_caps_from_bundle_caps(asked.get("bundlecaps") or set())
    if VERSION not in (capabilities.get(b"changegroup") or ()) or not _has_version(repo):
        return None
    # Not with repo.vfs, which follows no link to a folder.
    folder = Path(os.fsdecode(repo.vfs.join(FOLDER)))
    try:
        text = (folder / "manifest").read_text("ascii", "replace")
    except OSError:
        return None
    answer = _Answer(repo, heads, common, folder, text)
    if not answer.segments:
        return None
    bundler = answer.bundler(asked, capabilities)
    _log(repo, answer)
    return Prepared(repo, answer.live, bundler.getchunks)


def _has_version(repo: Any) -> bool:
    """Whether changegroups of the bundles' version have everything of a repository.

    Trees of manifests, for one, have groups of their own in later versions.
    """
    return VERSION in changegroup.supportedoutgoingversions(repo) and not (
        scmutil.istreemanifest(repo) or repository.REPO_FEATURE_SIDE_DATA in repo.features
    )


class _Answer:
    """The answer to a pull: segments from disk, and live segments.

    All files are opened before the answer begins: the bundle jobs may delete them during the
    answer.
    """

    def __init__(
        self, repo: Any, heads: set[bytes], common: set[bytes], folder: Path, manifest: str
    ) -> None:
        from hgfleet.bundles.decide import pullbundle_chain

        self._repo, self._heads, self._folder = repo, heads, folder
        # Only visible changesets: core refuses a pull of any other.
        changelog = self._changelog = repo.changelog
        self.segments: list[Segment] = []
        self._files: dict[Link, _LinkFile] = {}
        if not all(map(changelog.hasnode, heads)):
            return
        self._common = {node_ for node_ in common if changelog.hasnode(node_)}
        has, wants = ({changelog.rev(node_) for node_ in nodes} for nodes in (self._common, heads))
        links = pullbundle_chain.parse(manifest)
        revisions = {link: self._revisions(link) for link in links}

        def within(link: Link, tips: set[int]) -> bool:
            link_revisions = revisions[link]
            return link_revisions is not None and are_ancestors(changelog, link_revisions, tips)

        self.segments = pullbundle_chain.segments(
            links,
            known=lambda link: within(link, has),
            wanted=lambda link: within(link, wants),
            missing=lambda link: len(
                changelog.findmissingrevs(common=sorted(has), heads=revisions[link])
            ),
            usable=self._open,
        )
        self._outgoing = list(self._live_parts()) if self.segments else []

    @property
    def links(self) -> list[Link]:
        """The links that are sent from disk."""
        return [segment.link for segment in self.segments if segment.link is not None]

    @property
    def live(self) -> int:
        """The number of changesets that no link has, between the segments and after them."""
        return sum(len(outgoing.missing) for outgoing in self._outgoing if outgoing is not None)

    def _live_parts(self) -> Iterator[Any]:
        """Yield the changesets of each live part in its place, and None in the place of a link."""
        has = set(self._common)
        for segment in self.segments:
            heads = set(map(node.bin, segment.heads))
            yield self._missing(heads, has) if segment.link is None else None
            has |= heads
        self._sent = has
        yield self._missing(self._heads, has)

    def _missing(self, heads: set[bytes], common: set[bytes]) -> Any:
        return discovery.outgoing(
            self._repo, list(common) or [self._repo.nullid], ancestorsof=list(heads)
        )

    def _revisions(self, link: Link) -> list[int] | None:
        """The revisions of a link's heads; None if not all of them are visible."""
        nodes = list(map(node.bin, link.heads))
        if not all(map(self._changelog.hasnode, nodes)):
            return None
        return [self._changelog.rev(node_) for node_ in nodes]

    def _open(self, link: Link) -> bool:
        """Open the file of a link; False if it is missing, or its content is corrupt.

        The digest costs a twentieth of the compression of the answer, and no client gets a byte
        before all digests are right.
        """
        try:
            file = (self._folder / link.name).open("rb")
        except OSError:
            return False
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != link.sha256:
            file.close()
            _log_corrupt(self._repo, link, digest)
            return False
        file.seek(0)
        self._files[link] = _LinkFile(self._repo.ui, file)
        return True

    def bundler(self, asked: dict[str, Any], capabilities: Any) -> Any:
        """Put the parts of the answer together; as exchange.getbundlechunks of core 7.2."""
        bundler = bundle2.bundle20(self._repo.ui, capabilities)
        for name in exchange.getbundle2partsorder:
            if name == b"changegroup":
                part = bundler.newpart(name, data=self._changegroup(asked.get("bundlecaps")))
                part.addparam(b"version", VERSION)
                count = self.live + sum(link.changesets for link in self.links)
                part.addparam(b"nbchanges", b"%d" % count, mandatory=False)
                for link in self.links:
                    bundler.addpart(_Caches(self._files[link]))
                continue
            # Caches too are sent for live changesets; the bundles have their own.
            arguments = {**asked, "heads": list(self._heads), "common": list(self._sent)}
            exchange.getbundle2partsmapping[name](
                bundler, self._repo, b"serve", b2caps=capabilities, **arguments
            )
        return bundler

    def _changegroup(self, bundlecaps: Any) -> Iterator[bytes]:
        """Merge the changegroups of the links with the live changegroups."""
        from hgfleet.bundles.hg import changegroup_merge

        changegroups = []
        for segment, outgoing in zip([*self.segments, None], self._outgoing, strict=True):
            if segment is not None and segment.link is not None:
                read = self._files[segment.link].changegroup().read
                name = f"pull bundle {segment.link.name}"
            elif outgoing.missing:
                stream = changegroup.makestream(
                    self._repo, outgoing, VERSION, b"serve", bundlecaps=bundlecaps
                )
                read = util.chunkbuffer(stream).read
                name = "live changesets"
            else:
                continue
            changegroups.append(changegroup_merge.Changegroup(name, read))
        try:
            yield from changegroup_merge.merge(changegroups)
        except changegroup_merge.CorruptChangegroupError as problem:
            raise error.Abort(str(problem).encode("ascii", "replace"), hint=HINT) from problem


def are_ancestors(changelog: Any, revisions: Iterable[int], tips: set[int]) -> bool:
    """Whether all revisions are among the tips, or ancestors of a tip.

    Old heads that were never merged are among the tips of each pull, so the search goes back no
    further than to the newest heads of a link.
    """
    # A search for `rest` from the tips ends at the first revisions of `rest` on each way back. The
    # revisions that were found become the next tips, until all are found or no tip leads further.
    rest = set(revisions) - tips
    if not rest:
        return True
    if not tips or max(rest) > max(tips):
        return False
    while rest and tips:
        tips = set(changelog.reachableroots(min(rest), list(tips), list(rest)))
        rest -= tips
    return not rest


class _LinkFile:
    """The bundle of a link, read once: first its changegroup, then the parts after it."""

    def __init__(self, ui: Any, file: BinaryIO) -> None:
        self._ui, self._file = ui, file
        self._parts: Iterator[Any] = iter(())

    def changegroup(self) -> Any:
        """Return the part with the changegroup."""
        self._parts = bundle2.getunbundler(self._ui, self._file).iterparts()
        for part in self._parts:
            if part.type == b"changegroup" and part.params.get(b"version") == VERSION:
                return part
        raise error.Abort(b"a pull bundle has no changegroup of version %s" % VERSION, hint=HINT)

    def caches(self) -> Iterator[Any]:
        """Yield the other parts that are sent."""
        with self._file:
            yield from (part for part in self._parts if part.type in CACHES)


class _Caches:
    """The caches of a link, as a part of the bundle that is sent."""

    type = b"cache"

    def __init__(self, link: _LinkFile) -> None:
        self.id: int | None = None
        self._link = link

    def getchunks(self, ui: Any) -> Iterator[bytes]:
        """Read the parts one after the other and send each of them again."""
        for part in self._link.caches():
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
    # The identifier is the identifier of the program.
    syslog.syslog(syslog.LOG_INFO, line)


def _log_corrupt(repo: Any, link: Link, digest: str) -> None:
    from hgfleet.core import logfmt

    line = logfmt.line(
        "pullbundle-corrupt",
        repository=os.fsdecode(repo.ui.config(b"hgfleet", b"path") or repo.root),
        file=link.name,
        sha256=digest,
    )
    repo.ui.log(b"pullbundles", b"%s\n", line.encode("ascii"))
    syslog.syslog(syslog.LOG_WARNING, line)
