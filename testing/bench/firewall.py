"""Access to a benchmark's own servers on a host of the cluster, whose firewall refuses them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.host import Host

TABLE: Final = ("inet", "hgfleet")


@contextlib.contextmanager
def opened(host: Host, *ports: int) -> Iterator[None]:
    """Accept connections on these ports until the block ends; then restore the kept rules.

    On a host without a firewall they are open anyway.
    """
    if host.run("nft", "list", "table", *TABLE).code != 0:
        yield
        return
    listed = ", ".join(str(port) for port in ports)
    rule = f"insert rule {' '.join(TABLE)} input tcp dport {{ {listed} }} accept"
    # The watch over the firewall leaves rules that its program added.
    host.run("hgfleet-firewall", "add", rule).ok()
    try:
        yield
    finally:
        host.systemctl("reload", "hgfleet-firewall.service").ok()
