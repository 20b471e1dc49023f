"""Drafts of people: non-publishing repositories, and the exchange of obsolescence markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.integration.selfservice.site import BOB

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.selfservice.site import SelfserviceSite

SERVED = "people/bob/x"


CLIENT = "[ui]\nusername = test\n[experimental]\nevolution = all\n"


def as_bob(site: SelfserviceSite) -> dict[str, str]:
    """Return the environment of bob's own hg, which has none of the service's extensions."""
    hgrc = site.root / "client-hgrc"
    hgrc.write_text(CLIENT)
    return {**BOB, "HGRCPATH": str(hgrc)}


def client_of(site: SelfserviceSite, path: str) -> tuple[str, ...]:
    """Return how a client reaches a server whose hgrc says nothing of evolution."""
    server = site.root / "server-hgrc"
    server.write_text(site.hgrc.read_text().replace("evolution = all\n", ""))
    return (*site.ssh(server), site.url(path))


def pushed_and_amended(site: SelfserviceSite) -> Path:
    """Push a changeset, amend it and push again, as a user of `hg amend` does."""
    work = site.source("work", commits=1)
    site.hg("-R", work, "push", "-q", *client_of(site, SERVED), **as_bob(site))
    commit = ("--config", "phases.new-commit=draft", "-m", "amended")
    site.hg_in("work", "commit", "--amend", *commit)
    site.hg("-R", work, "push", "-q", "-f", *client_of(site, SERVED), **as_bob(site))
    return work


def phases(site: SelfserviceSite, *options: str) -> str:
    return site.hg("-R", site.path(SERVED), "log", *options, "-T", "{desc}: {phase}\n")


def test_drafts_stay_drafts_and_their_history_is_exchanged(site: SelfserviceSite) -> None:
    site.ok("bob", f"repo create {SERVED}")
    assert " published by a push\n" in site.ok("bob", f"repo info {SERVED}")
    said = site.ok("bob", f"repo drafts {SERVED} on")
    assert said.startswith(f"{SERVED}: drafts stay drafts, and obsolescence markers are exchanged")

    work = pushed_and_amended(site)

    assert phases(site) == "amended: draft\n"
    assert phases(site, "--hidden") == "amended: draft\nadd file0: draft\n"
    # The work of another client follows the amended changeset.
    other = site.root / "other"
    site.hg("clone", "-q", *client_of(site, SERVED), other, **as_bob(site))
    assert site.hg("-R", other, "log", "-T", "{desc}: {phase}\n") == "amended: draft\n"
    markers = site.hg("-R", work, "debugobsolete")
    assert markers
    assert site.hg("-R", other, "debugobsolete") == markers
    assert site.entries[SERVED].publishing is False
    assert " kept, with their markers\n" in site.ok("bob", f"repo info {SERVED}")


def test_drafts_are_published_again_when_their_owner_wants_that(site: SelfserviceSite) -> None:
    site.ok("bob", f"repo create {SERVED}")
    site.ok("bob", f"repo drafts {SERVED} on")
    site.ok("bob", f"repo drafts {SERVED} off")
    work = site.source("work", commits=1)
    site.hg("-R", work, "push", "-q", *client_of(site, SERVED), **as_bob(site))
    assert phases(site) == "add file0: public\n"


def test_only_the_owner_decides_about_drafts(site: SelfserviceSite) -> None:
    site.ok("bob", f"repo create {SERVED}")
    assert "belongs to bob" in site.ssh_command("carol", f"repo drafts {SERVED} on").stderr
    for words in ("", " yes", " on off", " --on"):
        refused = site.ssh_command("bob", f"repo drafts {SERVED}{words}")
        assert refused.returncode == 2
    assert site.entries[SERVED].publishing is None
