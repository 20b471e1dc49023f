"""Paths of a host that several parts share. The roles use the same paths.

Texts, because programs that start at every login do without pathlib.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

REPOSITORIES: Final = "/srv/hg/repos"
COMPILED: Final = "/var/lib/hgfleet/registry.json"
DYNAMIC: Final = "/var/lib/hgfleet/dynamic/registry.json"
EPOCH: Final = "/var/lib/hgfleet-replication/epoch.json"
MANIFESTS: Final = "/var/lib/hgfleet/manifests"
PULL_BUNDLES: Final = "/var/lib/hgfleet/pullbundles"
HGRC: Final = "/etc/hgfleet/hgrc"
HG: Final = "/opt/hgfleet/current/bin/hg"
COUNTERS: Final = "/run/hgfleet-counters"
CA_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
