"""The bench of hostile requests puts the cluster back: after its end, an error, an interrupt."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.auth import token_file, tokens
from hgfleet.core.principal import Principal
from hgfleet.web.http.worker_health import is_draining
from testing.bench import hostile_setup, hostile_site
from testing.bench.hostile_setup import DESCRIPTION, DISABLED, DRAIN_SECONDS, is_ours
from testing.e2e.command import Result

if TYPE_CHECKING:
    from collections.abc import Iterator


class Steps:
    """Stands in for the functions that change the cluster, and records their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.fails: set[str] = set()
        monkeypatch.setattr(hostile_setup, "undisturbed", self.undisturbed)
        for name in ("make", "put_back"):
            monkeypatch.setattr(hostile_setup, name, self._step(name))

    def _step(self, name: str) -> Any:
        def step(_cluster: Any) -> str:
            self.done.append(name)
            if name in self.fails:
                raise OSError(name)
            return "made"

        return step

    @contextlib.contextmanager
    def undisturbed(self, _tests: str) -> Iterator[None]:
        yield
        self.done.append("no mark")


CLUSTER: Any = None
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def test_what_an_earlier_run_left_goes_first_and_everything_at_the_end(steps: Steps) -> None:
    assert hostile_setup.around(CLUSTER, str) == "made"
    assert steps.done == ["put_back", "make", "put_back", "no mark"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, AssertionError, OSError])
def test_everything_is_put_back_after_an_error_and_an_interrupt(
    steps: Steps, problem: type[BaseException]
) -> None:
    def work(_made: Any) -> None:
        raise problem

    with pytest.raises(problem):
        hostile_setup.around(CLUSTER, work)
    assert steps.done == ["put_back", "make", "put_back", "no mark"]


INTERRUPTED = """
import contextlib, signal, sys
# A process in the background of a shell inherits that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from testing.bench import hostile, hostile_setup

def step(name):
    return lambda cluster: print(name, flush=True)

@contextlib.contextmanager
def undisturbed(tests):
    yield

def run(self, phases):
    print("phases", flush=True)
    sys.stdin.read()

hostile_setup.undisturbed = undisturbed
hostile_setup.make, hostile_setup.put_back = step("make"), step("put_back")
hostile.environment = dict
hostile.Run.__init__ = lambda self, *arguments: None
hostile.Run.run = run
sys.exit(hostile.main())
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_command_puts_back_after_a_signal(kind: signal.Signals) -> None:
    command, pipe = [sys.executable, "-c", INTERRUPTED], subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        begun = [process.stdout.readline().strip() for _ in range(3)]
        assert begun == ["put_back", "make", "phases"], process.stderr.read()
        process.send_signal(kind)
        left, told = process.communicate(timeout=60)
    assert left.split("\n")[:-1] == ["putting the cluster back", "put_back"]
    assert "KeyboardInterrupt" in told
    assert process.returncode != 0


def test_half_a_set_up_is_put_back(steps: Steps) -> None:
    steps.fails.add("make")
    with pytest.raises(OSError, match="make"):
        hostile_setup.around(CLUSTER, str)
    assert steps.done == ["put_back", "make", "put_back", "no mark"]


def test_the_mark_of_tests_stays_if_something_is_not_put_back(steps: Steps) -> None:
    def work(_made: Any) -> None:
        steps.fails.add("put_back")
        raise KeyboardInterrupt

    with pytest.raises(OSError, match="put_back") as raised:
        hostile_setup.around(CLUSTER, work)
    assert isinstance(raised.value.__cause__, KeyboardInterrupt)
    assert steps.done == ["put_back", "make", "put_back"]


def test_each_step_back_is_tried_and_the_first_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = []
    names = ["_purge", "_remove_tokens", "_start_jobs", "_undrain"]

    def failing(name: str) -> Any:
        def step(_cluster: Any) -> None:
            done.append(name)
            raise AssertionError(name)

        return step

    for name in names:
        monkeypatch.setattr(hostile_setup, name, failing(name))
    with pytest.raises(AssertionError, match="_purge"):
        hostile_setup.put_back(CLUSTER)
    assert done == names


class FakeHost:
    """A host that records commands; `texts` are its answers to commands that contain a word."""

    def __init__(self, name: str, texts: dict[str, str]) -> None:
        self.name, self.texts = name, texts
        self.commands: list[str] = []

    def run(self, *command: str) -> Result:
        line = " ".join(command)
        self.commands.append(line)
        said = next((text for word, text in self.texts.items() if word in line), "")
        return Result(line, 0, said, "", 0.0)

    def shell(self, script: str) -> str:
        return self.run(script).stdout


class FakeCluster:
    """A primary with two repositories of the bench, the second archived, and a person's own."""

    def __init__(self) -> None:
        entries = {
            "people/bob/hostile-failing": {"archived": None},
            "people/bob/hostile-history": {"archived": "2026-11-28T10:00:00Z"},
            "people/bob/notes": {"archived": None},
        }
        registry = json.dumps({"repositories": entries})
        self.primary = FakeHost("hg1", {"registry.json": registry})
        self.ours = FakeHost("hgweb1", {"cat": hostile_setup.drain_text(0)})
        self.operators = FakeHost("hgweb2", {"cat": ""})
        self.waited: list[str] = []

    def first(self, _group: str) -> FakeHost:
        return self.primary

    def wait_for_mirrors(self) -> None:
        self.waited.append("mirrors")


