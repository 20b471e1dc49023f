"""Settings of hg for a repository, as the registry has them, and its generated `.hg/hgrc`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository

Settings = dict[str, dict[str, str]]
"""Section: name: value."""


def settings(repository: Repository) -> Settings:
    """Return the settings of an entry, of the inventory or of a person.

    Paths, groups, reasons and descriptions were checked to be single-line printable text, so
    nothing in them can begin a line, a section or an include.
    """
    sections: Settings = {"phases": {"publish": "true" if repository.publishing else "false"}}
    if not repository.publishing:
        # Drafts are rewritten, and users of `hg amend`, evolve and topic need the markers of the
        # rewrites. Mercurial exchanges no markers where it may not create them.
        names = "evolution.createmarkers", "evolution.exchange"
        sections["experimental"] = dict.fromkeys(names, "yes")
    sections["web"] = {
        "name": repository.path,
        "description": repository.description,
        "contact": ", ".join(repository.push) or "nobody",
    }
    own = sections["hgfleet"] = {
        "path": repository.path,
        "read": "public" if repository.read == "public" else " ".join(repository.read),
        "push": " ".join(repository.push),
    }
    if repository.owner is not None:
        own["owner"] = repository.owner
    if repository.read_only is not None:
        own["read-only"] = repository.read_only
    if repository.bundles and repository.bundles_from:
        own["bundles-from"] = str(repository.bundles_from)
    if repository.policies:
        own["policies"] = _json(dict(repository.policies))
    if repository.rules:
        own["rules"] = _json([rule.to_json() for rule in repository.rules])
    if repository.accept_dates != "valid":
        own["accept-dates"] = repository.accept_dates
    return sections


def render(repository: Repository) -> str:
    """Render the hgrc of a repository, which sessions of `hg` read."""
    text = """\
# Written by hgfleet from the entry of this repository in the registry. Changes here are
# overwritten; change registry.yml of the inventory and run the play.
"""
    for section, named in settings(repository).items():
        text += f"\n[{section}]\n"
        text += "".join(f"{name} = {value}".rstrip() + "\n" for name, value in named.items())
    return text


def configure(ui: Any, settings: Settings) -> None:
    """Give a ui of hg the settings of an entry, in place of those in the repository's own hgrc.

    For a process with more rights than `hg`, because `hg` can write that file
    (`hgfleet.hg.repository_settings`).
    """
    for section, named in settings.items():
        for name, value in named.items():
            ui.setconfig(section.encode(), name.encode(), value.encode(), b"registry")


def _json(value: object) -> str:
    """A single line, the same for the same value; ASCII, so that no reader splits it elsewhere."""
    return json.dumps(value, sort_keys=True)
