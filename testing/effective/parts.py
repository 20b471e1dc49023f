"""The parts of a host, and the read-only commands whose output is its effective configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from testing.effective import clean

if TYPE_CHECKING:
    from collections.abc import Callable

UNIT_PROPERTIES: Final = (
    *("User", "Group", "SupplementaryGroups", "DynamicUser", "UMask"),
    *("CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges"),
    *("ProtectSystem", "ProtectHome", "ProtectProc", "ProcSubset", "ProtectClock"),
    *("ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"),
    *("ProtectKernelTunables", "PrivateDevices", "PrivateNetwork", "PrivateTmp", "PrivateUsers"),
    *("RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
    *("LockPersonality", "MemoryDenyWriteExecute", "RemoveIPC", "SystemCallArchitectures"),
    *("ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "StateDirectory"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "Delegate", "MemoryMax"),
    *("IPAddressAllow", "IPAddressDeny", "KillMode", "Restart", "UnitFileState"),
)
"""Whom a unit runs as and what it may touch. `SystemCallFilter` is the list of every call there;
limits that a unit does not set come from the machine. Both are in the unit's own text."""

_UNITS: Final = rf"""
systemctl list-unit-files --no-legend --plain --type=service,socket,timer,path \
    'hgfleet-*' 'prometheus*' | sort |
while read -r unit rest; do
    case $unit in *@.*) continue ;; esac
    echo "=== $unit"
    systemctl show --property={",".join(UNIT_PROPERTIES)} "$unit" | sort
done
"""


@dataclass(frozen=True)
class Part:
    """A part: a script for the hosts of a group, and the way to clean its output."""

    group: str
    script: str
    cleaned: Callable[[str], str] = str.strip


PARTS: Final = {
    "sshd": Part("ssh", "/usr/sbin/sshd -T -f /etc/hgfleet/sshd_config | sort"),
    # The second command is for a break-glass account, which has a Match block of its own.
    "sshd-administrators": Part(
        "ssh",
        "/usr/sbin/sshd -T | sort; echo; echo '=== for the user breakglass'; "
        "/usr/sbin/sshd -T -C user=breakglass,host=client,addr=192.0.2.1 | sort",
        clean.differing_sections,
    ),
    "firewall": Part("all", "nft --stateless --terse list ruleset 2>/dev/null", clean.own_tables),
    "directory": Part("directory", "slapcat -n 0 -o ldif-wrap=no", clean.ldif),
    "replica": Part(
        "ssh",
        "[ ! -d /etc/ldap/slapd.d ] || slapcat -n 0 -o ldif-wrap=no",
        clean.ldif,
    ),
    "hg": Part(
        "mercurial",
        "HGPLAIN=1 HGRCPATH=/etc/hgfleet/hgrc /opt/hgfleet/current/bin/hg config --exp-all-known"
        " | sort",
        clean.of_any_machine,
    ),
    "units": Part("all", _UNITS, clean.without_shares_of_memory),
}
