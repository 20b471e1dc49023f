"""Workers of the relay that make changegroups: a worker that failed makes no other."""

from __future__ import annotations

import asyncio
import os
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication.primary.changegroups import Changegroups
from testing.support import prefork

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

HGRC = "[ui]\nusername = t\n"


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str, Path]:
    """A repository with a changeset, its node, and the configuration."""
    hgrc, path = tmp_path / "hgrc", tmp_path / "one"
    hgrc.write_text(HGRC)
    environment = {**os.environ, "HGRCPATH": str(hgrc)}
    server = prefork.shared(environment)

    def hg(*words: object) -> str:
        done: subprocess.CompletedProcess[bytes] = server.hg(words, environment, tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    hg("init", path)
    (path / "file").write_text("content\n")
    hg("-R", path, "commit", "-q", "-A", "-m", "one")
    return path, hg("-R", path, "log", "-r", "tip", "-T", "{node}"), hgrc


def test_a_worker_that_failed_makes_no_other_changegroup(
    repository: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, node, hgrc = repository
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    said: list[dict[str, Any]] = []

    async def work() -> list[int]:
        made = Changegroups(hgrc, lambda _event, **more: said.append(more))
        used: list[int] = []

        async def make(where: Path, *nodes: str, limit: int = 2**20) -> bytes:
            changegroup = await made.make(where, nodes, limit)
            used.extend(worker.pid for worker in made._idle)
            return changegroup

        try:
            first = await make(path, node)
            assert zlib.decompress(first)
            assert await make(path, node) == first
            assert await make(path, "1" * 40) == b""
            assert "is no longer in the repository" in said[-1]["reason"]
            assert await make(path, node) == first
            assert await make(path, node, limit=1) == b""
            assert await make(path, node) == first
        finally:
            await made.close()
        return used

    first_pid, same_pid, second_pid, third_pid = asyncio.run(work())
    assert first_pid == same_pid
    assert len({first_pid, second_pid, third_pid}) == 3


@pytest.mark.parametrize(
    "answer",
    ['{"request": 99, "size": 3}', '{"size": 3}', "{}", "PK"],
    ids=["another request", "no number", "nothing", "no JSON"],
)
def test_an_answer_to_another_request_ends_the_worker(
    repository: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    path, node, hgrc = repository
    said: list[dict[str, Any]] = []
    program = f"input(); print('{answer}'); print('abc', end='', flush=True); input()"

    async def start(_: Changegroups) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdin=pipe, stdout=pipe
        )

    monkeypatch.setattr(Changegroups, "_start", start)

    async def work() -> tuple[bytes, int]:
        made = Changegroups(hgrc, lambda _event, **more: said.append(more))
        return await made.make(path, [node]), len(made._idle)

    assert asyncio.run(work()) == (b"", 0)
    assert said[0]["reason"]
