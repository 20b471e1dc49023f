"""`hgfleet replication` on a mirror, against the source of its primary."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.replication.mirror.verify import Finding, Verification
from testing.integration.support.hosts import Authority, Host, Primary, client
from testing.integration.support.site import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATHS = ("a", "team/tool")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def _identity(path: str) -> str:
    return f"{PATHS.index(path) + 1:032x}"


@pytest.fixture
def primary(tmp_path: Path, authority: Authority) -> Primary:
    made = Primary(tmp_path / "hg1", authority)
    made.declare(*PATHS)
    for path in PATHS:
        made.create(path)
        made.identify(path, _identity(path))
        made.push(path, "one")
        made.push(path, "two")
        made.hg_in(path, "phase", "--public", "all()")
    return made


@pytest.fixture
def mirror(tmp_path: Path, authority: Authority, primary: Primary) -> Iterator[Host]:
    """A mirror with copies of all repositories."""
    with primary.serving() as url:
        made = Host(tmp_path / "hgweb1", "hgweb1", authority, url)
        for path in PATHS:
            made.hg("clone", "--noupdate", "--pull", primary.path(path), made.path(path))
            made.log(path).write_bytes(primary.log(path).read_bytes())
            made.identify(path, _identity(path))
        made.declare(*PATHS)
        yield made


def _findings(mirror: Host, patience: float = 0.0) -> dict[str, Finding]:
    source = client(mirror, mirror.settings.source)
    results = Verification(mirror.settings, source).run((), lambda _: None, patience)
    return {result.path: result.finding for result in results}


def test_copies_are_equal(mirror: Host) -> None:
    assert _findings(mirror) == dict.fromkeys(PATHS, Finding.EQUAL)


def test_a_mirror_that_misses_a_record_is_behind(primary: Primary, mirror: Host) -> None:
    primary.push("a", "three")
    assert _findings(mirror) == {"a": Finding.BEHIND, "team/tool": Finding.EQUAL}


def test_a_bookmark_of_the_mirror_alone_is_a_difference(mirror: Host) -> None:
    mirror.hg_in("a", "bookmark", "--rev", "tip", "stray")
    assert _findings(mirror) == {"a": Finding.DIFFERENT, "team/tool": Finding.EQUAL}


def test_a_changed_record_is_damage(mirror: Host) -> None:
    log = mirror.log("a")
    log.write_bytes(log.read_bytes().replace(b"alice", b"carol", 1))
    assert _findings(mirror)["a"] is Finding.DAMAGED


def test_a_damaged_store_is_damage(mirror: Host) -> None:
    (mirror.path("a") / ".hg/store/00changelog.i").write_bytes(b"\0" * 8)
    assert _findings(mirror)["a"] is Finding.DAMAGED


def test_changesets_that_both_hosts_lost_are_damage(primary: Primary, mirror: Host) -> None:
    for host in (primary, mirror):
        host.hg_in("a", "strip", "--no-backup", "--config", "phases.publish=no", "tip")
    assert _findings(mirror)["a"] is Finding.DAMAGED


def test_a_missing_repository_is_named(mirror: Host) -> None:
    mirror.path("a").rename(mirror.root / "away")
    assert _findings(mirror)["a"] is Finding.MISSING


def test_a_repository_that_is_elsewhere_on_a_mirror_is_compared_there(mirror: Host) -> None:
    mirror.path("a").rename(mirror.path("b"))
    mirror.declare("b", "team/tool")
    with dynamic_update.update(mirror.dynamic) as entries:
        entries.note_identity("b", _identity("a"))
    assert _findings(mirror) == dict.fromkeys(PATHS, Finding.EQUAL)


def test_a_folder_of_another_repository_is_a_difference(mirror: Host) -> None:
    (mirror.path("a") / identity.FILE).write_text(identity.text("5f" * 16))
    assert _findings(mirror)["a"] is Finding.DIFFERENT


# --- the commands -------------------------------------------------------------------------------


def _run(mirror: Host, *words: str, code: int = 0) -> str:
    """Run the command on a mirror to this exit code; return its output."""
    settings = mirror.settings
    program = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from pathlib import Path\n"
        "from hgfleet import cli\n"
        "from hgfleet.replication import commands as replication\n"
        "from hgfleet.replication.protocol import settings as made\n"
        "names = ('repositories', 'compiled', 'dynamic', 'manifests', 'pull_bundles', 'hg',\n"
        "         'hgrc', 'certificate', 'key', 'ca', 'state')\n"
        "original = replication.load\n"
        "def load(path):\n"
        "    found = dict(zip(names, map(Path, sys.argv[1:len(names) + 1])))\n"
        "    return replace(original(path), **found)\n"
        "replication.load = load\n"
        "sys.exit(cli.main(sys.argv[len(names) + 1:]))\n"
    )
    places = (
        settings.repositories,
        settings.compiled,
        settings.dynamic,
        settings.manifests,
        settings.pull_bundles,
        settings.hg,
        settings.hgrc,
        settings.certificate,
        settings.key,
        settings.ca,
        settings.state,
    )
    config = mirror.root / "replication.toml"
    config.write_text(
        f'role = "{settings.role}"\nhost = "{settings.host}"\nprimary = "hg1"\n'
        f'source = "{settings.source}"\nbrokers = ["tls://broker1:4222"]\n'
        'mirrors = ["hgweb1", "hgweb2"]\n'
    )
    command = ["replication", "--config", str(config), *words]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, places), *command],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_verify_tells_what_differs_and_resync_repairs_it(mirror: Host) -> None:
    mirror.hg_in("a", "bookmark", "--rev", "tip", "stray")
    said = _run(mirror, "verify", "--format", "text", code=65)
    assert "a: different: differs at record 2 in bookmarks" in said
    assert "1 of 2 repositories are equal, 0 behind, 1 wrong" in said
    ca = str(mirror.settings.ca)
    said = _run(mirror, "resync", "--format", "text", "--certificates", ca, "a")
    assert "at record 2" in said
    assert "2 of 2 repositories are equal" in _run(mirror, "verify", "--format", "text")


def test_lag_names_the_repositories_that_are_behind(primary: Primary, mirror: Host) -> None:
    assert "every record" in _run(mirror, "lag")
    primary.push("a", "three")
    assert "a: 1 records behind, for " in _run(mirror, "lag", code=75)


def test_status_shows_the_state_of_the_applier(mirror: Host) -> None:
    assert "the daemon of replication writes it" in _run(mirror, "status", code=69)
    (mirror.settings.state / "state.json").write_text(
        '{"role":"mirror","caught_up":true,"lease_until":9e9,"waiting":0,"parked":{"a":"poison"}}'
    )
    assert "a: parked: poison" in _run(mirror, "status", code=65)


def test_a_path_that_no_repository_has_is_refused(mirror: Host) -> None:
    assert "expected a path" in _run(mirror, "resync", "../a", code=2)
    said = _run(mirror, "resync", "--format", "text", "no/such", code=2)
    assert "no repository in service has this path" in said
