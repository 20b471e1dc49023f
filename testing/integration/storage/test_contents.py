"""The picture of a repository that both stores have to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.storage.contents import contents
from hgfleet.storage.opened import open_repository

if TYPE_CHECKING:
    from hgfleet.storage.contents import Contents
    from testing.integration.storage.site import StorageSite


@pytest.fixture(autouse=True)
def configured(site: StorageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration of the site, which allows markers."""
    monkeypatch.setenv("HGRCPATH", str(site.hgrc))


def picture(site: StorageSite) -> Contents:
    return contents(open_repository(site.repository))


def test_the_same_number_of_other_markers_is_another_picture(site: StorageSite) -> None:
    site.old("debugobsolete", "1" * 40)
    first = picture(site)
    site.old("debugobsolete", "--delete", "1")
    site.old("debugobsolete", "2" * 40)
    second = picture(site)
    assert first.nodes == second.nodes
    assert first.markers != second.markers


def test_another_hidden_changeset_is_another_picture(site: StorageSite) -> None:
    before = picture(site)
    tip = site.old("log", "-r", "tip", "-T", "{node}")
    site.old("bookmark", "--delete", "a mark")
    site.old("debugobsolete", tip)
    after = picture(site)
    assert before.nodes == after.nodes
    assert before.visible != after.visible


def test_another_secret_changeset_is_another_picture(site: StorageSite) -> None:
    before = picture(site)
    site.old("phase", "--draft", "--force", "--rev", "tip")
    assert picture(site).served != before.served
