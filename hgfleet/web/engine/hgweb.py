"""hgweb of Mercurial, adapted: a repository object of its own, safe headers, forced settings.

Written against Mercurial 7.0 to 7.2 (`mercurial/hgweb/hgweb_mod_inner.py`): `hgweb._obtainrepo` and
`hgweb.run_wsgi`. `testing/integration/web/test_web_core.py` fails when they change.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from mercurial import (
    archival,
    error,
    extensions,
    initialization,
    scmutil,
    templater,
    wireprotov1server,
)
from mercurial import ui as ui_module
from mercurial.hgweb import hgweb_mod_inner, webcommands, webutil
from mercurial.hgweb import request as request_module
from mercurial.hgweb.common import ErrorResponse
from mercurial.utils import stringutil

from hgfleet.hg import repository_settings
from hgfleet.web.engine import archives, frames, search, working_copy
from hgfleet.web.http.journal import described
from hgfleet.web.pushlog import commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Registers revset functions, template keywords and wire commands. Only `mercurial.hgweb.hgweb_mod`
# does it on import, and the package `mercurial.hgweb` hides that module behind `hgweb_mod_inner`.
initialization.init()
search.restrict()
working_copy.hide()
commands.register()

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'nonce-%nonce%'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""hgweb puts the nonce into its inline scripts; its templates carry a few style attributes."""

_FORCED: Final = (
    # Pushing goes over SSH only; no configuration file can allow it here.
    (b"web", b"allow-push", b""),
    # hgweb's ETag has whole seconds; ours is made of the content.
    (b"web", b"cache", b"false"),
    # URLs are made from the environment that hgfleet.web.app builds.
    (b"web", b"baseurl", b""),
    (b"web", b"staticurl", b"/static/"),
    (b"web", b"csp", CONTENT_SECURITY_POLICY.encode("ascii")),
    (b"ui", b"interactive", b"false"),
    # A stream of the store is read under the repository's lock, which a worker cannot take. Clients
    # that request a stream get a usual clone instead; stream bundles come from the object store.
    (b"server", b"uncompressed", b"false"),
    # Headers hold the arguments of some 1,500 heads; a body has room for the heads of any
    # repository.
    (b"experimental", b"httppostargs", b"true"),
)
"""Settings that the code relies on. All others come from /etc/hgfleet/hgrc and the registry."""


BEFORE_SENDING: Final = "hgfleet.before_sending"
"""The name, in the WSGI environment, of AnswerWriter.before_sending."""
MEMORY_BYTES: Final = "hgfleet.memory_bytes"
CPU_SECONDS: Final = "hgfleet.cpu_seconds"
"""The names of the memory and the processor time of the request there."""

_PROGRESS: Final[ContextVar[archives.Progress]] = ContextVar("progress")
"""Of the archive that this renderer makes."""

_QUERY_IN_JSON: Final = b'"query": {query|json},'
_HOW_IT_WAS_READ: Final = b'\n  "mode": {modedesc|json},'
"""A search as JSON says how its query was read: a query that is no allowed revset is words."""

_BARE_FILE_NAME = re.compile(rb'(title="[^"]*){file}')


def _adapted(original: Callable[..., Any], loader: Any, name: bytes) -> Any:
    """Load a template of core: escape file names in `title=`, where core does not; show pushes."""
    tree = original(loader, name)
    escaped = _BARE_FILE_NAME.sub(rb"\1{file|escape}", loader.cache[name])
    escaped = commands.with_push_row(name, escaped)
    if name == b"search":
        escaped = escaped.replace(_QUERY_IN_JSON, _QUERY_IN_JSON + _HOW_IT_WAS_READ)
    if escaped == loader.cache[name]:
        return tree
    loader.cache[name] = escaped
    return original(loader, name)


extensions.wrapfunction(templater.loader, "load", _adapted)


def _for_import(
    original: Callable[..., Iterator[Any]],
    context: Any,
    repository: Any,
    changeset: Any,
    base: Any,
    files: Any,
    style: bytes,
    *more: Any,
) -> Iterator[Any]:
    """Write a raw diff as `hg import` needs it: binary files, modes and renames are in git's form.

    The pages for people keep the short form, in which a binary file is a single line.
    """
    words = (context, repository, changeset, base, files, style, *more)
    with contextlib.ExitStack() as settings:
        if style == b"raw":
            forced = {(b"diff", b"git"): b"true"}
            settings.enter_context(repository.ui.configoverride(forced, b"hgfleet.web"))
        yield from original(*words)


