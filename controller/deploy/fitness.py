"""Whether hosts can take a deploy: system, sudo, clock, disk, names. Pure.

`machine.py` looks at a host; `internal/state.yml` runs it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSTEM = "debian 13"
"""The ID and VERSION_ID of the hosts' /etc/os-release."""

CLOCK_SECONDS = 30.0
"""The most seconds between the clocks of a host and the controller, the way to the host included.

Certificates made by the controller begin at its time, and brokers compare leases with theirs.
"""

FREE_BYTES = 1 << 30
"""The least free space: packages take some 500 MB, a release 150 MB while it is unpacked."""


class Machine(NamedTuple):
    """A host as it is: OS, seconds that its clock is ahead, free bytes by folder, wrong names."""

    system: str
    clock_seconds: float
    free_bytes: Mapping[str, int]
    unresolved: Sequence[str]


def problems(machine: Machine, sudo: str) -> list[str]:
    """Return a sentence for each reason why the host cannot take a deploy.

    `sudo` is the reason why no command can be run as root, empty if a command ran.
    """
    sentences = []
    if sudo:
        sentences.append(
            f"no command runs as root ({sudo}): let the account use sudo, and name the file with"
            " its password in ANSIBLE_BECOME_PASSWORD_FILE"
        )
    if machine.system != SYSTEM:
        sentences.append(f"its system is {machine.system or 'unknown'}, expected {SYSTEM}")
    if abs(machine.clock_seconds) > CLOCK_SECONDS:
        side = "ahead of" if machine.clock_seconds > 0 else "behind"
        sentences.append(
            f"its clock is {abs(machine.clock_seconds):.0f} s {side} the controller's: set it, and"
            " keep it right (systemd-timesyncd or chrony)"
        )
    sentences += [
        f"{folder} has {free >> 20} MiB free, expected {FREE_BYTES >> 20} MiB"
        for folder, free in machine.free_bytes.items()
        if free < FREE_BYTES
    ]
    if machine.unresolved:
        sentences.append(f"no address for {', '.join(machine.unresolved)}: DNS, or its /etc/hosts")
    return sentences


def parse(data: Mapping[str, Any]) -> Machine:
    """Read what a host printed; raises KeyError, TypeError or ValueError for anything else."""
    return Machine(
        str(data["system"]),
        float(data["clock_seconds"]),
        {str(folder): int(free) for folder, free in data["free_bytes"].items()},
        [str(name) for name in data["unresolved"]],
    )
