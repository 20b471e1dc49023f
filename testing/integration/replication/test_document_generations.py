"""Registry and tokens of a primary that goes back: mirrors keep their own, and say so."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import token_file
from hgfleet.auth.tokens import Token
from hgfleet.core import generation, identity
from hgfleet.pushlog import term
from hgfleet.registry.dynamic import dynamic_update, missing, repair, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.replication.documents.documents import RefusedError
from hgfleet.replication.mirror import asides, follow
from hgfleet.replication.mirror.document_sync import DocumentSync
from hgfleet.replication.primary.document_watch import Renewal
from hgfleet.replication.terms.host_terms import EPOCH
from testing.integration.support.hosts import Authority, Host, Primary, client
from testing.integration.support.site import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREATED = "2026-11-21T00:00:00Z"
TOKEN = Token("bob", "ab" * 32, "CI", "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z")


class Pair:
    """A primary and its mirror."""

    def __init__(self, folder: Path, primary: Primary, mirror: Host) -> None:
        self.folder, self.primary, self.mirror = folder, primary, mirror
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        """Start the mirror's part, or start it again."""
        settings = self.mirror.settings
        self.sync = DocumentSync(settings, client(self.mirror, settings.source), self.said.append)

    def create(self, path: str) -> str:
        made = identity_of(path)
        self.primary.create(path)
        (self.primary.path(path) / identity.FILE).write_text(identity.text(made))
        with dynamic_update.update(self.primary.dynamic) as entries:
            entries[path] = Entry("bob", created=CREATED, read=(), identity=made)
        return made

    @property
    def tokens(self) -> Path:
        return self.primary.dynamic.parent / "tokens/tokens.json"

    def change_tokens(self, *names: str) -> None:
        with token_file.update(str(self.tokens)) as tokens:
            tokens.clear()
            tokens.update(dict.fromkeys(names, TOKEN))

    def backup(self) -> None:
        shutil.copytree(self.primary.dynamic.parent, self.folder / "backup")

    def restore(self) -> None:
        """Restore the folder of the last backup, with all that its host remembered then."""
        shutil.rmtree(self.primary.dynamic.parent)
        shutil.copytree(self.folder / "backup", self.primary.dynamic.parent)

    def renew(self) -> dict[str, str]:
        """Give the registry and the tokens their generations, as the relay does."""
        return Renewal(self.primary.settings).run()

    def begin_epoch(self, number: int) -> None:
        (self.primary.settings.terms / EPOCH).write_text(term.write(number, "hg1"))

    def paths(self) -> set[str]:
        """Return the user repositories that the mirror serves."""
        return set(user_repositories.load(self.mirror.dynamic).repositories)

    def names(self) -> set[str]:
        """Return the tokens that the mirror accepts."""
        return set(token_file.load(str(self.mirror.dynamic.parent / "tokens/tokens.json")))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    authority = Authority(tmp_path / "ca")
    primary = Primary(tmp_path / "hg1", authority)
    with primary.serving() as url:
        yield Pair(tmp_path, primary, Host(tmp_path / "hgweb1", "hgweb1", authority, url))


