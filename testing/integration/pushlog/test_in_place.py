"""A running repository brought back to an earlier state (`hgfleet.backup.restores.in_place`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from testing.integration.support.hostile_settings import HostileSettings
from testing.integration.support.site import TOP, environment

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.pushlog.site import PushlogSite

TAKE = """\
import json, sys
from pathlib import Path
from hgfleet.backup.restores.in_place import take
found = take(*map(Path, sys.argv[1:4]), "root", json.loads(sys.argv[4]))
print(len(found.missing), len(found.extra))
"""


def take(site: PushlogSite, copy: Path, *, code: int = 0) -> str:
    """Give the running repository the state of the copy, in a process as the command's."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", TAKE, site.path("server"), copy, site.hgrc),
            json.dumps({"hgfleet": {"path": "server", "read": "public", "push": "staff"}}),
        ],
        env=environment(site.hgrc) | {"PATH": os.environ["PATH"]},
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def copied(site: PushlogSite) -> Path:
    """Return a copy of the running repository, as a restore makes it."""
    target = site.repos / ".restore/server@now"
    shutil.copytree(site.path("server"), target)
    return target


def nodes(site: PushlogSite) -> list[str]:
    return site.server("log", "-T", "{node}\n", "--hidden").split()


def test_later_pushes_are_removed_and_recorded_and_stay_in_a_bundle(site: PushlogSite) -> None:
    first = site.change()
    site.at_work("bookmark", "-r", first, "good")
    site.push("-B", "good")
    copy = copied(site)
    second = site.change(text="two\n")
    site.at_work("bookmark", "-f", "-r", second, "good", "new")
    site.push("-B", "good", "-B", "new")
    assert nodes(site) == [second, first]

    assert take(site, copy).split() == ["0", "1"]

    assert nodes(site) == [first]
    assert site.server("bookmarks", "-T", "{bookmark} {node}\n") == f"good {first}\n"
    # The chain goes on, so mirrors follow.
    *_, marks, gone = site.records()
    assert (marks.kind, marks.user, len(marks.bookmarks)) == ("push", "operator:root", 2)
    assert (gone.kind, gone.user, gone.changesets) == ("strip", "operator:root", (second,))
    bundles = list((site.path("server") / ".hg/strip-backup").iterdir())
    assert len(bundles) == 1
    assert site.server("incoming", "-q", "-T", "{node}", bundles[0]) == second
    # The push can come again.
    site.push("-B", "good")
    assert nodes(site) == [second, first]


def test_no_setting_in_the_repository_is_followed(site: PushlogSite, tmp_path: Path) -> None:
    """The process began as root, and has read the credentials of the backup."""
    site.change()
    site.push()
    copy = copied(site)
    site.change(text="two\n")
    site.push()
    hostile = HostileSettings(tmp_path, site.path("server"))
    assert take(site, copy).split() == ["0", "1"]
    assert hostile.followed() == []
    assert [record.kind for record in site.records()][-1] == "strip"


def test_lost_changesets_come_back_with_their_phases(site: PushlogSite) -> None:
    site.configure("server", publishing=False)
    base = site.change("base")
    site.push()
    site.server("phase", "--public", base)
    left = site.change("left")
    site.at_work("update", base)
    right = site.change("right")
    site.push("--force")
    copy = copied(site)
    site.server("debugstrip", left, right)
    assert nodes(site) == [base]

    assert take(site, copy).split() == ["2", "0"]

    assert set(nodes(site)) == {base, left, right}
    phases = site.server("log", "-T", "{node} {phase}\n").splitlines()
    assert sorted(phases) == sorted([f"{base} public", f"{left} draft", f"{right} draft"])
    assert [record.kind for record in site.records()][-2:] == ["strip", "push"]
    site.server("verify", "-q")


def test_a_repository_with_another_history_gets_that_of_the_copy(site: PushlogSite) -> None:
    good = site.change()
    site.push()
    copy = copied(site)
    site.server("debugstrip", good)
    (site.work / "other").write_text("other")
    site.at_work("update", "null")
    other = site.change("other")
    site.push("--force", "-r", other)

    assert take(site, copy).split() == ["1", "1"]

    assert nodes(site) == [good]
    assert take(site, copy).split() == ["0", "0"]


def test_a_marker_that_hides_a_changeset_of_the_copy_is_told(site: PushlogSite) -> None:
    site.configure("server", publishing=False)
    site.change()
    second = site.change(text="two\n")
    site.push()
    copy = copied(site)
    site.server("debugobsolete", second)

    said = take(site, copy, code=1)

    assert "it has other visible heads than the restored copy" in said
    assert copy.is_dir()
