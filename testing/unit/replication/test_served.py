"""The path of each identity, as the registry of the primary has it at the moment."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity as identities
from hgfleet.core.errors import RegistryError, TemporaryError
from hgfleet.pushlog.record import FIRST, Heads, Record
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.replication.protocol.settings import Role, Settings
from hgfleet.replication.repositories.served import Served

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "a" * 32, "b" * 32, "c" * 32


class Host:
    """A host with repositories of the inventory and of people; folders have only their files."""

    def __init__(self, root: Path) -> None:
        self.root, self.dynamic = root / "repos", root / "dynamic/registry.json"
        self.dynamic.parent.mkdir()
        self.compiled = root / "registry.json"
        self.said: list[str] = []
        self.declare()
        settings = Settings(
            *(Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", (), ()),
            repositories=self.root,
            compiled=self.compiled,
            dynamic=self.dynamic,
        )
        self.served = Served(settings, self.said.append)

    def declare(self, *paths: str) -> None:
        made = {path: Repository(path, "", "public", (), True, ()) for path in paths}
        new = self.compiled.with_suffix(".new")
        new.write_text(dump_compiled(Registry(MappingProxyType(made))))
        new.rename(self.compiled)

    def folder(self, path: str, identity: str = "") -> Path:
        store = self.root / path / ".hg/store"
        store.mkdir(parents=True, exist_ok=True)
        if identity:
            (self.root / path / identities.FILE).write_text(identities.text(identity))
        return store

    def entry(self, path: str, identity: str, **more: str) -> None:
        with dynamic_update.update(self.dynamic) as entries:
            entries[path] = Entry("bob", created="2026-11-21T00:00:00Z", identity=identity, **more)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_path_follows_the_registry(host: Host) -> None:
    assert dict(host.served.paths()) == {}
    host.entry("people/bob/x", A)
    assert host.served.path(A) == "people/bob/x"
    with dynamic_update.update(host.dynamic) as entries:
        entries["people/bob/y"] = entries["people/bob/x"]
        del entries["people/bob/x"]
    host.entry("people/bob/x", B)
    assert dict(host.served.paths()) == {A: "people/bob/y", B: "people/bob/x"}
    host.entry("people/bob/y", A, archived="2026-11-22T00:00:00Z")
    assert host.served.path(A) is None
    with dynamic_update.update(host.dynamic) as entries:
        del entries["people/bob/y"]
        entries.note_purged(A)
    assert set(host.served.purged()) == {A}


def test_a_folder_that_is_not_the_repository_of_its_entry_is_no_place(host: Host) -> None:
    host.entry("people/bob/x", A)
    with pytest.raises(TemporaryError, match="got a repository without identity"):
        host.served.place(A)
    host.folder("people/bob/x", B)
    with pytest.raises(TemporaryError, match=f"got repository {B}, expected {A}"):
        host.served.place(A)
    host.folder("people/bob/x", A)
    assert host.served.place(A) == "people/bob/x"
    assert host.served.place(B) is None


def test_where_the_registry_names_no_identity_the_folder_does(host: Host) -> None:
    """The registry is from a release before, or the registry of people is damaged."""
    host.declare("file", "log", "none", "named")
    host.folder("file", A)
    heads = Heads(digest=Heads.digest_of(()))
    line = Record(1, B, "push", "alice", 1, FIRST, heads=heads).line()
    (host.folder("log") / "pushlog").write_bytes(line + b"\n")
    host.folder("none")
    host.folder("named", C)
    with dynamic_update.update(host.dynamic) as change:
        change.note_identity("named", C)
    assert host.served.paths() == {C: "named", A: "file", B: "log"}
    # It gets an identity with its first push.
    assert host.served.path("") is None
    assert [host.served.place(identity) for identity in (A, B, C)] == ["file", "log", "named"]
    host.dynamic.write_text("{")
    assert [host.served.place(identity) for identity in (A, B, C)] == ["file", "log", "named"]
    assert len(host.said) == 1
    with pytest.raises(RegistryError):
        host.served.purged()


def test_a_folder_with_the_identity_of_another_entry_does_not_hide_it(host: Host) -> None:
    """A copy that an operator made by hand."""
    host.declare("copy", "named")
    host.folder("copy", C)
    with dynamic_update.update(host.dynamic) as change:
        change.note_identity("named", C)
    assert host.served.paths()[C] == host.served.path(C) == "named"


def test_the_entry_of_an_identity_is_not_that_of_its_former_path(host: Host) -> None:
    host.entry("people/bob/x", B)
    assert host.served.entry(A, "people/bob/x") is None
    host.entry("people/bob/y", A)
    entry = host.served.entry(A, "people/bob/x")
    assert entry is not None
    assert entry.path == "people/bob/y"
    # A host whose registry names none yet.
    host.entry("people/bob/z", "")
    entry = host.served.entry(C, "people/bob/z")
    assert entry is not None
    assert entry.path == "people/bob/z"