def test_only_what_the_bench_made_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCluster()
    cluster: Any = fake
    monkeypatch.setattr(hostile_setup, "mirrors_of", lambda _: [fake.ours, fake.operators])
    monkeypatch.setattr(
        hostile_setup, "wait_for_use", lambda _, host: fake.waited.append(host.name)
    )
    hostile_setup.put_back(cluster)

    changes = [line for line in fake.primary.commands if "hgfleet repo" in line]
    assert [line.partition("hgfleet repo ")[2] for line in changes] == [
        "archive people/bob/hostile-failing",
        "purge --now people/bob/hostile-failing people/bob/hostile-failing",
        "purge --now people/bob/hostile-history people/bob/hostile-history",
    ]
    started = [line.rpartition(" ")[2] for line in fake.primary.commands if "is-enabled" in line]
    assert started == list(hostile_setup.TIMERS)
    assert [line for line in fake.ours.commands if line.startswith("rm ")] == [
        f"rm -f {hostile_setup.DRAIN}"
    ]
    assert not any(line.startswith("rm ") for line in fake.operators.commands)
    assert fake.waited == ["hgweb1", "mirrors"]


def test_a_second_interrupt_does_not_end_the_way_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with hostile_setup.uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_only_repositories_of_the_bench_are_purged() -> None:
    entries = {
        "people/bob/hostile-history": {"archived": None},
        "people/alice/hostile-private": {"archived": "2026-11-28T10:00:00Z"},
        "people/alice/hostile": {"archived": None},
        "people/alice/hostile-2nd": {"archived": None},
        "people/carol/hostile-history": {"archived": None},
        "e2e/people/bob/hostile-history": {"archived": None},
    }
    assert hostile_setup.made_before(json.dumps({"repositories": entries})) == {
        "people/alice/hostile-private": True,
        "people/bob/hostile-history": False,
    }
    made = (
        hostile_setup.HISTORY,
        hostile_setup.FAILING,
        hostile_setup.HEALTHY,
        hostile_setup.PRIVATE,
    )
    registry = json.dumps({"repositories": {path: {"archived": None} for path in made}})
    assert set(hostile_setup.made_before(registry)) == set(made)


def test_the_drain_of_the_bench_ends_by_itself_and_is_known_as_its_own(tmp_path: Path) -> None:
    file = tmp_path / "web.drain"
    file.write_text(hostile_setup.drain_text(1000.0))
    assert is_draining(file, now=1000.0 + DRAIN_SECONDS - 1)
    assert not is_draining(file, now=1000.0 + DRAIN_SECONDS + 1)
    assert is_ours(file.read_text())
    # An operator's, a deploy's, none.
    assert not any(is_ours(text) for text in ("", f"{DESCRIPTION}\n", "until=1000\n"))


@pytest.mark.parametrize(("owner", "age", "is_valid"), [(DISABLED, 0, True), ("bob", 30, False)])
def test_a_token_that_will_be_refused_is_added_and_removed(
    tmp_path: Path, owner: str, age: int, is_valid: bool
) -> None:
    file = tmp_path / "tokens.json"
    with token_file.update(str(file)) as kept:
        made, own, _ = tokens.create(kept, Principal("alice"), "nightly build", 1, _now())
        kept[own] = made[own]

    def run(source: str, *arguments: str) -> str:
        source = source.replace("token_file.update()", f"token_file.update({str(file)!r})")
        argv = [sys.executable, "-c", source, *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    secret = run(hostile_setup.ADD_TOKEN, owner, DESCRIPTION, str(age)).strip()
    assert hostile_setup.SECRET.fullmatch(secret)
    entry = token_file.Watched(str(file)).find(secret)
    assert entry is not None
    assert entry[1].owner == owner
    assert entry[1].is_valid(_now()) is is_valid
    assert own in token_file.load(str(file)), "tokens of others stay"
    run(hostile_setup.REMOVE_TOKENS, DESCRIPTION)
    assert list(token_file.load(str(file))) == [own]


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


class LocalHost:
    """A host that is this machine."""

    def start(self, *argv: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([*argv], stdin=pipe, stdout=pipe, text=True)


def test_a_command_on_a_host_ends_before_the_way_back_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host: Any = LocalHost()
    assert hostile_site.finish(host, "cat", stdin="said") == "said"
    with pytest.raises(subprocess.CalledProcessError):
        hostile_site.finish(host, "false")

    file = tmp_path / "written"
    source = f"import sys; sys.stdin.read(); open({str(file)!r}, 'w').close()"

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hostile_site.finish(host, sys.executable, "-c", source)
    assert file.exists()
