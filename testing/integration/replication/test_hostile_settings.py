"""Relay, source and applier read the key of the host, and follow no setting in a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.replication.mirror import apply
from hgfleet.replication.primary.changegroup_worker import Opened
from hgfleet.replication.source import changesets
from testing.integration.support.hostile_settings import HostileSettings
from testing.integration.support.site import HGEXT, Site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path, f"[extensions]\npushlog = {HGEXT}/pushlog.py\n[hgfleet]\npushlog = yes\n")
    made.create("a")
    made.commit("a", "file", "content\n")
    monkeypatch.setenv("HGRCPATH", str(made.hgrc))
    monkeypatch.setenv("HGFLEET_USER", "operator:replication")
    return made


def test_no_reader_follows_settings_in_a_repository(site: Site, tmp_path: Path) -> None:
    """Source, verification and rebuild; the relay's worker; the applier."""
    hostile = HostileSettings(tmp_path, site.path("a"))
    ui = changesets.new_ui(site.hgrc)
    assert len(changesets.open_repository(ui.copy(), site.path("a"))) == 1
    assert len(Opened().get(str(site.path("a")))) == 1
    repo = apply.open_repository(site.path("a"))
    # The record of a push is written, although `.hg/hgrc` does not name the repository.
    assert repo.ui.config(b"hgfleet", b"path")
    with repo.wlock(), repo.lock(), repo.transaction(b"replication"):
        pass
    assert hostile.followed() == []
