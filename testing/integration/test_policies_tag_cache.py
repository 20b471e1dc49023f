"""A push finds the tags of all heads in core's cache, which an earlier push brought up to date."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from testing.integration.test_unknown_changesets import Served, bundle

if TYPE_CHECKING:
    from pathlib import Path


def test_the_heads_of_the_beginning_are_kept_in_the_cache(tmp_path: Path) -> None:
    served = Served(tmp_path)
    repository = str(served.path)
    (served.path / ".hgtags").write_text(f"{served.tip.decode()} v1\n")
    served.hg("-R", repository, "commit", "-A", "-q", "-m", "tagged", "-u", "alice")
    tagged = bytes.fromhex(served.log("tip").decode())
    hgrc = served.path / ".hg/hgrc"
    hgrc.write_text(hgrc.read_text() + 'rules = [{"tags": ["v*"], "push": ["release"]}]\n')
    cache = served.path / ".hg/cache/hgtagsfnodes1"
    cache.unlink(missing_ok=True)

    served.send(bundle(b"check:heads", b"xx"))

    # The transaction has begun, and was refused.
    assert served.pushes() == {"invalid": 1}
    listed = served.hg("-R", repository, "manifest", "--debug", "-r", "tip").splitlines()
    (revision,) = (line.split()[0] for line in listed if line.endswith(b" .hgtags"))
    assert cache.read_bytes().endswith(tagged[:4] + bytes.fromhex(revision.decode()))

    before = cache.stat()
    served.send(bundle(b"phase-heads", struct.pack(">i", 0) + bytes.fromhex(served.tip.decode())))
    assert served.pushes() == {"invalid": 1, "accepted": 1}
    assert cache.stat().st_mtime_ns == before.st_mtime_ns


def test_nothing_is_compared_for_an_operator(tmp_path: Path) -> None:
    served = Served(tmp_path)
    (served.path / ".hgtags").write_text(f"{served.tip.decode()} v1\n")
    served.hg("-R", str(served.path), "commit", "-A", "-q", "-m", "tagged", "-u", "alice")
    hgrc = served.path / ".hg/hgrc"
    hgrc.write_text(hgrc.read_text() + 'rules = [{"tags": ["v*"], "push": ["release"]}]\n')
    cache = served.path / ".hg/cache/hgtagsfnodes1"
    cache.unlink(missing_ok=True)

    served.hg("-R", str(served.path), "phase", "--public", "-r", "0")

    assert not cache.exists()
