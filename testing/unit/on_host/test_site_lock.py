"""The lock and the deploy log of a site, as files of a host."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.deploy import history, lease, processes, run
from controller.deploy.decide import DeployError
from testing.support import loading

if TYPE_CHECKING:
    from collections.abc import Iterable

site_lock = loading.module("ansible/on_host/site_lock.py")

ROOT = Path(__file__).resolve().parents[3]

OURS, THEIRS = "checkout ours", "checkout theirs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "hgfleet-deploy"


def ask(action: str, number: str, checkout: str = OURS) -> dict[str, Any]:
    entry = {"event": "end" if action == "end" else "begin", "id": number}
    said = f"operator of {number}"
    return {"action": action, "id": number, "checkout": checkout, "said": said, "entry": entry}


def test_the_second_controller_is_told_whose_run_is_at_work(folder: Path) -> None:
    assert site_lock.act(folder, ask("take", "a"), 0.0) == {"before": "", "taken": 0.0}
    refused = site_lock.act(folder, ask("take", "b", THEIRS), 60.0)
    assert refused["refusal"] == (
        "operator of a is at work; unless it renews the lock, that ends in 240 s"
    )
    assert [json.loads(line)["id"] for line in (folder / "log.jsonl").open()] == ["a"]
    site_lock.act(folder, ask("end", "a"), 61.0)
    taken = site_lock.act(folder, ask("take", "b", THEIRS), 62.0)
    assert taken == {"before": "", "taken": 62.0}


def test_a_lease_lasts_as_long_as_it_is_renewed(folder: Path) -> None:
    site_lock.act(folder, ask("take", "a"), 0.0)
    for now in (100.0, 200.0, 400.0):
        assert site_lock.act(folder, ask("renew", "a"), now) == {"before": "", "taken": 0.0}
    assert "refusal" in site_lock.act(folder, ask("take", "b", THEIRS), 699.0)
    # The controller was killed at 400.
    taken = site_lock.act(folder, ask("take", "b", THEIRS), 701.0)
    assert taken == {"before": "operator of a", "taken": 701.0}
    # It was only asleep, and wakes up.
    assert "operator of b" in site_lock.act(folder, ask("renew", "a"), 702.0)["refusal"]
    site_lock.act(folder, ask("end", "a"), 703.0)
    assert "refusal" in site_lock.act(folder, ask("take", "c", "a third"), 704.0)


def test_the_checkout_of_a_killed_run_goes_on_at_once(folder: Path) -> None:
    site_lock.act(folder, ask("take", "a"), 0.0)
    taken = site_lock.act(folder, ask("take", "b"), 1.0)
    assert taken == {"before": "operator of a", "taken": 1.0}


def test_a_run_that_renews_nothing_has_a_longer_lease_and_takes_it_again(folder: Path) -> None:
    restore = {**ask("take", "restore"), "seconds": 86400}
    assert site_lock.act(folder, restore, 0.0) == {"before": "", "taken": 0.0}
    # Interrupted: every deploy waits, the same run does not.
    assert "86000 s" in site_lock.act(folder, ask("take", "b", THEIRS), 400.0)["refusal"]
    assert site_lock.act(folder, restore, 500.0) == {"before": "", "taken": 0.0}
    site_lock.act(folder, {**restore, "action": "end"}, 600.0)
    assert "refusal" not in site_lock.act(folder, ask("take", "b", THEIRS), 601.0)


def test_a_lock_of_the_release_before_is_one(folder: Path) -> None:
    folder.mkdir()
    lock = {"id": "a", "checkout": OURS, "said": "a", "expires": 300.0}
    (folder / "lock.json").write_text(json.dumps(lock))
    assert "refusal" in site_lock.act(folder, ask("take", "b", THEIRS), 1.0)


def test_a_clock_that_was_set_back_makes_no_lease_longer() -> None:
    held = {"id": "a", "checkout": OURS, "said": "a", "expires": 9000.0}
    assert " 300 s" in site_lock.refusal(held, ask("take", "b", THEIRS), 0.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"expires": "soon"}'])
def test_a_damaged_lock_is_none(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "lock.json").write_text(text)
    assert site_lock.act(folder, ask("take", "a"), 0.0) == {"before": "", "taken": 0.0}


def test_of_many_controllers_at_once_one_gets_the_lock(folder: Path) -> None:
    code = (
        "import base64, json, sys, time; from pathlib import Path; import site_lock;"
        "print(json.dumps(site_lock.act(Path(sys.argv[1]), json.loads(sys.argv[2]), time.time())))"
    )

    def controller(number: int) -> dict[str, Any]:
        asked = json.dumps(ask("take", str(number), f"checkout {number}"))
        command = [sys.executable, "-c", code, str(folder), asked]
        done = subprocess.run(
            command, cwd=ROOT / "ansible/on_host", capture_output=True, check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(controller, range(16)))
    assert [answer.get("refusal") for answer in answers].count(None) == 1
    assert len((folder / "log.jsonl").read_text().splitlines()) == 1


def test_lock_and_log_are_open_to_auditors(folder: Path) -> None:
    site_lock.act(folder, ask("take", "a"), 0.0)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}
    assert modes["hgfleet-deploy"] == 0o755
    assert modes["lock.json"] == modes["log.jsonl"] == 0o644


def test_only_the_end_of_a_long_log_is_shown_in_whole_lines(folder: Path) -> None:
    for number in range(2000):
        site_lock.act(folder, ask("end", f"run {number:09}"), 0.0)
    shown = site_lock.act(folder, {"action": "show"}, 1.0)["log"]
    assert 100 < len(shown) < 2000
    assert json.loads(shown[0])["event"] == "end"
    assert json.loads(shown[-1])["id"] == "run 000001999"


def test_nothing_is_written_to_show_the_log(folder: Path) -> None:
    assert site_lock.act(folder, {"action": "show"}, 1.0) == {"lock": None, "log": [], "now": 1.0}
    assert not folder.exists()


def test_a_lock_that_was_given_back_by_another_run_is_not_renewed(folder: Path) -> None:
    """The controller of a was asleep, and b came and went."""
    site_lock.act(folder, ask("take", "a"), 0.0)
    site_lock.act(folder, ask("take", "b", THEIRS), 400.0)
    site_lock.act(folder, ask("end", "b", THEIRS), 500.0)
    assert site_lock.act(folder, ask("renew", "a"), 501.0) == {"refusal": "the lock was lost"}
    assert not (folder / "lock.json").exists()


def test_a_later_run_has_a_later_time_although_the_clock_was_set_back(folder: Path) -> None:
    first = site_lock.act(folder, ask("take", "a"), 1000.0)["taken"]
    assert site_lock.act(folder, ask("take", "b"), 10.0)["taken"] > first


# --- on a host that a run changes -----------------------------------------------------------------


def entering(number: str, taken: float, **more: Any) -> dict[str, Any]:
    said = f"operator of {number}"
    return {"action": "enter", "id": number, "said": said, "taken": taken, **more}


def test_a_host_refuses_a_run_that_another_one_came_after(folder: Path) -> None:
    assert site_lock.act(folder, entering("a", 100.0), 110.0) == {}
    assert site_lock.act(folder, entering("b", 500.0), 510.0) == {}
    # The controller of a was asleep, and goes on.
    refused = site_lock.act(folder, entering("a", 100.0), 520.0)
    assert refused["refusal"] == "operator of b took the lock of the site later, and was here"
    assert site_lock.act(folder, entering("b", 500.0), 530.0) == {}
    assert site_lock.act(folder, entering("c", 600.0), 610.0) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "b"}'])
def test_a_damaged_note_of_the_last_run_refuses_none(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / site_lock.HOLDER).write_text(text)
    assert site_lock.act(folder, entering("a", 100.0), 110.0) == {}


@pytest.mark.parametrize(
    ("before", "number", "after"),
    [
        ("until=200\n", "a", "until=1910\n"),
        # An operator's drain, no drain, and that of another run.
        ("", "a", ""),
        (None, "a", None),
        ("until=200\n", "b", "until=200\n"),
    ],
)
def test_the_run_that_drained_a_host_extends_its_drain(
    folder: Path, before: str | None, number: str, after: str | None
) -> None:
    site_lock.act(folder, entering("a", 100.0), 110.0)
    file = folder / "web.drain"
    if before is not None:
        file.write_text(before)
    asked = entering(number, 100.0, file=str(file), seconds=1800) | {"action": "drain"}
    site_lock.act(folder, asked, 110.0)
    assert (file.read_text() if file.exists() else None) == after


# --- the run that holds it ------------------------------------------------------------------------


class Hosts:
    """Stands for the hosts: a folder each, and those that do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.folder, self.away, self.now = tmp_path, set[str](), 0.0
        self.asked: list[str] = []
        self.renewed = threading.Event()
        groups = {"hg1": ["ssh"], "hg2": []}
        path = tmp_path / "hosts.yml"
        self.site = run.Site("production", path, groups, everything=groups)
        monkeypatch.setattr(lease, "_ask", self.ask)
        monkeypatch.setattr(lease, "CACHE", tmp_path)

    def ask(
        self, _site: run.Site, hosts: Iterable[str], request: dict[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        self.asked.append(request["action"])
        names = list(hosts) or ["hg1"]
        answers = {
            name: site_lock.act(self.folder / name, request, self.now)
            for name in names
            if name not in self.away
        }
        if request["action"] == "renew":
            self.renewed.set()
        return answers, {name: "no route to host" for name in names if name in self.away}

    def log(self, host: str) -> list[dict[str, Any]]:
        shown = site_lock.act(self.folder / host, {"action": "show"}, self.now)
        return [json.loads(line) for line in shown["log"]]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hosts:
    return Hosts(monkeypatch, tmp_path)


def test_the_end_of_a_run_is_logged_on_all_of_its_hosts(hosts: Hosts) -> None:
    with lease.held(hosts.site, lease.record("0.1.0-a", ["hg1", "hg2"], "f", "passed", "plan")):
        assert [entry["event"] for entry in hosts.log("hg1")] == ["begin"]
    assert [entry["result"] for entry in hosts.log("hg2")] == ["done"]
    assert not (hosts.folder / "hg1/lock.json").exists()


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (DeployError("It failed.", "Way out."), "failed: It failed."),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_run_that_fails_is_logged_and_gives_the_lock_back(
    hosts: Hosts, error: BaseException, result: str
) -> None:
    of = lease.record("0.1.0-a", ["hg2"], "f", "passed", "plan")
    with pytest.raises(type(error)), lease.held(hosts.site, of):
        raise error
    assert hosts.log("hg2")[-1]["result"] == hosts.log("hg1")[-1]["result"] == result
    assert not (hosts.folder / "hg1/lock.json").exists()


def test_a_run_renews_its_lease_until_it_ends(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    with lease.held(hosts.site, lease.record("0.1.0-a", ["hg1"], "f", "passed", "plan")):
        assert hosts.renewed.wait(10)
    assert hosts.asked[0] == "take"
    assert hosts.asked[-1] == "end"


def test_a_run_that_finds_the_lock_taken_does_nothing(hosts: Hosts) -> None:
    site_lock.act(hosts.folder / "hg1", ask("take", "a", THEIRS), 0.0)
    of = lease.record("0.1.0-a", ["hg2"], "f", "passed", "plan")
    with pytest.raises(DeployError, match="operator of a is at work"), lease.held(hosts.site, of):
        pytest.fail("the run began")
    assert hosts.asked == ["take"]
    assert hosts.log("hg2") == []


def test_a_run_that_leaves_a_dead_host_out_takes_the_lock_elsewhere(
    hosts: Hosts, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts.away.add("hg1")
    with lease.held(hosts.site, lease.record("0.1.0-a", ["hg2"], "f", "passed", "plan")):
        assert (hosts.folder / "hg2/lock.json").exists()
    assert "hg1 does not answer" in capsys.readouterr().err
    of = lease.record("0.1.0-a", ["hg1", "hg2"], "f", "passed", "plan")
    with pytest.raises(DeployError, match="no route to host"), lease.held(hosts.site, of):
        pytest.fail("the run began")


class Time:
    """A clock that only waiting and slow requests move; stands for the end of a run as well."""

    def __init__(self, hosts: Hosts, end: float) -> None:
        self.hosts, self.end = hosts, end

    def __call__(self) -> float:
        return self.hosts.now

    def wait(self, seconds: float) -> bool:
        self.hosts.now += seconds
        return self.hosts.now >= self.end


def holding(hosts: Hosts, end: float = 1e9) -> lease.Lease:
    """Return a lease that was taken at 0, whose clock is that of the hosts."""
    taken = site_lock.act(hosts.folder / "hg1", ask("take", "a"), 0.0)["taken"]
    asked = {"id": "a", "checkout": OURS, "said": "operator of a"}
    ours = lease.Lease(hosts.site, "hg1", asked, taken)
    ours.clock = clock = Time(hosts, end)
    ours.ended = clock  # type: ignore[assignment]
    ours._renewed = ours._extended = 0.0
    return ours


def test_the_lease_outlasts_two_renewals_that_fail_as_slowly_as_they_may(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another controller tries to take the lock at the end of each of its waits."""
    ours = holding(hosts, end=230.0)
    failing, refused = [True, True], []

    def ask_slowly(site: run.Site, names: Iterable[str], request: dict[str, Any]) -> Any:
        hosts.now += lease.ASK_SECONDS + processes.GRACE_SECONDS
        other = {**ask("take", "b", THEIRS), "action": "take"}
        held = site_lock._read(hosts.folder / "hg1")
        refused.append(bool(site_lock.refusal(held, other, hosts.now)))
        if failing:
            failing.pop()
            return {}, {"hg1": "no answer"}
        return hosts.ask(site, names, request)

    monkeypatch.setattr(lease, "_ask", ask_slowly)
    ours.keep()
    assert hosts.asked == ["renew"]
    assert refused == [True, True, True]
    held = site_lock._read(hosts.folder / "hg1")
    assert held is not None
    assert held["expires"] > 500


def test_a_run_that_lost_its_lock_ends_before_its_next_hosts(hosts: Hosts) -> None:
    ours = holding(hosts)
    ours.require()
    hosts.now = 400.0
    site_lock.act(hosts.folder / "hg1", ask("take", "b", THEIRS), hosts.now)
    with pytest.raises(DeployError, match=r"lost the lock .* operator of b has the lock now"):
        ours.require()
    # Also when b is done.
    site_lock.act(hosts.folder / "hg1", ask("end", "b", THEIRS), hosts.now)
    with pytest.raises(DeployError, match="lost the lock"):
        ours.require()


def test_a_run_whose_renewals_failed_goes_on_as_long_as_its_lease_lasts(hosts: Hosts) -> None:
    """The host of the lock restarts."""
    ours = holding(hosts)
    hosts.away.add("hg1")
    hosts.now = 200.0
    ours.require()
    hosts.now = 250.0
    with pytest.raises(DeployError, match="no route to host"):
        ours.require()
    # No other run took it.
    hosts.away.clear()
    ours.require()
    assert hosts.asked == ["renew"] * 3


def test_the_drain_is_extended_for_as_long_as_a_batch_takes(hosts: Hosts) -> None:
    ours = holding(hosts)
    (hosts.folder / "hg2").mkdir()
    site_lock.act(hosts.folder / "hg2", entering("a", 0.0), 0.0)
    ours.drains(["hg2"])
    for now in (300.0, 700.0, 900.0, 1400.0):
        hosts.now = now
        assert ours.renew() == ""
    assert hosts.asked == ["renew", "renew", "drain", "renew", "renew", "drain"]
    ours.drains(())
    hosts.now = 9000.0
    site_lock.act(hosts.folder / "hg1", ask("take", "a"), hosts.now)
    ours.renew()
    assert hosts.asked[-1] == "renew"


# --- the log, as --log shows it -------------------------------------------------------------------


def record(number: str, begun: str) -> history.Record:
    tests = "UNTESTED: outage of the primary"
    return history.Record(
        number, begun, "ann@ctl", "0.1.0-a", ("hg1", "hg2"), "f" * 40, tests, "3 changes"
    )


def shown(*runs: dict[str, Any], lock: dict[str, Any] | None = None) -> history.Shown:
    return history.Shown(lock, ["{cut off", *map(json.dumps, runs)], 1000.0)


def test_a_run_is_shown_once_with_its_end_whichever_host_has_it() -> None:
    first, second = record("1", "2026-01-01"), record("2", "2026-01-02")
    end = first.end("done", 63.2)
    text = history.table([shown(second.begin(), first.begin()), shown(end), shown(end)])
    assert text.count("ann@ctl") == 2
    assert text.index("2026-01-01") < text.index("2026-01-02")
    assert "2026-01-01  ann@ctl  0.1.0-a: done in 63 s" in text
    assert "UNTESTED: outage of the primary" in text


def test_a_run_without_an_end_is_under_way_or_broke_off() -> None:
    begin = record("1", "2026-01-01").begin()
    lock = {"id": "1", "said": "ann@ctl", "expires": 1200.0}
    assert history.UNDER_WAY in history.table([shown(begin, lock=lock)])
    assert history.BROKE_OFF in history.table([shown(begin, lock={**lock, "expires": 999.0})])
    assert history.BROKE_OFF in history.table([shown(begin)])


def test_a_site_without_a_deploy_has_an_empty_log() -> None:
    assert "No deploy" in history.table([history.Shown(None, (), 0.0)])


def test_hosts_without_an_answer_are_told_apart() -> None:
    task = {
        "hosts": {
            "hg1": {"msg": {"before": ""}},
            "hg2": {"unreachable": True, "msg": "no route\nto host"},
            "hg3": {"failed": True, "stderr": "No space left on device", "msg": "non-zero"},
        }
    }
    output = f"a warning\n{json.dumps({'plays': [{'tasks': [task]}]})}"
    answers, problems = history.answers_of(output)
    assert answers == {"hg1": {"before": ""}}
    assert problems == {"hg2": "no route to host", "hg3": "No space left on device"}
