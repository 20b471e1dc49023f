"""Hosts with bundle jobs: with one store, with stores in two regions, with a private store."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.stores import reader as http_reader
from testing.bench import repos
from testing.integration.bundles.pullbundle_host import SIZE, Host
from testing.integration.bundles.site import BundleSite
from testing.integration.support.store import Store, write_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def running(root: Path, *stores: Store) -> Iterator[BundleSite]:
    try:
        yield BundleSite(root, *stores)
    finally:
        for store in stores:
            store.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BundleSite]:
    """A host with a single store."""
    with running(tmp_path, Store()) as made:
        yield made


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[BundleSite]:
    """A host with two stores: `eu`, which comes first, and `us`."""
    with running(tmp_path, Store("eu"), Store("us")) as made:
        yield made


@pytest.fixture
def rereading(regions: BundleSite) -> BundleSite:
    """Two stores, whose objects are read every week, and nothing else is checked."""
    regions.config = replace(
        regions.config, read_age=timedelta(days=7), verify_age=timedelta(0), digest_only=()
    )
    return regions


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[BundleSite]:
    """A host with a public store, `main`, and a private store, `closed`."""
    with running(tmp_path, Store(), Store("closed", private=True)) as made:
        reader = made.stores[1].reader
        assert reader is not None
        write_keys(made.config.signing, reader)
        yield made


@pytest.fixture(autouse=True)
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the probe see a few bytes only: bundles here are tiny, and hg checks all the others."""
    monkeypatch.setattr(http_reader, "TAIL", 8)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 changesets with branches, merges, tags and bookmarks in a chain, and 9 more."""
    made = Host(tmp_path_factory.mktemp("template"))
    made.config.scratch.mkdir()
    made.config.state.mkdir()
    made.config.pull_bundles.mkdir()
    made.source.parent.mkdir()
    repos.generate(made.source, SIZE, seed=7)
    assert made.run().error is None
    repos.append(made.source, 9, seed=8)
    made.hg("-R", made.source, "bookmark", "-r", "tip", "newest")
    return made.root


@pytest.fixture
def host(template: Path, tmp_path: Path) -> Host:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    made = Host(tmp_path)
    made.serve()
    return made
