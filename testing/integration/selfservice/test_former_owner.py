"""A person's name that is given again: the later person owns nothing of the former person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.integration.selfservice.site import BOB

if TYPE_CHECKING:
    from testing.integration.selfservice.site import SelfserviceSite

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"


@pytest.fixture
def exchanged(site: SelfserviceSite) -> SelfserviceSite:
    """A host where bob made repositories, left, and another person got the name."""
    site.hgrc.write_text(f"{site.hgrc.read_text()}[hgfleet]\ndynamic = {site.dynamic}\n")
    site.person_ids["bob"] = FORMER
    site.ok("bob", "repo create people/bob/secret --read private")
    site.ok("bob", "repo create people/bob/tool")
    site.ok("bob", "repo create people/bob/old")
    site.ok("bob", "repo archive people/bob/old")
    site.person_ids["bob"] = TODAY
    return site


def refused(site: SelfserviceSite, command: str) -> str:
    done = site.ssh_command("bob", command)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_an_entry_has_the_person_id_of_who_made_it(exchanged: SelfserviceSite) -> None:
    assert {entry.owner_id for entry in exchanged.entries.values()} == {FORMER}
    exchanged.ok("bob", "repo create people/bob/new")
    exchanged.source("made")
    exchanged.ok("bob", "repo fork people/bob/tool people/bob/copy")
    assert exchanged.entries["people/bob/new"].owner_id == TODAY
    assert exchanged.entries["people/bob/copy"].owner_id == TODAY


def test_a_private_repository_is_missing_for_the_later_person(exchanged: SelfserviceSite) -> None:
    absent = refused(exchanged, "hg -R people/bob/none serve --stdio")
    hidden = refused(exchanged, "hg -R people/bob/secret serve --stdio")
    assert hidden == absent.replace("people/bob/none", "people/bob/secret")
    absent = refused(exchanged, "repo info people/bob/none")
    assert refused(exchanged, "repo info people/bob/secret") == absent.replace("none", "secret")
    for command in ("archive people/bob/secret", "describe people/bob/secret x"):
        assert "There is no repository" in refused(exchanged, f"repo {command}")
    # The former person, whose session is still open.
    exchanged.person_ids["bob"] = FORMER
    assert "people/bob/secret" in exchanged.ok("bob", "repo list --mine")


def test_lists_and_limits_know_only_what_the_person_made(exchanged: SelfserviceSite) -> None:
    assert exchanged.ok("bob", "repo list --mine") == "No repositories.\n"
    assert exchanged.ok("bob", "repo list --archived") == "No repositories.\n"
    assert "secret" not in exchanged.ok("bob", "repo list")
    assert "people/bob/NAME (0 of 3 used)" in exchanged.ok("bob", "whoami")
    for name in ("a", "b", "c"):
        exchanged.ok("bob", f"repo create people/bob/{name}")
    assert "the limit is 3" in refused(exchanged, "repo create people/bob/d")


@pytest.mark.parametrize("name", ["secret", "tool", "old"])
def test_a_name_of_the_former_person_is_taken(exchanged: SelfserviceSite, name: str) -> None:
    said = refused(exchanged, f"repo create people/bob/{name}")
    assert f"The name people/bob/{name} still belongs to another person" in said
    assert "ask an operator" in said


def test_archived_repositories_come_back_for_nobody_else(exchanged: SelfserviceSite) -> None:
    assert "There is no repository" in refused(exchanged, "repo restore people/bob/old")
    gone = refused(exchanged, "repo delete people/bob/old people/bob/old")
    assert "There is no repository" in gone
    assert exchanged.path("people/bob/old").is_dir()


def test_a_public_repository_is_read_and_not_written_by_the_later_person(
    exchanged: SelfserviceSite,
) -> None:
    assert "owner:" in exchanged.ok("bob", "repo info people/bob/tool")
    assert "another person of the name bob" in exchanged.ok("bob", "repo info people/bob/tool")
    said = refused(exchanged, "repo describe people/bob/tool x")
    assert "people/bob/tool belongs to another person of the name bob" in said
    exchanged.source("made")
    place = exchanged.path("people/bob/tool")
    pull = ("-R", place, "pull", "-q", str(exchanged.repos / "made"))
    with pytest.raises(AssertionError, match="another person of the name bob, who owns it, may"):
        exchanged.hg(*pull, **BOB, HGFLEET_PERSON_ID=TODAY)
    assert exchanged.hg("-R", place, "log", "-T", "x") == ""
    exchanged.hg(*pull, **BOB, HGFLEET_PERSON_ID=FORMER)
    assert exchanged.hg("-R", place, "log", "-T", "x") == "xxx"


def test_the_path_of_a_renamed_repository_is_still_the_former_persons(
    exchanged: SelfserviceSite,
) -> None:
    exchanged.person_ids["bob"] = FORMER
    exchanged.ok("bob", "repo rename people/bob/secret people/bob/moved")
    exchanged.person_ids["bob"] = TODAY
    assert "still belongs to another person" in refused(exchanged, "repo create people/bob/secret")
    assert "moved" not in refused(exchanged, "hg -R people/bob/secret serve --stdio")


def test_a_write_waits_for_a_registry_that_can_be_read(exchanged: SelfserviceSite) -> None:
    exchanged.source("made")
    exchanged.dynamic.write_text("{")
    pull = ("-R", exchanged.path("people/bob/tool"), "pull", "-q", str(exchanged.repos / "made"))
    with pytest.raises(AssertionError, match="nothing may be written at the moment"):
        exchanged.hg(*pull, **BOB, HGFLEET_PERSON_ID=FORMER)
    # A user who does not write as the owner needs no look at the registry.
    exchanged.hg(*pull)
