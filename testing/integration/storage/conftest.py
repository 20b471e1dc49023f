"""A repository in the format of Mercurial before 2016, made once and copied for each test."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from testing.bench.repos import OLD_FORMAT, Size, generate
from testing.integration.storage.site import HGRC, IDENTITY, StorageSite
from testing.integration.support.site import program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Branches, merges, tags, bookmarks; a secret, an obsolete and a hidden changeset."""
    path = tmp_path_factory.mktemp("template")
    repository = path / "old"
    generate(repository, Size(changesets=500, files=30), seed=3, formats=OLD_FORMAT)
    hgrc = path / "hgrc"
    hgrc.write_text(HGRC)

    def hg(*words: str) -> None:
        subprocess.run(
            [program(), "-R", repository, *words],
            env={"HGRCPATH": str(hgrc), "PATH": os.environ["PATH"]},
            check=True,
            capture_output=True,
        )

    hg("update", "--quiet", "default")
    (repository / "draft").write_text("first\n")
    hg("commit", "--addremove", "--message", "draft")
    (repository / "draft").write_text("second\n")
    hg("commit", "--amend", "--message", "draft, amended")
    (repository / "hidden from all").write_text("secret\n")
    hg("commit", "--addremove", "--secret", "--message", "secret")
    hg("bookmark", "--rev", "tip", "a mark")
    hg("update", "--quiet", "null")
    control = repository / ".hg"
    assert "share-safe" not in (control / "requires").read_text()
    (control / "hgrc").write_text("[web]\ndescription = ours\n")
    (control / "clonebundles.manifest").symlink_to("/var/lib/hgfleet/manifests/old.manifest")
    (control / "store/pushlog").write_text("who, when\n")
    (repository / identity.FILE).write_text(identity.text(IDENTITY))
    (control / "store/ours").mkdir()
    (control / "store/ours/file").write_text("kept\n")
    for folder in (control, control / "store"):
        folder.chmod(0o2750)
    return repository


@pytest.fixture
def site(tmp_path: Path, template: Path) -> StorageSite:
    return StorageSite(tmp_path, template)
