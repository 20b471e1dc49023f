from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import Settings
from hgfleet.backup.run import Run
from hgfleet.core import files
from hgfleet.core.errors import TemporaryError
from hgfleet.core.report import Report

if TYPE_CHECKING:
    from pathlib import Path


def test_a_host_has_one_run_at_a_time(tmp_path: Path) -> None:
    settings = Settings("hg1", "s3:https://s3/backup/hg1", frozenset({"ssh"}), state=tmp_path)
    run = Run(settings, Restic(settings), Report(part="backup"))
    with files.open_folder(tmp_path) as folder:
        assert files.try_lock(folder)
        with pytest.raises(TemporaryError, match="another backup of this host is under way"):
            run.run()
