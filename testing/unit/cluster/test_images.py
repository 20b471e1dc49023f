"""Images and snapshots are named by their content, and by nothing else."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from controller import bootstrap
from controller.cluster import cluster, images, inotify, release, settings, snapshots
from controller.cluster.release import Release
from controller.cluster.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = Settings("hgfleet-abc123", "10.213.20", 21000, "an identity")


def test_a_key_is_short_and_depends_on_parts_and_their_borders() -> None:
    key = images.content_key([b"ab", b"c"])

    assert len(key) == 12
    assert int(key, 16) >= 0
    assert key == images.content_key([b"ab", b"c"])
    assert len({key, images.content_key([b"a", b"bc"]), images.content_key([b"c", b"ab"])}) == 3
    assert images.content_key([]) != images.content_key([b""])


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small checkout."""
    monkeypatch.setattr(images, "ROOT", tmp_path)
    (tmp_path / "roles/web").mkdir(parents=True)
    (tmp_path / "roles/web/tasks.yml").write_text("- name: Something\n")
    (tmp_path / "roles/run.sh").write_text("#!/bin/sh\n")
    return tmp_path


def key_of(tree: Path) -> str:
    return images.content_key(images.tree_parts([tree / "roles"]))


def test_a_tree_has_the_key_of_its_content(tree: Path) -> None:
    before = key_of(tree)
    os.utime(tree / "roles/run.sh", (0, 0))

    assert key_of(tree) == before


def test_content_name_and_mode_all_count(tree: Path) -> None:
    keys = [key_of(tree)]
    (tree / "roles/run.sh").write_text("#!/bin/sh\nexit 1\n")
    keys.append(key_of(tree))
    (tree / "roles/run.sh").chmod(0o755)
    keys.append(key_of(tree))
    (tree / "roles/run.sh").rename(tree / "roles/other.sh")
    keys.append(key_of(tree))
    (tree / "roles/other.sh").unlink()
    keys.append(key_of(tree))

    assert len(set(keys)) == 5


def test_what_python_leaves_behind_does_not_count(tree: Path) -> None:
    before = key_of(tree)
    (tree / "roles/__pycache__").mkdir()
    (tree / "roles/__pycache__/x.pyc").write_bytes(b"compiled")

    assert key_of(tree) == before


def test_a_single_file_can_be_given(tree: Path) -> None:
    parts = images.tree_parts([tree / "roles/run.sh"])

    assert parts[0] == b"roles/run.sh"


def test_package_lists_may_have_comments(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# why\nsystemd  # PID 1\n\npython3\n")

    assert images.read_packages(tmp_path / "list") == ["systemd", "python3"]


@pytest.mark.parametrize(
    "name", ["docker/packages.txt", "docker/host-packages.txt", "docker/release/packages.txt"]
)
def test_the_lists_in_the_repository_name_packages(name: str) -> None:
    packages = images.read_packages(bootstrap.ROOT / name)

    assert packages
    assert all(" " not in package for package in packages)
    assert len(set(packages)) == len(packages)


# --- snapshots --------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Release:
    """Return a release; the image of hosts has a name of its own."""
    monkeypatch.setattr(images, "ensure_host", lambda: "hgfleet/host:1")
    monkeypatch.setattr(cluster, "STATE", tmp_path)
    monkeypatch.setattr(snapshots, "STATE", tmp_path)
    return Release("0.1.0-1", tmp_path / "release.tar.gz", tmp_path / "versitygw-1")


def test_a_snapshot_fits_only_the_state_and_release_that_shaped_it(
    built: Release, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = snapshots.key_of(CLUSTER, built)

    assert snapshots.key_of(CLUSTER, built) == key
    different = [
        snapshots.key_of(Settings("n", CLUSTER.network, 29000, CLUSTER.identity), built),
        snapshots.key_of(Settings("n", "10.213.21", 21000, CLUSTER.identity), built),
        snapshots.key_of(Settings("n", CLUSTER.network, 21000, "another"), built),
        snapshots.key_of(CLUSTER, built._replace(version="0.1.0-2")),
        snapshots.key_of(CLUSTER, built._replace(versitygw=tmp_path / "versitygw-2")),
    ]
    monkeypatch.setattr(images, "ensure_host", lambda: "hgfleet/host:2")
    different.append(snapshots.key_of(CLUSTER, built))
    assert key not in different
    assert len(set(different)) == len(different)


def test_snapshots_of_two_clusters_and_hosts_have_different_names() -> None:
    other = Settings("hgfleet-ffffff", "10.213.21", 21010, "")
    names = {
        snapshots.name_of(owner, host, "k") for owner in (CLUSTER, other) for host in ("hg1", "s3")
    }

    assert len(names) == 4
    assert all(name.startswith("hgfleet/snapshot-") and name.endswith(":k") for name in names)


def test_only_superseded_snapshots_of_this_cluster_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [
        snapshots.name_of(CLUSTER, "hg1", "new"),
        "hgfleet/snapshot-hgfleet-ffffff-hg1:old",
        "hgfleet/base:old",
    ]
    old = snapshots.name_of(CLUSTER, "hg1", "old")
    commands: list[list[str]] = []
    monkeypatch.setattr(release, "image_names", lambda: [*kept, old])
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))

    snapshots.remove(CLUSTER, keep="new")

    assert commands == [["docker", "image", "rm", old]]


