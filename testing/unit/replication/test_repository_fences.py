"""Fences of repositories: their files, the relay's messages about them; the sync of its workers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import HostError, UsageError
from hgfleet.hg import wake
from hgfleet.pushlog import repository_fence
from hgfleet.replication.primary import visibility
from hgfleet.replication.primary.relay_problems import Problems
from hgfleet.replication.promotion import lifting
from hgfleet.replication.repositories.group_sync import GroupSync
from hgfleet.replication.terms import repository_fences
from hgfleet.replication.terms.repository_fences import Fenced

if TYPE_CHECKING:
    from pathlib import Path

ID, OTHER = "7d" * 16, "8e" * 16
FENCED = Fenced(ID, "team/tool", 7, "ab" * 32, 2, 5, 1795442000)


def test_a_fence_is_read_as_it_was_written_and_lifted(tmp_path: Path) -> None:
    folder = str(tmp_path / "fences")
    assert repository_fences.read(tmp_path) == {}
    assert not repository_fence.is_any(folder)
    repository_fences.fence(tmp_path, FENCED)
    assert repository_fences.read(tmp_path) == {ID: FENCED}
    assert repository_fences.find(tmp_path, ID) == FENCED
    assert repository_fences.find(tmp_path, OTHER) is None
    assert repository_fence.is_any(folder)
    assert repository_fence.refusal(folder, ID) == FENCED.sentence
    assert repository_fence.refusal(folder, OTHER) is None
    assert repository_fence.refusal(folder, "") is None
    repository_fences.lift(tmp_path, ID)
    assert repository_fences.read(tmp_path) == {}
    assert repository_fence.refusal(folder, ID) is None


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"a sentence\n", b"a\n[]", b'a\n{"repository": "x"}', b"a\n[" * 9999]
)
def test_a_damaged_fence_refuses_nevertheless(tmp_path: Path, text: bytes) -> None:
    repository_fences.fence(tmp_path, FENCED)
    (tmp_path / "fences" / ID).write_bytes(text)
    assert repository_fences.read(tmp_path) == {ID: Fenced(ID, ID)}
    assert repository_fence.refusal(str(tmp_path / "fences"), ID)


def test_a_fence_with_values_of_another_kind_is_a_damaged_one() -> None:
    changes: tuple[dict[str, Any], ...] = ({"number": True}, {"hash": 7}, {"path": None})
    for change in changes:
        wrong = f"a sentence\n{json.dumps(asdict(FENCED) | change)}\n"
        assert repository_fences.parse(ID, wrong.encode()) == Fenced(ID, ID)
    assert repository_fences.parse(OTHER, FENCED.text().encode()) == Fenced(OTHER, OTHER)


def test_a_fence_is_told_once_and_its_end_too(tmp_path: Path) -> None:
    said: list[str] = []

    def say(event: str, **_: Any) -> None:
        # A fence is on the disk before it is reported.
        assert event == "fence-lifted" or repository_fences.find(tmp_path, ID) == FENCED
        said.append(event)

    problems = Problems(tmp_path, say)
    for new in (True, False):
        problems.fence(FENCED, new=new)
    problems.look()
    state = problems.state({ID: "team/renamed"})
    assert state["fenced"] == {ID: ["team/renamed", FENCED.operators]}
    assert (state["fenced_repositories"], said) == (1, ["repository-fenced"])
    # Its repository leaves the service: the fence stays.
    problems.keep(())
    assert problems.state({})["problems"] == {}
    problems.look()
    assert problems.state({})["fenced_repositories"] == 1
    repository_fences.lift(tmp_path, ID)
    problems.recheck(ID)
    problems.look()
    assert said == ["repository-fenced", "fence-lifted"]
    # The relay read the file before the operator removed it.
    problems.fence(FENCED, new=False)
    assert problems.fenced == repository_fences.read(tmp_path) == {}
    # Another relay knows it from the file.
    repository_fences.fence(tmp_path, FENCED)
    again = Problems(tmp_path, say)
    again.look()
    assert again.fenced == {ID: FENCED}


def test_the_fence_of_a_deleted_repository_ends_and_that_of_an_archived_one_stays(
    tmp_path: Path,
) -> None:
    said: list[tuple[str, str]] = []

    def say(event: str, **fields: Any) -> None:
        said.append((event, fields.get("repository", "")))

    problems = Problems(tmp_path, say)
    other = replace(FENCED, repository=OTHER, path="team/archived")
    for fenced in (FENCED, other):
        problems.fence(fenced, new=True)
    del said[:]
    problems.keep(())
    problems.purge({ID, "9f" * 16})
    for _ in range(2):
        assert problems.state({})["fenced_repositories"] == 1
        assert repository_fences.read(tmp_path) == problems.fenced == {OTHER: other}
        problems.look()
    assert said == [("fence-lifted", "team/tool")]


def test_the_state_is_described_while_threads_fence_repositories(tmp_path: Path) -> None:
    problems = Problems(tmp_path, lambda *_, **__: None)
    others = iter([replace(FENCED, repository=f"{number:032x}") for number in range(9)])

    class Paths(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            problems.fence(next(others), new=True)
            return super().get(key, default)

    problems.fence(FENCED, new=True)
    state = problems.state(Paths())
    assert (list(state["fenced"]), state["fenced_repositories"]) == ([ID], 1)
    assert len(problems.fenced) == len(problems.unpublished) == 3


@pytest.mark.parametrize(
    ("served", "name", "expected"),
    [
        ({ID: "team/tool"}, "team/tool", ID),
        ({ID: "team/renamed"}, "team/renamed", ID),
        # Out of service: archived, or deleted before the relay looked.
        ({}, "team/tool", ID),
        ({}, ID, ID),
        ({ID: "team/tool"}, "team/other", None),
        # The path of another repository, or its own former path, does not name it.
        ({OTHER: "team/tool"}, "team/tool", None),
        ({ID: "team/renamed"}, "team/tool", None),
    ],
)
def test_a_fence_is_named_by_path_or_identity(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    served: dict[str, str],
    name: str,
    expected: str | None,
) -> None:
    repository_fences.fence(tmp_path, FENCED)
    monkeypatch.setattr(lifting, "_served", lambda _: SimpleNamespace(paths=lambda: served))
    settings: Any = SimpleNamespace(terms=tmp_path)
    if expected is not None:
        assert lifting.named(settings, name).repository == expected
        return
    path = served.get(ID, "team/tool")
    with pytest.raises(UsageError, match=rf"got '{name}', expected .*: {path} \({ID}\)$"):
        lifting.named(settings, name)


def test_a_path_of_two_fences_names_none_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for identity in (ID, OTHER):
        repository_fences.fence(tmp_path, replace(FENCED, repository=identity))
    monkeypatch.setattr(lifting, "_served", lambda _: SimpleNamespace(paths=dict))
    settings: Any = SimpleNamespace(terms=tmp_path)
    with pytest.raises(UsageError, match=rf"{ID}.*{OTHER}"):
        lifting.named(settings, "team/tool")
    assert lifting.named(settings, OTHER).repository == OTHER


def test_the_pusher_of_a_push_that_mirrors_do_not_get_reads_why_at_once() -> None:
    answer = visibility.answer((), (), ("hgweb1",), published=False, seconds=0, problem="but no")
    assert visibility.is_final(answer, settled=False, takes=True)
    assert wake.sentence(6, answer.to_json(), 2.0) == "push 6 recorded, but no"
    # No answer of a relay prints control characters to a terminal.
    assert "\x1b" not in wake.sentence(6, {"problem": "\x1b[2J"}, 2.0)


def test_workers_share_a_sync_that_began_after_each_of_their_calls() -> None:
    began: list[int] = []

    async def story() -> None:
        loop, running = asyncio.get_running_loop(), asyncio.Event()
        go_on = asyncio.Event()

        def sync() -> None:
            began.append(1)
            loop.call_soon_threadsafe(running.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

        shared = GroupSync(sync)
        first = asyncio.ensure_future(shared.wait())
        await running.wait()
        # These wrote after the first sync began.
        later = [asyncio.ensure_future(shared.wait()) for _ in range(5)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *later)
        assert len(began) == 2
        await shared.wait()
        assert len(began) == 3

    asyncio.run(story())


def test_a_sync_that_fails_is_an_error_of_each_worker() -> None:
    def sync() -> None:
        raise HostError("the disk does not confirm")

    async def story() -> None:
        shared = GroupSync(sync)
        errors = await asyncio.gather(shared.wait(), shared.wait(), return_exceptions=True)
        assert [type(error) for error in errors] == [HostError, HostError]
        await GroupSync(None).wait()

    asyncio.run(story())
