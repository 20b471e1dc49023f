"""fetch nothing for a client, and tell it nothing of the server's inside.

This extension runs in the hg that serves a repository. It takes two things away that core offers
to whoever is at the other end:

* The part ``remote-changegroup`` of a bundle2 names a URL, and core has the server fetch it. That
  would let everybody who may push to one repository ask questions of hosts that only the server
  reaches. The part is unknown here, as any other that hg does not have.

* When a request breaks the server, core tells about it on stderr, which is the client's terminal:
  version, extensions, where to report the defect. The client of ``hgfleet-shell`` gets one
  sentence instead, and the log of the host gets the exception.

Enable it for everything that runs on the server::

  [extensions]
  hardening = /opt/hgfleet/current/hgext/hardening.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mercurial import bundle2, dispatch, extensions

if TYPE_CHECKING:
    from collections.abc import Callable

testedwith = b"7.2"
minimumhgversion = b"7.2"
buglink = b"the issue tracker of hgfleet"


def uisetup(_ui: Any) -> None:
    """Take both away; core 7.2 has no setting for either."""
    bundle2.capabilities.pop(b"remote-changegroup", None)
    bundle2.parthandlermapping.pop(b"remote-changegroup", None)
    extensions.wrapfunction(dispatch, "handlecommandexception", quietly)


def quietly(_original: Callable[[Any], bool], _ui: Any) -> bool:
    """Say nothing; False lets the exception go on to the program that runs hg."""
    return False
