"""hgweb objects, made once per repository and used by one thread at a time.

hgweb claims to be safe in threads, but it shares a list of repository objects without a lock and
initialises global state on its first requests: under load, answers of the first instant are errors.
Here each object has one user at a time; a second thread that needs the same repository at the same
moment gets an object of its own, and both stay for the next requests. An object is thrown away when
the repository's state is no longer the one it was made for, so no answer can be older than the
state that its request found.

Written against Mercurial 7.0 to 7.2 (`mercurial/hgweb/hgweb_mod_inner.py`): `hgweb._obtainrepo` and
`hgweb.run_wsgi`. `testing/integration/test_web_core.py` fails when they change.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from mercurial import error, extensions, initialization, wireprotov1server
from mercurial import ui as ui_module
from mercurial.hgweb import hgweb_mod_inner
from mercurial.hgweb import request as request_module
from mercurial.repo import factory

from hgfleet.hg import fingerprint as state_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hgfleet.hg.fingerprint import State

# Registers revset functions, template keywords and wire commands. Only `mercurial.hgweb.hgweb_mod`
# does it on import, and the package `mercurial.hgweb` hides that module behind the inner one.
initialization.init()

IDLE: Final = 256
"""Objects kept for later, over all repositories, per process (a few hundred KB each and more for
large repositories: the index of the changelog is read into memory)."""

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'nonce-%nonce%'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""hgweb puts the nonce into its inline scripts; its templates carry a few style attributes."""

_FORCED: Final = (
    # Pushing goes over SSH only, whatever a configuration file says.
    (b"web", b"allow-push", b""),
    # hgweb's ETag has whole seconds; ours is made of the content.
    (b"web", b"cache", b"false"),
    # URLs are made from the environment that hgfleet.web.app builds.
    (b"web", b"baseurl", b""),
    (b"web", b"staticurl", b"/static/"),
    (b"web", b"csp", CONTENT_SECURITY_POLICY.encode("ascii")),
    (b"ui", b"interactive", b"false"),
)
"""Settings that the code relies on. All others come from /etc/hgfleet/hgrc."""


class UnavailableRepositoryError(Exception):
    """The registry has the repository, but it cannot be opened on this host right now."""


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
    before, found, filename = value.partition(b"filename=")
    if name.lower() == b"content-disposition" and found:
        encoded = quote(filename.strip(b'"'), safe="").encode("ascii")
        return b"%sfilename*=UTF-8''%s" % (before, encoded)
    return plain


class _Hgweb(hgweb_mod_inner.hgweb):  # type: ignore[misc]  # no type hints in core
    """An hgweb object with exactly one repository object, for one user at a time."""

    def __init__(self, repository: Any) -> None:
        super().__init__(repository)
        self._only = self._repos[0].fetch()[0]
        self.mtime = 0

    @contextlib.contextmanager
    def _obtainrepo(self) -> Iterator[Any]:
        yield self._only

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        request = request_module.parserequestfromenv(environ)
        answer: Iterable[bytes] = self.run_wsgi(request, _Response(request, respond))
        return answer


@dataclass(frozen=True, slots=True)
class Served:
    """An hgweb object on loan; hand it back with `Repositories.release`."""

    path: str
    application: Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
    state: State
    generation: int


