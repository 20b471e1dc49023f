"""Bundle jobs hold the keys of all stores, and follow no setting that lies in a repository."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from testing.integration.support.hostile_settings import HostileSettings
from testing.integration.support.site import identity_of

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.bundles.site import BundleSite


@pytest.mark.parametrize("publishing", [True, False])
def test_a_run_follows_no_settings_in_a_repository(
    site: BundleSite, tmp_path: Path, publishing: bool
) -> None:
    project = replace(
        site.repository("project", kinds=("stream", "zstd", "gzip")), publishing=publishing
    )
    hostile = HostileSettings(tmp_path, site.config.repositories / "project")
    assert site.run(project)[0].error is None
    assert {entry.changesets for entry in site.published("project")} == {2}
    # The registry says which phases a bundle has.
    snapshot = site.config.scratch / "snapshots" / identity_of("project")
    phases = set(site.hg("-R", snapshot, "log", "-T", "{phase}\n").split())
    assert phases == {"public" if publishing else "draft"}
    # A pull into the snapshot of the run before.
    site.run(project, force=True)
    assert hostile.followed() == []
