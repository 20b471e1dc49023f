"""The copy is compared with the original, each revision once, and little of it under the lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from testing.integration.storage.site import digest

if TYPE_CHECKING:
    from testing.integration.storage.site import StorageSite

COUNT = """
from mercurial import revlog
reads = []
counts = {"locked": 0, "unlocked": 0}
locked = []
real_read = revlog.revlog._revisiondata
def read(self, at, *arguments, **named):
    counts["locked" if locked else "unlocked"] += 1
    return real_read(self, at, *arguments, **named)
revlog.revlog._revisiondata = read
real_lock = rebuild._Rebuild._with_lock
def with_lock(self, work):
    def inner(source):
        locked.append(1)
        try:
            return work(source)
        finally:
            locked.pop()
    return real_lock(self, inner)
rebuild._Rebuild._with_lock = with_lock
import atexit, json
atexit.register(lambda: print(json.dumps({"event": "counted", **counts}), flush=True))
"""

PUSH_AT_THE_LAST_LOCK = """
real_swap = rebuild._Rebuild._swap
def swap(self):
    counts["locked"] = 0
    before = rebuild._Rebuild._with_lock
    def late(self, work):
        if not pushed:
            pushed.append(push())
        return before(self, work)
    pushed = []
    rebuild._Rebuild._with_lock = late
    return real_swap(self)
rebuild._Rebuild._swap = swap
"""


def events(said: str) -> dict[str, Any]:
    logged = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {event["event"]: event for event in logged}


def test_under_the_lock_only_new_revisions_are_read(site: StorageSite) -> None:
    code, said = site.worker(COUNT + PUSH_AT_THE_LAST_LOCK)
    assert code == 0, said
    # The push adds a changeset, a manifest and a revision of a file.  Each is read from the
    # original, as the base of a delta, and from the copy.
    assert events(said)["counted"]["locked"] <= 5 * 3
    site.assert_modern()


CORRUPT_A_COPY = """
real_swap = rebuild._Rebuild._swap
def swap(self):
    push()
    push()
    real_catch_up = revlogs.RevlogCopier.catch_up
    def catch_up(self, source, target, **named):
        found = real_catch_up(self, source, target, **named)
        if named.get("may_tear") and found:
            path = target.svfs.join(b"data/pushed.i")
            with open(path, "r+b") as file:
                file.seek(-3, 2)
                file.write(b"XXX")
        return found
    revlogs.RevlogCopier.catch_up = catch_up
    return real_swap(self)
rebuild._Rebuild._swap = swap
"""


def test_a_revision_that_was_copied_wrong_beside_pushes_is_found(site: StorageSite) -> None:
    before = digest(site.store)
    code, said = site.worker(CORRUPT_A_COPY)
    assert code == 65, said
    assert digest(site.store) != before  # the pushes
    assert not (site.store / "requires").exists()
    site.old("verify", "--quiet")
    # The damaged copy does not stay for the next run.
    site.upgrade()
    site.assert_modern()


COUNT_PER_REVISION = """
from mercurial import revlog
import atexit, collections, json
rebuilt = collections.Counter()
armed = []
real_text = revlog.revlog._rawtext
def text(self, node, rev):
    number = self.rev(node) if rev is None else rev
    if armed and self._inner.get_cached_text(number) is None:
        rebuilt[self.display_id, number] += 1
    return real_text(self, node, rev)
revlog.revlog._rawtext = text
real_verify = rebuild._Rebuild._verify
def verify(self):
    armed.append(1)
    real_verify(self)
    armed.pop()
rebuild._Rebuild._verify = verify
def tell():
    others = {k: n for k, n in rebuilt.items() if not k[0].startswith(b"00manifest")}
    print(json.dumps({"event": "counted", "revisions": len(others), "reads": sum(others.values())}))
atexit.register(tell)
"""


def test_verification_reads_each_revision_once(site: StorageSite) -> None:
    code, said = site.worker(COUNT_PER_REVISION)
    assert code == 0, said
    counted = events(said)["counted"]
    assert counted["revisions"] > 500
    # hg verify reads a revision without a first parent again, to find its copy source.
    assert counted["reads"] < 1.5 * counted["revisions"], counted


def test_a_file_that_no_changeset_names_is_checked_too(site: StorageSite) -> None:
    hook = """
real_verify = rebuild._Rebuild._verify
def verify(self):
    path = self.folder / ".hg/store/data/orphan.i"
    content = bytearray(path.read_bytes())
    content[-3:] = b"XXX"
    path.write_bytes(content)
    real_verify(self)
rebuild._Rebuild._verify = verify
"""
    made = site.script(
        "with repo.lock(), repo.transaction(b'orphan') as group:\n"
        "    repo.file(b'orphan', writable=True).add(b'x', {}, group, 0, *[repo.nullid] * 2)\n"
    ).communicate()
    assert not made[1], made
    assert (site.store / "data/orphan.i").exists()
    code, said = site.worker(hook)
    assert code == 65, said