class Repositories:
    """All hgweb objects of this process."""

    def __init__(self, root: Path, idle: int = IDLE) -> None:
        """Serve repositories below `root`, keeping up to `idle` objects for later."""
        self._root = root
        self._capacity = idle
        self._lock = threading.Lock()
        # Making an object runs code of core and of extensions that initialises what all threads
        # share; one at a time.
        self._making = threading.Lock()
        self._idle: OrderedDict[str, list[Served]] = OrderedDict()
        self._count = 0
        self._looked = 0
        self._files: dict[str, tuple[str, ...]] = {}
        self._base: Any = None
        self._configuration = _configuration_files()
        self._configured: State | None = None
        self.generation = 0

    def warm(self) -> None:
        """Load configuration and extensions now instead of during the first request."""
        with self._making:
            self._base_ui()

    def state(self, path: str) -> State:
        """The state of a repository at this moment."""
        files = self._files.get(path)
        if files is None:
            files = self._files[path] = state_module.paths(self._root / path / ".hg")
        return state_module.read_repository(files)

    def is_readable(self, path: str) -> bool:
        """Whether this process can read the repository at all."""
        return os.access(self._root / path / ".hg" / "requires", os.R_OK) and os.access(
            self._root / path / ".hg" / "store", os.R_OK | os.X_OK
        )

    def check_configuration(self) -> int:
        """Notice changed configuration files; return the number of the configuration in effect.

        Extensions that a new configuration names are loaded; those it no longer names stay until
        the process ends, since Python cannot unload them.
        """
        if self._configuration:
            found = state_module.read(self._configuration)
            if found != self._configured:
                with self._making:
                    if found != self._configured:
                        self._forget()
                        self._base = None
                        self._configured = found
                        self.generation += 1
        return self.generation

    def forget_except(self, paths: Iterable[str]) -> None:
        """Drop what belongs to repositories that are not among the paths."""
        keep = set(paths)
        with self._lock:
            for path in [path for path in self._idle if path not in keep]:
                self._count -= len(self._idle.pop(path))
            for path in [path for path in self._files if path not in keep]:
                del self._files[path]

    def acquire(self, path: str, state: State) -> Served:
        """Lend an hgweb object that has seen at least this state.

        Raises UnavailableRepositoryError.
        """
        with self._lock:
            waiting = self._idle.get(path)
            while waiting:
                served = waiting.pop()
                self._count -= 1
                if served.state == state and served.generation == self.generation:
                    return served
            self._idle.pop(path, None)
        with self._making:
            return self._make(path, state)

    def release(self, served: Served) -> None:
        """Take an object back.

        An object of a state that had not settled is not used again: what it has read may be older
        than files that look the same.
        """
        if served.generation != self.generation or not served.state.is_settled():
            return
        with self._lock:
            self._idle.setdefault(served.path, []).append(served)
            self._idle.move_to_end(served.path)
            self._count += 1
            while self._count > self._capacity:
                path, oldest = next(iter(self._idle.items()))
                oldest.pop(0)
                self._count -= 1
                if not oldest:
                    del self._idle[path]
        self._look_at_one()

    def _look_at_one(self) -> None:
        """Drop the objects of one repository, in turn, if it has changed.

        They would not be lent again, and they hold the files of an old store
        (hgext/pinned_store.py).
        """
        with self._lock:
            if not self._idle:
                return
            self._looked = (self._looked + 1) % len(self._idle)
            path = next(itertools.islice(self._idle, self._looked, None))
        state = self.state(path)
        with self._lock:
            waiting = self._idle.get(path, [])
            current = [one for one in waiting if one.state == state]
            if len(current) < len(waiting):
                self._count -= len(waiting) - len(current)
                if current:
                    self._idle[path] = current
                else:
                    del self._idle[path]

    def _forget(self) -> None:
        with self._lock:
            self._idle.clear()
            self._count = 0

    def _make(self, path: str, state: State) -> Served:
        generation = self.generation
        try:
            repository = factory.repository(self._base_ui().copy(), os.fsencode(self._root / path))
            return Served(path, _Hgweb(repository), state, generation)
        except (error.RepoError, error.Abort, OSError) as problem:
            raise UnavailableRepositoryError(f"{path}: {problem}") from problem

    def _base_ui(self) -> Any:
        if self._base is None:
            base = ui_module.ui.load()
            for section, name, value in _FORCED:
                base.setconfig(section, name, value, b"hgfleet.web")
            extensions.loadall(base)
            extensions.populateui(base)
            self._base = base
        return self._base


def _configuration_files() -> tuple[str, ...]:
    """The files that HGRCPATH names, with the files of the folders that it names."""
    found: list[str] = []
    for item in os.environ.get("HGRCPATH", "").split(os.pathsep):
        if item:
            path = Path(item)
            found.append(item)
            if path.is_dir():
                found += [str(entry) for entry in sorted(path.glob("*.rc"))]
    return tuple(found)


def permission(command: str) -> str | None:
    """What a wire command needs, "pull" or "push"; None: there is no such command.

    Extensions may add commands; this asks Mercurial's own table.
    """
    entry = wireprotov1server.commands.get(command.encode("ascii", "replace"))
    if entry is None:
        return None
    return str(entry.permission.decode("ascii"))


def is_about_arguments(problem: BaseException) -> bool:
    """Whether an exception out of hgweb was most likely caused by what the client asked for."""
    if isinstance(problem, (error.LookupError, error.RepoLookupError)):
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
