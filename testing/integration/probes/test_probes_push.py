"""The push probe with a real hg on both ends, and a program in the place of ssh."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.probes import push, push_changes, result_history
from hgfleet.probes.settings import Push, Settings
from testing.integration.support.site import HG, Site

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY = "canary"
BOOKMARK = "minute/monitor1"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path, "[ui]\nusername = test\n")
    site.create(REPOSITORY)
    return site


@pytest.fixture
def settings(site: Site, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of a host whose ssh runs the command of the session here."""
    ssh = site.root / "ssh"
    ssh.write_text(
        f"""#!/bin/sh
[ ! -e {site.root}/down ] || {{ echo "ssh: connection refused" >&2; exit 255; }}
for command; do :; done
export HGRCPATH={site.hgrc}
cd {site.repos} && PATH={HG.parent}:$PATH && eval "$command"
"""
    )
    ssh.chmod(0o755)
    (site.root / "state").mkdir()
    (site.root / push.KEY).write_text("a key, which this ssh does not read")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(site.root))
    return Settings(
        "https://hg.example/canary",
        push=Push(f"ssh://hg@localhost/{REPOSITORY}", "monitor1", site.root / "known", ssh),
        state=site.root / "state",
    )


def pushed(settings: Settings) -> str:
    assert settings.push is not None
    return push.attempt(settings, settings.push)[1]


def found(site: Site) -> tuple[int, str]:
    """Return the number of changesets, and the revision of the bookmark."""
    number = site.hg_in(REPOSITORY, "log", "-T", "{rev}\n").splitlines()
    at = site.hg_in(REPOSITORY, "log", "-r", f'bookmark("{BOOKMARK}")', "-T", "{rev}")
    return len(number), at


def test_pushes_begin_with_two_changesets_and_go_on_with_the_bookmark(
    site: Site, settings: Settings
) -> None:
    seen = []
    for _ in range(5):
        assert pushed(settings) == ""
        seen.append(found(site))
    assert seen == [(1, "0"), (2, "1"), (2, "0"), (2, "1"), (2, "0")]
    assert site.hg_in(REPOSITORY, "log", "-T", "{files}{phase} ") == "public public "


def test_a_lost_local_repository_comes_back_from_the_server(site: Site, settings: Settings) -> None:
    for _ in range(3):
        assert pushed(settings) == ""
    (settings.state / push.FOLDER / push.MARK).unlink()
    assert pushed(settings) == ""
    # The bookmark came too, so it moves on.
    assert found(site) == (2, "1")


def test_a_failure_is_told_and_the_next_push_succeeds(site: Site, settings: Settings) -> None:
    assert pushed(settings) == ""
    (site.root / "down").touch()
    for _ in range(3):
        assert "connection refused" in pushed(settings)
    (site.root / "down").unlink()
    assert pushed(settings) == ""
    assert found(site) == (2, "1")


def test_a_repository_that_was_replaced_is_pushed_to_anew(site: Site, settings: Settings) -> None:
    for _ in range(3):
        assert pushed(settings) == ""
    site.create("other")
    assert settings.push is not None
    other = replace(settings, push=replace(settings.push, url="ssh://hg@localhost/other"))
    assert pushed(other) == ""
    assert site.hg_in("other", "log", "-T", "{rev} ") == "0 "


def test_hosts_make_no_heads_of_each_other(site: Site, settings: Settings) -> None:
    assert settings.push is not None
    for host in ("monitor1", "monitor2"):
        (site.root / host).mkdir()
        of_host = replace(settings, state=site.root / host, push=replace(settings.push, host=host))
        for _ in range(3):
            assert pushed(of_host) == ""
    branches = site.hg_in(REPOSITORY, "branches", "-T", "{branch} ").split()
    assert sorted(branches) == [
        push_changes.branch_of("monitor1"),
        push_changes.branch_of("monitor2"),
    ]
    assert len(site.hg_in(REPOSITORY, "heads", "-T", "{rev} ").split()) == 2


def test_a_push_that_moves_nothing_is_no_success(site: Site, settings: Settings) -> None:
    """Another program moved the bookmark to where this push would."""
    for _ in range(3):
        assert pushed(settings) == ""
    site.hg_in(REPOSITORY, "bookmark", "--force", "--rev", "1", BOOKMARK)
    assert "the push moved no bookmark" in pushed(settings)
    assert pushed(settings) == ""


def test_a_damaged_local_repository_is_a_failure_once(settings: Settings) -> None:
    assert pushed(settings) == ""
    (settings.state / push.FOLDER / ".hg/requires").write_text("damage\n")
    assert "damage" in pushed(settings)
    assert pushed(settings) == ""


def test_a_hook_that_refuses_is_a_failure_with_its_words(site: Site, settings: Settings) -> None:
    site.hgrc.write_text("[hooks]\npretxnopen.no = sh -c 'echo it is closed; exit 1'\n")
    assert "pretxnopen.no hook" in pushed(settings)
    assert not (settings.state / result_history.name(result_history.PUSH)).exists()
