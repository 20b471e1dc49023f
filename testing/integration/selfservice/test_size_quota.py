"""The size quota of a person over all repositories, in a real hg."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from hgfleet.registry import repository_sizes
from testing.integration.selfservice.site import BOB
from testing.integration.support.site import HGEXT

if TYPE_CHECKING:
    from testing.integration.selfservice.site import SelfserviceSite

CLIENT = "[ui]\nusername = test\n"
QUOTA = "100 kb"


@pytest.fixture
def limited(site: SelfserviceSite) -> SelfserviceSite:
    text = site.hgrc.read_text()
    text = text.replace("[experimental]", f"owner_quota = {HGEXT}/owner_quota.py\n[experimental]")
    site.hgrc.write_text(f"{text}[hgfleet]\nowner-quota = {QUOTA}\ndynamic = {site.dynamic}\n")
    return site


def push(site: SelfserviceSite, path: str, kilobytes: int, code: int = 0) -> str:
    """Push a file of random bytes to a repository as bob; return what the client prints."""
    hgrc = site.root / "client-hgrc"
    hgrc.write_text(CLIENT)
    work = site.root / path.replace("/", "-")
    environment = {**BOB, "HGRCPATH": str(hgrc)}
    if not work.exists():
        site.hg("init", work, **environment)
    name = f"file{kilobytes}"
    # Random, so that the store cannot compress it.
    noise = random.Random(path + name).randbytes(kilobytes * 1024)
    (work / name).write_bytes(noise)
    site.hg("-R", work, "commit", "-Am", name, "--cwd", work, **environment)
    done = site.start("-R", work, "push", *site.ssh(), site.url(path), **environment)
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        site.hg(
            "-R",
            work,
            "--config",
            "extensions.strip=",
            "strip",
            "--no-backup",
            "tip",
            **environment,
        )
    return done.stdout + done.stderr


def changesets(site: SelfserviceSite, path: str) -> str:
    return site.hg("-R", site.path(path), "log", "-T", "{desc} ")


def test_all_repositories_of_a_person_count_together(limited: SelfserviceSite) -> None:
    one, two = "people/bob/one", "people/bob/two"
    for path in (one, two):
        limited.ok("bob", f"repo create {path}")
    push(limited, one, 60)

    refused = push(limited, two, 61, code=255)

    assert "the repositories of bob would have 0.1 MiB, and the limit is 0.1 MiB" in refused
    assert changesets(limited, two) == ""
    push(limited, two, 20)
    assert " of 0.1 MiB used\n" in limited.ok("bob", "whoami")
    # What is deleted no longer counts; what is archived does.
    limited.ok("bob", f"repo archive {one}")
    push(limited, two, 61, code=255)
    limited.ok("bob", f"repo delete {one} {one}")
    push(limited, two, 61)
    assert changesets(limited, two) == "file61 file20 "


def test_a_push_walks_through_no_store(limited: SelfserviceSite) -> None:
    one, two = "people/bob/one", "people/bob/two"
    for path in (one, two):
        limited.ok("bob", f"repo create {path}")
    push(limited, one, 60)
    note = limited.path(one) / ".hg" / repository_sizes.NAME
    assert abs(int(note.read_text()) - repository_sizes.measured(limited.path(one))) < 4096
    # The note is believed.
    note.write_text("0\n")
    push(limited, two, 61)
    note.write_text("100000\n")
    push(limited, two, 1, code=255)


def test_a_fork_that_is_too_large_is_refused_before_it_is_copied(limited: SelfserviceSite) -> None:
    limited.source("hgfleet")
    (limited.path("hgfleet") / ".hg/store/large").write_bytes(b"x" * 200 * 1024)
    refused = limited.ssh_command("bob", "repo fork hgfleet people/bob/f")
    assert refused.returncode == 77
    assert refused.stderr.startswith("The repositories of bob would have ")
    assert limited.entries == {}
    assert limited.remains() == []
