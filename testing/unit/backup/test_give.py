"""Owners of restored files: numbers of users and groups differ by host, names do not."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgfleet.backup import states
from hgfleet.backup.restores import host, restore
from hgfleet.core.errors import HostError

USERS = {"root": (0, 0), "hg": (995, 994)}
GROUPS = {"hg": 994, "hgauth": 988}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Return user and group of each file, by name, on a host with some users and groups."""
    owners: dict[str, tuple[int, int]] = {}

    def chown(path: Path, user: int, group: int, *, follow_symlinks: bool) -> None:
        assert not follow_symlinks
        owners[Path(path).name] = user, group

    def user_named(name: str) -> SimpleNamespace:
        return SimpleNamespace(pw_uid=USERS[name][0], pw_gid=USERS[name][1])

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(restore.pwd, "getpwnam", user_named)
    monkeypatch.setattr(restore.grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=GROUPS[name]))
    return owners


def test_a_folder_and_all_in_it_are_given_to_the_user_and_the_user_s_group(
    tmp_path: Path, given: dict[str, tuple[int, int]]
) -> None:
    (tmp_path / "folder/within").mkdir(parents=True)
    (tmp_path / "folder/within/file").touch()
    (tmp_path / "folder/link").symlink_to("/etc/passwd")
    restore.give(tmp_path / "folder", "hg")
    assert given == dict.fromkeys(("folder", "within", "file", "link"), (995, 994))


def test_a_file_is_given_to_a_group_that_is_not_the_user_s(
    tmp_path: Path, given: dict[str, tuple[int, int]]
) -> None:
    (tmp_path / "file").touch()
    restore.give(tmp_path / "file", "root", "hg")
    assert given == {"file": (0, 994)}


@pytest.mark.parametrize(
    ("owner", "group", "message"),
    [("nobody", "-", "no user nobody;"), ("hg", "none", "no user hg, or no group none;")],
)
def test_a_user_or_group_that_the_host_does_not_have_is_told(
    tmp_path: Path,
    given: dict[str, tuple[int, int]],
    owner: str,
    group: str,
    message: str,
) -> None:
    with pytest.raises(HostError, match=message):
        restore.give(tmp_path, owner, group)
    assert not given


@pytest.mark.usefixtures("given")
def test_files_of_a_user_that_a_later_role_creates_are_for_root_until_then() -> None:
    owners = {state.name: host.receiver(state, "hg") for state in states.declared()}
    assert owners["compiled registry, `.hg/hgrc`"] == ("root", "hg")
    assert owners["access tokens, as hashes"] == ("hg", "-")
    assert owners["push events that wait for a receiver, and dead ones"] == ("root", "-")


def test_a_restore_without_the_owner_of_the_repositories_fails(
    tmp_path: Path, given: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(USERS, "hg")
    (tokens,) = (state for state in states.declared() if state.name == "access tokens, as hashes")
    with pytest.raises(HostError, match="no user hg;"):
        restore.give(tmp_path, *host.receiver(tokens, "hg"))
    assert not given
