from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.core.errors import HostError
from hgfleet.core.owner import Owner
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import FIRST, Heads, Record
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.registry.model.schema import parse
from hgfleet.registry.model.yaml_tree import RegistrySourceError
from hgfleet.registry.owned_files import owner
from hgfleet.registry.provision.provisioning import Target, apply

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Registry

TWO = """\
version: 1
repositories:
  plain: {description: A plain one, push: [maintainers]}
  team/tool: {description: A tool, push: [maintainers, team], publishing: false, bundles: [zstd]}
"""

OTHER = "ab" * 16
RECORD = Record(1, "cd" * 16, "push", "alice", 0, FIRST, heads=Heads(digest="0" * 64))

# As little of hg's command server as `registry apply` needs.
# A line of a test says more about what `init -- PLACE` does.
FAKE_HG = """\
#!/usr/bin/env -S python3 -IS
import os, struct, sys

def answer(channel, data):
    sys.stdout.buffer.write(struct.pack(">cI", channel, len(data)) + data)
    sys.stdout.buffer.flush()

assert sys.argv[1:] == ["serve", "--cmdserver", "pipe"]
answer(b"o", b"capabilities: runcommand")
while sys.stdin.buffer.readline() == b"runcommand\\n":
    (size,) = struct.unpack(">I", sys.stdin.buffer.read(4))
    *options, place = sys.stdin.buffer.read(size).decode().split("\\0")
    assert options == ["--noninteractive", "init", "--"]
    os.makedirs(place + "/.hg/store")
    INIT
    answer(b"r", struct.pack(">i", 0))
"""


def fake_hg(line: str = "pass") -> str:
    return FAKE_HG.replace("INIT", line)


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """Make the directories that the role `mercurial` makes on a host."""
    for name in ("repos", "lib"):
        (tmp_path / name).mkdir()
    return Target(
        root=tmp_path / "repos",
        compiled=tmp_path / "lib/registry.json",
        manifests=tmp_path / "lib/manifests",
        hgrc=tmp_path / "hgrc",
        owner=Owner(os.geteuid(), os.getegid()),
        hg=program(tmp_path / "hg", fake_hg()),
    )


@pytest.fixture
def identified(target: Target) -> Target:
    """A host whose repositories get an identity, and with it links to their bundles."""
    dynamic = target.compiled.parent / "dynamic/registry.json"
    dynamic.parent.mkdir()
    return replace(target, dynamic=dynamic)


def run(
    target: Target, text: str | Registry = TWO, *, write: bool = True, diff: bool = False
) -> list[str]:
    """Apply and return the lines it says; the last is the number of changes."""
    said: list[str] = []
    registry = parse(text) if isinstance(text, str) else text
    changed = apply(registry, target, write=write, diff=diff, report=said.append)
    return [*said, str(changed)]


def snapshot(top: Path) -> dict[str, tuple[int, int, int, str]]:
    """Everything below a directory: name, mode, inode, time of change and content."""
    result = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_text()
        result[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return result


# The ordinary way.


def test_a_new_host_gets_every_repository_and_a_second_run_changes_nothing(target: Target) -> None:
    assert run(target) == [
        "plain: repository created",
        "team/tool: repository created",
        f"{target.compiled} written",
        "3",
    ]
    assert load_compiled(target.compiled).repositories == parse(TWO).repositories
    before = snapshot(target.root.parent)
    assert run(target) == ["0"]
    assert snapshot(target.root.parent) == before


def test_a_new_repository_is_marked_as_made_under_its_push_log(target: Target) -> None:
    old = target.root / "plain/.hg"
    (old / "store").mkdir(parents=True)
    run(target)
    assert (target.root / "team/tool/.hg" / log_file.FROM_START).is_file()
    # A repository that was copied here is older than its log.
    assert not (old / log_file.FROM_START).exists()


def test_the_files_have_the_modes_that_let_the_group_read_and_nobody_else(target: Target) -> None:
    run(target)
    assert stat.S_IMODE((target.root / "team").stat().st_mode) == 0o2750
    assert stat.S_IMODE((target.root / "team/tool").stat().st_mode) == 0o2750
    assert stat.S_IMODE((target.root / "team/tool/.hg/hgrc").stat().st_mode) == 0o640
    assert stat.S_IMODE(target.compiled.stat().st_mode) == 0o640


def test_the_umask_of_the_caller_does_not_matter(target: Target) -> None:
    before = os.umask(0o077)
    try:
        run(target)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.compiled.stat().st_mode) == 0o640
    assert stat.S_IMODE((target.root / "plain/.hg").stat().st_mode) & 0o777 == 0o750


