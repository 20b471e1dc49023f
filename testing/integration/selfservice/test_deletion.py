"""Deletion by the owner: for good, after a confirmation, also when it is killed in between."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.registry.dynamic import user_repositories

if TYPE_CHECKING:
    from testing.integration.selfservice.site import SelfserviceSite

PATH = "people/bob/x"


def archived(site: SelfserviceSite) -> None:
    site.ok("bob", f"repo create {PATH}")
    site.ok("bob", f"repo archive {PATH}")


def test_an_owner_deletes_an_archived_repository_and_frees_its_place(site: SelfserviceSite) -> None:
    archived(site)
    gone = identity.of(site.path(PATH))
    for name in ("y", "z"):
        site.ok("bob", f"repo create people/bob/{name}")
    full = site.ssh_command("bob", "repo create people/bob/new").stderr
    assert "the limit is 3. Delete an archived repository to free" in full

    said = site.ok("bob", f"repo delete {PATH} {PATH}")

    assert said == f"Deleted {PATH} for good. Its name and its place in your limit are free.\n"
    assert PATH not in site.entries
    assert not site.path(PATH).exists()
    assert set(user_repositories.load(site.dynamic).purged) == {gone}
    assert site.remains() == [".purged"]
    assert list((site.repos / ".purged").iterdir()) == []
    site.ok("bob", f"repo create {PATH}")
    # A new repository at the same path is another repository.
    assert site.entries[PATH].identity == identity.of(site.path(PATH)) != gone


def test_a_deletion_is_confirmed_and_only_of_an_own_archived_repository(
    site: SelfserviceSite,
) -> None:
    archived(site)
    site.ok("bob", "repo create people/bob/live")
    for command, said in (
        (f"repo delete {PATH}", "there is no PATH-AGAIN"),
        (f"repo delete {PATH} people/bob/live", "name it twice"),
        ("repo delete people/bob/live people/bob/live", 'is in service; "repo archive'),
        ("repo delete people/bob/no people/bob/no", "There is no repository"),
        ("repo delete hgfleet hgfleet", "There is no repository"),
        ("repo delete ../../x ../../x", "There is no repository"),
    ):
        refused = site.ssh_command("bob", command)
        assert refused.returncode != 0
        assert said in refused.stderr
    others = site.ssh_command("carol", f"repo delete {PATH} {PATH}")
    never = site.ssh_command("carol", "repo delete people/bob/u people/bob/u")
    assert others.stderr.replace(PATH, "people/bob/u") == never.stderr
    assert set(site.entries) == {PATH, "people/bob/live"}
    assert (site.path(PATH) / ".hg").is_dir()
    assert site.remains() == []


KILLED_AT = {
    "before it is moved": "deletion.load_compiled = lambda *a: kill()",
    "after it was moved": "files.replace_at = lambda *a, **k: kill()",
    "after it was registered": "shutil.rmtree = lambda *a, **k: kill()",
}


@pytest.mark.parametrize("patch", KILLED_AT.values(), ids=KILLED_AT)
def test_after_a_killed_deletion_the_same_command_finishes(
    site: SelfserviceSite, patch: str
) -> None:
    archived(site)
    kill = (
        "import os, shutil, signal; from hgfleet.core import files; "
        "from hgfleet.selfservice import deletion; "
        f"kill = lambda: os.kill(os.getpid(), signal.SIGKILL); {patch}; "
    )
    command = f"repo delete {PATH} {PATH}"
    killed = site.ssh_command("bob", command, first=kill)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if PATH in site.entries:
        site.ok("bob", command)
    site.ok("bob", f"repo create {PATH}")
    site.ok("bob", f"repo archive {PATH}")
    site.ok("bob", command)
    assert list((site.repos / ".purged").iterdir()) == []