extensions.wrapfunction(webutil, "_diffsgen", _for_import)


def _audited(original: Callable[..., Any], web: Any) -> Any:
    """Refuse an archive with paths that it must not or cannot hold, before its first byte.

    Core turns most exceptions into a page, which fails once it has begun an archive.
    """
    kind = web.req.qsparams.get(b"type")
    before_sending = web.req.rawenv.get(BEFORE_SENDING.encode("ascii"))
    _PROGRESS.set(archives.Progress())
    began = time.process_time()
    if kind in webutil.archivespecs and kind in web.configlist(b"web", b"allow-archive"):
        context = webutil.changectx(web.repo, web.req)
        paths = list(context.manifest().keys())
        if file := web.req.qsparams.get(b"file"):
            matches = scmutil.match(context, [b"path:" + file], default=b"path")
            paths = [path for path in paths if matches(path)]
        form = webutil.archivespecs[kind][1].decode("ascii")
        # Core's prefix: the name of the repository, and the changeset as it was asked for.
        prefix = len(web.reponame) + max(len(web.req.qsparams[b"node"]), 12) + len("-/")
        if sentence := archives.problem(paths, form, prefix):
            raise ErrorResponse(HTTPStatus.FORBIDDEN.value, sentence.encode("ascii"))
        if before_sending is not None:
            memory = web.req.rawenv[MEMORY_BYTES.encode("ascii")]
            budget = web.req.rawenv[CPU_SECONDS.encode("ascii")]

            def check() -> None:
                seconds = time.process_time() - began
                whole = _look_at_contents(context, paths, memory)
                if _PROGRESS.get().exceeds(whole, seconds, budget):
                    raise archives.BudgetError("processor time")

            before_sending(check)
    try:
        return original(web)
    except (MemoryError, frames.ClosedError):
        raise
    except Exception as problem:
        if refusal := _refusal(problem):
            raise refusal from problem
        if not web.res._started:  # noqa: SLF001  (core has no other name)
            raise
        raise archives.FailedError(described(problem)) from problem


def _look_at_contents(context: Any, paths: Iterable[bytes], memory_bytes: int) -> archives.Progress:
    """Refuse an archive with files that cannot be read, as far as their indexes show.

    Return what the whole archive has.
    """
    manifest = context.manifest()
    whole = archives.Progress()
    for path in paths:
        log = context.repo().file(path)
        # A missing revision raises core's LookupError.
        number = log.rev(manifest[path])
        if log.iscensored(number):
            raise archives.RefusedError(archives.censored(path))
        # With the lines that record a copy; core's own `size` reads the text.
        size = log._revlog.size(number)  # noqa: SLF001  (core has no other name)
        if size > memory_bytes:
            raise archives.RefusedError(archives.too_large(path, size))
        whole.files += 1
        whole.size += size
    return whole


def _refusal(problem: BaseException | None) -> Exception | None:
    """Return the refusal that caused an exception; None for a failure."""
    while problem is not None:
        if isinstance(problem, archives.RefusedError | archives.BudgetError):
            return type(problem)(*problem.args)
        if isinstance(problem, error.CensoredNodeError):
            # Its text is the name of the file and the beginning of its node.
            path = stringutil.forcebytestr(problem).rpartition(b":")[0]
            return archives.RefusedError(archives.censored(path))
        problem = problem.__context__
    return None


extensions.wrapfunction(webcommands, "archive", _audited)


def _dated(
    original: Callable[..., Any], repository: Any, dest: Any, node: bytes, *words: Any, **more: Any
) -> Any:
    """Make an archive of a changeset without a readable time, too."""
    try:
        seconds = float(repository[node].date()[0])
    except (ValueError, IndexError):
        seconds = archives.UNKNOWN_TIME
    return original(repository, dest, node, *words, mtime=seconds, **more)


extensions.wrapfunction(archival, "archive", _dated)


def _zip(dest: Any, mtime: float) -> Any:
    return _counted(archival.zipit(dest, archives.time_within(mtime, archives.ZIP_TIMES)))


