"""an hg extension that plays a client which does things that hg's own clients do not do.

Commands make changesets that no hg makes; `hostile.pieces` sends differences of manifests that do
not begin and end where lines do. `hostile.sent` names the files whose revisions are sent instead of
those that the changesets list, and `hostile.link` the changeset that these are said to belong to.
`hostile.wrong` (`file` or `manifest`) sends texts that do not have their hashes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from mercurial import changegroup, changelog, extensions, registrar
from mercurial.node import hex as to_hex
from mercurial.node import nullid
from mercurial.utils import stringutil

if TYPE_CHECKING:
    from collections.abc import Iterator

cmdtable: dict[bytes, Any] = {}
command = registrar.command(cmdtable)
configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hostile", b"pieces", default=False)
configitem(b"hostile", b"sent", default=list)
configitem(b"hostile", b"link", default=b"")
configitem(b"hostile", b"wrong", default=b"")

LINES = struct.Struct(">lll")


@command(b"forge", [], b"LINK FILE SOURCE")  # type: ignore[untyped-decorator]  # core has no types
def forge(_ui: Any, repo: Any, link: bytes, path: bytes, source: bytes) -> None:
    """Make a link of a file, give another the content of a third, and name only the second."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        manifest = repo[b"tip"].manifestctx().copy()
        content = manifest.read()
        content.setflag(link, b"l")
        data = repo[b"tip"][source].data()
        store = repo.file(path, writable=True)
        content[path] = store.add(data, {}, transaction, len(repo), nullid, nullid)
        _changeset(repo, transaction, manifest, b"mallory", b"nothing to see", [link, path], [path])


@command(b"forgebytes", [], b"COUNT")  # type: ignore[untyped-decorator]  # core has no types
def forgebytes(_ui: Any, repo: Any, count: bytes) -> None:
    """Add changesets whose paths and texts are awkward."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        for number in range(int(count)):
            path = b"a\x1b]0;owned\x07\xff\xfe%d.exe" % number
            manifest = repo[b"tip"].manifestctx().copy()
            store = repo.file(path, writable=True)
            content = manifest.read()
            content[path] = store.add(b"x", {}, transaction, len(repo), nullid, nullid)
            user = b"Root\xff <a@b>"
            text = b"\x1b[2J\xff first line\rremote: all is well\n\x00 second %d" % number
            _changeset(repo, transaction, manifest, user, text, [path], [path])


@command(b"forgepath", [], b"PATH...")  # type: ignore[untyped-decorator]  # core has no types
def forgepath(_ui: Any, repo: Any, *paths: bytes) -> None:
    """Add a changeset with files at these paths, which core's audit would refuse."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        manifest = repo[b"tip"].manifestctx().copy()
        content = manifest.read()
        for path in paths:
            store = repo.file(path, writable=True)
            content[path] = store.add(b"x", {}, transaction, len(repo), nullid, nullid)
        _changeset(repo, transaction, manifest, b"mallory", b"paths", [*paths], [*paths])


@command(b"forgebranch", [], b"NAME")  # type: ignore[untyped-decorator]  # core has no types
def forgebranch(_ui: Any, repo: Any, name: bytes) -> None:
    """Add a changeset on a branch whose name core would refuse; Python's escapes are resolved."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        extra = changelog.encodeextra({b"branch": stringutil.unescapestr(name)})
        tip = repo[b"tip"]
        lines = [to_hex(tip.manifestnode()), b"mallory", b"0 0 " + extra, b"", b"a branch"]
        text = b"\n".join(lines)
        repo.changelog.addrevision(text, transaction, len(repo), tip.node(), nullid)


@command(b"forgetext", [], b"USER DATE")  # type: ignore[untyped-decorator]  # core has no types
def forgetext(_ui: Any, repo: Any, user: bytes, date: bytes) -> None:
    """Add a changeset with these lines for user and date; Python's escapes are resolved."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        tip = repo[b"tip"]
        fields = [stringutil.unescapestr(user), stringutil.unescapestr(date)]
        text = b"\n".join([to_hex(tip.manifestnode()), *fields, b"", b"a changeset"])
        repo.changelog.addrevision(text, transaction, len(repo), tip.node(), nullid)


