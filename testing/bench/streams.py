"""Memory and time of clones over HTTP, and who has the memory: the web worker or another process.

    python -m testing.bench.streams [--changesets 20000] [--rounds 3]

A single worker of gunicorn serves a made-up repository. A client takes the answer of `getbundle` as
it comes, and drops it: a clone, a clone of a client that has the first changeset, and a pull of
nothing. The figures are medians of the rounds: processor time of all processes, and seconds until
the last byte. The memory is the largest private memory (RssAnon) in all rounds, of the worker and
of its largest other process.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mercurial import hg
from mercurial import ui as uimod

from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository
from testing.bench import repos

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

PATH: Final = "team/project"
SAMPLE_SECONDS: Final = 0.02
CAPABILITIES: Final = "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D02"


class Figures(NamedTuple):
    """Figures of an answer: processor time and seconds, bytes, and private memory in bytes."""

    cpu: float
    seconds: float
    size: int
    worker: int
    others: int


def _private(pid: int) -> int:
    """Return the private memory of a process in bytes; 0 if the process has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


def _below(pid: int) -> list[int]:
    """Return the descendants of a process."""
    return [below for child in _children(pid) for below in (child, *_below(child))]


def _cpu(pid: int) -> float:
    """Return the processor time of a process and of its children that it has waited for."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Watch:
    """Samples the memory of a worker and its other processes while an answer is under way."""

    def __init__(self, worker: int) -> None:
        self._worker, self._end = worker, threading.Event()
        self.worker = self.others = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            self.worker = max(self.worker, _private(self._worker))
            self.others = max([self.others, *map(_private, _below(self._worker))])

    def cpu(self) -> float:
        """Return the processor time of all processes until now."""
        return sum(map(_cpu, [self._worker, *_below(self._worker)]))


def ask(port: int, worker: int, arguments: str) -> Figures:
    """Receive an answer; return its figures."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    more = {"X-HgArg-1": f"{CAPABILITIES}&{arguments}", "X-HgProto-1": "0.1 0.2 comp=zstd"}
    size = 0
    began = time.perf_counter()
    with contextlib.closing(connection), Watch(worker) as watch:
        before = watch.cpu()
        connection.request("GET", f"/{PATH}?cmd=getbundle", headers=more)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise SystemExit(f"got {answer.status}: {answer.read(500)!r}, expected an answer")
        while piece := answer.read(1 << 20):
            size += len(piece)
        cpu = watch.cpu() - before
    return Figures(cpu, time.perf_counter() - began, size, watch.worker, watch.others)


@contextlib.contextmanager
def served(folder: Path, repository: Path) -> Iterator[tuple[int, int]]:
    """Serve a repository; yield the port, and the process id of the worker."""
    (folder / "repos/team").mkdir(parents=True)
    (folder / "repos" / PATH).symlink_to(repository)
    (folder / "hgrc").write_text("[server]\nbundle1 = no\n")
    entry = Repository(PATH, "A repository", "public", (), True, ())
    (folder / "registry.json").write_text(dump_compiled(Registry({PATH: entry}, {})))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "HGRCPATH": str(folder / "hgrc"),
        "PYTHONPATH": str(ROOT),
        "HGFLEET_WEB_REGISTRY": str(folder / "registry.json"),
        "HGFLEET_WEB_ROOT": str(folder / "repos"),
        "HGFLEET_WEB_ACCESS_LOG": str(folder / "access.log"),
    }
    options = ["--worker-class", "gthread", "--workers", "1", "--threads", "8"]
    options += ["--bind", f"127.0.0.1:{port}", "--no-control-socket", "--log-level", "warning"]
    command = [sys.executable, "-m", "gunicorn", *options, "hgfleet.web.app:application"]
    with subprocess.Popen(command, env=environment) as master:
        try:
            deadline = time.monotonic() + 60
            while True:
                if workers := _children(master.pid):
                    with contextlib.suppress(OSError):
                        socket.create_connection(("127.0.0.1", port), timeout=1).close()
                        break
                if time.monotonic() > deadline or master.poll() is not None:
                    raise SystemExit("gunicorn does not listen after a minute")
                time.sleep(0.1)
            yield port, workers[0]
        finally:
            master.send_signal(signal.SIGTERM)


def main() -> None:
    """Measure each kind of answer."""
    parser = argparse.ArgumentParser(description="memory and time of clones over HTTP")
    parser.add_argument("--changesets", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repository", type=Path, help="instead of a made-up one")
    options = parser.parse_args()
    repository = options.repository or repos.kept(repos.Size(changesets=options.changesets), 1)
    opened = hg.repository(uimod.ui.load(), os.fsencode(repository))
    first, heads = opened[0].hex().decode(), [opened[node].hex() for node in opened.heads()]
    tips = b"+".join(heads).decode()
    kinds = {
        "clone": "cg=1",
        "clone with the first changeset": f"cg=1&common={first}&heads={tips}",
        "pull of nothing": f"cg=0&phases=1&bookmarks=1&common={tips}&heads={tips}",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), Path(repository).resolve()) as (port, worker),
    ):
        for name, arguments in kinds.items():
            figures = [ask(port, worker, arguments) for _ in range(options.rounds)]
            cpu, seconds, size = map(statistics.median, [*zip(*figures, strict=True)][:3])
            print(
                f"{name}: processor time {cpu:.2f} s, {seconds:.3f} s, {size / 1e6:.2f} MB; "
                f"the worker has {max(figure.worker for figure in figures) / 2**20:.1f} MiB, "
                f"another process {max(figure.others for figure in figures) / 2**20:.1f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
