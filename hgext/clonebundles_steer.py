"""advertise only clone bundles that answer, the best for each client first.

A client takes the first entry of the manifest that it supports, and gives up if its URL does not
answer. So this extension takes out of each answer the entries that the prober of this host
(``hgfleet steering probe``) found dead, and orders the others by the region of the client:

============================  ================================================================
the client is                 it gets
============================  ================================================================
in the region of an endpoint  that endpoint, its stream bundle first
elsewhere                     a CDN first, then other endpoints, zstd bundles first
anywhere                      gzip bundles last, for clients that have nothing else
============================  ================================================================

A CDN that keeps copies of an endpoint's objects is in no manifest: its entries are made from the
endpoint's entries, for copies that the prober has read in full and found correct.

Lines of another repository, or for other readers than the repository has now, are left out before
(``hgfleet.bundles.decide.advertised``): the file may belong to a former repository at the same
path.

The decision is in ``hgfleet.steering.order``; regions, endpoints and networks are in
``/etc/hgfleet/steering.toml``. The client's address is the address of its connection: over SSH from
sshd, over HTTPS from the headers of trusted proxies, which the web workers check.

Stream bundles of repositories with zstd in their revlogs are left out for hg before 5.0, which
fails with them. Clients report their version only over HTTPS.

When the prober has not run for some seconds, no endpoint is known to answer, and the client gets no
entry: it then clones from this server. Inline bundles (``peer-bundle-cache://``) come from this
server too and stay in front.

Each answer is logged with the event ``clonebundles_steer`` (see :hg:`help -e blackbox`).

Enable it on hosts that answer clients, together with the extension that it steers::

  [extensions]
  clonebundles =
  clonebundles_steer = /opt/hgfleet/current/hgext/clonebundles_steer.py

  [hgfleet]
  # the settings; without the file the entries of a manifest are passed on in their order
  steering = /etc/hgfleet/steering.toml
  # the registry, which says who may read the repository
  compiled = /var/lib/hgfleet/registry.json
  dynamic = /var/lib/hgfleet/dynamic/registry.json
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mercurial import encoding, pycompat, registrar, wireprotov1server

from hgfleet.core import paths

if TYPE_CHECKING:
    from hgfleet.steering.networks import Networks
    from hgfleet.steering.networks_file import Table
    from hgfleet.steering.settings import Config

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"steering", default=b"/etc/hgfleet/steering.toml")
configitem(b"hgfleet", b"compiled", default=os.fsencode(paths.COMPILED))
configitem(b"hgfleet", b"dynamic", default=os.fsencode(paths.DYNAMIC))


class Loaded(NamedTuple):
    """The settings and the table of networks, and the stat of the files they were read from."""

    stamp: tuple[object, ...]
    config: Config
    networks: Networks | Table


_loaded: dict[bytes, Loaded] = {}


def extsetup(_ui: Any) -> None:
    """Wrap both commands that return the manifest.

    Core says in the docstring of `clonebundles_2` that extensions may wrap the command to filter
    entries by the client's address; the table of commands is where that is possible (7.2).
    """
    for name in (b"clonebundles", b"clonebundles_manifest"):
        command = wireprotov1server.commands[name]
        command.func = _steered(command.func)


def _steered(original: Any) -> Any:
    def answer(repo: Any, proto: Any, *arguments: Any) -> Any:
        response = original(repo, proto, *arguments)
        from hgfleet.bundles.decide import advertised
        from hgfleet.steering import client_version

        lines = _own(repo, [line for line in response.data.split(b"\n") if line])
        kept = client_version.supported(lines, _agent_of(proto))
        loaded = _settings(repo.ui.configpath(b"hgfleet", b"steering"))
        if loaded is not None:
            kept = _choose(repo.ui, loaded, kept, client_of(proto))
        response.data = b"".join(line + b"\n" for line in kept)
        setattr(response, advertised.CHOSEN, True)
        return response

    return answer


def _own(repo: Any, lines: list[bytes]) -> list[bytes]:
    """Return the lines that belong to this repository, and are for its readers."""
    from hgfleet.bundles.decide import advertised

    kept, problems = advertised.choose_for(repo, lines)
    if problems:
        repo.ui.log(
            b"clonebundles_steer",
            b"left out %d of %d: %s\n",
            len(lines) - len(kept),
            len(lines),
            "; ".join(sorted(problems)).encode("ascii"),
        )
    return kept


def client_of(proto: Any) -> str:
    """Return the client's address as text, "" if it is unknown."""
    request = getattr(proto, "_req", None)
    if request is not None:  # HTTP
        address = request.rawenv.get(b"REMOTE_ADDR", b"")
    else:
        address = encoding.environ.get(b"SSH_CONNECTION", b"").partition(b" ")[0]
    return str(pycompat.sysstr(address))


def _agent_of(proto: Any) -> str:
    """Return the client's program and version as it reports them over HTTP, "" over SSH."""
    request = getattr(proto, "_req", None)
    agent = request.rawenv.get(b"HTTP_USER_AGENT", b"") if request is not None else b""
    return agent.decode("latin-1") if isinstance(agent, bytes) else ""


def _settings(path: bytes) -> Loaded | None:
    """Read the settings if they have changed; None if this host has none.

    Settings that cannot be read end the command with an error: the client then clones from this
    server, and is not sent to an endpoint without probes.
    """
    from hgfleet.steering import networks_file, settings

    file = Path(os.fsdecode(path))
    if not file.exists():
        return None
    before = _loaded.get(path)
    if before is not None and before.stamp == _stamp(file, before.config):
        return before
    read = settings.load(file)
    # The prober keeps the table in a file, because building it for 20,000 networks takes 0.6 s.
    table = networks_file.read(file, read) or networks_file.build(read)
    loaded = _loaded[path] = Loaded(_stamp(file, read), read, table)
    return loaded


def _stamp(file: Path, config: Config) -> tuple[object, ...]:
    stamps: list[object] = []
    for path in (file, config.state):
        try:
            status = path.stat()
            stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def _choose(ui: Any, loaded: Loaded, lines: list[bytes], client: str) -> list[bytes]:
    from hgfleet.bundles.decide.advertised import INLINE
    from hgfleet.bundles.decide.manifest import parse
    from hgfleet.steering import health, order

    config = loaded.config
    names = [endpoint.name for endpoint in config.endpoints]
    inline = [line for line in lines if line.startswith(INLINE)]
    known = [
        order.Line(entry.url, entry.kind, line)
        for line in lines
        for entry in parse(line.decode("utf-8", "replace"))
    ]
    urls = [
        url for entry in known for url in (entry.url, *order.copies(entry.url, config.endpoints))
    ]
    try:
        state = health.parse(config.health.read_text("utf-8"))
        findings = health.look_up(health.objects_file(config.health), urls)
    except OSError:
        state, findings = None, health.Findings()
    is_current = state is not None and state.is_current(time.time())
    down = state.down(names) if state is not None and is_current else names
    region = loaded.networks.region(client)
    chosen = order.steer(
        known, config.endpoints, region=region, down=down, dead=findings.dead, read=findings.read
    )
    ui.log(
        b"clonebundles_steer",
        b"client=%s region=%s first=%s entries=%d of %d probed=%s\n",
        client.encode("ascii", "replace") or b"-",
        (region or "-").encode("utf-8"),
        chosen[0].url.encode("utf-8") if chosen else b"-",
        len(chosen),
        len(lines) - len(inline),
        b"yes" if is_current else b"no",
    )
    return [*inline, *(line.text for line in chosen)]
