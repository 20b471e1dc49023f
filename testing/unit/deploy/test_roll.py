"""A roll: hosts that no other host can stand in for, and the steps of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.deploy import books, roll, run, trees
from controller.deploy.batches import Batch
from controller.deploy.decide import DeployError, HostState
from controller.deploy.ways import Way

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[3]

HOSTS = {
    "hg1": ["ssh", "web"],
    "hgweb1": ["web"],
    "hgweb2": ["web"],
    "proxy1": ["proxy"],
}


@pytest.mark.parametrize(
    ("batch", "everything", "new", "alone"),
    [
        (["hgweb1"], ["hg1", "hgweb1", "hgweb2", "proxy1"], [], False),
        # The primary serves no readers while there are mirrors, and a new host none yet.
        (["hgweb1"], ["hg1", "hgweb1", "proxy1"], [], True),
        (["hgweb1"], ["hg1", "hgweb1", "hgweb2"], ["hgweb2"], True),
        (["hgweb1", "hgweb2"], ["hg1", "hgweb1", "hgweb2"], [], True),
        (["hg1"], ["hg1", "proxy1"], [], True),
        (["hg1"], ["hg1", "hgweb1"], [], False),
        # A proxy is no web host.
        (["proxy1"], ["hg1", "proxy1"], [], False),
    ],
)
def test_the_last_web_host_has_no_peer(
    batch: list[str], everything: list[str], new: list[str], alone: bool
) -> None:
    known = {name: HOSTS[name] for name in everything}
    site = run.Site("production", Path("production/hosts.yml"), known, everything=known)
    states = dict.fromkeys(everything, HostState(True, primary="hg1"))
    assert roll.Roll(site, states, {}, new)._has_no_peer(batch) is alone


# --- a batch ----------------------------------------------------------------------------------

OLD, NEW = "0.1.0-aaaaaaaaaaaa", "0.1.0-bbbbbbbbbbbb"
MIRRORS = {
    "proxy1": ["proxy"],
    "hgweb1": ["web", "release"],
    "hgweb2": ["web", "release"],
    "hg1": ["ssh", "web", "release"],
}


class Ansible:
    """Notes the runs; books in `failing` fail, and hosts in `ill` have a problem for some looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.failing: set[str] = set()
        self.ill: dict[str, int] = {}
        self.problem = "a unit is failed"
        self.given: dict[str, Any] = {}
        monkeypatch.setattr(books, "play", self.play)
        monkeypatch.setattr(books, "settled", self.settled)
        monkeypatch.setattr(run, "site_playbook", self.site_playbook)
        monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, None))
        monkeypatch.setattr(trees, "find", lambda _way: None)

    def _end(self, step: str) -> int:
        self.steps.append(step)
        return 2 * (step in self.failing)

    def play(self, _site: object, name: str, hosts: Sequence[str], given: object) -> Any:
        self.given[name] = given
        return self._end(f"{name} {' '.join(hosts)}"), ROOT / "log"

    def settled(self, _site: object, hosts: Sequence[str], _given: object) -> Any:
        self._end(f"check {' '.join(hosts)}")
        answers = {}
        for name in hosts:
            self.ill[name] = self.ill.get(name, 0) - 1
            problems = [self.problem] if self.ill[name] >= 0 else []
            answers[name] = {"problems": problems, "held_seconds": 0.5, "notes": ["no answer"]}
        return answers

    def site_playbook(
        self, _site: object, built: run.Built, hosts: Sequence[str], **_: object
    ) -> Any:
        return {}, self._end(f"{built.version} {' '.join(hosts)}"), ROOT / "log"


@pytest.fixture
def ansible(monkeypatch: pytest.MonkeyPatch) -> Ansible:
    return Ansible(monkeypatch)


def rolling(new: Sequence[str] = ()) -> roll.Roll:
    site = run.Site("production", Path("production/hosts.yml"), MIRRORS, everything=MIRRORS)
    states = {
        name: HostState(True, OLD if "release" in groups else "", primary="hg1")
        for name, groups in MIRRORS.items()
    }
    target = roll.Target(run.Built(NEW, None, None), Way(NEW))
    return roll.Roll(site, states, dict.fromkeys(MIRRORS, target), new, at=1.0)


def test_a_batch_is_drained_changed_checked_and_put_back(ansible: Ansible) -> None:
    new_roll = rolling()
    new_roll._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps == ["drain hgweb1", f"{NEW} hgweb1", "check hgweb1", "ready hgweb1"]
    ((name, had, has, _seconds, held),) = new_roll.rows
    assert (name, had, has, held) == ("hgweb1", OLD, NEW, 0.5)


def test_a_host_without_a_release_has_none_in_the_table(ansible: Ansible) -> None:
    new_roll = rolling()
    new_roll._change(Batch("proxies", ("proxy1",)))
    assert ansible.steps[-1] == "ready proxy1"
    assert [row[1:3] for row in new_roll.rows] == [("-", "-")]
    assert NEW not in new_roll.summary()


def test_a_new_host_is_neither_drained_nor_put_back(ansible: Ansible) -> None:
    rolling(["hgweb2"])._change(Batch("new", ("hgweb2",)))
    assert ansible.steps == [f"{NEW} hgweb2", "record hgweb2"]


