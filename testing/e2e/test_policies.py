"""Refusals of pushes by a policy, a rule or a read-only repository, as people read them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

AUTHOR = ("--user", "Bob <bob@example.org>")


def commit(work: Clone, message: str, *options: str) -> str:
    work.hg("commit", "--quiet", "--addremove", "-m", message, *options).ok()
    return work.hg("log", "-r", ".", "-T", "{node}").ok().stdout


def test_everything_that_is_wrong_is_named_at_once(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    before = cluster.remote_heads("e2e/policies")
    work = bob.clone(bob.ssh_url("e2e/policies"), tmp_path / "work")
    (work.path / "large.bin").write_bytes(b"x" * 102_401)
    (work.path / "setup.exe").write_bytes(b"x")
    (work.path / "link").symlink_to("/etc/passwd")
    (work.path / "Readme-new").write_text("x")
    (work.path / "README-new").write_text("x")
    node = commit(work, "fix it", "--user", "bob")[:12]

    work.hg("push").refused(
        f'remote: - commit-message: {node} has the message "fix it": begin it with "Bug NUMBER: "',
        f'remote: - author: {node} has the author "bob": write it as "NAME <MAIL ADDRESS>"',
        f"remote: - file-size: {node} has large.bin with 100.1 KiB, more than 100 KiB",
        f"remote: - paths: {node} has setup.exe, which is forbidden here",
        f"remote: - no-case-collisions: {node} has both",
        f"remote: - no-symlinks: {node} has link, a symbolic link",
        "remote: bob may not push this to e2e/policies: 6 problems, named above",
        "abort: push failed on remote",
    )

    assert cluster.remote_heads("e2e/policies") == before


def test_what_is_fine_is_stored_and_logged_with_what_it_cost(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    host = cluster.first("ssh")
    cursor = host.journal_cursor()
    work = bob.clone(bob.ssh_url("e2e/policies"), tmp_path / "work")
    (work.path / f"{uuid.uuid4()}.txt").write_text("fine")
    node = commit(work, "Bug 1: a file", *AUTHOR)

    work.hg("push").ok()

    assert node in cluster.remote_heads("e2e/policies")
    lines = host.journal_after(cursor, "--identifier=hgfleet-shell")
    mine = [line for line in lines if "event=policy " in line and "repository=e2e/policies" in line]
    (line,) = mine
    assert "user=bob repository=e2e/policies decision=allow" in line
    assert ",single-head:0." in line


def test_a_second_head_is_refused_also_with_force(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    work = bob.clone(bob.ssh_url("e2e/policies"), tmp_path / "work")
    work.hg("update", "--quiet", "null").ok()
    (work.path / f"{uuid.uuid4()}.txt").write_text("from nothing")
    commit(work, "Bug 2: another root", *AUTHOR)
    before = cluster.remote_heads("e2e/policies")

    work.hg("push", "--force").refused("single-head: the branch default would have 2 heads")

    assert cluster.remote_heads("e2e/policies") == before


def test_a_closed_tree_says_why_and_who_may(alice: Person, bob: Person, tmp_path: Path) -> None:
    work = bob.clone(bob.ssh_url("e2e/closed"), tmp_path / "bob")
    work.commit(f"{uuid.uuid4()}.txt", b"x", "by bob")
    work.hg("push").refused(
        "closed-tree: the tree is closed: the end-to-end tests want it so; "
        "wait, or ask a member of maintainers to push"
    )
    work.hg("push", "--pushvars", "CLOSED_TREE=yes").refused("ask a member of maintainers to push")

    mine = alice.clone(alice.ssh_url("e2e/closed"), tmp_path / "alice")
    node = mine.commit(f"{uuid.uuid4()}.txt", b"x", "by alice")
    mine.hg("push").refused("you may push all the same with hg push --pushvars CLOSED_TREE=yes")
    mine.hg("push", "--pushvars", "CLOSED_TREE=yes").ok()
    assert node in alice.hg("id", "--debug", "-i", alice.ssh_url("e2e/closed")).ok().stdout


def test_a_rule_keeps_bob_from_a_path(alice: Person, bob: Person, tmp_path: Path) -> None:
    work = bob.clone(bob.ssh_url("e2e/rules"), tmp_path / "bob")
    (work.path / "settings").mkdir(exist_ok=True)
    node = work.commit(f"settings/{uuid.uuid4()}", b"x", "by bob")
    work.hg("push").refused(
        f"rules: {node[:12]} changes settings/", "where only members of maintainers may push"
    )

    mine = alice.clone(alice.ssh_url("e2e/rules"), tmp_path / "alice")
    (mine.path / "settings").mkdir(exist_ok=True)
    mine.commit(f"settings/{uuid.uuid4()}", b"x", "by alice")
    mine.hg("push").ok()


def test_a_rule_keeps_bob_from_a_branch(bob: Person, tmp_path: Path) -> None:
    work = bob.clone(bob.ssh_url("e2e/rules"), tmp_path / "bob")
    work.hg("branch", "--quiet", "--force", "stable").ok()
    node = work.commit(f"{uuid.uuid4()}", b"x", "by bob")
    work.hg("push", "--new-branch", "--force").refused(
        f"rules: {node[:12]} is on the branch stable, where only members of maintainers may push"
    )


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_a_read_only_repository_says_why(cluster: Cluster, name: str, tmp_path: Path) -> None:
    person = cluster.person(name)
    work = person.clone(person.ssh_url("e2e/readonly"), tmp_path / "work")
    work.commit("file", uuid.uuid4().bytes, "try it")
    work.hg("push", "--quiet").refused(
        f"{name} may not push to e2e/readonly now: it is read-only (the end-to-end tests want"
    )
    assert cluster.remote_heads("e2e/readonly") <= {"0" * 40}
