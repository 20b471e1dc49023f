"""Packages of Debian that wait on a host, and why it has to restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path

packages = loading.module("ansible/on_host/packages.py")

SIMULATED = """\
NOTE: This is only a simulation!
The following packages will be upgraded:
  libssl3t64 tzdata
Inst libssl3t64 [3.5.1-1] (3.5.1-1+deb13u1 Debian-Security:13/stable-security [amd64])
Inst tzdata [2025b-4] (2025b-4+deb13u1 Debian:13.2/stable [all])
Inst linux-image-6.12.57+deb13-amd64 (6.12.57-1 Debian-Security:13/stable-security [amd64]) []
Conf libssl3t64 (3.5.1-1+deb13u1 Debian-Security:13/stable-security [amd64])
"""


def test_packages_are_those_that_apt_would_install() -> None:
    upgrades = packages.upgrades(SIMULATED)
    assert [
        (package["name"], package["old"], package["new"], package["security"])
        for package in upgrades
    ] == [
        ("libssl3t64", "3.5.1-1", "3.5.1-1+deb13u1", True),
        ("tzdata", "2025b-4", "2025b-4+deb13u1", False),
        ("linux-image-6.12.57+deb13-amd64", "", "6.12.57-1", True),
    ]
    assert packages.expected(upgrades) == ["linux-image-6.12.57+deb13-amd64 will be installed"]
    assert packages.expected(upgrades[:2]) == []


def test_a_host_restarts_for_a_package_a_kernel_or_replaced_files() -> None:
    old, new = "6.12.9+deb13-amd64", "6.12.57+deb13-amd64"
    assert packages.reasons(None, old, [old], {}) == []
    assert packages.reasons(["libc6", "libc6"], old, [old], {}) == ["libc6 asks for it"]
    assert packages.reasons([], old, [old], {}) == ["a package asks for it"]
    (kernel,) = packages.reasons(None, old, [old, new], {})
    assert kernel == f"the kernel {new} is installed, and {old} runs"
    assert packages.reasons(None, new, [old, new], {}) == []
    replaced = dict.fromkeys("abcdef", "/usr/lib/libx.so")
    assert packages.reasons(None, old, [], replaced) == [
        "replaced files are in use by a, b, c, d, e, ..."
    ]


def test_a_kernel_from_elsewhere_or_of_another_flavour_is_no_reason() -> None:
    assert packages.reasons(None, "6.1.0-host", ["6.12.57+deb13-amd64"], {}) == []
    cloud = "6.12.9+deb13-cloud-amd64"
    assert packages.reasons(None, cloud, [cloud, "6.12.57+deb13-amd64"], {}) == []


def test_programs_on_replaced_files_are_found_by_what_they_execute(tmp_path: Path) -> None:
    for number, name, line in (
        (
            "1",
            "systemd",
            "7f0-7f1 r-xp 0 fe:01 12  /usr/lib/x86_64-linux-gnu/libssl.so.3 (deleted)",
        ),
        ("2", "hg", "7f0-7f1 rw-p 0 00:01 12  /dev/zero (deleted)"),
        ("3", "python3", "7f0-7f1 r-xp 0 fe:01 12  /opt/hgfleet/releases/x/lib/y.so (deleted)"),
        ("4", "slapd", "7f0-7f1 r--p 0 fe:01 12  /usr/share/locale/x (deleted)"),
        ("5", "sshd", "7f0-7f1 r-xp 0 fe:01 12  /usr/lib/libc.so.6"),
    ):
        (tmp_path / number).mkdir()
        (tmp_path / number / "maps").write_text(f"{line}\n")
        (tmp_path / number / "comm").write_text(f"{name}\n")
    (tmp_path / "6").mkdir()
    files = packages.replaced_files(tmp_path)
    assert files == {"systemd": "/usr/lib/x86_64-linux-gnu/libssl.so.3"}
