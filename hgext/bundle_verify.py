"""clone from a local path through a clone bundle, to verify it before it is advertised.

A clone from a path of the same host never asks for clone bundles: it reads the repository. The
bundle jobs need a clone that treats a manifest entry like a remote client (pick it, download it
with hg's own checks of certificate and DIGEST, apply it, pull the rest), without a server for each
entry. With this extension, and only for a command with the setting ::

  hg clone --pull --config bundle_verify.entry='URL BUNDLESPEC=... DIGEST=...' SOURCE TARGET

the local repository SOURCE offers exactly this entry. Without the setting it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mercurial import extensions, localrepo, registrar

if TYPE_CHECKING:
    from collections.abc import Callable

testedwith = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)

configitem(b"bundle_verify", b"entry", default=b"")


def _entry(peer: Any) -> bytes:
    entry: bytes = peer.ui.config(b"bundle_verify", b"entry")
    return entry


def _capabilities(original: Callable[[Any], set[bytes]], peer: Any) -> set[bytes]:
    capabilities = original(peer)
    return capabilities | {b"clonebundles"} if _entry(peer) else capabilities


def _clonebundles(_original: Callable[[Any], bytes], peer: Any) -> bytes:
    return _entry(peer) + b"\n"


def extsetup(_ui: Any) -> None:
    """Give the peer of a local repository the two answers that core leaves out.

    There is no hook for it: in 7.2 `localpeer.clonebundles` raises NotImplementedError. The test of
    the pipeline fails when a clone does not go through the bundle.
    """
    extensions.wrapfunction(localrepo.localpeer, "capabilities", _capabilities)
    extensions.wrapfunction(localrepo.localpeer, "clonebundles", _clonebundles)