def test_check_says_the_same_and_writes_nothing(target: Target) -> None:
    before = snapshot(target.root.parent)
    planned = run(target, write=False)
    assert snapshot(target.root.parent) == before
    assert planned == run(target)
    assert run(target, write=False) == ["0"]


def test_a_changed_registry_changes_only_what_it_says(target: Target) -> None:
    run(target)
    untouched = snapshot(target.root / "plain")
    lines = run(target, TWO.replace("[maintainers, team]", "[team]"), diff=True)
    assert lines[0] == "team/tool: .hg/hgrc written"
    assert "-push = maintainers team" in lines
    assert "+push = team" in lines
    assert lines[-1] == "2"
    assert snapshot(target.root / "plain") == untouched


def test_the_link_to_the_manifest_may_dangle(identified: Target) -> None:
    run(identified)
    link = identified.root / "team/tool/.hg/clonebundles.manifest"
    known_as = identity.of(identified.root / "team/tool")
    assert link.readlink() == identified.manifests / f"{known_as}.manifest"
    assert not link.exists()


def test_a_repository_that_has_no_bundles_any_more_stops_advertising_them(
    identified: Target,
) -> None:
    run(identified)
    none = TWO.replace("A plain one,", "A plain one, bundles: [],")
    assert "plain: .hg/clonebundles.manifest removed" in run(identified, none)
    # Pull bundles are a matter of the host's settings.
    pulls = identified.root / "team/tool/.hg/pullbundles"
    assert pulls.readlink() == identified.pull_bundles / identity.of(identified.root / "team/tool")
    assert (identified.root / "plain/.hg/pullbundles").is_symlink()
    assert not (identified.root / "plain/.hg/clonebundles.manifest").is_symlink()
    assert run(identified, none) == ["0"]


def test_what_left_the_registry_is_kept_and_named(target: Target) -> None:
    run(target)
    data = target.root / "team/tool/.hg/store/data"
    data.write_text("history")
    lines = run(target, "version: 1\nrepositories: {plain: {description: A plain one}}")
    assert "team/tool: on disk but not in the registry; kept, and served by nothing" in lines
    assert data.read_text() == "history"
    assert list(load_compiled(target.compiled).repositories) == ["plain"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("[hooks]\n"),
        lambda file: file.unlink(),
        lambda file: file.chmod(0o666),
        lambda file: (file.unlink(), file.symlink_to("/etc/passwd")),
        lambda file: (file.unlink(), subprocess.run(["mkfifo", file], check=True)),
    ],
    ids=["edited", "deleted", "writable", "link", "pipe"],
)
def test_an_hgrc_that_somebody_touched_is_made_anew(target: Target, damage: object) -> None:
    run(target)
    file = target.root / "plain/.hg/hgrc"
    good = file.read_text()
    assert callable(damage)
    damage(file)
    assert run(target) == ["plain: .hg/hgrc written", "1"]
    assert file.read_text() == good
    assert not file.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert run(target) == ["0"]


@pytest.mark.parametrize("kind", ["missing", "elsewhere", "file"])
def test_a_link_that_somebody_touched_is_made_anew(identified: Target, kind: str) -> None:
    run(identified)
    link = identified.root / "plain/.hg/clonebundles.manifest"
    link.unlink()
    if kind == "elsewhere":
        link.symlink_to("/etc/passwd")
    elif kind == "file":
        link.write_text("https://example.test/evil.hg\n")
    manifest = identified.manifests / f"{identity.of(identified.root / 'plain')}.manifest"
    assert run(identified) == [f"plain: .hg/clonebundles.manifest links to {manifest}", "1"]
    assert link.readlink() == manifest