def test_the_registry_of_the_last_backup_is_refused(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.backup()
    pair.create("people/bob/b")
    pair.sync.run()
    pair.restore()
    for _ in range(2):
        # Outside of a run, in a run, and in the runs of a mirror that has started again.
        with pytest.raises(RefusedError, match=r"generation 1.1 of the primary is older"):
            pair.sync.first("registry")
        pair.sync.run()
        assert pair.paths() == {"people/bob/a", "people/bob/b"}
        assert pair.mirror.path("people/bob/b").is_dir()
        assert "keeps generation 1.2" in pair.sync.held().refused["registry"]
        pair.start()
        assert "registry" in pair.sync.held().refused
    assert sum("refused" in line for line in pair.said) == 1


def test_a_restored_primary_that_goes_on_is_refused_until_it_begins_a_term(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.backup()
    pair.create("people/bob/b")
    pair.sync.run()
    pair.restore()
    pair.sync.run()
    # Its numbers reach the number of the mirror, and pass it.
    for path in ("people/bob/c", "people/bob/d", "people/bob/e"):
        pair.create(path)
        pair.renew()
        pair.start()
        pair.sync.run()
        assert pair.paths() == {"people/bob/a", "people/bob/b"}
    pair.begin_epoch(2)
    assert pair.renew() == {}
    pair.sync.run()
    assert pair.paths() == {f"people/bob/{name}" for name in "acde"}
    assert not pair.sync.held().refused
    # Nothing is lost.
    assert list(pair.sync.held().aside) == [f"aside-{identity_of('people/bob/b')}"]


def test_a_mirror_that_was_away_while_a_restored_primary_wrote_on_refuses_it(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.backup()
    pair.create("people/bob/b")
    pair.sync.run()
    pair.restore()
    # None of its versions is older than the mirror's by the time the mirror looks.
    for path in ("people/bob/c", "people/bob/d"):
        pair.create(path)
    with pytest.raises(RefusedError, match=r"generation 1.3 .* follows another version 1.2"):
        pair.sync.first("registry")
    assert pair.paths() == {"people/bob/a", "people/bob/b"}
    pair.create("people/bob/e")
    pair.start()
    pair.sync.run()
    assert pair.paths() == {"people/bob/a", "people/bob/b"}
    dynamic_update.begin_term(pair.primary.dynamic)
    pair.sync.run()
    assert pair.paths() == {f"people/bob/{name}" for name in "acde"}


def test_another_content_under_the_same_generation_is_refused(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.sync.run()
    file = pair.primary.dynamic
    file.write_text(file.read_text().replace('"read": []', '"read": "public"'))
    with pytest.raises(RefusedError, match=r"another content under generation 1.1"):
        pair.sync.first("registry")
    assert user_repositories.load(pair.mirror.dynamic).repositories["people/bob/a"].read == ()
    # The relay gives it a generation of its own: it was changed by hand.
    pair.renew()
    pair.sync.run()
    assert user_repositories.load(pair.mirror.dynamic).repositories["people/bob/a"].read == "public"
    assert not pair.sync.held().refused


def test_a_registry_of_a_release_before_is_older_than_any_with_a_generation(pair: Pair) -> None:
    file = pair.primary.dynamic
    pair.create("people/bob/a")
    bare = json.loads(file.read_bytes())
    del bare["generation"]
    for hidden in pair.primary.dynamic.parent.glob(".registry-*"):
        hidden.unlink()
    file.write_text(json.dumps(bare))
    pair.sync.run()
    assert pair.paths() == {"people/bob/a"}
    pair.create("people/bob/b")
    pair.sync.run()
    file.write_text(json.dumps(bare))
    with pytest.raises(RefusedError, match="has no generation"):
        pair.sync.first("registry")
    pair.renew()
    pair.sync.run()
    assert pair.paths() == {"people/bob/a"}


def test_the_primary_shows_what_the_mirror_has_again(pair: Pair) -> None:
    pair.create("people/bob/a")
    older = pair.primary.dynamic.read_bytes()
    pair.create("people/bob/b")
    pair.create("people/bob/c")
    newest = pair.primary.dynamic.read_bytes()
    pair.sync.run()
    pair.primary.dynamic.write_bytes(older)
    pair.sync.run()
    assert pair.sync.held().refused
    assert "expected 1.3" in pair.renew()["registry"]
    pair.primary.dynamic.write_bytes(newest)
    pair.sync.run()
    assert not pair.sync.held().refused
    pair.create("people/bob/d")
    pair.sync.run()
    assert "people/bob/d" in pair.paths()
    newest = pair.primary.dynamic.read_bytes()
    pair.primary.dynamic.write_bytes(older)
    pair.sync.run()
    # A user makes a repository before the mirror looks.
    pair.primary.dynamic.write_bytes(newest)
    pair.create("people/bob/e")
    pair.sync.run()
    assert "people/bob/e" in pair.paths()
    assert not pair.sync.held().refused


def test_older_tokens_do_not_come_back(pair: Pair) -> None:
    pair.change_tokens("aaaaaaaa", "bbbbbbbb")
    pair.backup()
    pair.change_tokens("aaaaaaaa")
    pair.sync.run()
    pair.restore()
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"generation 1.1 of the primary is older"):
            pair.sync.first("tokens")
        pair.sync.run()
        assert pair.names() == {"aaaaaaaa"}
        assert list(pair.sync.held().refused) == ["tokens"]
        pair.start()
    pair.tokens.unlink()
    with pytest.raises(RefusedError, match="the primary has none"):
        pair.sync.first("tokens")
    pair.sync.run()
    assert pair.names() == {"aaaaaaaa"}
    pair.restore()
    token_file.begin_term(str(pair.tokens))
    pair.sync.run()
    assert pair.names() == {"aaaaaaaa", "bbbbbbbb"}
    assert not pair.sync.held().refused


def test_a_mirror_that_took_a_version_does_not_go_back_by_one_as_the_primary(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.change_tokens("aaaaaaaa", "bbbbbbbb")
    pair.sync.run()
    places = [pair.mirror.dynamic, pair.mirror.dynamic.parent / "tokens/tokens.json"]
    older = [place.read_bytes() for place in places]
    pair.create("people/bob/b")
    pair.change_tokens("aaaaaaaa")
    pair.sync.run()
    for place, content in zip(places, older, strict=True):
        assert generation.read_beside(place).before == ""
        place.write_bytes(content)
    settings = replace(pair.mirror.settings, terms=pair.folder)
    (pair.folder / EPOCH).write_text(term.write(2, "hgweb1"))
    problems = Renewal(settings).run()
    assert all("got generation 1.1, expected 1.2" in problems[name] for name in problems)
    assert set(problems) == {"registry", "tokens"}


def test_a_rebuilt_mirror_takes_what_it_gets(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.backup()
    pair.create("people/bob/b")
    pair.sync.run()
    pair.restore()
    shutil.rmtree(pair.mirror.dynamic.parent)
    pair.mirror.dynamic.parent.mkdir()
    pair.start()
    pair.sync.run()
    assert pair.paths() == {"people/bob/a"}


def test_a_mirror_that_becomes_the_primary_begins_a_term(pair: Pair) -> None:
    pair.create("people/bob/a")
    pair.change_tokens("aaaaaaaa")
    pair.sync.run()
    settings = replace(pair.mirror.settings, terms=pair.folder)
    (pair.folder / EPOCH).write_text(term.write(2, "hgweb1"))
    assert Renewal(settings).run() == {}
    for file in (pair.mirror.dynamic, pair.mirror.dynamic.parent / "tokens/tokens.json"):
        assert generation.version(file.read_bytes()).generation == (2, 2)


def _lose(pair: Pair, path: str) -> None:
    """Have an entry leave the primary's registry by hand."""
    data = json.loads(pair.primary.dynamic.read_bytes())
    del data["repositories"][path]
    pair.primary.dynamic.write_text(json.dumps(data))
    pair.renew()


def test_an_entry_lost_by_hand_is_set_aside_and_noted_with_its_readers(pair: Pair) -> None:
    made = pair.create("people/bob/a")
    pair.sync.run()
    node = pair.mirror.push("people/bob/a", "file")
    _lose(pair, "people/bob/a")
    pair.sync.run()
    name = f"aside-{made}"
    path, reason = pair.sync.held().aside[name]
    assert path == "people/bob/a"
    assert f"registry bring-back {made}" in reason
    for host in (pair.primary, pair.mirror):
        assert missing.load(host.dynamic)[made].entry == {
            **Entry("bob", created=CREATED, read=(), identity=made).to_json()
        }
    # A mirror that has started again knows it, too.
    pair.start()
    pair.sync.run()
    assert name in pair.sync.held().aside
    notes = missing.load(pair.mirror.dynamic)
    repair.bring_back(pair.primary.dynamic, pair.primary.repos, [made], pair.said.append, notes)
    assert not missing.load(pair.primary.dynamic)
    pair.sync.run()
    assert pair.mirror.hg_in("people/bob/a", "log", "-T", "{node}") == node
    assert not pair.sync.held().aside
    assert not missing.load(pair.mirror.dynamic)


def test_what_was_set_aside_is_kept_for_its_days(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair.create("people/bob/a")
    pair.sync.run()
    _lose(pair, "people/bob/a")
    pair.sync.run()
    folder = pair.mirror.repos / f".replication/aside-{made}"
    monkeypatch.setattr(follow, "WHOLE_S", 0.0)
    now = time.time()
    for days, is_kept in (
        *((13.9, True), (-1.0, True), (12.9, True), (13.1, True), (14.0, True), (14.2, False)),
    ):
        # A wrong clock says nothing: from then on the folder is kept for all of its days and a day
        # more, so that a clock that is ahead once ends nothing.
        monkeypatch.setattr(time, "time", lambda days=days: now + days * asides.DAY_S)
        pair.sync.run()
        assert folder.exists() == is_kept, days
    assert any("was set aside for 14 days, removed" in line for line in pair.said)
    assert not list(pair.mirror.repos.glob(".replication/*"))


def test_nothing_is_deleted_for_its_time_while_the_registry_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair.create("people/bob/a")
    pair.backup()
    pair.create("people/bob/b")
    pair.sync.run()
    _lose(pair, "people/bob/a")
    pair.sync.run()
    pair.restore()
    monkeypatch.setattr(follow, "WHOLE_S", 0.0)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 15 * asides.DAY_S)
    pair.sync.run()
    assert pair.sync.held().refused
    assert (pair.mirror.repos / f".replication/aside-{made}").is_dir()


def test_a_repository_that_left_the_inventory_is_kept_and_alarms_nobody(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = identity_of("tool")
    for host in (pair.primary, pair.mirror):
        host.declare("tool")
        host.create("tool")
    with dynamic_update.update(pair.primary.dynamic) as entries:
        entries.note_identity("tool", made)
    pair.sync.run()
    with dynamic_update.update(pair.primary.dynamic) as entries:
        entries.keep_identities(())
    pair.sync.run()
    # The inventory of the mirror follows the inventory of the primary.
    assert pair.mirror.path("tool").is_dir()
    pair.mirror.declare()
    monkeypatch.setattr(follow, "WHOLE_S", 0.0)
    now = time.time()
    for days in (0, 15):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * asides.DAY_S)
        pair.sync.run()
        assert (pair.mirror.repos / f".replication/aside-{made}").is_dir()
        assert not pair.sync.held().aside
