"""sign the URLs of bundles in private stores, for each client that may read the repository.

Bundles of private repositories are in a bucket that refuses requests without a signature. The
manifest has plain URLs, marked ``private=yes``. When a client requests the manifest (it may read
the repository, or the request would have failed), this extension signs each of them with the key in
``/etc/hgfleet/signing.toml``. A client with a presigned URL may download this single object for
some minutes; a download that began in time goes on.

A line that cannot be signed is left out, so that the client clones from this server: no settings,
no key for the store, an object other than a bundle of this very repository. The system log has the
reason (``event=bundles.unsigned``). A plain URL of a private store never leaves the server.

The repository is known by its identity: the file in the store of the repository that answers, the
line and the key of the object must have the same identity. So a repository never answers with the
bundles of a former repository at its path. Lines for other readers than the registry has at this
moment are left out, too: a private line of a repository that is public now is not signed.

Core has a hook for URLs, ``alter_bundle_url``, and calls it when it reads the manifest. That is too
early: ``clonebundles_steer.py`` chooses and logs lines by their URL, and would find and log signed
URLs. So the commands themselves are wrapped, after all other extensions, in any order of loading.

Enable it on hosts that answer clients::

  [extensions]
  signedbundles = /opt/hgfleet/current/hgext/signedbundles.py
  # without it, clients would be sent to URLs that refuse them
  signedbundles:required = yes

  [hgfleet]
  signing = /etc/hgfleet/signing.toml
  # the registry, which says who may read the repository
  compiled = /var/lib/hgfleet/registry.json
  dynamic = /var/lib/hgfleet/dynamic/registry.json
"""

from __future__ import annotations

import os
import syslog
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mercurial import registrar, wireprotov1server

from hgfleet.core import identity, paths

if TYPE_CHECKING:
    from hgfleet.objectstore.presign import Signer

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"signing", default=b"/etc/hgfleet/signing.toml")
configitem(b"hgfleet", b"compiled", default=os.fsencode(paths.COMPILED))
configitem(b"hgfleet", b"dynamic", default=os.fsencode(paths.DYNAMIC))


def reposetup(_ui: Any, _repo: Any) -> None:
    """Wrap both commands that return the manifest.

    All extensions have been set up when the first repository is opened, so this wrapper is the
    outermost. The table of commands is where core 7.2 wants them wrapped.
    """
    for name in (b"clonebundles", b"clonebundles_manifest"):
        command = wireprotov1server.commands[name]
        if not isinstance(command.func, Signed):
            command.func = Signed(command.func)


class Signed:
    """A command of the wire protocol whose answer is a manifest."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(self, repo: Any, proto: Any, *arguments: Any) -> Any:
        """Answer as the command does, with the lines of private stores signed."""
        response = self._original(repo, proto, *arguments)
        lines = [line for line in response.data.split(b"\n") if line]
        from hgfleet.bundles.decide import advertised

        signer, problem = _signer(repo.ui.configpath(b"hgfleet", b"signing"))
        path = (repo.ui.config(b"hgfleet", b"path") or b"").decode("utf-8", "replace")
        own = identity.of(os.fsdecode(repo.root))
        own_lines, left_out = lines, set[str]()
        if not getattr(response, advertised.CHOSEN, False):
            own_lines, left_out = advertised.choose_for(repo, lines)
        now, kept = datetime.now(UTC), []
        for line in own_lines:
            try:
                kept.append(_sign(line, own, signer, now))
            except ValueError as reason:
                left_out.add(problem or str(reason))
        if left_out:
            _log(path, len(lines) - len(kept), "; ".join(sorted(left_out)))
        response.data = b"".join(line + b"\n" for line in kept)
        return response


def _signer(path: bytes) -> tuple[Signer | None, str]:
    """Read the settings, each time: keys are replaced while web workers run."""
    file = Path(os.fsdecode(path))
    if not file.exists():
        return None, f"{file}: no such file"
    from hgfleet.core.errors import ConfigurationError
    from hgfleet.objectstore import presign

    try:
        return presign.load(file), ""
    except ConfigurationError as error:
        return None, str(error)


def _sign(line: bytes, own: str, signer: Signer | None, now: datetime) -> bytes:
    """Return a line as a client may have it; raises ValueError if there is no such line."""
    from hgfleet.bundles.decide.advertised import PRIVATE
    from hgfleet.bundles.decide.names import parse_key

    location, space, rest = line.partition(b" ")

    # A URL of another service is in none of the stores.
    url = location.decode("utf-8", "replace")
    store = signer.store(url) if signer is not None else None
    if store is None or signer is None:
        if PRIVATE in rest.split(b" "):
            raise ValueError("no key for its store")
        return line
    key = parse_key(store.object_key(url) or "")
    if key is None or key.repository != own or PRIVATE not in rest.split(b" "):
        raise ValueError("not a bundle of this repository")
    return signer.sign(url, now).encode("ascii") + space + rest


def _log(path: str, count: int, reason: str) -> None:
    from hgfleet.core import logfmt

    # Standard error is the client's terminal. The identifier is the program's.
    said = logfmt.line("bundles.unsigned", repository=path, left_out=count, reason=reason)
    syslog.syslog(syslog.LOG_WARNING, said)
