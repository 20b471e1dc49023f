"""Units that run files which an update has replaced."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from hgfleet.monitoring import cli, facts, outdated_units
from hgfleet.monitoring.outdated_units import Outdated

SSL = "/usr/lib/x86_64-linux-gnu/libssl.so.3"


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (f"7f0-7f1 r-xp 00000000 fe:01 12   {SSL} (deleted)", SSL),
        ("7f0-7f1 r-xp 0 fe:01 12 /usr/sbin/nginx (deleted)", "/usr/sbin/nginx"),
        (
            "7f0-7f1 r-xp 0 fe:01 12 /opt/hgfleet/releases/1/lib/x.so (deleted)",
            "/opt/hgfleet/releases/1/lib/x.so",
        ),
        # Data, a file that is there, and memory that was never a file of a package.
        (f"7f0-7f1 r--p 0 fe:01 12 {SSL} (deleted)", None),
        (f"7f0-7f1 r-xp 0 fe:01 12 {SSL}", None),
        ("7f0-7f1 rwxp 0 00:01 12 /memfd:jit (deleted)", None),
        ("7f0-7f1 r-xp 0 00:01 12 /tmp/x.so (deleted)", None),
    ],
)
def test_a_process_is_outdated_by_what_it_executes(line: str, path: str | None) -> None:
    assert outdated_units.replaced(f"400-401 r-xp 0 fe:01 1 /usr/bin/x\n{line}\n") == path


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/hgfleet-web.service\n", "hgfleet-web.service"),
        ("0::/system.slice/system-getty.slice/getty@tty1.service/x\n", "getty@tty1.service"),
        ("1:name=systemd:/init.scope\n0::/init.scope\n", "init.scope"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", None),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/dbus.service\n", None),
        ("0::/\n", None),
    ],
)
def test_the_unit_of_a_process_is_in_its_group(cgroup: str, unit: str | None) -> None:
    assert outdated_units.unit_of(cgroup) == unit


def test_outdated_units_are_written_for_the_metrics(tmp_path: Path) -> None:
    for number, unit, path in (
        ("7", "nginx.service", f"{SSL} (deleted)"),
        ("8", "nginx.service", "/usr/sbin/nginx (deleted)"),
        ("9", "slapd.service", SSL),
    ):
        folder = tmp_path / "proc" / number
        folder.mkdir(parents=True)
        (folder / "maps").write_text(f"7f0-7f1 r-xp 0 fe:01 12 {path}\n")
        (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
    # A process that has ended.
    (tmp_path / "proc/10").mkdir()
    outdated = outdated_units.read(tmp_path / "proc")
    assert outdated == Outdated({"nginx.service": SSL})
    file = tmp_path / facts.OUTDATED
    file.parent.mkdir(parents=True)
    outdated_units.write(file, outdated)
    assert facts.read(tmp_path, 0.0).outdated == outdated.units
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert set(json.loads(file.read_text())) == {"looked", "units", "unseen"}


def test_this_process_runs_what_is_there() -> None:
    assert outdated_units.replaced(Path(f"/proc/{os.getpid()}/maps").read_text()) is None
    assert cli.outdated_lines(Outdated({"nginx.service": SSL})) == [f"nginx.service: {SSL}"]
    none, unseen = cli.outdated_lines(Outdated({}, 3))
    assert none == "no unit runs a file that an update has replaced"
    assert unseen.startswith("3 processes were not shown")


def test_a_process_that_the_kernel_does_not_show_is_counted() -> None:
    class Folder:
        """A folder of processes whose maps only another user may read."""

        def glob(self, _pattern: str) -> list[Folder]:
            return [self]

        def __truediv__(self, _name: str) -> Folder:
            return self

        def read_text(self, *_: str) -> str:
            raise PermissionError(13, "Permission denied")

    assert outdated_units.read(Folder()) == Outdated({}, 1)  # type: ignore[arg-type]
