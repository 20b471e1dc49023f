"""The size quota of a person over all repositories, in a real hg."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg.store_size import BLOCK
from hgfleet.registry.dynamic import repository_sizes, size_reservations
from testing.integration.selfservice.site import BOB, slow_hg
from testing.integration.support.site import HGEXT
from testing.support import pace

if TYPE_CHECKING:
    from testing.conftest import WaitFor
    from testing.integration.selfservice.site import SelfserviceSite

CLIENT = "[ui]\nusername = test\n"
QUOTA = "140 kb"


@pytest.fixture
def limited(site: SelfserviceSite) -> SelfserviceSite:
    text = site.hgrc.read_text()
    text = text.replace("[experimental]", f"owner_quota = {HGEXT}/owner_quota.py\n[experimental]")
    site.hgrc.write_text(f"{text}[hgfleet]\nowner-quota = {QUOTA}\ndynamic = {site.dynamic}\n")
    return site


def allow(site: SelfserviceSite, quota: str) -> None:
    """Change the quota."""
    site.hgrc.write_text(site.hgrc.read_text().replace(QUOTA, quota))


def push(site: SelfserviceSite, path: str, kilobytes: int, code: int = 0) -> str:
    """Push a file of random bytes to a repository as bob; return the client's output."""
    hgrc = site.root / "client-hgrc"
    hgrc.write_text(CLIENT)
    work = site.root / path.replace("/", "-")
    environment = {**BOB, "HGRCPATH": str(hgrc)}
    if "bob" in site.person_ids:
        environment["HGFLEET_PERSON_ID"] = site.person_ids["bob"]
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
    first, second = "people/bob/one", "people/bob/two"
    for path in (first, second):
        limited.ok("bob", f"repo create {path}")
    push(limited, first, 60)

    refused = push(limited, second, 61, code=255)

    assert "the repositories of bob would have 0.2 MiB, and the limit is 0.1 MiB" in refused
    assert changesets(limited, second) == ""
    push(limited, second, 12)
    assert " of 0.1 MiB used\n" in limited.ok("bob", "whoami")
    # Deleted repositories no longer count; archived repositories do.
    limited.ok("bob", f"repo archive {first}")
    push(limited, second, 61, code=255)
    limited.ok("bob", f"repo delete {first} {first}")
    push(limited, second, 61)
    assert changesets(limited, second) == "file61 file12 "


def test_repositories_of_a_former_person_of_the_name_do_not_count(
    limited: SelfserviceSite,
) -> None:
    limited.person_ids["bob"] = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
    limited.ok("bob", "repo create people/bob/x")
    push(limited, "people/bob/x", 100)
    limited.person_ids["bob"] = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
    limited.ok("bob", "repo create people/bob/y")
    push(limited, "people/bob/y", 80)
    said = push(limited, "people/bob/y", 60, code=255)
    assert "the repositories of bob would have" in said


def test_a_push_walks_through_no_store(limited: SelfserviceSite) -> None:
    first, second = "people/bob/one", "people/bob/two"
    for path in (first, second):
        limited.ok("bob", f"repo create {path}")
    push(limited, first, 60)
    note = limited.path(first) / ".hg" / repository_sizes.NAME
    # Some small files of hg are no part of a push: for names of files, for phases, for undoing.
    assert abs(int(note.read_text()) - repository_sizes.measured(limited.path(first))) <= 8 * BLOCK
    # The note is believed.
    note.write_text("0\n")
    push(limited, second, 61)
    note.write_text("140000\n")
    push(limited, second, 1, code=255)


def test_a_fork_that_is_too_large_is_refused_before_it_is_copied(limited: SelfserviceSite) -> None:
    limited.source("hgfleet")
    fill(limited, 200)
    refused = limited.ssh_command("bob", "repo fork hgfleet people/bob/f")
    assert refused.returncode == 77
    assert refused.stderr.startswith("The repositories of bob would have ")
    assert limited.entries == {}
    assert limited.remains() == []


def fill(site: SelfserviceSite, kilobytes: int) -> None:
    """Have so much more in the store of the repository that is forked."""
    (site.path("hgfleet") / ".hg/store/large").write_bytes(b"x" * kilobytes * 1024)


# --- the disk space of a push ------------------------------------------------------------------


def test_a_large_file_counts_once(limited: SelfserviceSite) -> None:
    """A file above 128 KiB gets an index of its own, while the file of both is still there."""
    path = "people/bob/one"
    limited.ok("bob", f"repo create {path}")
    allow(limited, "300 kb")
    push(limited, path, 200)
    note = int((limited.path(path) / ".hg" / repository_sizes.NAME).read_text())
    assert 200 * 1024 <= note <= 240 * 1024
    assert abs(note - repository_sizes.measured(limited.path(path))) <= 8 * BLOCK
    push(limited, path, 90, code=255)


