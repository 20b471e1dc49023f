"""refuse pushes that take the repositories of one owner above a limit of size.

The limit holds for all repositories together that a person created over SSH, archived ones
included, and every push to them::

  [hgfleet]
  # "0": no limit
  owner-quota = 5 GB
  # the repositories that people created
  dynamic = /var/lib/hgfleet/dynamic/registry.json

The owner and the path of a repository are in its own hgrc, written by ``hgfleet registry apply``.
Repositories without an owner have no limit here.

==============================  ==============================================================
state                           answer
==============================  ==============================================================
below the limit                 allowed, and the new size is noted in ``.hg/hgfleet-size``
above it                        refused; the sentence has the sizes and the way out
nothing is added                allowed: phases, bookmarks, and ``hg debugstrip`` of an operator
``operator:NAME``               allowed, and noted
the dynamic registry is damaged the size of this repository counts alone
==============================  ==============================================================

Two pushes to two repositories at the same time are each compared with the size before the other.

Enable it for all processes that write on the server::

  [extensions]
  owner_quota = /opt/hgfleet/current/hgext/owner_quota.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mercurial import registrar

from hgfleet.core.errors import RegistryError
from hgfleet.core.paths import DYNAMIC
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer
from hgfleet.registry import repository_sizes

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"owner-quota", default=0)
configitem(b"hgfleet", b"dynamic", default=os.fsencode(DYNAMIC))


def reposetup(_ui: Any, repo: Any) -> None:
    """Look at every transaction of a user repository on this host's disk before it is permanent."""
    if repo.local() and repo.ui.config(b"hgfleet", b"owner"):
        repo.ui.setconfig(b"hooks", b"pretxnclose.owner_quota", check, b"owner_quota")


def check(ui: Any, repo: Any, **_news: object) -> None:
    """Refuse a transaction above the limit (a hook); note the size of any other one."""
    place = Path(os.fsdecode(repo.root))
    added = growth(repo)
    before = size_before(place, added)
    if not OPERATOR.fullmatch(writer().name):
        owner = text(ui.config(b"hgfleet", b"owner"))
        allowed = ui.configbytes(b"hgfleet", b"owner-quota")
        used = before + others(ui, place, owner) if allowed and added > 0 else 0
        sentence = repository_sizes.refusal(owner, used, added, allowed)
        if sentence is not None:
            refuse(ui, sentence, reason="quota")
    if added:
        repo.currenttransaction().addpostclose(
            b"owner_quota", lambda _: repository_sizes.remember(place, before + added)
        )


def size_before(place: Path, added: int) -> int:
    """Return the size before the open transaction, which has added so many bytes.

    A size that is measured now has these bytes already.
    """
    known = repository_sizes.noted(place)
    return repository_sizes.measured(place) - added if known is None else known


def growth(repo: Any) -> int:
    """Return the bytes that the open transaction has added to files of the store.

    A transaction knows how long each file was (7.2: `_offsetmap`, and `_newfiles`).
    """
    transaction = repo.currenttransaction()
    lengths = dict.fromkeys(transaction._newfiles, 0)  # noqa: SLF001
    lengths |= transaction._offsetmap  # noqa: SLF001
    added = 0
    for name, length in lengths.items():
        try:
            added += repo.svfs.stat(name).st_size - length
        except FileNotFoundError:
            added -= length
    return added


def others(ui: Any, place: Path, owner: str) -> int:
    """Return the bytes of the owner's other repositories."""
    path = text(ui.config(b"hgfleet", b"path") or b"")
    root = str(place).removesuffix(f"/{path}")
    if root == str(place):
        return 0
    try:
        paths = repository_sizes.owned(os.fsdecode(ui.config(b"hgfleet", b"dynamic")), owner)
    except RegistryError as problem:
        ui.log(b"owner_quota", b"%s\n", str(problem).encode("utf-8", "replace"))
        return 0
    return repository_sizes.total(Path(root), [one for one in paths if one != path])
