"""Wire commands of Mercurial 7.2 and who may send them: a single table for SSH and HTTPS.

A command that is in no set here is refused over both transports, so a command that a later
Mercurial adds stays refused until it is listed. The commands are defined in
`mercurial/wireprotov1server.py`; a test compares the sets with it.
"""

from __future__ import annotations

from typing import Final

PUSHING: Final = frozenset({"pushkey", "unbundle"})
"""Commands that change a repository. HTTPS refuses them, with the way out."""

REPLAYABLE: Final = frozenset(
    {
        "batch",
        "between",
        "branchmap",
        "capabilities",
        "heads",
        "hello",
        "known",
        "listkeys",
        "lookup",
        "protocaps",
    }
)
"""Commands whose answer is a small function of the repository's state and their arguments."""

HANDSHAKE_PAIRS: Final = b"-".join([b"0" * 40] * 2)
"""The only argument of `between` that is answered: a client sends it over SSH to find the end of
a login shell's output. Other pairs read the history between their nodes."""

STREAMING: Final = frozenset({"clonebundles", "clonebundles_manifest", "getbundle", "stream_out"})
"""Commands answered afresh each time: data, and manifests, which may depend on the client."""

READING: Final = REPLAYABLE | STREAMING

OPEN: Final = READING | PUSHING

CLOSED: Final = frozenset(
    {
        # For clients older than 1.7 (2010), without bundle2. Each node reads the history up to the
        # next merge.
        "branches",
        # For clients older than 2007, without any negotiation.
        "changegroup",
        "changegroupsubset",
        "debugwireargs",
        # Its path check is a bare prefix test, and its errors reveal whether the server can stat a
        # path. Clone bundles come from the object store.
        "get_cached_bundle_inline",
    }
)
"""Commands that only read, that no current client needs, and that are better left closed."""
