"""Processor time of a manifest request on a site with many published objects.

    python -m testing.bench.manifest            # 30,000 objects; with the bar
    python -m testing.bench.manifest --objects 1000 --requests 50

A request is `?cmd=clonebundles_manifest` to an hgweb of this process, which has answered before. It
includes hgweb, core's command, the settings, the health of endpoints, the findings about the
entries' objects, and the order for the client. Every second object is dead. The manifest has five
entries. The fastest request is compared with the bar (5 ms), since other work of the machine only
adds time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hgfleet.bundles.decide.manifest import Entry
from hgfleet.steering.order import Endpoint
from testing.integration.steering.site import REPOSITORY, SteeredSite
from testing.integration.support.store import NOW
from testing.integration.web.support import ask

BAR_SECONDS: Final = 0.005
ENTRIES: Final = 5
NEAR: Final = Endpoint("one", "https://one.example/bundles")


def prepared(folder: Path, objects: int) -> tuple[Any, list[str]]:
    """Return an hgweb with a manifest, and the URLs that a client should get."""
    site = SteeredSite(folder, "clonebundles_steer")
    site.steer([NEAR])
    urls = [f"{NEAR.url}/{number:06}/bundle.hg" for number in range(objects)]
    site.probed(NEAR.name, dead=dict.fromkeys(urls[::2], "the answer is 404"))
    named = urls[:: max(1, objects // ENTRIES)][:ENTRIES]
    site.publish(*(Entry(url, "zstd-v2", "0" * 64, 10, 3, NOW) for url in named))
    os.environ["HGRCPATH"] = str(site.hgrc)
    from mercurial import hgweb

    application = hgweb.hgweb(os.fsencode(site.path(REPOSITORY)))
    return application, [url for url in named if url not in urls[::2]]


def told(application: Any) -> list[str]:
    """Return the URLs in the answer to a request."""
    text = ask(application, "/", "cmd=clonebundles_manifest").text
    return [line.split(" ")[0] for line in text.splitlines()]


def main() -> int:
    """Measure and print; the exit code is 1 if the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=30_000)
    parser.add_argument("--requests", type=int, default=30)
    options = parser.parse_args()
    spent: list[float] = []
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        application, expected = prepared(Path(folder), options.objects)
        for _ in range(1 + options.requests):
            before = time.process_time()
            answer = told(application)
            spent.append(time.process_time() - before)
            if answer != expected:
                raise SystemExit(f"the client is told of {answer}, expected {expected}")
    first, *warm = spent
    is_held = min(warm) <= BAR_SECONDS
    print(f"objects    {options.objects:>9,}")
    print(f"first      {first * 1000:>9.1f} ms")
    print(f"least      {min(warm) * 1000:>9.1f} ms")
    print(f"median     {statistics.median(warm) * 1000:>9.1f} ms")
    print(f"bar        {BAR_SECONDS * 1000:>9.1f} ms: {'held' if is_held else 'MISSED'}")
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