@command(b"forgelist", [], b"PATH LISTED...")  # type: ignore[untyped-decorator]  # core has no types
def forgelist(_ui: Any, repo: Any, path: bytes, *listed: bytes) -> None:
    """Add a changeset with a file, and these paths for its list of files."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        manifest = repo[b"tip"].manifestctx().copy()
        content = manifest.read()
        store = repo.file(path, writable=True)
        content[path] = store.add(b"x", {}, transaction, len(repo), nullid, nullid)
        _changeset(repo, transaction, manifest, b"mallory", b"a list", [path], [*listed])


@command(b"forgefile", [], b"PATH TEXT")  # type: ignore[untyped-decorator]  # core has no types
def forgefile(_ui: Any, repo: Any, path: bytes, text: bytes) -> None:
    """Add a changeset with a file whose stored text is this; Python's escapes are resolved."""
    with repo.lock(), repo.transaction(b"forge") as transaction:
        manifest = repo[b"tip"].manifestctx().copy()
        content = manifest.read()
        revisions = repo.file(path, writable=True)._revlog
        stored = stringutil.unescapestr(text)
        rev = revisions.addrevision(stored, transaction, len(repo), nullid, nullid)
        content[path] = revisions.node(rev)
        _changeset(repo, transaction, manifest, b"mallory", b"a file", [path], [path])


def _changeset(
    repo: Any,
    transaction: Any,
    manifest: Any,
    user: bytes,
    text: bytes,
    files: list[bytes],
    named: list[bytes],
) -> None:
    """Write the text of a changeset as it stands; core would clean it first."""
    parent = repo[b"tip"]
    node = manifest.write(transaction, len(repo), parent.manifestnode(), nullid, files, [])
    lines = [to_hex(node), user, b"0 0", *named, b"", text]
    repo.changelog.addrevision(b"\n".join(lines), transaction, len(repo), parent.node(), nullid)


def uisetup(ui: Any) -> None:
    """Accept the changesets of this client, and wrap the maker of a changegroup's differences."""
    extensions.wrapfunction(changelog, "decodeextra", _extra)
    if ui.configbool(b"hostile", b"pieces"):
        extensions.wrapfunction(changegroup, "deltagroup", _pieces)
    if sent := ui.configlist(b"hostile", b"sent"):
        files = changelog.changelogrevision.files
        changelog.changelogrevision.files = property(
            lambda made: sent if made.user == b"mallory" else files.fget(made)
        )
    if wrong := ui.config(b"hostile", b"wrong"):
        extensions.wrapfunction(changegroup, "deltagroup", _wrong(wrong))
    if link := ui.config(b"hostile", b"link"):
        extensions.wrapfunction(changegroup, "deltagroup", _linked(link))


def _extra(original: Any, text: bytes) -> dict[bytes, bytes]:
    try:
        return dict(original(text))
    except ValueError:
        return {b"branch": b"default"}


def _pieces(original: Any, repo: Any, store: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    for delta in original(repo, store, *args, **kwargs):
        if store is repo.manifestlog.getstorage(b"") and delta.basenode != nullid:
            delta.delta = _cut(store.revision(delta.basenode), store.revision(delta.node))
        yield delta


def _wrong(kind: bytes) -> Any:
    def deltagroup(
        original: Any, repo: Any, store: Any, *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        manifests = repo.manifestlog.getstorage(b"")
        for delta in original(repo, store, *args, **kwargs):
            if (kind == b"manifest") == (store is manifests) and store is not repo.changelog:
                # The line gets a flag more, and the last piece of a difference a byte.
                if delta.delta is None:
                    delta.revision = delta.revision[:-1] + b"x\n"
                else:
                    start, end, size = LINES.unpack(delta.delta[: LINES.size])
                    content = delta.delta[LINES.size : -1] + b"x\n"
                    delta.delta = LINES.pack(start, end, size + 1) + content
            yield delta

    return deltagroup


def _linked(link: bytes) -> Any:
    def deltagroup(
        original: Any, repo: Any, store: Any, *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        for delta in original(repo, store, *args, **kwargs):
            if store is not repo.changelog and store is not repo.manifestlog.getstorage(b""):
                delta.linknode = repo[int(link)].node()
            yield delta

    return deltagroup


def _cut(before: bytes, after: bytes) -> bytes:
    """Replace the difference after the path of each line; the lines are of the same paths.

    The letter of a flag and the text after a path make up a line of another file. Core, which puts
    the pieces together to see which file came, finds the other file.
    """
    result = b""
    end = 0
    for old, new in zip(before.splitlines(True), after.splitlines(True), strict=True):
        end += len(old)
        if new[:-2] == old[:-1]:
            result += LINES.pack(end - 1, end - 1, 1) + new[-2:-1]
        elif new != old:
            rest = new[new.index(b"\0") :]
            start = end - len(old) + old.index(b"\0")
            result += LINES.pack(start, end, len(rest)) + rest
    return result
