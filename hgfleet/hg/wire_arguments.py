"""Arguments of listed wire commands, and the choices of a client in them. Only data.

As with the commands (`wire_commands`), an argument of a later Mercurial is refused until it is
listed, and tests compare the tables with core's (mercurial/wireprotov1server.py, wireprototypes.py,
pushkey.py, exchanges/bundle_caps.py; 7.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGUMENTS: Final[Mapping[str, str]] = {
    "batch": "cmds *",
    "between": "pairs",
    "branchmap": "",
    "capabilities": "",
    "clonebundles": "",
    "clonebundles_manifest": "*",
    "getbundle": "*",
    "heads": "",
    "hello": "",
    "known": "nodes *",
    "listkeys": "namespace",
    "lookup": "key",
    "protocaps": "caps",
    "pushkey": "namespace key old new",
    "stream_out": "",
    "unbundle": "heads",
}
"""Arguments of each open command, in core's notation; `*` stands for further arguments.

Only further arguments of `getbundle` and `batch` have a meaning.
"""

GETBUNDLE: Final = frozenset(
    {
        "bookmarks",
        "bundlecaps",
        "cbattempted",
        "cg",
        "common",
        "heads",
        "listkeys",
        "obsmarkers",
        "phases",
        "stream",
    }
)
"""Arguments of `getbundle`. They choose the content and form of the answer, and change nothing."""

GETBUNDLE_CLOSED: Final = frozenset({"excludepats", "includepats"})
"""Arguments of narrow clones, which this service does not have."""

READ_NAMESPACES: Final = frozenset({"bookmarks", "namespaces", "obsolete", "phases"})
"""Namespaces of keys that `listkeys` answers."""

PUSHED_NAMESPACES: Final = READ_NAMESPACES - {"namespaces"}
"""Namespaces that `pushkey` changes; each in a transaction, with policies and a record."""

VARIABLES: Final = frozenset({"CLOSED_TREE"})
"""Variables of `hg push --pushvars` that this service reads; others are dropped.

Otherwise, hooks of a site would get them in their environment.
"""

OFFERED: Final = frozenset(
    {
        "HG20",
        "bookmarks",
        "changegroup",
        # Pushes to unrelated heads do not race.
        "checkheads",
        "delta-compression",
        "error",
        "listkeys",
        "obsmarkers",
        "phases",
        "pushkey",
        "stream",
    }
)
"""Capabilities of bundle2 that are advertised to clients."""

NOT_OFFERED: Final = frozenset(
    {
        # Only with the part `remote-changegroup`.
        "digests",
        "remote-changegroup",
        # It announces that the part is accepted.
        "hgtagsfnodes",
    }
)
