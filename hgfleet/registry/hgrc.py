"""The generated `.hg/hgrc` of a repository."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hgfleet.registry.model import Repository


# Drafts are rewritten, and users of `hg amend`, evolve and topic need the markers of that.
# Mercurial exchanges none where it may not create them.
EVOLUTION: Final = """
[experimental]
evolution.createmarkers = yes
evolution.exchange = yes
"""


def render(repository: Repository) -> str:
    """Render the hgrc of a repository, of the inventory or of a person.

    Paths, groups, reasons and descriptions were checked to be single-line printable text, so
    nothing in them can begin a line, a section or an include.
    """
    more_items = ""
    if repository.owner is not None:
        more_items += f"owner = {repository.owner}\n"
    if repository.read_only is not None:
        more_items += f"read-only = {repository.read_only}\n"
    if repository.bundles and repository.bundles_from:
        more_items += f"bundles-from = {repository.bundles_from}\n"
    if repository.policies:
        more_items += f"policies = {_json(dict(repository.policies))}\n"
    if repository.rules:
        more_items += f"rules = {_json([rule.to_json() for rule in repository.rules])}\n"
    if repository.accept_dates != "valid":
        more_items += f"accept-dates = {repository.accept_dates}\n"
    read = "public" if repository.read == "public" else " ".join(repository.read)
    return f"""\
# Written by hgfleet from the entry of this repository in the registry. Changes here are
# overwritten; change registry.yml of the inventory and run the play.

[phases]
publish = {"true" if repository.publishing else "false"}
{"" if repository.publishing else EVOLUTION}
[web]
name = {repository.path}
description = {repository.description}
contact = {", ".join(repository.push) or "nobody"}

[hgfleet]
path = {repository.path}
read = {read}
push = {" ".join(repository.push)}
{more_items}""".replace(" \n", "\n")


def _json(value: object) -> str:
    """One line, the same for the same value; ASCII, so that no reader can split it elsewhere."""
    return json.dumps(value, sort_keys=True)
