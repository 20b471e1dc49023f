"""Debian's packages that wait on this host, and why it has to restart: prints a line of JSON.

Runs on a host (`playbooks/upgrade-os.yml`) as root, and uses nothing but Python's own modules. It
changes nothing. A restart brings all programs to the files of the packages at once; it is needed

- if a package says so (/run/reboot-required),
- if a newer kernel than the running kernel is installed,
- if programs run on files that an upgrade replaced, such as a library or systemd itself.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REQUIRED = Path("/run/reboot-required")
SIMULATE = ("/usr/bin/apt-get", "--simulate", "--quiet", "--with-new-pkgs", "upgrade")

SECURITY = "-security"
"""In the name of the archive of a package, such as Debian-Security:13/stable-security."""

# Inst libssl3t64 [3.5.1-1] (3.5.1-1+deb13u1 Debian-Security:13/stable-security [amd64])
_INST = re.compile(r"Inst (?P<name>\S+) (?:\[(?P<old>\S+)\] )?\((?P<new>\S+) (?P<archive>[^\[)]*)")
_KERNEL = re.compile(r"linux-image-\d")
# In /proc/PID/maps: 7f0c1000-7f0c2000 r-xp 00000000 fe:01 1234   /usr/lib/.../libssl.so.3 (deleted)
_REPLACED = re.compile(
    r"^\S+ ..x. .* (?P<path>/(?:usr|lib|lib64|bin|sbin)/\S+) \(deleted\)$", re.MULTILINE
)
_FLAVOUR = re.compile(r"-[a-z].*$")


def upgrades(simulated: str) -> list[dict[str, object]]:
    """Return the packages that apt-get would install, in its order."""
    return [
        {
            "name": match["name"],
            "old": match["old"] or "",
            "new": match["new"],
            "security": SECURITY in match["archive"],
        }
        for match in map(_INST.match, simulated.splitlines())
        if match
    ]


def newest(kernels: Iterable[str]) -> str:
    """Return the newest of several releases of a kernel."""

    def key(release: str) -> list[tuple[int, int | str]]:
        words = re.findall(r"\d+|[^\d]+", release)
        return [(0, int(word)) if word.isdigit() else (1, word) for word in words]

    return max(kernels, key=key)


def _flavour(release: str) -> str:
    """Return the end of a release, such as -cloud-amd64."""
    match = _FLAVOUR.search(release)
    return match[0] if match else ""


def reasons(
    required: Iterable[str] | None,
    running: str,
    installed: Iterable[str],
    replaced: Mapping[str, str],
) -> list[str]:
    """Return why a host has to restart, empty if it does not.

    `required` are the packages that ask for it, None without a request. `running` and `installed`
    are releases of kernels; a running kernel that is not installed comes from elsewhere. `replaced`
    has a replaced file of each program.
    """
    sentences = []
    if required is not None:
        sentences.append(f"{', '.join(sorted(set(required))) or 'a package'} asks for it")
    same = {kernel for kernel in installed if _flavour(kernel) == _flavour(running)}
    if running in same and newest(same) != running:
        sentences.append(f"the kernel {newest(same)} is installed, and {running} runs")
    if replaced:
        programs = ", ".join(sorted(replaced)[:5]) + (", ..." if len(replaced) > 5 else "")
        sentences.append(f"replaced files are in use by {programs}")
    return sentences


def expected(waiting: Iterable[Mapping[str, object]]) -> list[str]:
    """Return why a host is sure to restart after an upgrade to these packages."""
    kernels = [name for name in (str(each["name"]) for each in waiting) if _KERNEL.match(name)]
    return [f"{', '.join(kernels)} will be installed"] if kernels else []


def replaced_files(processes: Path) -> dict[str, str]:
    """Return the programs that execute a deleted file, each with such a file."""
    by_program = {}
    for folder in processes.glob("[0-9]*"):
        try:
            match = _REPLACED.search((folder / "maps").read_text("utf-8", "replace"))
            if match:
                by_program[(folder / "comm").read_text().strip()] = match["path"]
        except OSError:
            # It has ended.
            continue
    return by_program


def state() -> dict[str, object]:
    """Look at this host."""
    env = {**os.environ, "LC_ALL": "C"}
    simulated = subprocess.run(SIMULATE, capture_output=True, text=True, env=env, check=True)
    waiting = upgrades(simulated.stdout)
    packages = REQUIRED.with_suffix(".pkgs")
    asked = packages.read_text().split() if packages.is_file() else []
    installed = [path.name.removeprefix("vmlinuz-") for path in Path("/boot").glob("vmlinuz-*")]
    now = reasons(
        asked if REQUIRED.exists() else None,
        platform.release(),
        installed,
        replaced_files(Path("/proc")),
    )
    return {"packages": waiting, "restart": now, "after": expected(waiting)}


if __name__ == "__main__":
    print(json.dumps(state()))