def test_many_small_files_count_as_the_blocks_that_they_take(limited: SelfserviceSite) -> None:
    path, work = "people/bob/one", limited.root / "work"
    limited.ok("bob", f"repo create {path}")
    hgrc = limited.root / "client-hgrc"
    hgrc.write_text(CLIENT)
    client = {**BOB, "HGRCPATH": str(hgrc)}
    limited.hg("init", work, **client)
    for number in range(30):
        folder = work / f"folder{number}"
        folder.mkdir()
        (folder / "file").write_text(f"{number}\n")
    limited.hg("commit", "-A", "-q", "-m", "small", "-R", work, "--cwd", work, **client)
    url = limited.url(path)
    # Thirty files, and thirty folders for them.
    allow(limited, "200 kb")
    refused = limited.start("-R", work, "push", *limited.ssh(), url, **client)
    assert refused.returncode == 255
    assert "the repositories of bob would have 0.3 MiB" in refused.stdout + refused.stderr
    assert changesets(limited, path) == ""
    limited.hgrc.write_text(limited.hgrc.read_text().replace("200 kb", "400 kb"))
    limited.hg("-R", work, "push", *limited.ssh(), url, **client)
    note = int((limited.path(path) / ".hg" / repository_sizes.NAME).read_text())
    assert note >= 60 * BLOCK
    assert abs(note - repository_sizes.measured(limited.path(path))) <= 10 * BLOCK


# --- forks and pushes at the same time --------------------------------------------------------


def held(site: SelfserviceSite, path: str, first: str = "") -> subprocess.Popen[str]:
    """Return a fork of bob that is copying, for as long as the test wants."""
    fork = site.session("bob", f"repo fork hgfleet {path}", first=slow_hg(site) + first)
    assert fork.stderr is not None
    assert fork.stderr.readline().startswith("copying: about ")
    return fork


def end(site: SelfserviceSite, fork: subprocess.Popen[str], path: str) -> None:
    """Kill a fork and its copy."""
    new = site.path(path).with_name(f".{site.path(path).name}.making")
    pid = int((new / ".hg/store/pid").read_text())
    fork.kill()
    fork.communicate()
    os.kill(pid, signal.SIGKILL)


def given_up(site: SelfserviceSite, fork: subprocess.Popen[str], path: str) -> str:
    """Return the refusal of a fork that ends by itself, and kill a fork that does not."""
    try:
        return pace.communicate(fork, 60)[1]
    except subprocess.TimeoutExpired:
        end(site, fork, path)
        raise


def test_forks_at_the_same_time_stay_below_the_quota_together(limited: SelfserviceSite) -> None:
    limited.source("hgfleet")
    (limited.path("hgfleet") / "noise").write_bytes(random.Random(1).randbytes(200 * 1024))
    limited.hg_in("hgfleet", "commit", "--addremove", "--message", "noise")
    size = repository_sizes.measured(limited.path("hgfleet"))
    quota = size * 5 // 2
    allow(limited, f"{quota} b")
    paths = [f"{above}/{number}" for above in ("people/bob", "open") for number in range(3)]
    sessions = [limited.session("bob", f"repo fork hgfleet {path}") for path in paths]
    said = [session.communicate()[1] for session in sessions]
    codes = sorted(session.returncode for session in sessions)
    assert codes == [0, 0, 77, 77, 77, 77], said
    assert sum(text.startswith("The repositories of bob would have ") for text in said) == 4
    places = [limited.path(path) for path in limited.entries]
    assert len(places) == 2
    assert sum(map(repository_sizes.measured, places)) <= quota
    assert limited.remains() == []


def test_what_a_fork_has_reserved_is_free_when_it_was_killed(
    limited: SelfserviceSite, wait_for: WaitFor
) -> None:
    limited.source("hgfleet")
    fill(limited, 60)
    fork = held(limited, "people/bob/f")
    other = "people/bob/other"
    limited.ok("bob", f"repo create {other}")
    # Neither a second fork nor a push has room next to it; another person has.
    again = limited.ssh_command("bob", "repo fork hgfleet people/bob/g")
    assert again.stderr.startswith("The repositories of bob would have ")
    push(limited, other, 40, code=255)
    limited.ok("carol", "repo fork hgfleet people/carol/f")
    end(limited, fork, "people/bob/f")

    wait_for(
        "the room of the fork",
        lambda: limited.ssh_command("bob", "repo fork hgfleet people/bob/g").returncode == 0,
    )
    folder = limited.dynamic.parent / size_reservations.FOLDER
    assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == []


