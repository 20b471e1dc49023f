"""Repositories opened without the settings in them: `.hg/hgrc` is for sessions of `hg`.

The user `hg` can write that file, and the file names code: hooks, extensions, commands in place of
aliases. A process with more rights than `hg` would run that code with its own rights. So it reads
the settings of a repository from the registry (`hgfleet.registry.model.repository_hgrc.configure`).

Processes of the program `hg` have HGRCSKIPREPO in their environment (`hgfleet.hg.unconfigured`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mercurial import extensions, localrepo

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

_SKIP: Final = (b"hgfleet", b"skip-repository-settings")


def skip(ui: Any) -> None:
    """Let repositories opened with this ui, or a copy of it, read no settings of their own."""
    ui.setconfig(*_SKIP, b"yes", b"hgfleet")


def _load(original: Callable[..., bool], ui: Any, *arguments: Any, **named: Any) -> bool:
    # Not a declared item: a read with a default would warn.
    if dict(ui.configitems(_SKIP[0], untrusted=False)).get(_SKIP[1]) == b"yes":
        # As for an empty file: core loads the extensions of the ui then.
        return True
    return original(ui, *arguments, **named)


# Core's own function: 7.2 reads all files of settings in a repository there.
extensions.wrapfunction(localrepo, "loadhgrc", _load)
