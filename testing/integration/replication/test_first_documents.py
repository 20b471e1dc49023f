"""Tokens and user repositories on a mirror, for the person who changes them: all parts are real."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.auth import token_file
from hgfleet.core.errors import RegistryError
from hgfleet.core.principal import Principal
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Registry
from hgfleet.replication.daemons import say
from hgfleet.replication.documents.document_files import Documents
from hgfleet.replication.primary.relay import Relay
from hgfleet.replication.source.answers import Source
from hgfleet.replication.terms.host_terms import EPOCH
from hgfleet.selfservice import commands, mirrors
from hgfleet.selfservice.command import understand
from hgfleet.selfservice.context import Context
from testing.integration.support import hosts
from testing.integration.support.applier_process import ApplierProcess, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.replication.source.requests import Request
    from testing.integration.support.broker import Broker

LONG = "60"
"""Seconds that a session waits where its mirror is to answer, also on a machine under load."""


class Site:
    """A primary with source and relay, a broker, and a mirror."""

    def __init__(self, folder: Path, broker: Broker, host: hosts.Primary, source: str) -> None:
        self.host = host
        self.mirror = hosts.Host(folder / "hgweb1", "hgweb1", host.authority, source)
        people = {"people": Namespace("people", create=("everyone",), personal=True)}
        for machine in (host, self.mirror):
            machine.registry.write_text(dump_compiled(Registry({}, people)))
        shared: dict[str, Any] = {
            "brokers": (broker.url,),
            "mirrors": ("hgweb1",),
            "lease_seconds": 6.0,
        }
        self.settings = replace(
            host.settings,
            **shared,
            wake=folder / "wake.sock",
            positions=folder / "positions",
            state=folder / "relay-state",
        )
        for made in (self.settings.positions, self.settings.state):
            made.mkdir()
        self.applier = ApplierProcess(
            replace(self.mirror.settings, **shared, source=source), folder / "applier"
        )
        self._events: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None]
        self._thread = threading.Thread(target=self._run_relay)

    def _run_relay(self) -> None:
        from hgfleet.replication.primary import document_watch
        from hgfleet.replication.promotion import former_terms

        name_former = former_terms.settle
        relay = Relay(
            self.settings, say, name_former=name_former, background=[document_watch.watch]
        )
        self._task = self._loop.create_task(relay.run())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())

    def start(self) -> None:
        """Start relay and applier; return when pushes wait for the mirror."""
        self._thread.start()
        self.applier.start()
        self.applier.wait_for(self.is_live)

    def is_live(self) -> bool:
        """Whether the relay counts on the mirror."""
        file = self.settings.state / "state.json"
        state = json.loads(file.read_bytes()) if file.exists() else {"mirrors": {"hgweb1": {}}}
        return state["mirrors"]["hgweb1"].get("live", False)

    def end(self) -> None:
        """End both."""
        self.applier.kill()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
        self._loop.close()

    def command(self, line: str, wait: str = LONG) -> tuple[str, str]:
        """Carry out a command of bob's as a session does; return its output on both streams."""
        hgrc = self.host.root / "server.rc"
        # As the role `mercurial` writes it on a primary.
        hgrc.write_text(
            f"[hgfleet]\nssh-url = ssh://hg@hg1\nrelay = {self.settings.wake}\n"
            f"replication-wait = {wait}\n"
        )
        context = Context(
            Principal("bob", frozenset({"everyone"})),
            str(self.host.registry),
            str(self.host.dynamic),
            str(self.host.repos),
            str(hgrc),
            tokens=str(self.host.dynamic.parent / "tokens/tokens.json"),
        )
        call = understand(line, commands.COMMANDS)
        assert call is not None
        return call.command.run(context, call), mirrors.sentence(context, call.command)

    def tokens(self) -> set[str]:
        """The ids of tokens that the mirror accepts."""
        return set(token_file.load(str(self.mirror.dynamic.parent / "tokens/tokens.json")))

    def token(self) -> str:
        """Create a token; return its id when the mirror accepts it."""
        answer, said = self.command("token create")
        assert said.startswith("token create: accepted on 1/1 mirrors in "), said
        name = answer.split("token ")[1].split(".")[0]
        assert name in self.tokens()
        return name