def test_a_copy_that_outlives_its_killed_session_keeps_what_it_reserved(
    limited: SelfserviceSite,
) -> None:
    limited.source("hgfleet")
    fill(limited, 60)
    fork = held(limited, "people/bob/f")
    pid = int((limited.path("people/bob/.f.making") / ".hg/store/pid").read_text())
    fork.kill()
    fork.communicate()
    try:
        again = limited.ssh_command("bob", "repo fork hgfleet people/bob/g")
        assert again.stderr.startswith("The repositories of bob would have ")
    finally:
        os.kill(pid, signal.SIGKILL)


def opened(fifo: Path) -> int | None:
    """Open a fifo for writing as soon as it has a reader."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_a_copy_that_grows_above_the_quota_is_given_up(limited: SelfserviceSite) -> None:
    """Its source may be pushed to while it is copied."""
    limited.source("hgfleet")
    fork = held(limited, "people/bob/f")
    store = limited.path("people/bob/.f.making") / ".hg/store"
    pid = (store / "pid").read_text().strip()
    (store / "more").write_bytes(b"x" * 200 * 1024)
    assert "The repositories of bob would have " in given_up(limited, fork, "people/bob/f")
    assert fork.returncode == 77
    assert not Path(f"/proc/{pid}").exists()
    assert limited.remains() == []


def test_pushes_at_the_same_time_stay_below_the_quota_together(
    limited: SelfserviceSite, wait_for: WaitFor
) -> None:
    """The first push waits between its check and its end, where the second push is checked."""
    slow, fast = "people/bob/one", "people/bob/two"
    for path in (slow, fast):
        limited.ok("bob", f"repo create {path}")
    wait = limited.root / "wait"
    os.mkfifo(wait)
    hgrc = limited.path(slow) / ".hg/hgrc"
    # Hooks run in the order of the settings: only this hook is set after the check.
    hgrc.write_text(
        hgrc.read_text() + f"[hooks]\npriority.pretxnclose.zz = -1\npretxnclose.zz = cat {wait}\n"
    )
    outcome: list[str] = []
    first = threading.Thread(target=lambda: outcome.append(push(limited, slow, 60)))
    first.start()
    # The hook reads: the first push was checked.
    writer = wait_for("the hook", lambda: opened(wait))
    assert writer is not None
    try:
        push(limited, fast, 61, code=255)
    finally:
        os.close(writer)
    first.join()
    assert len(outcome) == 1
    assert changesets(limited, slow) == "file60 "


def test_a_folder_of_reservations_that_is_not_in_order_ends_no_push(
    limited: SelfserviceSite,
) -> None:
    limited.source("hgfleet")
    path = "people/bob/one"
    limited.ok("bob", f"repo create {path}")
    (limited.dynamic.parent / size_reservations.FOLDER).write_text("")
    push(limited, path, 60)
    # The present quota holds.
    push(limited, path, 80, code=255)
    refused = limited.ssh_command("bob", "repo fork hgfleet people/bob/f")
    assert refused.stderr.startswith("This service is not in order at the moment")
    assert sorted(limited.entries) == [path]


def test_an_operator_is_not_limited_and_the_size_is_noted(limited: SelfserviceSite) -> None:
    path = "people/bob/one"
    limited.ok("bob", f"repo create {path}")
    noise = random.Random(1).randbytes(200 * 1024)
    (limited.path(path) / "noise").write_bytes(noise)
    limited.hg_in(path, "commit", "--addremove", "--message", "noise")
    note = int((limited.path(path) / ".hg" / repository_sizes.NAME).read_text())
    assert 200 * 1024 <= note <= 240 * 1024
    push(limited, path, 1, code=255)


# --- the disk -------------------------------------------------------------------------------


def test_a_fork_leaves_space_on_the_disk_as_pushes_do(limited: SelfserviceSite) -> None:
    limited.source("hgfleet")
    with limited.hgrc.open("a") as file:
        file.write("push-disk-free = 1000000 GB\n")
    refused = limited.ssh_command("bob", "repo fork hgfleet people/bob/f")
    assert refused.returncode == 75
    assert refused.stderr.startswith("The disk of this service has ")
    assert "1,024,000,000.0 MiB stay free" in refused.stderr
    assert limited.entries == {}
    assert limited.remains() == []


def test_a_copy_is_given_up_where_the_disk_becomes_full(limited: SelfserviceSite) -> None:
    limited.source("hgfleet")
    full = limited.root / "full"
    with limited.hgrc.open("a") as file:
        file.write("push-disk-free = 1 MB\n")
    first = (
        "import os; from types import SimpleNamespace; from hgfleet.selfservice import fork_size; "
        "fork_size.os = SimpleNamespace(statvfs=lambda _: SimpleNamespace("
        f"f_frsize=4096, f_bavail=0 if os.path.exists('{full}') else 10**6)); "
    )
    fork = held(limited, "people/bob/f", first)
    full.touch()
    assert "The disk of this service has 0.0 MiB left" in given_up(limited, fork, "people/bob/f")
    assert fork.returncode == 75
    assert limited.remains() == []