def test_a_batch_that_cannot_be_drained_is_put_back_unchanged(ansible: Ansible) -> None:
    ansible.failing = {"drain hgweb1"}
    with pytest.raises(DeployError, match=r"put back as it was. No other host was touched"):
        rolling()._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps == ["drain hgweb1", "ready hgweb1"]


def test_a_batch_that_cannot_be_drained_does_not_hide_those_before_it(ansible: Ansible) -> None:
    ansible.failing = {"drain hgweb2", "ready hgweb2"}
    with pytest.raises(DeployError) as error:
        rolling().run([Batch("canary", ("hgweb1",)), Batch("mirrors", ("hgweb2",))])
    assert "It was not put back: playbooks/roll/ready.yml failed" in str(error.value)
    assert "hgweb1 keep what this run gave them" in str(error.value)


def test_a_batch_that_is_ill_goes_back_and_is_checked_again(ansible: Ansible) -> None:
    ansible.ill = {"hgweb1": 1}
    new_roll = rolling()
    with pytest.raises(DeployError, match=r"a unit is failed[\s\S]*checked and put back"):
        new_roll._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps[2:] == [
        "check hgweb1",
        f"{OLD} hgweb1",
        "check hgweb1",
        "ready hgweb1",
    ]
    assert new_roll.rows == []


def test_a_batch_that_stays_ill_stays_drained(ansible: Ansible) -> None:
    ansible.ill = {"hgweb1": 9}
    with pytest.raises(DeployError, match=r"Going back failed too[\s\S]*stay drained"):
        rolling()._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps[-1] == "drain hgweb1"
    assert "ready hgweb1" not in ansible.steps


def test_a_change_that_fails_is_not_checked_before_it_goes_back(ansible: Ansible) -> None:
    ansible.failing = {f"{NEW} hgweb1"}
    with pytest.raises(DeployError, match=r"site.yml failed on hgweb1 \(exit code 2\)"):
        rolling()._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps[1:3] == [f"{NEW} hgweb1", f"{OLD} hgweb1"]


def test_a_host_that_is_well_is_put_back_although_going_back_broke_off(ansible: Ansible) -> None:
    """As where site.yml fails for a reason of another host, such as a dead primary."""
    ansible.failing = {f"{NEW} hgweb1", f"{OLD} hgweb1"}
    with pytest.raises(DeployError, match=r"Going back failed too[\s\S]*hgweb1 passed the check"):
        rolling()._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps[-2:] == ["check hgweb1", "ready hgweb1"]
    # The next run knows that this run broke off.
    assert ansible.given["ready"]["roll_records"] == {}


def test_a_mirror_that_only_catches_up_is_put_back_and_not_waited_for(ansible: Ansible) -> None:
    """It does not catch up while the primary is down, and no proxy uses it until it has."""
    ansible.ill, ansible.problem = {"hgweb1": 9}, f"{books.BEHIND}: not caught up"
    with pytest.raises(DeployError, match="checked and put back"):
        rolling()._change(Batch("canary", ("hgweb1",)))
    assert ansible.steps[-1] == "ready hgweb1"
    assert ansible.given["ready"]["roll_back_waits"] is False
    assert set(ansible.given["ready"]["roll_records"]) == {"hgweb1"}


def test_only_the_hosts_of_a_batch_that_are_ill_stay_drained(ansible: Ansible) -> None:
    ansible.ill = {"hgweb2": 9}
    with pytest.raises(DeployError) as error:
        rolling()._change(Batch("mirrors", ("hgweb1", "hgweb2")))
    assert ansible.steps[-2:] == ["ready hgweb1", "drain hgweb2"]
    assert "hgweb1 passed the check, and was put back. hgweb2 stay drained" in str(error.value)


def test_what_a_check_did_without_is_told_once(
    ansible: Ansible, capsys: pytest.CaptureFixture[str]
) -> None:
    rolling().run([Batch("canary", ("hgweb1",)), Batch("mirrors", ("hgweb2",))])
    assert ansible.steps.count("check hgweb2") == 1
    assert capsys.readouterr().err.count("no answer") == 1


class Lock:
    """Notes what a roll asks of its lock; `lost` is the batch before which it is lost."""

    said: Final = {"id": "a", "said": "a", "taken": 1.0}

    def __init__(self, ansible: Ansible, lost: int) -> None:
        self.ansible, self.lost = ansible, lost

    def require(self) -> None:
        self.lost -= 1
        if self.lost == 0:
            raise DeployError("This run has lost the lock.", "Way out.")

    def drains(self, hosts: Sequence[str]) -> None:
        self.ansible.steps.append(f"lease {' '.join(hosts)}".strip())


def test_a_lost_lock_ends_a_roll_before_the_next_batch(ansible: Ansible) -> None:
    ours = rolling()
    ours.lock = Lock(ansible, 2)  # type: ignore[assignment]
    with pytest.raises(DeployError, match="lost the lock"):
        ours.run([Batch("canary", ("hgweb1",)), Batch("mirrors", ("hgweb2",))])
    assert ansible.steps == [
        *("drain hgweb1", "lease hgweb1", f"{NEW} hgweb1", "check hgweb1", "ready hgweb1"),
        "lease",
    ]
    assert ansible.given["drain"]["roll_lock"] == Lock.said
