"""Server CPU of the wire command getbundle in process, without the start of a process.

    python -m testing.bench.pull_getbundle REPOSITORY yes|no ROUNDS COMMON

Prints the median of the rounds in seconds, and the changesets of the answer. `yes` answers with
pull bundles, `no` without, and an answer of the other kind is an error; COMMON are the heads of the
client, comma-separated. HGRCPATH has the extensions, as for a server. The answer is compressed as
for a client over HTTP. Each round first opens the repository again, before its CPU is counted:
caches of an earlier answer would make later answers cheap.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any

from mercurial import bundle2, changegroup, exchange, extensions, hg, node, util
from mercurial import ui as uimod
from mercurial import wireprotov1server as server

from hgfleet.admission import prepared

if TYPE_CHECKING:
    from hgfleet.admission.prepared import Prepared


class _Http:
    """The part of a request over HTTP that getbundle uses."""

    name = b"http-v1"

    def getprotocaps(self) -> set[bytes]:
        return {b"partial-pull"}


def answer(repo: Any, common: list[bytes]) -> tuple[float, int]:
    """Return the CPU of an answer in seconds, and the number of its changesets."""
    asked = {
        b"heads": b" ".join(map(node.hex, repo.changelog.heads())),
        b"common": b" ".join(common),
        b"bundlecaps": b",".join(sorted(exchange.caps20to10(repo, role=b"client"))),
        b"phases": b"1",
        b"bookmarks": b"1",
        b"cg": b"1",
        b"cbattempted": b"0",
    }
    engine = util.compengines[b"zstd"]
    options = {b"level": repo.ui.configint(b"server", b"zstdlevel")}
    started = time.process_time()
    chunks = [*server.getbundle(repo, _Http(), asked).gen]
    for _ in engine.compressstream(iter(chunks), options):
        pass
    return time.process_time() - started, changesets(repo.ui, b"".join(chunks))


def changesets(ui: Any, data: bytes) -> int:
    """Count the changesets of an answer."""
    for part in bundle2.getunbundler(ui, BytesIO(data)).iterparts():
        if part.type == b"changegroup":
            unbundler = changegroup.getunbundler(part.params[b"version"], part, None)
            unbundler.changelogheader()
            return sum(1 for _ in unbundler.deltaiter())
    return 0


def main() -> None:
    """Measure a number of answers."""
    path, switch, rounds, common = sys.argv[1:]
    ui = uimod.ui.load()
    ui.setconfig(b"hgfleet", b"pullbundles", switch.encode("ascii"), b"bench")
    extensions.loadall(ui)
    extensions.populateui(ui)
    from_disk: list[bool] = []
    put = prepared.put

    def noted(answer: Prepared | None) -> None:
        from_disk.append(answer is not None)
        put(answer)

    prepared.put = noted
    measured = []
    for _ in range(int(rounds)):
        repo = hg.repository(ui, os.fsencode(path)).filtered(b"served")
        repo.changelog.heads()
        measured.append(answer(repo, common.encode("ascii").split(b",")))
    assert any(from_disk) is (switch == "yes"), "answered the other way"
    (count,) = {count for _, count in measured}
    print(statistics.median(cpu for cpu, _ in measured), count)


if __name__ == "__main__":
    main()
