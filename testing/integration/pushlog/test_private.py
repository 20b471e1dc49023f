"""The push log stays on its host: no client, bundle or fork gets it, and no upgrade changes it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from testing.integration.pushlog.site import KEY, OPERATOR

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.pushlog.site import PushlogSite

PRIVATE = (KEY.encode(), b"192.0.2.7", b'"previous"')
"""Parts of a record that are nowhere else in a repository."""


@pytest.fixture
def pushed(site: PushlogSite) -> PushlogSite:
    """A host with two pushes."""
    for text in ("one\n", "two\n"):
        site.change(text=text)
        site.push()
    with pytest.raises(AssertionError):
        assert_private(site.path("server"))
    return site


def assert_private(place: Path) -> None:
    files = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
    assert files
    for path in files:
        assert path.name != "pushlog"
        content = path.read_bytes()
        assert not any(part in content for part in PRIVATE), path


@pytest.mark.parametrize("how", [(), ("--stream",), ("--pull",), ("-U", "--uncompressed")])
def test_no_clone_over_ssh_has_the_log(pushed: PushlogSite, how: tuple[str, ...]) -> None:
    pushed.client("clone", *how, pushed.url("server"), pushed.root / "clone")
    assert_private(pushed.root / "clone")


def test_a_local_copy_has_no_log(pushed: PushlogSite) -> None:
    pushed.hg("clone", "-U", pushed.path("server"), pushed.root / "clone", **OPERATOR)
    assert_private(pushed.root / "clone")


@pytest.mark.parametrize("type_", ["none-v2", "zstd-v2", "none-packed1", "none-streamv2"])
def test_no_bundle_has_the_log(pushed: PushlogSite, type_: str) -> None:
    bundle = pushed.root / "bundle.hg"
    # Bundles of uncompressed types show their content.
    if type_ == "none-packed1":
        pushed.server("debugcreatestreamclonebundle", bundle)
    else:
        pushed.server("bundle", "--all", "--type", type_, bundle)
    assert_private(bundle)


def test_a_fork_begins_a_chain_of_its_own(pushed: PushlogSite) -> None:
    pushed.hg("clone", "--pull", "-U", pushed.path("server"), pushed.path("fork"), **OPERATOR)
    pushed.configure("fork")
    assert not pushed.log("fork").exists()
    pushed.change(text="three\n")
    pushed.at_work("push", pushed.url("fork"))
    adoption, push = pushed.records("fork")
    assert (adoption.kind, push.kind, push.id) == ("adoption", "push", 2)
    assert adoption.repository not in {record.repository for record in pushed.records()}


def test_a_storage_upgrade_keeps_the_log_byte_for_byte(pushed: PushlogSite) -> None:
    old = ("--config", "format.revlog-compression=zlib")
    place = pushed.path("old")
    pushed.hg("clone", "--pull", "-U", *old, pushed.path("server"), place, **OPERATOR)
    pushed.configure("old")
    pushed.change(text="three\n")
    pushed.at_work("push", pushed.url("old"))
    content, store = pushed.log("old").read_bytes(), pushed.log("old").parent
    before = store.stat().st_ino
    done = subprocess.run(
        [sys.executable, "-m", "hgfleet.storage.worker", "upgrade", place, "", "no", ""],
        env=pushed.environment(HGFLEET_USER="operator:storage-upgrade"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"changed": true' in done.stdout
    assert store.stat().st_ino != before
    assert pushed.log("old").read_bytes() == content
    pushed.change(text="four\n")
    pushed.at_work("push", pushed.url("old"))
    assert [record.id for record in pushed.records("old")] == [1, 2, 3]