def test_old_archives_of_the_release_go_and_the_rest_of_the_cache_stays(tmp_path: Path) -> None:
    names = ["hgfleet-0.1.0-a.tar.gz", "hgfleet-0.1.0-b.tar.gz", "versitygw-x", "wheels-y"]
    for name in names:
        (tmp_path / name).touch()

    release.prune(Release("0.1.0-b", tmp_path / names[1], tmp_path / "versitygw-x"))

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_release_carries_the_version_of_the_project() -> None:
    assert release.project_version().count(".") == 2


# --- the environment of Ansible ---------------------------------------------------------------


def test_role_tests_run_beside_the_cluster_and_not_in_it(
    built: Release, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(settings, "STATE", tmp_path)
    monkeypatch.setattr(cluster, "ensure_people_keys", lambda _: None)
    monkeypatch.setattr(images, "ensure_base", lambda: "base")  # takes minutes where it is missing

    env = cluster.for_role_tests(CLUSTER, built)

    own = cluster.ansible_variables(CLUSTER, built)
    for name in ("HGFLEET_CLUSTER_NAME", "HGFLEET_CLUSTER_NETWORK", "HGFLEET_CLUSTER_STATE"):
        assert env[name] != own[name], name
    assert env["HGFLEET_KEYS"] == f"{env['HGFLEET_CLUSTER_STATE']}/keys"
    assert env["HGFLEET_RELEASE_VERSION"] == own["HGFLEET_RELEASE_VERSION"] == "0.1.0-1"


def test_lines_of_a_play_that_are_shown_as_progress() -> None:
    match = cluster.TASK_LINE.match("TASK [web : Workers run] ******")

    assert match
    assert match["name"] == "web : Workers run"
    assert cluster.TASK_LINE.match("RUNNING HANDLER [base : Restart] ***")
    assert not cluster.TASK_LINE.match("ok: [hg1] => TASK [x]")


def test_a_host_that_got_no_inotify_instance_is_explained() -> None:
    """Where it has no terminal, systemd ends without a word."""
    inotify.explain("hg1", taken=90, limit=128)
    with pytest.raises(bootstrap.SetupError, match=r"max_user_instances \(128\)") as refused:
        inotify.explain("hg1", taken=126, limit=128)
    assert "sysctl fs.inotify.max_user_instances=1024" in str(refused.value)


def process(proc: Path, pid: str, program: str, target: str) -> None:
    """Make a process with an open file."""
    folder = proc / pid / "fd"
    folder.mkdir(parents=True)
    (proc / pid / "comm").write_text(f"{program}\n")
    (folder / "5").symlink_to(target)


def test_inotify_instances_of_a_user_are_counted(tmp_path: Path) -> None:
    for pid, target in (("1", "anon_inode:inotify"), ("23", "anon_inode:inotify"), ("4", "x")):
        process(tmp_path, pid, "systemd", target)
    assert inotify.instances(tmp_path, os.getuid()) == 2
    assert inotify.instances(tmp_path, os.getuid() + 1) == 0, "the limit is per user"


def test_a_child_that_is_about_to_start_has_its_parents_instances(tmp_path: Path) -> None:
    process(tmp_path, "1", "systemd", "anon_inode:inotify")
    process(tmp_path, "2", "(sd-exec-strv)", "anon_inode:inotify")
    assert inotify.instances(tmp_path, os.getuid()) == 1


@pytest.mark.parametrize(
    ("limit", "hosts", "after"), [(128, 18, 128), (128, 19, 1024), (2048, 300, 2048)]
)
def test_the_limit_is_raised_only_where_hosts_would_not_boot(
    tmp_path: Path, limit: int, hosts: int, after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "limit"
    file.write_text(f"{limit}\n")
    inotify.ensure(hosts, file, tmp_path)
    assert int(file.read_text()) == after
    assert ("max_user_instances is 1024" in capsys.readouterr().err) is (after != limit)


def test_a_limit_that_only_root_may_raise_stops_nothing(tmp_path: Path) -> None:
    inotify.ensure(100, tmp_path / "missing", tmp_path)
