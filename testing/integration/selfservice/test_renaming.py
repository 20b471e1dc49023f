"""Renaming by the owner: the history moves, old addresses name the new, no kill loses it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from testing.integration.selfservice.site import BOB
from testing.integration.selfservice.test_archive import apply

if TYPE_CHECKING:
    from testing.integration.selfservice.site import SelfserviceSite

OLD, NEW = "people/bob/x", "people/bob/y"
SERVE = "hg -R {} serve --stdio"


def with_history(site: SelfserviceSite, *options: str) -> None:
    site.ok("bob", " ".join([f"repo create {OLD}", *options]))
    site.source("made")
    site.hg("-R", site.path(OLD), "pull", "-q", site.path("made"), **BOB)


def history(site: SelfserviceSite, path: str) -> str:
    return site.hg("-R", site.path(path), "log", "-T", "x")


def test_a_renamed_repository_has_its_history_and_settings(site: SelfserviceSite) -> None:
    with_history(site)
    site.ok("bob", f"repo describe {OLD} A tool")
    entry = site.entries[OLD]
    said = site.ok("bob", f"repo rename {OLD} {NEW}")
    assert said.startswith(f"Renamed {OLD} to {NEW}.\n\n  hg clone ssh://hg@HOST/{NEW}\n")
    assert site.entries == {NEW: entry}
    assert history(site, NEW) == "xxx"
    assert f"path = {NEW}\n" in (site.path(NEW) / ".hg/hgrc").read_text()
    assert not site.path(OLD).exists()
    assert identity.of(site.path(NEW)) == entry.identity != ""
    assert not (site.path(NEW) / ".hg/store/lock").is_symlink()
    assert site.remains() == []
    assert not any(line.startswith("people/") for line in apply(site, site.declare()))


def test_an_old_address_names_the_new_one_to_its_readers_alone(site: SelfserviceSite) -> None:
    with_history(site, "--read private")
    site.ok("bob", f"repo rename {OLD} {NEW}")
    told = f"{OLD} is now {NEW}: ssh://hg@HOST/{NEW}."
    assert site.ssh_command("bob", SERVE.format(OLD)).stderr.startswith(told)
    assert site.ssh_command("bob", f"repo info {OLD}").stderr.startswith(told)
    never = "people/bob/u"
    for command in (SERVE, "repo info {}"):
        others = site.ssh_command("carol", command.format(OLD)).stderr
        assert others.replace(OLD, never) == site.ssh_command("carol", command.format(never)).stderr
    # A second rename, and a new repository at the first path.
    site.ok("bob", f"repo rename {NEW} people/bob/z")
    assert "is now people/bob/z" in site.ssh_command("bob", SERVE.format(OLD)).stderr
    site.ok("bob", f"repo create {OLD}")
    assert "changesets:   0\n" in site.ok("bob", f"repo info {OLD}")
    assert history(site, "people/bob/z") == "xxx"


def test_an_old_path_is_not_free_for_others(site: SelfserviceSite) -> None:
    site.ok("bob", "repo create open/x")
    site.ok("bob", "repo rename open/x open/y")
    refused = site.ssh_command("carol", "repo create open/x").stderr
    assert refused == "The name open/x is not available: choose another name.\n"
    # With the repository goes the note.
    site.ok("bob", "repo archive open/y")
    site.ok("bob", "repo delete open/y open/y")
    site.ok("carol", "repo create open/x")


def test_a_refused_rename_changes_nothing(site: SelfserviceSite) -> None:
    with_history(site)
    site.ok("bob", "repo create people/bob/other")
    site.ok("carol", "repo create open/carols")
    before = site.entries
    for person, old, new, said in (
        ("bob", OLD, "people/bob/other", "You have people/bob/other already"),
        ("bob", OLD, OLD, "You have people/bob/x already"),
        ("bob", OLD, "open/x", "stays below people"),
        ("bob", OLD, "people/carol/x", "are personal"),
        ("bob", OLD, "hgfleet", "may not create repositories at hgfleet"),
        ("bob", OLD, "people/bob/../x", "cannot be a repository"),
        ("bob", "hgfleet", "people/bob/h", "ask an operator"),
        ("bob", "people/bob/none", "people/bob/h", "There is no repository"),
        ("bob", "open/carols", "open/mine", "belongs to carol"),
        ("carol", "open/carols", "open/carols/inside", "is not available"),
    ):
        refused = site.ssh_command(person, f"repo rename {old} {new}")
        assert refused.returncode not in (0, 70), refused
        assert said in refused.stderr
    assert site.entries == before
    assert history(site, OLD) == "xxx"


def test_a_full_quota_does_not_keep_from_renaming(site: SelfserviceSite) -> None:
    for name in ("x", "b", "c"):
        site.ok("bob", f"repo create people/bob/{name}")
    site.ok("bob", f"repo rename {OLD} {NEW}")


def test_a_push_under_way_ends_before_the_rename(site: SelfserviceSite) -> None:
    with_history(site)
    lock = site.path(OLD) / ".hg/store/lock"
    # The lock of a living process of this machine, as a push holds it.
    namespace = f"{Path('/proc/self/ns/pid').stat().st_ino:x}"
    lock.symlink_to(f"{socket.gethostname()}/{namespace}:{os.getpid()}")
    first = "from hgfleet.selfservice import renaming; renaming.LOCK_WAIT_S = 0; "
    refused = site.ssh_command("bob", f"repo rename {OLD} {NEW}", first=first)
    assert refused.returncode == 75
    assert refused.stderr.startswith(f"A push to {OLD} is under way")
    assert list(site.entries) == [OLD]
    lock.unlink()
    site.ok("bob", f"repo rename {OLD} {NEW}")


def test_a_deletion_after_a_killed_rename_leaves_no_history(site: SelfserviceSite) -> None:
    with_history(site)
    kill = (
        "import os, signal; from hgfleet.selfservice import repositories; "
        "repositories.configure_at = lambda *a: os.kill(os.getpid(), signal.SIGKILL); "
    )
    site.ssh_command("bob", f"repo rename {OLD} {NEW}", first=kill)
    assert site.path(OLD).exists()
    site.ok("bob", f"repo archive {NEW}")
    site.ok("bob", f"repo restore {NEW}")
    assert history(site, NEW) == "xxx"
    site.ok("bob", f"repo rename {NEW} {OLD}")
    site.ssh_command("bob", f"repo rename {OLD} {NEW}", first=kill)
    site.ok("bob", f"repo archive {NEW}")
    site.ok("bob", f"repo delete {NEW} {NEW}")
    assert not site.path(OLD).exists()
    assert not site.path(NEW).exists()


KILLED_AT = {
    "before it is registered": "creation.clear = lambda *a: kill()",
    "while it is registered": "files.replace_at = lambda *a, **k: kill()",
    "before it is configured": "repositories.configure_at = lambda *a: kill()",
    "before it is moved": "Path.rename = lambda *a: kill()",
    "after it was moved": "renaming.sync = lambda *a: kill()",
    "before the lock is removed": "renaming.forget = lambda *a: kill()",
}


@pytest.mark.parametrize("patch", KILLED_AT.values(), ids=KILLED_AT)
@pytest.mark.parametrize("finish", ["session", "apply", "rename"])
def test_after_a_killed_rename_a_later_run_finishes(
    site: SelfserviceSite, patch: str, finish: str
) -> None:
    with_history(site)
    kill = (
        "import os, signal; from pathlib import Path; from hgfleet.core import files; "
        "from hgfleet.selfservice import creation, renaming, repositories; "
        f"kill = lambda: os.kill(os.getpid(), signal.SIGKILL); {patch}; "
    )
    killed = site.ssh_command("bob", f"repo rename {OLD} {NEW}", first=kill)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if NEW not in site.entries:
        assert list(site.entries) == [OLD]
        assert history(site, OLD) == "xxx"
        site.ok("bob", f"repo rename {OLD} {NEW}")
    elif finish == "session":
        session = site.ssh_command("bob", SERVE.format(NEW))
        assert "does not have it yet" not in session.stderr
    elif finish == "apply":
        apply(site, site.declare())
    else:
        site.ok("bob", f"repo rename {NEW} people/bob/z")
        assert history(site, "people/bob/z") == "xxx"
        return
    assert history(site, NEW) == "xxx"
    assert f"path = {NEW}\n" in (site.path(NEW) / ".hg/hgrc").read_text()
    assert not (site.path(OLD)).exists()
    # The name is free again, and a repository there is not taken for the renamed repository.
    site.ok("bob", f"repo create {OLD}")
    apply(site, site.declare())
    assert history(site, NEW) == "xxx"
    assert history(site, OLD) == ""
