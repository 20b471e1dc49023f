"""Many requests at the same moment: from the first instant on, and during a push."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

from testing.integration.web.support import Site, ask

# A process that has done nothing yet: late initialisation is initialised by these threads.
FIRST_INSTANT = """
import os, sys, threading
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from hgfleet.web.app import Application
from hgfleet.web.http.settings import Settings
from testing.integration.web.support import ask

# Hooks of Mercurial redirect the standard output for a time, and threads restore it in any order.
told = os.dup(1)
folder = Path(sys.argv[2])
web = Application(Settings(registry=folder / "registry.json", root=folder / "repos",
                           access_log=folder / "first.log", waiting=64))
requests = [("", "cmd=heads"), ("", "cmd=capabilities"), ("", "cmd=branchmap"), ("/json-log", ""),
            ("/log", ""), ("/json-tags", ""), ("/rev/tip", ""), ("/graph", ""),
            ("", "cmd=listkeys&namespace=phases"), ("/json-manifest/tip", ""), ("/help", ""),
            ("/archive/tip.tar.gz", ""), ("/json-filelog/tip/one.txt", ""),
            ("/annotate/tip/one.txt", "")]
barrier = threading.Barrier(len(requests) * 2)
problems = []

def work(path, query):
    barrier.wait()
    for _ in range(3):
        reply = ask(web, "/team/project" + path, query)
        if reply.status != 200:
            problems.append((path, query, reply.status, reply.body[:300]))

threads = [threading.Thread(target=work, args=request) for request in requests * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
os.write(told, f"{problems}\\n".encode())
"""


def test_no_request_of_the_first_instant_fails(site: Site) -> None:
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_INSTANT, ":".join(sys.path), str(site.folder)],
            capture_output=True,
            text=True,
            env=site.environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "[]\n", done.stderr
        assert "Traceback" not in done.stderr


PUSHER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from testing.bench.repos import append
for seed in range(int(sys.argv[3])):
    append(Path(sys.argv[2]), 1, seed)
    print(flush=True)
"""


def test_no_answer_is_older_than_the_state_at_its_request(site: Site) -> None:
    web = site.application()
    pushes = 60
    start = 2
    done = start
    problems: list[str] = []
    finished = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not finished.is_set():
            least = done
            reply = ask(web, "/team/project/json-log")
            if reply.status != 200:
                problems.append(f"{reply.status}: {reply.text}")
                return
            count = int(json.loads(reply.text)["changeset_count"])
            seen.add(count)
            if count < least:
                problems.append(f"{count} changesets where {least} were there before the request")
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    pusher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PUSHER,
            ":".join(sys.path),
            str(site.path("team/project")),
            str(pushes),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=site.environment,
    )
    for reader in readers:
        reader.start()
    assert pusher.stdout is not None
    for _ in pusher.stdout:
        done += 1
    assert pusher.wait() == 0
    finished.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert done == start + pushes
    final = json.loads(ask(web, "/team/project/json-log").text)
    assert final["changeset_count"] == done
    assert len(seen) > 5, "the readers saw pushes come in"
