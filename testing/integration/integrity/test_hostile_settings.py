"""Verification and restores follow no setting that lies in a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.backup.restic.settings import Settings
from hgfleet.backup.restores import restore
from hgfleet.integrity.check import verify
from testing.integration.support import site
from testing.integration.support.hostile_settings import HostileSettings
from testing.integration.support.primary import Primary

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_no_verification_follows_settings_in_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drill runs as the user of the backup, who reads every file and its credentials."""
    monkeypatch.setenv("PYTHONPATH", str(site.TOP))
    primary = Primary(tmp_path / "repos/team/x")
    with primary.push():
        primary.commit(b"content")
    hostile = HostileSettings(tmp_path, primary.path)
    assert verify(primary.path) == ""
    settings = Settings("hg1", "s3:https://s3/backup/hg1", frozenset(), hg=site.HG)
    restore.verify(settings, primary.path)
    assert len(restore.heads_of(settings, primary.path)) == 1
    assert hostile.followed() == []
