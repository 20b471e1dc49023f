"""The web part with real repositories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from testing.integration.web.support import HGRC, Site, copied

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def hgrc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only configuration that Mercurial in this process and its children reads."""
    path = tmp_path_factory.mktemp("hgrc") / "hgrc"
    path.write_text(HGRC)
    os.environ["HGRCPATH"] = str(path)
    return path


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, hgrc: Path) -> Site:
    """A site with a public repository of two changesets and a private repository, to be copied."""
    environment = {**os.environ, "HGRCPATH": str(hgrc), "LANG": "C.UTF-8"}
    made = Site(tmp_path_factory.mktemp("site"), environment)
    made.create("team/project")
    made.create("team/secret", public=False)
    made.commit("team/project", "one.txt")
    made.commit("team/project", "two.txt")
    return made


@pytest.fixture
def site(tmp_path: Path, template: Site) -> Site:
    """A site of its own for each test."""
    return copied(template, tmp_path)
