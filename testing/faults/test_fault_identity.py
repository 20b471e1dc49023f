"""Another repository gets a path while a mirror is away.

The model in testing/unit covers the orders in which repositories are renamed, deleted and made
again. This test has the real programs of a mirror, its nginx and an anonymous client.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import Result, run, wait_until
from testing.e2e.mirrors import SECONDS, is_equal, mirrors_of, wait_for_absence, wait_for_use

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Person
    from testing.faults.support import Faults

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

SECRET: Final = "nobody else may read this"


def at_once(person: Person, command: str) -> Result:
    """Run a command over SSH, without waiting for the mirror that is away."""
    words = ["ssh", *person.ssh_options, *person.ssh_target, command]
    return run(words, env=person.environment)


class Asking:
    """An anonymous client that requests a file from a mirror again and again."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self._cluster, self._url = cluster, url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers: list[tuple[int, str]] = []

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            page = self._cluster.get(f"{self._url}?n={len(self.answers)}")
            self.answers.append((page.status, page.body))
            self._over.wait(0.05)


def test_a_mirror_that_was_away_never_shows_a_private_file_at_a_path_that_is_public_now(
    cluster: Cluster, bob: Person, faults: Faults, tmp_path: Path
) -> None:
    name = f"people/bob/t{uuid.uuid4().hex[:8]}"
    former, now = f"{name}-private", name
    mirror = mirrors_of(cluster)[0]
    faults.stop_unit(mirror, "hgfleet-applier.service")
    wait_for_absence(cluster, mirror)
    faults.stack.callback(delete, bob, former, now)

    at_once(bob, f"repo create --read private {now}").ok()
    work = bob.clone(bob.ssh_url(now), tmp_path / "private")
    work.commit("file.txt", SECRET.encode(), "private")
    work.hg("push").ok()
    at_once(bob, f"repo rename {now} {former}").ok()
    at_once(bob, f"repo create --read public {now}").ok()
    public = bob.clone(bob.ssh_url(now), tmp_path / "public")
    public.commit("file.txt", b"everybody may read this", "public")
    public.hg("push").ok()

    with Asking(cluster, cluster.url_past_proxy(mirror, f"{now}/raw-file/tip/file.txt")) as asking:
        wait_until("it was asked while the mirror was away", lambda: asking.answers, SECONDS)
        mirror.systemctl("start", "hgfleet-applier.service").ok()
        wait_for_use(cluster, mirror)
        wait_until("the mirror shows it", lambda: asking.answers[-1][0] == 200, SECONDS)
    assert [answer for answer in asking.answers if SECRET in answer[1]] == []
    assert asking.answers[-1] == (200, "everybody may read this")
    hidden = cluster.get(cluster.url_past_proxy(mirror, f"{former}/raw-file/tip/file.txt"))
    assert (hidden.status, SECRET in hidden.body) == (404, False)
    wait_until(f"{mirror.name} is what the primary is", lambda: is_equal(mirror), SECONDS)


def delete(person: Person, *paths: str) -> None:
    """Delete repositories for good, even after a test that failed half-way."""
    for path in paths:
        for command in (f"repo archive {path}", f"repo delete {path} {path}"):
            at_once(person, command)
