"""The site of production-small.example on blank machines, for tests and benchmarks of ./deploy."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from controller.cluster import settings
from testing.deploys.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NETWORKS: Final = {
    "deploys": 215,
    "bench": 216,
    "blank": 217,
    "mirrored": 218,
    "kills": 219,
    "before": 220,
}
"""The second number of each site's addresses, so that several sites can run at the same time."""


@contextlib.contextmanager
def small_site(folder: Path, kind: str, *, mirrors: bool = False) -> Iterator[Site]:
    """Yield the small site on blank machines, which are removed afterwards."""
    cluster = settings.load() or settings.ensure(running=False)
    network = cluster.network.replace("10.213.", f"10.{NETWORKS[kind]}.")
    site = Site.make("production-small.example", folder, f"{cluster.name}-{kind}", network)
    if mirrors:
        site.edit("hosts.yml", with_mirrors)
    try:
        site.start()
        yield site
    finally:
        site.machines.remove()


def with_mirrors(hosts: str) -> str:
    """Return the small site's hosts.yml with two mirrors, and a broker on the directory's host."""
    lines = hosts.replace("# broker1.example.org:", "ldap1.example.org:")
    commented = re.search(r" +# hgweb1\.example\.org:\n +#   base_address: \S+\.41\n", lines)
    assert commented, hosts
    first = commented[0].replace("# ", "", 1).replace("#   ", "  ")
    second = first.replace("hgweb1", "hgweb2").replace(".41\n", ".42\n")
    return lines.replace(commented[0], first + second)