@pytest.fixture
def site(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("HGRCPATH", "")
    host = hosts.Primary(tmp_path / "hg1", hosts.Authority(tmp_path / "ca"))
    with host.serving() as source:
        made = Site(tmp_path, broker, host, source)
        try:
            made.start()
            yield made
        finally:
            made.end()


def test_a_command_ends_when_the_mirror_has_its_change(site: Site) -> None:
    name = site.token()
    _, said = site.command(f"token revoke {name}")
    assert said.startswith("token revoke: refused on 1/1 mirrors in "), said
    assert name not in site.tokens()
    _, said = site.command("repo create people/bob/x")
    assert said.startswith("repo create: visible on 1/1 mirrors in "), said
    assert (site.mirror.path("people/bob/x") / ".hg/hgrc").is_file()
    _, said = site.command("repo archive people/bob/x")
    assert said.startswith("repo archive: gone from 1/1 mirrors in "), said
    assert site.mirror.dynamic.read_bytes() == site.host.dynamic.read_bytes()


def test_a_revoked_token_waits_for_no_other_document(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for a bundle that is fetched, nor for a registry that cannot be read."""
    name = site.token()
    fetched, held = threading.Event(), threading.Event()
    original = Source._document

    def answer(self: Source, request: Request) -> Any:
        if request.name == f"manifests/{manifest.name}":
            fetched.set()
            assert held.wait(300)
        return original(self, request)

    # The source is in this process.
    monkeypatch.setattr(Source, "_document", answer)
    manifest = site.host.settings.manifests / f"{'5f' * 16}.manifest"
    manifest.write_text("https://s3/a BUNDLESPEC=zstd-v2\n")
    try:
        site.applier.wait_for(fetched.is_set)
        site.host.dynamic.write_bytes(b"{")
        _, said = site.command(f"token revoke {name}")
        assert said.startswith("token revoke: refused on 1/1 mirrors in "), said
        assert name not in site.tokens()
    finally:
        held.set()


def test_a_mirror_that_may_accept_a_revoked_token_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.token()
    original = Documents.open

    def opened(self: Documents, document: str) -> Any:
        if document == "tokens":
            raise OSError(5, "Input/output error", "tokens.json")
        return original(self, document)

    with monkeypatch.context() as patch:
        patch.setattr(Documents, "open", opened)
        _, said = site.command(f"token revoke {name}", "1")
    assert said == (
        "token revoke: hgweb1 may still accept it (waited 1 s); refused on 0/1 mirrors\n"
    )
    wait_for(lambda: name not in site.tokens())


def test_a_mirror_that_was_away_serves_no_reader_before_it_knows_the_tokens(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.token()
    site.applier.kill()
    _, said = site.command(f"token revoke {name}")
    assert said == "token revoke: refused on 0/1 mirrors; hgweb1 is down\n"
    original = Documents.open

    def opened(self: Documents, document: str) -> Any:
        if document == "tokens":
            raise OSError(5, "Input/output error", "tokens.json")
        return original(self, document)

    with monkeypatch.context() as patch:
        patch.setattr(Documents, "open", opened)
        site.applier.log.write_text("")
        site.applier.start()
        site.applier.wait_for(lambda: "event=document-away" in site.applier.log.read_text())
        site.applier.wait_for(lambda: site.applier.state().get("lease_until", 0) > 0)
        assert name in site.tokens()
        assert not site.applier.state()["caught_up"]
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert name not in site.tokens()


def test_an_older_registry_is_followed_by_no_mirror_until_the_primary_begins_a_term(
    site: Site,
) -> None:
    for name in "xyz":
        site.command(f"repo create people/bob/{name}")
        if name == "x":
            older = site.host.dynamic.read_bytes()
    site.host.dynamic.write_bytes(older)
    applier, sessions = site.applier, site.host.dynamic

    def refused() -> str:
        return str(applier.state().get("refused", {}).get("registry", ""))

    applier.wait_for(refused)
    # A mirror that has started again refuses it, too, and goes on serving.
    applier.kill()
    applier.start()
    applier.wait_for(lambda: applier.state().get("caught_up") and refused())
    assert (site.mirror.path("people/bob/z") / ".hg").is_dir()
    # A push under readers of the older registry is not shown, and the mirror stays in service.
    node = site.host.push("people/bob/x", "file")
    applier.wait_for(lambda: applier.state()["parked_repositories"] == 1)
    assert applier.state()["caught_up"]
    assert site.mirror.hg_in("people/bob/x", "log") == ""
    with pytest.raises(RegistryError, match="hgfleet replication begin-term"):
        site.command("repo create people/bob/w")

    def problems() -> Any:
        return json.loads((site.settings.state / "state.json").read_bytes())["problems"]

    applier.wait_for(lambda: "registry" in problems())
    dynamic_update.begin_term(sessions, site.settings.terms / EPOCH)
    applier.wait_for(lambda: not refused())
    applier.wait_for(lambda: not problems())
    applier.wait_for(lambda: node in site.mirror.hg_in("people/bob/x", "log", "-T", "{node}"))
    # Repositories that only the later registry named are not lost.
    applier.wait_for(lambda: applier.state()["aside_repositories"] == 2)
    _, said = site.command("repo create people/bob/w")
    assert said.startswith("repo create: visible on 1/1 mirrors in "), said
