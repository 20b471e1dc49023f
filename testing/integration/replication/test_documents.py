"""Documents of a primary, brought to a mirror over its source."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core import identity
from hgfleet.core.errors import RegistryError, UnavailableError
from hgfleet.pushlog import identities
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.provision import moves
from hgfleet.replication.mirror import document_sync, follow
from hgfleet.replication.mirror.document_sync import DocumentSync
from testing.integration.support.hosts import Authority, Host, Primary, client, restrict_modes
from testing.integration.support.site import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CREATED = "2026-11-21T00:00:00Z"
IDENTITY = "7d" * 16


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def primary(tmp_path: Path, authority: Authority) -> Primary:
    return Primary(tmp_path / "hg1", authority)


@pytest.fixture
def mirror(tmp_path: Path, authority: Authority, primary: Primary) -> Iterator[Host]:
    with primary.serving() as url:
        yield Host(tmp_path / "hgweb1", "hgweb1", authority, url)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def sync(mirror: Host, said: list[str]) -> DocumentSync:
    return _sync(mirror, said)


def _sync(mirror: Host, said: list[str]) -> DocumentSync:
    return DocumentSync(mirror.settings, client(mirror, mirror.settings.source), said.append)


def _user_repository(primary: Primary, path: str, second: int = 0) -> str:
    """Make a private repository; return its identity."""
    made = identity_of(f"{path}{second or ''}")
    primary.create(path)
    (primary.path(path) / identity.FILE).write_text(identity.text(made))
    with dynamic_update.update(primary.dynamic) as entries:
        entries[path] = Entry(
            "bob", created=f"2026-11-21T00:00:{second:02}Z", read=(), identity=made
        )
    return made


def _rename(primary: Primary, old: str, new: str) -> None:
    primary.path(new).parent.mkdir(parents=True, exist_ok=True)
    primary.path(old).rename(primary.path(new))
    with dynamic_update.update(primary.dynamic) as entries:
        entries[new] = entries[old]
        entries.note_rename(old, Rename(new, "bob", CREATED))
        del entries[old]


def _delete(primary: Primary, path: str) -> None:
    with dynamic_update.update(primary.dynamic) as entries:
        entries.note_purged(entries[path].identity)
        del entries[path]


def _bundles(primary: Primary, path: str) -> str:
    """Give a repository a pull bundle and both manifests; return the name of its file."""
    known_as = identity_of(path)
    content = f"bundle of {path}".encode()
    digest = hashlib.sha256(content).hexdigest()
    folder = primary.settings.pull_bundles / known_as
    folder.mkdir()
    (folder / f"{digest}.hg").write_bytes(content)
    (folder / "manifest").write_text(
        f"{digest}.hg BUNDLESPEC=zstd-v2 heads={'5f' * 20} size={len(content)} changesets=1 "
        f"made={CREATED}\n"
    )
    manifest = primary.settings.manifests / f"{known_as}.manifest"
    manifest.write_text(f"https://s3/{path} BUNDLESPEC=zstd-v2\n")
    return f"{digest}.hg"


def test_documents_arrive_with_their_modes(
    primary: Primary, mirror: Host, sync: DocumentSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    _user_repository(primary, "people/bob/x")
    (primary.dynamic.parent / "tokens/tokens.json").write_text('{"format":1,"tokens":{}}')
    name = _bundles(primary, "people/bob/x")
    restrict_modes(monkeypatch)
    assert sync.run() == 5
    known_as = identity_of("people/bob/x")
    for file in (
        "dynamic/registry.json",
        "dynamic/tokens/tokens.json",
        f"manifests/{known_as}.manifest",
        f"pullbundles/{known_as}/manifest",
        f"pullbundles/{known_as}/{name}",
    ):
        assert (mirror.root / file).read_bytes() == (primary.root / file).read_bytes()
        assert (mirror.root / file).stat().st_mode & 0o777 == 0o640
    for folder in (f"pullbundles/{known_as}", "repos/people", "repos/people/bob/x"):
        assert (mirror.root / folder).stat().st_mode & 0o7777 == 0o2750
    assert sync.run() == 0


def test_documents_that_have_not_changed_are_not_listed(
    primary: Primary,
    mirror: Host,
    sync: DocumentSync,
    wait_for: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _user_repository(primary, "people/bob/x")
    _bundles(primary, "people/bob/x")
    listings = []
    original = document_sync.Documents.have

    def have(self: document_sync.Documents) -> dict[str, str]:
        listings.append(None)
        return original(self)

    monkeypatch.setattr(document_sync.Documents, "have", have)

    def is_quiet() -> bool:
        before = len(listings)
        sync.run()
        return len(listings) == before

    wait_for("a run that lists nothing", is_quiet)
    # A change on either side is found, also a change of the mirror's own disk.
    known_as = identity_of("people/bob/x")
    (primary.settings.manifests / f"{known_as}.manifest").unlink()
    sync.run()
    assert list(mirror.settings.manifests.iterdir()) == []
    wait_for("a run that lists nothing", is_quiet)
    (mirror.settings.pull_bundles / known_as / "manifest").unlink()
    sync.run()
    assert (mirror.settings.pull_bundles / known_as / "manifest").exists()


def test_a_user_repository_is_created_with_its_configuration(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    _user_repository(primary, "people/bob/x")
    assert sync.first("registry")
    control = mirror.path("people/bob/x") / ".hg"
    assert (control / "hgrc").is_file()
    assert mirror.hg_in("people/bob/x", "log") == ""
    served = user_repositories.load_effective(mirror.registry, mirror.dynamic).repositories
    assert served["people/bob/x"].read == ()


def test_readers_change_before_anything_else_arrives(
    primary: Primary, mirror: Host, sync: DocumentSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/x"] = Entry("bob", created=CREATED, read="public", identity=IDENTITY)
    primary.create("people/bob/x")
    sync.run()
    _bundles(primary, "people/bob/x")
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/x"] = Entry("bob", created=CREATED, read=(), identity=IDENTITY)
    readers = []
    original = document_sync.Documents.replace

    def replace(self: object, wanted: object, fetch: object) -> None:
        original(self, wanted, fetch)  # type: ignore[arg-type]
        readers.append(user_repositories.load(mirror.dynamic).repositories["people/bob/x"].read)

    monkeypatch.setattr(document_sync.Documents, "replace", replace)
    sync.run()
    assert readers == [()] * 4


def test_withdrawn_documents_leave(primary: Primary, mirror: Host, sync: DocumentSync) -> None:
    _bundles(primary, "team/tool")
    sync.run()
    known_as = identity_of("team/tool")
    (primary.settings.manifests / f"{known_as}.manifest").unlink()
    (primary.settings.pull_bundles / known_as / "manifest").unlink()
    # Documents that the release before left here leave, too.
    former = mirror.settings.manifests / "team/tool.manifest"
    former.parent.mkdir()
    former.write_text("https://s3/x BUNDLESPEC=zstd-v2\n")
    (mirror.settings.pull_bundles / "team+tool").mkdir()
    (mirror.settings.pull_bundles / "team+tool/manifest").write_text("")
    # Its primary may list it for a while; the primary here does not.
    kept = primary.settings.manifests / "team/tool.manifest"
    kept.parent.mkdir()
    kept.write_text("https://s3/x BUNDLESPEC=zstd-v2\n")
    sync.run()
    assert list(mirror.settings.manifests.iterdir()) == []
    assert list(mirror.settings.pull_bundles.iterdir()) == []


def test_a_renamed_repository_is_moved_with_its_history(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    _user_repository(primary, "people/bob/x")
    sync.run()
    node = mirror.push("people/bob/x", "file")
    _rename(primary, "people/bob/x", "people/bob/deep/y")
    sync.run()
    assert not mirror.path("people/bob/x").exists()
    assert mirror.hg_in("people/bob/deep/y", "log", "-T", "{node}") == node
    link = mirror.path("people/bob/deep/y") / ".hg/pullbundles"
    assert link.readlink() == mirror.settings.pull_bundles / identity_of("people/bob/x")


def test_a_deleted_repository_is_removed(
    primary: Primary, mirror: Host, sync: DocumentSync, said: list[str]
) -> None:
    made = _user_repository(primary, "people/bob/x", 1)
    _user_repository(primary, "people/bob/y", 2)
    mirror.create("left/over")
    sync.run()
    _delete(primary, "people/bob/x")
    sync.run()
    assert not mirror.path("people/bob/x").exists()
    assert not list(mirror.repos.glob(".replication/*"))
    assert mirror.path("people/bob/y").exists()
    assert mirror.path("left/over").exists()
    assert f"people/bob/x: {made} was deleted, removed" in said


def test_a_repository_that_the_registry_lost_is_set_aside_until_it_returns(
    primary: Primary, mirror: Host, sync: DocumentSync, said: list[str]
) -> None:
    made = _user_repository(primary, "people/bob/x")
    sync.run()
    node = mirror.push("people/bob/x", "file")
    with dynamic_update.update(primary.dynamic) as entries:
        lost = entries["people/bob/x"]
        del entries["people/bob/x"]
    sync.run()
    assert not mirror.path("people").exists()
    assert (mirror.repos / f".replication/aside-{made}").is_dir()
    assert any(f"set aside as .replication/aside-{made}" in line for line in said)
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/x"] = lost
    sync.run()
    assert mirror.hg_in("people/bob/x", "log", "-T", "{node}") == node
    assert not list(mirror.repos.glob(".replication/*"))


def test_a_repository_made_again_at_a_path_is_another_one(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    """The private repository moved, and a public one took its path, while nothing followed."""
    private = _user_repository(primary, "people/bob/a", 1)
    sync.run()
    node = mirror.push("people/bob/a", "secret")
    _rename(primary, "people/bob/a", "people/bob/b")
    public = _user_repository(primary, "people/bob/a", 2)
    sync.run()
    assert identity.of(mirror.path("people/bob/a")) == public
    assert mirror.hg_in("people/bob/a", "log") == ""
    assert identity.of(mirror.path("people/bob/b")) == private
    assert mirror.hg_in("people/bob/b", "log", "-T", "{node}") == node


def _of_the_release_before(primary: Primary, mirror: Host, path: str, second: int) -> str:
    """Have a private repository, with a push, which nothing but its push log names; return that."""
    _user_repository(primary, path, second)
    _nameless(primary)
    mirror.create(path)
    node = mirror.push(path, "secret")
    (mirror.path(path) / identity.FILE).unlink(missing_ok=True)
    return node


def _nameless(primary: Primary) -> None:
    """Write the registry as the release before does."""
    with dynamic_update.update(primary.dynamic) as entries:
        for path, entry in entries.items():
            entries[path] = replace(entry, identity="")


def test_a_path_used_again_under_a_primary_of_the_release_before_shows_no_former_repository(
    primary: Primary, mirror: Host, sync: DocumentSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = _of_the_release_before(primary, mirror, "people/bob/a", 1)
    sync.run()
    assert mirror.hg_in("people/bob/a", "log", "-T", "{node}") == node
    _rename(primary, "people/bob/a", "people/bob/b")
    _user_repository(primary, "people/bob/a", 2)
    _nameless(primary)
    written = document_sync.Documents.replace

    def write(self: document_sync.Documents, *arguments: Any) -> None:
        # Nothing says that the folder is another repository's: it leaves before the registry comes.
        assert not (mirror.path("people/bob/a") / ".hg").is_dir()
        written(self, *arguments)

    monkeypatch.setattr(document_sync.Documents, "replace", write)
    sync.run()
    assert not mirror.path("people/bob/a").exists()
    assert mirror.hg_in("people/bob/b", "log", "-T", "{node}") == node
    assert sync.run() == 0


def test_the_folders_that_the_applier_of_the_release_before_followed_are_known(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    """It was updated after the registry came, and before it followed."""
    node = _of_the_release_before(primary, mirror, "people/bob/a", 1)
    followed = primary.dynamic.read_bytes()
    _rename(primary, "people/bob/a", "people/bob/b")
    _user_repository(primary, "people/bob/a", 2)
    _nameless(primary)
    mirror.settings.dynamic.write_bytes(primary.dynamic.read_bytes())
    mirror.settings.dynamic.with_name(".registry-followed").write_bytes(followed)
    sync.run()
    assert not mirror.path("people/bob/a").exists()
    assert mirror.hg_in("people/bob/b", "log", "-T", "{node}") == node


def test_nameless_repositories_have_their_folders_when_the_primary_names_them(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    node = _of_the_release_before(primary, mirror, "people/bob/a", 1)
    sync.run()
    _rename(primary, "people/bob/a", "people/bob/b")
    sync.run()
    known_as = identities.of(mirror.path("people/bob/b"))
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/b"] = replace(entries["people/bob/b"], identity=known_as)
    sync.run()
    assert identity.of(mirror.path("people/bob/b")) == known_as
    assert mirror.hg_in("people/bob/b", "log", "-T", "{node}") == node


def test_a_repository_at_work_keeps_no_other_in_its_place(
    primary: Primary, mirror: Host, sync: DocumentSync, said: list[str], monkeypatch: Any
) -> None:
    for second, path in enumerate(("a", "b")):
        _user_repository(primary, path, second)
    sync.run()
    for path in ("a", "b"):
        _rename(primary, path, f"new/{path}")
    monkeypatch.setattr(follow, "LOCK_WAIT_S", 0)
    with moves.at_rest(mirror.path("a"), "a"):
        sync.run()
        assert not mirror.path("b").exists()
        assert mirror.path("new/b").is_dir()
        assert mirror.path("a").is_dir()
        # Nothing empty takes its place in the meantime.
        assert not mirror.path("new/a").exists()
        assert any(line.startswith("a: A push to a is under way") for line in said)
    sync.run()
    assert not mirror.path("a").exists()
    assert mirror.path("new/a").is_dir()


def test_a_repository_of_the_inventory_gets_its_identity(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    for host in (primary, mirror):
        host.declare("tool", "other", "logged")
    for path in ("tool", "other", "logged"):
        mirror.create(path)
    # Its push log is another repository's.
    mirror.push("other", "file", identity="8e" * 16)
    node = mirror.push("logged", "file", identity="5c" * 16)
    with dynamic_update.update(primary.dynamic) as entries:
        entries.note_identity("logged", "5c" * 16)
        entries.note_identity("tool", IDENTITY)
        entries.note_identity("other", "9f" * 16)
    sync.run()
    assert identity.of(mirror.path("tool")) == IDENTITY
    assert identity.of(mirror.path("other")) == "9f" * 16
    # The links to its bundles are there, before the next `registry apply` on the mirror.
    link = mirror.path("tool") / ".hg/pullbundles"
    assert link.readlink() == mirror.settings.pull_bundles / IDENTITY
    assert mirror.hg_in("other", "log") == ""
    assert identity.of(mirror.path("logged")) == "5c" * 16
    assert mirror.hg_in("logged", "log", "-T", "{node}") == node
    assert (mirror.repos / f".replication/aside-{'8e' * 16}").is_dir()


@pytest.mark.parametrize("kill_at", range(14))
def test_a_killed_run_is_finished_by_the_next_one(
    primary: Primary, mirror: Host, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    class Killed(BaseException):
        pass

    made = {path: _user_repository(primary, path, n) for n, path in enumerate(("a", "b", "c"))}
    _sync(mirror, []).run()
    nodes = {path: mirror.push(path, path) for path in ("a", "b", "c")}
    # a and b exchange their paths, c is deleted and made again, d comes.
    _rename(primary, "a", "tmp")
    _rename(primary, "b", "a")
    _rename(primary, "tmp", "b")
    _delete(primary, "c")
    primary.path("c").rename(primary.root / "c")
    made["d"] = _user_repository(primary, "d", 4)
    again = _user_repository(primary, "c", 5)
    steps = iter(range(100))

    def counted(place: Any, name: str) -> None:
        original = getattr(place, name)

        def step(*arguments: object, **named: object) -> object:
            if next(steps) == kill_at:
                raise Killed
            return original(*arguments, **named)

        monkeypatch.setattr(place, name, step)

    for name in ("rename", "rmdir"):
        counted(Path, name)
    counted(follow.provisioning, "follow")
    counted(follow.shutil, "rmtree")
    try:
        _sync(mirror, []).run()
        killed = False
    except Killed:
        killed = True
    assert killed or kill_at > 10
    monkeypatch.undo()
    _sync(mirror, []).run()
    assert mirror.hg_in("a", "log", "-T", "{node}") == nodes["b"]
    assert mirror.hg_in("b", "log", "-T", "{node}") == nodes["a"]
    assert mirror.hg_in("c", "log") == ""
    assert identity.of(mirror.path("c")) == again
    assert identity.of(mirror.path("d")) == made["d"]
    assert not list(mirror.repos.glob(".replication/*"))


def test_a_damaged_registry_does_not_arrive(
    primary: Primary, mirror: Host, sync: DocumentSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    _user_repository(primary, "people/bob/x")
    sync.run()
    before = mirror.dynamic.read_bytes()
    primary.dynamic.write_text("{")
    with pytest.raises(UnavailableError, match="not a dynamic registry"):
        sync.run()
    # The source reads the file twice, so a writer of another kind may come in between.
    monkeypatch.setattr(
        "hgfleet.replication.documents.document_files.user_repositories.load", lambda _: None
    )
    with pytest.raises(RegistryError, match="not a dynamic registry"):
        sync.run()
    assert mirror.dynamic.read_bytes() == before


def test_a_lost_registry_of_the_primary_leaves_the_mirror_as_it_is(
    primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    _user_repository(primary, "people/bob/x")
    sync.run()
    primary.dynamic.unlink()
    with pytest.raises(UnavailableError, match="missing, and it existed before"):
        sync.run()
    assert json.loads(mirror.dynamic.read_text())["repositories"]


def test_a_link_is_neither_sent_nor_followed(
    tmp_path: Path, primary: Primary, mirror: Host, sync: DocumentSync
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (primary.dynamic.parent / "tokens/tokens.json").symlink_to(secret)
    manifest = primary.settings.manifests / f"{identity_of('a')}.manifest"
    manifest.symlink_to(secret)
    assert sync.run() == 0
    manifest.unlink()
    _bundles(primary, "team/tool")
    (mirror.settings.pull_bundles / identity_of("team/tool")).symlink_to(tmp_path)
    sync.run()
    assert not (tmp_path / "manifest").exists()


def test_a_document_that_cannot_be_brought_keeps_no_other_from_it(
    primary: Primary, mirror: Host, sync: DocumentSync, said: list[str]
) -> None:
    _bundles(primary, "team/one")
    _bundles(primary, "team/two")
    blocked, other = identity_of("team/one"), identity_of("team/two")
    (mirror.settings.pull_bundles / blocked).write_text("a file in the way")
    sync.run()
    assert (mirror.settings.manifests / f"{other}.manifest").exists()
    assert any(blocked in line for line in said)
    assert [name for name in sync.held().away if blocked in name]
    (mirror.settings.pull_bundles / blocked).unlink()
    sync.run()
    assert sync.held().away == {}