# Repositories that people created over SSH.

OPEN = """
version: 1
namespaces:
  people: {create: [staff], read: [staff], policies: {no-symlinks: {}}}
repositories:
  plain: {description: Plain, push: [maintainers]}
"""


@pytest.fixture
def created(target: Target) -> Target:
    """A host where bob created something."""
    file = target.root.parent / "dynamic/registry.json"
    file.parent.mkdir()
    with dynamic_update.update(file) as entries:
        entries["people/bob/x"] = Entry("bob", "Bob's", user_repositories.now(), push=("friends",))
        entries["people/bob/old"] = Entry(
            "bob", "", user_repositories.now(), archived="2026-01-01T00:00:00Z"
        )
    return replace(target, dynamic=file)


def test_what_people_created_follows_its_namespace(created: Target) -> None:
    assert "people/bob/x: repository created" in run(created, OPEN)
    written = (created.root / "people/bob/x/.hg/hgrc").read_text()
    assert written.partition("[hgfleet]\n")[2].splitlines() == [
        "path = people/bob/x",
        "read = staff",
        "push = friends",
        "owner = bob",
        "bundles-from = 10485760",
        'policies = {"file-size": {"max": 104857600}, "no-symlinks": {}}',
    ]
    assert run(created, OPEN) == ["0"]
    # It is not in the compiled form, which has only the inventory.
    assert list(load_compiled(created.compiled).repositories) == ["plain"]
    changed = OPEN.replace("create:", "read-only: we move, create:")
    assert "people/bob/x: .hg/hgrc written" in run(created, changed, write=False)
    assert "people/bob/x: .hg/hgrc written" in run(created, changed)
    assert "read-only = we move" in (created.root / "people/bob/x/.hg/hgrc").read_text()


def test_a_folder_that_a_restore_brought_to_its_former_path_is_moved_and_not_made_anew(
    created: Target,
) -> None:
    run(created, OPEN)
    assert created.dynamic is not None
    with dynamic_update.update(created.dynamic) as entries:
        entry = entries["people/bob/x"]
        entries["people/bob/y"] = entry
        entries.note_rename("people/bob/x", Rename("people/bob/y", "bob", user_repositories.now()))
        del entries["people/bob/x"]
    (created.root / "people/bob/x/.hg/store/kept").touch()
    assert "people/bob/y: moved from people/bob/x" in run(created, OPEN, write=False)
    assert "people/bob/y: moved from people/bob/x" in run(created, OPEN)
    assert (created.root / "people/bob/y/.hg/store/kept").exists()
    assert not (created.root / "people/bob/x").exists()
    assert "path = people/bob/y" in (created.root / "people/bob/y/.hg/hgrc").read_text()
    assert run(created, OPEN) == ["0"]


def identities_of(target: Target) -> dict[str, str]:
    """Return the registry's description of a repository."""
    assert target.dynamic is not None
    dynamic = user_repositories.load(target.dynamic)
    people = {path: entry.identity for path, entry in dynamic.repositories.items()}
    return people | dict(dynamic.identities)


def test_each_repository_gets_an_identity_in_its_store_and_in_the_registry(created: Target) -> None:
    (created.root / "people/bob/old/.hg/store").mkdir(parents=True)
    run(created, OPEN)
    given = identities_of(created)
    assert sorted(given) == ["people/bob/old", "people/bob/x", "plain"]
    assert len({*given.values()}) == 3
    for path, expected in given.items():
        assert identity.of(created.root / path) == expected
        assert stat.S_IMODE((created.root / path / identity.FILE).stat().st_mode) == 0o640
    assert run(created, OPEN) == ["0"]
    assert identities_of(created) == given


