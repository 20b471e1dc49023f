"""The promises of the role release, on any host of the group release."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testinfra.host import Host


def test_current_release_is_complete_and_nobody_but_root_can_change_it(host: Host) -> None:
    release = host.check_output("readlink -f /opt/hgfleet/current")
    assert release.startswith("/opt/hgfleet/releases/")
    version = host.file(f"{release}/VERSION").content_string.strip()
    assert release.endswith(f"/{version}")
    changeable = host.check_output(
        "find -L %s ! -user root -o -perm /022 ! -type l | head -3", release
    )
    assert changeable == ""


def test_the_command_is_in_path_and_starts(host: Host) -> None:
    told = host.run("hgfleet --version")
    assert told.rc == 0, told.stderr
    assert told.stdout.startswith("hgfleet ")


def test_every_unit_of_ours_has_its_runbook_on_the_host(host: Host) -> None:
    """`systemctl help UNIT` opens the file that Documentation= names."""
    named = host.check_output(
        "grep -rhoP '^Documentation=file://\\K/opt/hgfleet/\\S+' /etc/systemd/system || true"
    )
    assert [path for path in named.split() if not host.file(path).is_file] == []


def test_a_release_that_was_interrupted_on_its_way_is_not_among_them(host: Host) -> None:
    for folder in host.check_output("ls /opt/hgfleet/releases").split():
        content = host.file(f"/opt/hgfleet/releases/{folder}/VERSION").content_string
        assert content.strip() == folder


def test_an_hgrc_of_the_release_before_finds_the_extensions_by_their_former_names(
    host: Host,
) -> None:
    """`current` moves before the play renders the new hgrc, and sessions begin in between."""
    links = host.check_output("find /opt/hgfleet/current/hgext -type l -printf '%f %l\\n'")
    assert dict(line.split() for line in links.splitlines()) == {
        "confine.py": "hardening.py",
        "demandlog.py": "getbundlelog.py",
        "pushed.py": "bundle_trigger.py",
        "steadystore.py": "pinned_store.py",
        "trialbundle.py": "bundle_verify.py",
    }
    broken = host.check_output("find -L /opt/hgfleet/current/hgext -type l")
    assert broken == ""
