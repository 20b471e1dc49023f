"""Archived repositories, and `registry apply` with repositories that people created."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import HostError
from hgfleet.core.owner import Owner
from hgfleet.core.paths import MANIFESTS
from hgfleet.registry.model.registry import Registry, Settings
from hgfleet.registry.provision import provisioning

if TYPE_CHECKING:
    from testing.integration.selfservice.site import SelfserviceSite


def test_restoring_brings_back_everything(site: SelfserviceSite) -> None:
    site.source("hgfleet")
    site.ok("bob", "repo fork hgfleet people/bob/f")
    site.ok("bob", "repo describe people/bob/f My own one")
    assert "description = My own one\n" in (site.repos / "people/bob/f/.hg/hgrc").read_text()
    before = site.entries
    site.ok("bob", "repo archive people/bob/f")
    gone = site.ssh_command("bob", "hg -R people/bob/f serve --stdio")
    missing = site.ssh_command("bob", "hg -R people/bob/g serve --stdio")
    assert gone.stderr.replace("people/bob/f", "people/bob/g") == missing.stderr
    assert "restore" in site.ssh_command("bob", "repo create people/bob/f").stderr
    site.ok("bob", "repo restore people/bob/f")
    assert site.entries == before
    assert "changesets:   3\n" in site.ok("bob", "repo info people/bob/f")
    assert (
        site.ssh_command("bob", "repo restore people/bob/f").stderr
        == "people/bob/f is not archived.\n"
    )


def test_bundle_jobs_are_told_of_created_and_archived_repositories(site: SelfserviceSite) -> None:
    spool = site.root / "pushed"
    site.ok("bob", "repo create people/bob/x")
    spool.mkdir()
    for command in ("create people/bob/y", "archive people/bob/x", "restore people/bob/x"):
        site.ok("bob", f"repo {command}")
        (marker,) = spool.iterdir()
        assert marker.name == command.split()[1].replace("/", "+")
        marker.unlink()


def test_a_repository_that_is_gone_from_disk_is_not_restored(site: SelfserviceSite) -> None:
    site.ok("bob", "repo create people/bob/x")
    site.ok("bob", "repo archive people/bob/x")
    (site.repos / "people/bob/x").rename(site.root / "elsewhere")
    assert "it has been deleted" in site.ssh_command("bob", "repo restore people/bob/x").stderr


def apply(site: SelfserviceSite, static: Registry) -> list[str]:
    said: list[str] = []
    target = provisioning.Target(
        root=site.repos,
        compiled=site.registry,
        manifests=Path(MANIFESTS),
        hgrc=site.hgrc,
        owner=Owner(os.geteuid(), os.getegid()),
        dynamic=site.dynamic,
    )
    changed = provisioning.apply(static, target, write=True, diff=False, report=said.append)
    return [*said, f"changed={changed}"]


def test_registry_apply_configures_repositories_that_people_created(site: SelfserviceSite) -> None:
    static = site.declare()
    apply(site, static)
    site.ok("bob", "repo create open/x")
    assert apply(site, static) == ["changed=0"]
    (site.repos / "open/x/.hg/hgrc").write_text("[hooks]\nx = y\n")
    assert apply(site, static) == ["open/x: .hg/hgrc written", "changed=1"]
    assert "path = open/x\n" in (site.repos / "open/x/.hg/hgrc").read_text()


def test_registry_apply_names_repositories_that_the_inventory_hides(site: SelfserviceSite) -> None:
    site.ok("bob", "repo create open/x")
    said = apply(site, site.declare(open__x=("Declared", Settings())))
    assert "open/x: created by a person, and open/x of the inventory hides it" in said
    assert "owner = " not in (site.repos / "open/x/.hg/hgrc").read_text()
    assert "open/x" in site.entries


def test_an_archived_repository_is_not_given_to_others_by_declaring_its_path(
    site: SelfserviceSite,
) -> None:
    site.ok("bob", "repo create open/x --read private")
    site.ok("bob", "repo archive open/x")
    with pytest.raises(HostError, match="bob has archived a repository there"):
        apply(site, site.declare(open__x=("Declared", Settings())))


def test_registry_apply_goes_on_without_a_damaged_dynamic_registry(site: SelfserviceSite) -> None:
    site.dynamic.write_text("half")
    said = apply(site, site.declare())
    assert any(line.startswith(f"{site.dynamic}: not a dynamic registry") for line in said)
    assert (site.repos / "hgfleet/.hg").is_dir()
