"""Web workers, which are another user than `hg`, follow no setting that lies in a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.integration.support.hostile_settings import HostileSettings
from testing.integration.web.support import PROJECT, Site, ask
from testing.integration.web.test_web_identity import PAGES, WIRE

if TYPE_CHECKING:
    from pathlib import Path


def test_the_settings_are_followed_by_hg_itself(site: Site, tmp_path: Path) -> None:
    """The settings run code in hg itself, so the other tests can fail."""
    hostile = HostileSettings(tmp_path, site.path("team/project"))
    for command in ("heads", "branches"):
        site.hg("team/project", command)
    assert {"alias-heads", "extsetup", "import", "reposetup", "uisetup"} <= set(hostile.followed())


def test_no_request_follows_settings_in_a_repository(site: Site, tmp_path: Path) -> None:
    hostile = HostileSettings(tmp_path, site.path("team/project"))
    web = site.application()
    for rest, query in PAGES:
        ask(web, PROJECT + rest, query)
    for query, headers in WIRE:
        ask(web, PROJECT, query, headers=headers)
    assert hostile.followed() == []


def test_the_registry_says_whether_drafts_stay_drafts(site: Site, tmp_path: Path) -> None:
    HostileSettings(tmp_path, site.path("team/project"))
    phases = {"X-HgArg-1": "namespace=phases"}
    assert (
        b"publishing" not in ask(site.application(), PROJECT, "cmd=listkeys", headers=phases).body
    )
    site.publishing.append("team/project")
    site.write_registry()
    assert (
        b"publishing\tTrue" in ask(site.application(), PROJECT, "cmd=listkeys", headers=phases).body
    )
