"""Names that core would resolve to the working copy, which a server does not have.

For `ffff...`, a prefix of it that no changeset has, and the number 2147483647 core answers with the
working directory: hgweb would read its pages from files on the disk. Here such a name is unknown,
like any other that no changeset has. A bookmark, tag or branch may be called `f`, and a search may
contain the word.

Written against Mercurial 7.2 (`mercurial/scmutil.py`: `revsymbol`, `resolvehexnodeidprefix`).
`testing/integration/web/test_web_core.py` fails when they change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mercurial import error, extensions, scmutil
from mercurial.node import wdirhex, wdirrev

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBER: Final[int] = wdirrev
HASH: Final[bytes] = wdirhex


def hide() -> None:
    """Make names of the working copy unknown, for pages and for the symbols of a search."""
    extensions.wrapfunction(scmutil, "revsymbol", _changeset)
    extensions.wrapfunction(scmutil, "resolvehexnodeidprefix", _by_prefix)


def _changeset(original: Callable[..., Any], repository: Any, symbol: bytes) -> Any:
    context = original(repository, symbol)
    if context.rev() is None:
        raise error.RepoLookupError(b"unknown revision '%s'" % symbol)
    return context


def _by_prefix(original: Callable[..., Any], repository: Any, prefix: bytes) -> Any:
    try:
        return original(repository, prefix)
    except error.WdirUnsupported:
        return None