def test_an_identity_is_that_of_the_push_log_or_of_the_store(created: Target) -> None:
    for path, name, content in (
        ("plain", log_file.NAME, RECORD.line() + b"\n"),
        ("people/bob/x", identity.NAME, identity.text(OTHER).encode()),
    ):
        store = created.root / path / ".hg/store"
        store.mkdir(parents=True)
        (store / name).write_bytes(content)
    run(created, OPEN)
    identities = identities_of(created)
    assert (identities["plain"], identities["people/bob/x"]) == (RECORD.repository, OTHER)
    assert identity.of(created.root / "plain") == RECORD.repository


def test_an_identity_follows_a_log_that_the_release_before_began(created: Target) -> None:
    run(created, OPEN)
    for path, number in (("plain", 7), ("people/bob/x", 8)):
        line = replace(RECORD, repository=f"{number:032x}").line()
        (created.root / path / ".hg/store" / log_file.NAME).write_bytes(line + b"\n")
    run(created, OPEN)
    identities = identities_of(created)
    assert (identities["plain"], identities["people/bob/x"]) == (f"{7:032x}", f"{8:032x}")
    assert identity.of(created.root / "plain") == f"{7:032x}"
    assert identity.of(created.root / "people/bob/x") == f"{8:032x}"
    assert run(created, OPEN) == ["0"]


def test_a_repository_that_is_declared_again_is_another_one_unless_it_is_there(
    created: Target,
) -> None:
    run(created, OPEN)
    before = identities_of(created)["plain"]
    without = OPEN.replace("plain:", "other:")
    run(created, without)
    assert "plain" not in identities_of(created)
    run(created, OPEN)
    assert identities_of(created)["plain"] == before
    run(created, without)
    shutil.rmtree(created.root / "plain")
    run(created, OPEN)
    assert identities_of(created)["plain"] not in ("", before)
    assert identity.of(created.root / "plain") == identities_of(created)["plain"]


