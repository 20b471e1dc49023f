"""Changed records are still records of their jobs, and have the values that the alerts look for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup import run_records as backup
from hgfleet.backup.restic import packs
from hgfleet.backup.restic.restic import Check
from hgfleet.bundles.steps import run_record
from hgfleet.bundles.stores import corruption
from hgfleet.core import counters
from hgfleet.hg import push_outcome
from hgfleet.integrity import state
from hgfleet.monitoring import families
from hgfleet.monitoring.facts import Facts
from hgfleet.probes import result_history
from hgfleet.probes.result_history import History, Result
from hgfleet.pushlog.record import hash_of, parse
from hgfleet.steering import health
from testing.faults import alert_records as records
from testing.faults.alert_records import DAY, HOUR, document
from testing.support import pushlog_records

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_440_000.0


def test_bundle_jobs_are_late_and_failed() -> None:
    text = json.dumps(
        {"format": 1, "started": NOW - 60, "ended": NOW - 50, "failed": 0, "incomplete": 0}
        | {"repositories": 7, "covered": 7, "oldest": 1.0, "newest": 2.0, "bytes": {"s3-1": 5}}
    )
    run = run_record.parse(document(records.late_bundles)(text, NOW))
    assert NOW - run.ended > 14 * HOUR
    assert run.started < run.ended
    assert run.failed == run.incomplete == run.repositories - run.covered == 1
    assert run.bytes == {"s3-1": 5}


def test_a_bundle_was_corrupt() -> None:
    text = json.dumps({"format": 1, "places": {"s3-1": 0.0, "s3-2": 0.0}})
    times = corruption.parse(document(records.corrupt_bundle)(text, NOW))
    assert NOW - times.pop("s3-1") < DAY
    assert times == {"s3-2": 0.0}


def test_a_verification_is_late_and_found_a_corrupt_repository() -> None:
    text = json.dumps(
        {"format": 1, "days": 30, "ended": NOW, "corrupt": 0, "oldest": NOW, "repositories": 5}
    )
    figures = state.parse_figures(document(records.late_verification)(text, NOW))
    assert NOW - figures.ended > 42 * HOUR
    assert figures.corrupt == 1
    assert NOW - figures.oldest > (figures.days + 1) * DAY


def test_a_push_was_refused_behind_unrecorded_changes() -> None:
    text = "accepted 12\naccepted seconds 4.1\n"
    for count in (1, 2):
        text = records.unrecorded_pushes(text, NOW)
        pushes = push_outcome.of(counters.parse(text))
        assert pushes.failed["unrecorded"] == count
        assert (pushes.accepted, pushes.seconds) == (12, 4.1)


def test_a_damaged_document_cannot_be_read() -> None:
    text = json.dumps({"format": 1, "days": 30})
    with pytest.raises(ValueError, match=r".+"):
        state.parse_figures(records.damaged(text, NOW))


def test_backups_and_drills_are_late_and_failed() -> None:
    runs = {"started": NOW - 9, "ended": NOW, "failed": {}, "repositories": {"a": {"time": NOW}}}
    late = records.late_backup(runs, NOW)
    assert NOW - late["ended"] > 26 * HOUR
    assert late["started"] < late["ended"]
    assert len(late["failed"]) == 1
    assert late["repositories"] == runs["repositories"]
    assert records.no_backup(runs, NOW) == {}
    drills = records.late_drills({"a": {"time": NOW, "push_id": 3}, "b": {"time": NOW}}, NOW)
    assert drills["a"]["push_id"] == 3
    assert all(drill["error"] and NOW - drill["time"] > 50 * HOUR for drill in drills.values())


def test_packs_are_corrupt_and_unread() -> None:
    known = packs.after(None, 1, Check(packs=(), errors=0), NOW)
    (late,) = records.late_checks({"hg1": known}, NOW).values()
    checked = packs.checked(late, NOW)
    assert checked.broken == 1
    assert NOW - checked.time > 50 * HOUR
    assert NOW - checked.oldest > 30 * DAY


@pytest.mark.parametrize("age", [20, 4000])
def test_probes_are_late(age: float) -> None:
    results = (Result(NOW - age - 60, None), Result(NOW - age, 0.5))
    past = result_history.parse(
        document(records.late_probe)(
            result_history.dump(History(results=results, uploaded=NOW)), NOW
        )
    )
    assert NOW - past.results[-1].time >= 400
    assert [result.seconds for result in past.results] == [None, 0.5]


def test_a_page_is_late() -> None:
    text = result_history.dump(History(results=(Result(NOW, 0.5),), uploaded=NOW))
    past = result_history.parse(document(records.late_page)(text, NOW))
    assert NOW - past.uploaded > 900
    assert past.results == (Result(NOW, 0.5),)


def test_a_prober_is_silent_and_has_found_a_dead_object() -> None:
    text = health.dump(health.Health(NOW, {"s3-1": health.Condition(True, 3, "")}))
    prober = health.parse(document(records.silent_prober)(text, NOW))
    assert prober is not None
    assert NOW - prober.written > 120
    assert prober.endpoints.keys() == {"s3-1"}
    lines = health.dump_findings(health.Findings(read={"https://s3-1/bundles/a.hg"})).decode()
    findings = health.parse_findings(records.dead_object(lines, NOW).encode())
    assert len(findings.dead) == 1
    assert len(findings.read) == 1


def test_a_push_log_ends_with_another_push_of_the_same_number() -> None:
    lines = pushlog_records.lines(2)
    text = "".join(f"{line.decode()}\n" for line in lines)
    first, last = records.other_push(text, NOW).encode().splitlines()
    assert first == lines[0]
    assert parse(last).id == 2
    assert hash_of(last) != hash_of(lines[1])


def test_a_prune_was_refused(tmp_path: Path) -> None:
    known = {"hg1": {"time": NOW - DAY, "snapshots": [], "refused": ""}}
    backup.save(tmp_path, backup.PRUNES, records.refused_prune(known, NOW))
    assert backup.load(tmp_path, backup.PRUNES)["hg1"]["refused"]


def test_a_relay_tells_of_a_broker_that_refuses_and_a_mirror_of_its_documents() -> None:
    state = {"role": "primary", "broker": {"connected": True, "problem": "", "warnings": []}}
    told = json.loads(document(records.refusing_broker)(json.dumps(state), NOW))
    values = samples(Facts(NOW, replication=told))
    assert values["hgfleet_replication_broker_refuses"] == 1
    assert values["hgfleet_replication_broker_warnings"] == 1
    assert values["hgfleet_replication_waiting_seconds"] > 120
    assert values["hgfleet_replication_waiting_events_seconds"] > 900
    mirror = {"role": "mirror", "source": "no route"}
    told = json.loads(document(records.documents_away)(json.dumps(mirror), NOW))
    assert samples(Facts(NOW, replication=told))["hgfleet_replication_documents_away"] == 1


def test_states_of_a_host_tell_of_dead_events_an_open_firewall_and_outdated_units() -> None:
    facts = Facts(
        NOW,
        webhooks=json.loads(records.dead_events("", NOW)),
        firewall=json.loads(
            document(records.open_firewall)('{"in_force": true, "looked": 5, "restored": 0}', NOW)
        ),
        outdated=json.loads(document(records.outdated_units)('{"units": {}}', NOW))["units"],
    )
    values = samples(facts)
    assert values["hgfleet_webhooks_dead_events"] == 2
    assert values["hgfleet_firewall_in_force"] == 0
    assert NOW - values["hgfleet_firewall_restored_timestamp_seconds"] < HOUR
    assert values["hgfleet_unit_outdated"] == 1
    assert records.clock("", NOW) == f"node_time_seconds {NOW - 600:.0f}\n"


def samples(facts: Facts) -> dict[str, float]:
    """The last value of each metric."""
    return {family.name: value for family in families.of(facts) for _, value in family.samples}