def _gzipped_tar(dest: Any, mtime: float) -> Any:
    """Write an archive whose members have the exact time, which the header of gzip cannot hold."""
    made = archival.tarit(dest, archives.time_within(mtime, archives.GZIP_TIMES), "gz")
    made.mtime = mtime if math.isfinite(mtime) else archives.UNKNOWN_TIME
    return _counted(made)


def _counted(made: Any) -> Any:
    """Have an archiver of core count the files that it gets."""
    original = made.addfile

    def addfile(name: bytes, mode: int, is_link: bool, data: bytes) -> Any:
        progress = _PROGRESS.get()
        progress.files += 1
        progress.size += len(data)
        return original(name, mode, is_link, data)

    made.addfile = addfile
    return made


archival.archivers[b"zip"] = _zip
archival.archivers[b"tgz"] = _gzipped_tar


class _Response(request_module.wsgiresponse):  # type: ignore[misc]  # no type hints in core
    """hgweb's response, with headers that any server can send.

    Core puts file names into Content-Disposition as they are and encodes headers as ASCII, so a
    file called `é` ends in an exception.
    """

    def sendresponse(self) -> Any:
        for name, value in list(self.headers.items()):
            if not all(32 <= byte < 127 for byte in value):
                self.headers[name] = _printable(name, value)
        return super().sendresponse()


def _printable(name: bytes, value: bytes) -> bytes:
    """Make a header value ASCII; the name of a file goes into the extended form of RFC 6266."""
    plain = bytes(byte if 32 <= byte < 127 else ord("_") for byte in value)
    before, marker, filename = value.partition(b"filename=")
    if name.lower() == b"content-disposition" and marker:
        encoded = quote(filename.strip(b'"'), safe="").encode("ascii")
        return b"%sfilename*=UTF-8''%s" % (before, encoded)
    return plain


class Hgweb(hgweb_mod_inner.hgweb):  # type: ignore[misc]  # no type hints in core
    """An hgweb object with a single repository object, for one thread at a time."""

    def __init__(self, repository: Any) -> None:
        super().__init__(repository)
        self.mtime = 0

    def _webifyrepo(self, repository: Any) -> Any:
        # Core would open the repository again, by its path, if it has changed since.
        self.repository = super()._webifyrepo(repository)
        return self.repository

    @contextlib.contextmanager
    def _obtainrepo(self) -> Iterator[Any]:
        yield self.repository

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; `respond` is WSGI's start_response."""
        request = request_module.parserequestfromenv(environ)
        answer: Iterable[bytes] = self.run_wsgi(request, _Response(request, respond))
        return answer


def load_ui() -> Any:
    """Load the configuration and its extensions; the settings that this code needs are forced."""
    base = ui_module.ui.load()
    repository_settings.skip(base)
    for section, name, value in _FORCED:
        base.setconfig(section, name, value, b"hgfleet.web")
    extensions.loadall(base)
    extensions.populateui(base)
    return base


def permission(command: str) -> str | None:
    """The permission that a wire command needs, "pull" or "push"; None for an unknown command.

    Extensions may add commands; this asks Mercurial's own table.
    """
    entry = wireprotov1server.commands.get(command.encode("ascii", "replace"))
    if entry is None:
        return None
    return str(entry.permission.decode("ascii"))


def is_about_arguments(problem: BaseException) -> bool:
    """Whether an exception out of hgweb was most likely caused by the request's arguments."""
    # The last of these is about the name ffff..., which core keeps for the working directory.
    if isinstance(problem, (error.LookupError, error.RepoLookupError, error.WdirUnsupported)):
        return True
    if isinstance(problem, (error.StorageError, error.RepoError)):
        return False
    return isinstance(
        problem,
        (error.Abort, error.ProgrammingError, ValueError, LookupError, TypeError, RecursionError),
    )


def chunks(source: Iterable[bytes], size: int = 65536) -> Iterator[bytes]:
    """Join the small pieces that templates and bundles come in; a piece costs a system call."""
    pending: list[bytes] = []
    length = 0
    for piece in source:
        pending.append(piece)
        length += len(piece)
        if length >= size:
            yield b"".join(pending)
            pending, length = [], 0
    if pending:
        yield b"".join(pending)