def test_people_have_identities_in_their_stores_before_the_registry_names_them(
    created: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    (created.root / "people/bob/x/.hg/store").mkdir(parents=True)
    noted: list[str] = []

    def note(self: dynamic_update.Update, path: str, entry: Entry) -> None:
        noted.append(path)
        assert identity.of(created.root / path) in (entry.identity, "")
        real(self, path, entry)

    real = dynamic_update.Update.__setitem__
    monkeypatch.setattr(dynamic_update.Update, "__setitem__", note)
    run(created, OPEN)
    assert "people/bob/x" in noted
    assert identity.of(created.root / "people/bob/x") != ""


def test_a_mirror_gives_no_identity_to_a_folder_with_the_log_of_another(created: Target) -> None:
    store = created.root / "plain/.hg/store"
    store.mkdir(parents=True)
    (store / log_file.NAME).write_bytes(RECORD.line() + b"\n")
    assert created.dynamic is not None
    with dynamic_update.update(created.dynamic) as entries:
        entries.note_identity("plain", OTHER)
    run(replace(created, is_mirror=True), OPEN)
    assert identity.of(created.root / "plain") == ""


def test_a_lost_repository_is_made_again_with_its_identity(created: Target) -> None:
    run(created, OPEN)
    given = identities_of(created)
    for path in ("plain", "people/bob/x"):
        shutil.rmtree(created.root / path)
    run(created, OPEN)
    assert identities_of(created) == given
    assert {path: identity.of(created.root / path) for path in given if "old" not in path} == {
        path: expected for path, expected in given.items() if "old" not in path
    }


def test_another_repository_in_a_place_is_refused_or_named(created: Target) -> None:
    run(created, OPEN)
    for path in ("people/bob/x", "plain"):
        (created.root / path / identity.FILE).write_text(identity.text(OTHER))
        if path == "plain":
            with pytest.raises(HostError, match="plain: it is another repository than the regist"):
                run(created, OPEN)
        else:
            assert any(
                "people/bob/x: it is another repository" in problem
                for problem in run(created, OPEN)
            )


def test_a_mirror_takes_identities_from_its_registry_alone(created: Target) -> None:
    mirror = replace(created, is_mirror=True)
    run(mirror, OPEN)
    assert set(identities_of(created).values()) == {""}
    assert identity.of(created.root / "plain") == ""
    assert created.dynamic is not None
    with dynamic_update.update(created.dynamic) as entries:
        entries.note_identity("plain", OTHER)
    run(mirror, OPEN)
    assert identity.of(created.root / "plain") == OTHER


def test_what_is_archived_is_neither_made_nor_called_unknown(created: Target) -> None:
    (created.root / "people/bob/old/.hg/store").mkdir(parents=True)
    lines = run(created, OPEN)
    assert [line for line in lines if "people/bob/old" in line and "identity" not in line] == []
    assert not (created.root / "people/bob/old/.hg/hgrc").exists()


def test_an_obstacle_at_an_archived_path_keeps_nothing_else_from_being_applied(
    created: Target, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".hg/store").mkdir(parents=True)
    (created.root / "people/bob").mkdir(parents=True)
    (created.root / "people/bob/old").symlink_to(elsewhere)
    run(created, OPEN)
    assert identity.of(elsewhere) == ""
    assert identity.of(created.root / "plain") != ""


def test_a_damaged_entry_or_file_keeps_nothing_else_from_being_applied(created: Target) -> None:
    assert created.dynamic is not None
    data = json.loads(created.dynamic.read_text())
    data["repositories"]["people/../x"] = {}
    data["repositories"]["people/eve/y"] = {"owner": "root; rm"}
    created.dynamic.write_text(json.dumps(data))
    (created.root / "people").mkdir()
    (created.root / "people/bob").write_text("in the way")
    lines = run(created, OPEN)
    assert "plain: repository created" in lines
    assert sum("nothing serves it" in line for line in lines) == 2
    assert any("people/bob/x: got a file" in line for line in lines)

    created.dynamic.write_text("{")
    lines = run(created, OPEN.replace("[maintainers]", "[staff]"))
    assert "plain: .hg/hgrc written" in lines
    assert any("repositories of people keep their settings" in line for line in lines)


# Things in the way: said before anything is written.


def expect_refusal(target: Target, *words: str, text: str = TWO) -> None:
    before = snapshot(target.root.parent)
    with pytest.raises(HostError) as caught:
        run(target, text)
    for word in words:
        assert word in str(caught.value)
    assert snapshot(target.root.parent) == before


def test_a_link_in_place_of_a_repository_is_not_followed(target: Target) -> None:
    elsewhere = target.root.parent / "elsewhere"
    (elsewhere / ".hg/store").mkdir(parents=True)
    (target.root / "plain").symlink_to(elsewhere)
    expect_refusal(target, "plain: got a file or a symbolic link", "move it away")


def test_a_link_in_place_of_a_namespace_is_not_followed(target: Target) -> None:
    elsewhere = target.root.parent / "elsewhere"
    elsewhere.mkdir()
    (target.root / "team").symlink_to(elsewhere)
    expect_refusal(target, f"team/tool: got a file or a symbolic link at {target.root}/team")


@pytest.mark.parametrize("name", [".hg", ".hg/store"])
def test_a_link_inside_a_repository_is_not_followed(target: Target, name: str) -> None:
    run(target)
    inside = target.root / "plain" / name
    inside.rename(target.root.parent / "moved")
    inside.symlink_to(target.root.parent / "moved")
    expect_refusal(target, f"plain/{name}: expected a directory; move it away")


def test_a_link_in_place_of_the_temporary_file_is_not_followed(target: Target) -> None:
    run(target)
    victim = target.root.parent / "victim"
    victim.write_text("precious")
    (target.root / "plain/.hg/.hgrc.new").symlink_to(victim)
    (target.root / "plain/.hg/hgrc").unlink()
    assert run(target) == ["plain: .hg/hgrc written", "1"]
    assert victim.read_text() == "precious"


def test_a_directory_of_something_else_is_in_the_way(target: Target) -> None:
    (target.root / "plain").mkdir()
    (target.root / "plain/notes").write_text("x")
    expect_refusal(target, "plain: the directory is neither empty nor a repository", "move it away")


def test_a_file_is_in_the_way(target: Target) -> None:
    (target.root / "team").write_text("x")
    expect_refusal(target, "team/tool: got a file or a symbolic link")


def test_an_unregistered_repository_above_is_in_the_way(target: Target) -> None:
    (target.root / "team/.hg/store").mkdir(parents=True)
    expect_refusal(target, f"{target.root}/team is a repository on disk")


def test_every_obstacle_is_named_at_once(target: Target) -> None:
    (target.root / "plain").write_text("x")
    (target.root / "team").write_text("x")
    expect_refusal(target, "/plain", "/team/tool")


def test_an_empty_directory_is_not_in_the_way(target: Target) -> None:
    (target.root / "team/tool").mkdir(parents=True)
    assert "team/tool: repository created" in run(target)
    assert (target.root / "team/tool/.hg/hgrc").exists()


def test_a_host_without_the_directories_is_refused(target: Target) -> None:
    with pytest.raises(HostError, match="the role `mercurial` creates it"):
        run(replace(target, root=target.root / "missing"))


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(HostError, match="the role `mercurial` creates user and group"):
        owner("no-such-user-here", "root")


def test_whoever_becomes_the_owner_has_no_other_rights_left() -> None:
    script = (
        "import os; from hgfleet.registry.owned_files import become; become('daemon');"
        "print(*os.getresuid(), *os.getresgid(), os.getgroups(), oct(os.umask(0)))"
    )
    said = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    if os.geteuid() == 0:
        uid, gid = pwd.getpwnam("daemon").pw_uid, grp.getgrnam("daemon").gr_gid
        groups = [gid]
    else:
        uid, gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    expected = f"{uid} {uid} {uid} {gid} {gid} {gid} {groups} 0o27"
    assert said.stdout.decode().strip() == expected


# Interrupted and failing runs.


def test_what_a_killed_run_left_is_removed(target: Target) -> None:
    left = target.root / "team/.tool.new"
    (left / ".hg/store/half").mkdir(parents=True)
    assert run(target)[-1] == "3"
    assert not left.exists()
    assert not (target.root / "team/tool/.hg/store/half").exists()


def test_repositories_that_are_on_their_way_are_not_named(target: Target) -> None:
    (target.root / ".replication/old-team+tool-1/.hg").mkdir(parents=True)
    assert not any("old-team" in line for line in run(target))


def test_what_a_killed_run_left_for_a_retired_entry_is_named(target: Target) -> None:
    (target.root / "team/.gone.new/.hg").mkdir(parents=True)
    assert any(line.startswith("team/.gone.new: on disk but not in") for line in run(target))


def test_a_failing_hg_leaves_no_half_made_repository(target: Target, tmp_path: Path) -> None:
    fails = (
        'answer(b"e", b"abort: no space left on device"); '
        'answer(b"r", bytes([0, 0, 0, 255])); break'
    )
    failing = replace(target, hg=program(tmp_path / "failing-hg", fake_hg(fails)))
    with pytest.raises(HostError, match="no space left on device"):
        run(failing)
    assert not (target.root / "plain").exists()
    assert not target.compiled.exists()
    assert run(target)[-1] == "3"


def test_a_missing_hg_is_named(target: Target) -> None:
    with pytest.raises(HostError, match=r"no-hg-here: cannot run hg \(No such file"):
        run(replace(target, hg="/no-hg-here"))


def test_a_killed_run_never_shows_a_repository_without_its_configuration(
    identified: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop after each call that changes the disk, in turn, and look."""
    stop_at = 0
    while True:
        calls = 0

        def counted(name: str, limit: int) -> object:
            original = getattr(os, name)

            def call(*args: object, **kwargs: object) -> object:
                nonlocal calls
                calls += 1
                if calls > limit:
                    raise KeyboardInterrupt
                return original(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name in ("mkdir", "rename", "symlink", "fsync"):
                patch.setattr(os, name, counted(name, stop_at))
            try:
                run(identified)
            except KeyboardInterrupt:
                pass
            else:
                break
        for hg in identified.root.rglob(".hg"):
            if not hg.parent.name.startswith("."):
                assert (hg / "hgrc").read_text().startswith("# Written by")
                assert (hg / "clonebundles.manifest").is_symlink()
        # The next run goes on from there; the run after that starts from nothing again.
        run(identified)
        assert run(identified) == ["0"]
        shutil.rmtree(identified.root / "plain")
        shutil.rmtree(identified.root / "team")
        identified.compiled.unlink()
        stop_at += 1
    assert stop_at > 10


# As root, for another user.

NOBODY = Owner(pwd.getpwnam("nobody").pw_uid, grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_gid)


@pytest.fixture
def foreign(target: Target) -> Target:
    """The same, with repositories that do not belong to root."""
    for place in (target.root, *target.root.parents):
        if place.stat().st_uid == os.geteuid() and str(place) != "/":
            place.chmod(place.stat().st_mode | 0o011)
    os.chown(target.root, NOBODY.uid, NOBODY.gid)
    return replace(target, owner=NOBODY)


@pytest.mark.root
def test_everything_in_the_repositories_belongs_to_their_owner(foreign: Target) -> None:
    assert run(foreign)[-1] == "3"
    for path in foreign.root.rglob("*"):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (NOBODY.uid, NOBODY.gid), path
    assert foreign.compiled.stat().st_uid == 0
    assert (os.geteuid(), os.getegid()) == (0, 0)
    assert run(foreign) == ["0"]


@pytest.mark.root
def test_hg_runs_without_a_right_of_root(foreign: Target, tmp_path: Path) -> None:
    who = "os.getuid(), os.getgid(), *os.getgroups(), os.environ['HGRCPATH']"
    tells = f"print({who}, file=open(place + '/.hg/told', 'w'), flush=True)"
    run(replace(foreign, hg=program(tmp_path / "hg-tells", fake_hg(tells))))
    told = (foreign.root / "plain/.hg/told").read_text()
    # It is in no group besides its own.
    assert told == f"{NOBODY.uid} {NOBODY.gid} {foreign.hgrc}\n"


@pytest.mark.root
def test_a_repository_of_somebody_else_is_named(foreign: Target) -> None:
    run(foreign)
    os.chown(foreign.root / "plain/.hg/store", 0, 0)
    expect_refusal(foreign, "plain/.hg/store belongs to user 0", "chown -R hg:hg")


@pytest.mark.root
def test_root_cannot_be_led_to_a_file_the_owner_may_not_write(foreign: Target) -> None:
    """A race would win nothing either: the rights are the owner's while its files are touched."""
    run(foreign)
    secret = foreign.root.parent / "secret"
    secret.mkdir(mode=0o700)
    control = foreign.root / "plain/.hg"
    control.rename(foreign.root / "plain/kept")
    control.symlink_to(secret)
    expect_refusal(foreign, "plain/.hg: expected a directory")
    assert not list(secret.iterdir())


@pytest.mark.root
def test_an_error_on_the_way_gives_back_the_rights(foreign: Target) -> None:
    groups = os.getgroups()
    with pytest.raises(HostError):
        run(replace(foreign, hg="/no-hg-here"))
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, groups)


def test_without_root_it_is_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(HostError, match="run it as root"):
        run(target)


def test_the_real_hg_makes_and_reads_it(target: Target) -> None:
    hg = str(Path(sys.executable).with_name("hg"))
    run(replace(target, hg=""))
    done = subprocess.run(
        [hg, "-R", str(target.root / "team/tool"), "config", "hgfleet", "phases.publish"],
        env={"HGRCPATH": "", "HGPLAIN": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "hgfleet.path=team/tool",
        "hgfleet.read=public",
        "hgfleet.push=maintainers team",
        'hgfleet.policies={"file-size": {"max": 104857600}}',
        "phases.publish=false",
    ]
    assert run(target) == ["0"]
    assert stat.S_IMODE((target.root / "plain/.hg/store").stat().st_mode) == 0o2750


def test_no_registered_path_can_be_a_temporary_name() -> None:
    with pytest.raises(RegistrySourceError, match=r"got '\.tool\.new'"):
        parse("version: 1\nrepositories: {.tool.new: {description: x}}")
