"""fetch nothing for a client, answer only listed commands, and tell no internals of the server.

This extension runs in the hg that serves a repository. It takes away three things that core offers
to every client:

* The part ``remote-changegroup`` of a bundle2 names a URL, and core has the server fetch it. That
  would let every user who may push to one repository send requests to hosts that only the server
  reaches. The part is unknown here, as any other that hg does not have.

* Wire commands that are not listed in ``hgfleet.hg.wire_commands`` do not exist. The web part
  reads the same list, so SSH and HTTPS answer the same commands. Of these, ``between`` answers the
  handshake of a client and nothing else.

* When a request breaks the server, core reports on stderr, which is the client's terminal:
  version, extensions, the place to report the defect. The client of ``hgfleet-shell`` gets one
  sentence instead, and the log of the host gets the exception.

Enable it for everything that runs on the server::

  [extensions]
  hardening = /opt/hgfleet/current/hgext/hardening.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mercurial import bundle2, dispatch, extensions, wireprototypes, wireprotov1server

from hgfleet.hg import wire_commands

if TYPE_CHECKING:
    from collections.abc import Callable

testedwith = b"7.2"
minimumhgversion = b"7.2"


def uisetup(_ui: Any) -> None:
    """Remove the part and the report; core 7.2 has no setting for either."""
    bundle2.capabilities.pop(b"remote-changegroup", None)
    bundle2.parthandlermapping.pop(b"remote-changegroup", None)
    extensions.wrapfunction(dispatch, "handlecommandexception", quietly)


def extsetup(_ui: Any) -> None:
    """Close every wire command that is not listed; core 7.2 has no setting for it."""
    commands = wireprotov1server.commands
    for name in set(commands) - {command.encode() for command in wire_commands.OPEN}:
        del commands[name]
    commands[b"between"].func = handshake_only(commands[b"between"].func)


def handshake_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answer `between` for the pair of a client's handshake alone."""

    def between(repo: Any, proto: Any, pairs: bytes) -> Any:
        if pairs != wire_commands.HANDSHAKE_PAIRS:
            return wireprototypes.ooberror(b"this server compares histories with bundle2 only")
        return original(repo, proto, pairs)

    return between


def quietly(_original: Callable[[Any], bool], _ui: Any) -> bool:
    """Print nothing; False lets the exception go on to the program that runs hg."""
    return False
