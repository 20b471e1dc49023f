"""Which metrics a host has, and their values, by its facts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup.restic.packs import Checked
from hgfleet.bundles.decide.activity import Activity
from hgfleet.bundles.steps.run_record import Record
from hgfleet.directory.sync_check import EXIT_CODES
from hgfleet.hg import push_outcome
from hgfleet.hg.clone_counts import Answers
from hgfleet.integrity.state import Figures
from hgfleet.monitoring import families
from hgfleet.monitoring.facts import Backup, Facts
from hgfleet.probes.result_history import History, Result, Sum, add
from hgfleet.ssh.keys.lookup_counts import Lookups
from hgfleet.ssh.session.session_counts import Sessions
from hgfleet.steering.health import Condition, Health
from hgfleet.web.http.request_counts import Requests

if TYPE_CHECKING:
    from hgfleet.monitoring.exposition import Family

NOW = 1_795_598_185.0
DAY = 86_400
BUSIEST = {"team/x": Activity(1, 2, 3, 4.5, 6), "(other)": Activity(7)}
RUN = Record(NOW - 9, NOW - 4, 1, 2, 12, 10, NOW - DAY, NOW - 5, {"s3-1": 800, "s3-2": 0}, BUSIEST)


def values(facts: Facts) -> dict[str, float]:
    """The samples by name and labels."""
    by_name = {}
    for family in families.of(facts):
        for labels, value in family.samples:
            text = ",".join(f"{name}={label}" for name, label in labels.items())
            by_name[f"{family.name}{{{text}}}" if text else family.name] = value
    return by_name


def families_of_all_parts() -> list[Family]:
    facts = Facts(
        NOW,
        release="1",
        enabled=frozenset(
            {families.WEB, families.SSH, families.BUNDLES, families.INTEGRITY, families.PROBES}
        ),
        pushes=push_outcome.of({}),
        lookups=Lookups({}),
        sessions=Sessions({}),
        clones={"ssh": Answers({}), "https": Answers({})},
        requests=Requests({}),
        probes={"clone": add(History(), Result(NOW, 0.8))},
        shows_page=True,
        packs={"hg1": Checked(NOW, NOW, 0, 0)},
        refused_prunes={"hg1": False},
        bundles=RUN,
        integrity=Figures(30, NOW, 2, 0, NOW),
        certificates={"ca.pem": NOW},
        backup=Backup({"repositories": {"a": {}}}, {"a": {"time": 1}}, 35),
        replication={"role": "primary", "mirrors": {"m": {}}},
        steering=Health(NOW, {"s3": Condition()}),
        replica={"state": "in-sync"},
        webhooks={"ci": {"dead": 0, "waiting": 0}},
        firewall={"in_force": True, "looked": NOW},
        outdated={"nginx.service": "/usr/lib/libssl.so.3"},
        readonly={"/dev/sda1": False},
    )
    return families.of(facts) + families.of(Facts(NOW, replication={"role": "mirror"}))


def names_of_all_parts() -> set[str]:
    """The names that a dashboard may have."""
    names = set()
    for family in families_of_all_parts():
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        names.update(f"{family.name}{suffix}" for suffix in suffixes)
    return names


def test_names_follow_the_conventions() -> None:
    all_families = families_of_all_parts()
    assert len(all_families) > 40
    for family in all_families:
        assert family.name.startswith("hgfleet_")
        assert family.help.endswith(".")
        assert len({tuple(labels.items()) for labels, _ in family.samples}) == len(family.samples)
        for labels, _ in family.samples:
            assert not labels.keys() & {"user", "path"}
            # Of at most 22 values, and none of a private repository (bundles.activity).
            is_of_repository = family.name.startswith("hgfleet_repository_last_day_")
            assert ("repository" in labels) == is_of_repository


def test_a_host_without_parts_has_metrics_of_its_sources_alone() -> None:
    assert values(Facts(NOW, sources=("release",))) == {
        "hgfleet_metrics_source_readable{source=release}": 1
    }


@pytest.mark.parametrize(
    ("text", "drained", "end"),
    [
        (None, False, 0),
        ("", True, 0),
        (f"until={NOW + 60:.0f}\n", True, NOW + 60),
        (f"until={NOW - 60:.0f}\n", False, NOW - 60),
        ("until=soon\n", True, 0),
    ],
    ids=["none", "an operator's", "a deploy's", "one that has ended", "one that is damaged"],
)
def test_a_web_host_says_whether_it_is_drained(text: str | None, drained: bool, end: float) -> None:
    metrics = values(Facts(NOW, enabled=frozenset({families.WEB}), drain=text))
    assert metrics["hgfleet_web_drained"] == drained
    assert metrics["hgfleet_web_drain_end_timestamp_seconds"] == end


def test_only_web_hosts_are_drained() -> None:
    assert "hgfleet_web_drained" not in values(Facts(NOW, drain=""))


def backup(runs: dict[str, Any], drills: dict[str, Any]) -> dict[str, float]:
    metrics = values(Facts(NOW, backup=Backup(runs, drills, 35)))
    return {name.removeprefix("hgfleet_backup_"): value for name, value in metrics.items()}


def test_a_host_that_was_never_backed_up_says_so() -> None:
    metrics = backup({}, {})
    assert metrics["last_run_timestamp_seconds"] == 0
    assert "last_drill_timestamp_seconds" not in metrics


def test_backups_that_no_recent_drill_restored_are_unproven() -> None:
    repositories = {name: {"push_id": 1} for name in ("good", "never", "old", "broken")}
    metrics = backup(
        {"started": NOW - 9, "ended": NOW - 4, "repositories": repositories, "failed": {"x": "y"}},
        {
            "good": {"time": NOW - DAY, "push_id": 1},
            "old": {"time": NOW - 36 * DAY},
            "broken": {"time": NOW - DAY / 2, "error": "no"},
            "removed": {"time": NOW - DAY, "error": "no"},
        },
    )
    assert metrics == {
        "last_run_timestamp_seconds": NOW - 4,
        "last_run_duration_seconds": 5,
        "last_run_failures": 1,
        "repositories": 4,
        "last_drill_timestamp_seconds": NOW - DAY / 2,
        "failed_drills": 1,
        "unproven_repositories": 3,
    }


def test_the_primary_tells_of_its_mirrors() -> None:
    state = {
        "role": "primary",
        "broker": {"connected": True, "problem": "it is full", "warnings": ["a", "b"]},
        "waiting": 2,
        "waiting_seconds": 61.5,
        "events": {"waiting": 4, "seconds": 900.5, "problems": ["x"]},
        "problems": {"a": "b"},
        "fenced_repositories": 3,
        "mirrors": {
            "m1": {"live": True, "caught_up": True, "waiting": 0, "parked": 0},
            "m2": {"live": False, "caught_up": None, "waiting": 3, "parked": 1},
        },
    }
    metrics = values(Facts(NOW, replication=state))
    assert metrics["hgfleet_replication_role{role=primary}"] == 1
    assert metrics["hgfleet_replication_broker_connected"] == 1
    assert metrics["hgfleet_replication_waiting_pushes"] == 2
    assert metrics["hgfleet_replication_problems"] == 1
    assert metrics["hgfleet_replication_document_refused{document=registry}"] == 0
    assert metrics["hgfleet_replication_fenced_repositories"] == 3
    assert metrics["hgfleet_replication_broker_refuses"] == 1
    assert metrics["hgfleet_replication_broker_warnings"] == 2
    assert metrics["hgfleet_replication_waiting_seconds"] == 61.5
    assert metrics["hgfleet_replication_event_problems"] == 1
    assert metrics["hgfleet_replication_waiting_events"] == 4
    assert metrics["hgfleet_replication_waiting_events_seconds"] == 900.5
    for broker in ({"connected": False, "problem": "no answer"}, {"connected": True}):
        state = state | {"broker": broker}
        assert values(Facts(NOW, replication=state))["hgfleet_replication_broker_refuses"] == 0
    for name, first, second in (
        ("live", 1, 0),
        ("caught_up", 1, 0),
        ("waiting_pushes", 0, 3),
        ("parked_repositories", 0, 1),
    ):
        assert metrics[f"hgfleet_replication_mirror_{name}{{mirror=m1}}"] == first
        assert metrics[f"hgfleet_replication_mirror_{name}{{mirror=m2}}"] == second


def test_a_mirror_tells_of_itself() -> None:
    state = {
        "role": "mirror",
        "caught_up": True,
        "lease_until": NOW + 8,
        "waiting": 0,
        "parked_repositories": 2,
        "behind": 3,
        "source": "no route",
        "broker": "",
        "paused": True,
        "refused": {"tokens": "they are older"},
        "aside_repositories": 4,
        "documents_away": 5,
    }
    metrics = values(Facts(NOW, replication=state))
    assert metrics["hgfleet_replication_document_refused{document=registry}"] == 0
    assert metrics["hgfleet_replication_document_refused{document=tokens}"] == 1
    assert metrics["hgfleet_replication_set_aside_repositories"] == 4
    assert metrics["hgfleet_replication_documents_away"] == 5
    assert metrics["hgfleet_replication_caught_up"] == 1
    assert metrics["hgfleet_replication_lease_end_timestamp_seconds"] == NOW + 8
    assert metrics["hgfleet_replication_parked_repositories"] == 2
    assert metrics["hgfleet_replication_paused"] == 1
    assert metrics["hgfleet_replication_behind_repositories"] == 3
    assert metrics["hgfleet_replication_away{server=source}"] == 1
    assert metrics["hgfleet_replication_away{server=broker}"] == 0
    assert "hgfleet_replication_broker_connected" not in metrics


def test_endpoints_that_clients_are_not_sent_to_are_down() -> None:
    health = Health(NOW - 3, {"s3-1": Condition(True), "s3-2": Condition(False, 2, "slow")})
    metrics = values(Facts(NOW, steering=health, dead_objects=4))
    assert metrics["hgfleet_steering_endpoint_up{endpoint=s3-1}"] == 1
    assert metrics["hgfleet_steering_endpoint_up{endpoint=s3-2}"] == 0
    assert metrics["hgfleet_steering_dead_objects"] == 4
    assert metrics["hgfleet_steering_written_timestamp_seconds"] == NOW - 3


def test_one_state_of_the_replica_is_1() -> None:
    metrics = values(Facts(NOW, replica={"state": "lagging"}))
    states = {name: value for name, value in metrics.items() if "replica_state" in name}
    assert states["hgfleet_replica_state{state=lagging}"] == 1
    assert sum(states.values()) == 1
    assert len(states) == len(EXIT_CODES)


def test_the_host_that_prunes_tells_of_the_packs_of_others() -> None:
    checks = {"hg1": Checked(NOW - 9, NOW - 2 * DAY, 1, 3), "ldap1": Checked(0, 0, 0, 0)}
    refused = {"hg1": True, "ldap1": False}
    metrics = values(Facts(NOW, packs=checks, refused_prunes=refused))
    assert {name: value for name, value in metrics.items() if "hgfleet_backup" in name} == {
        "hgfleet_backup_prune_refused{backed_up_host=hg1}": 1,
        "hgfleet_backup_prune_refused{backed_up_host=ldap1}": 0,
        "hgfleet_backup_last_check_timestamp_seconds{backed_up_host=hg1}": NOW - 9,
        "hgfleet_backup_last_check_timestamp_seconds{backed_up_host=ldap1}": 0,
        "hgfleet_backup_packs_oldest_read_timestamp_seconds{backed_up_host=hg1}": NOW - 2 * DAY,
        "hgfleet_backup_corrupt_packs{backed_up_host=hg1}": 1,
        "hgfleet_backup_corrupt_packs{backed_up_host=ldap1}": 0,
        "hgfleet_backup_check_errors{backed_up_host=hg1}": 3,
        "hgfleet_backup_check_errors{backed_up_host=ldap1}": 0,
    }


def test_a_time_from_the_future_is_never() -> None:
    """The clock ran ahead, and was set back: each alert about an age stays silent otherwise."""
    later = NOW + 40 * DAY
    metrics = values(
        Facts(
            NOW,
            enabled=frozenset({families.BUNDLES, families.INTEGRITY, families.WEB}),
            packs={"hg1": Checked(later, later, 0, 0)},
            bundles=replace(RUN, ended=later),
            corrupt_bundles={"s3-1": later},
            integrity=Figures(30, later, 2, 0, later),
            certificates={"ca.pem": later},
            drain=f"until={int(later)}",
            backup=Backup(
                {"started": later, "ended": later},
                {"a": {"time": later}, "b": {"time": NOW - DAY}},
                35,
            ),
            steering=Health(later, {}),
            replication={"role": "mirror", "lease_until": later},
        )
    )
    assert {name.partition("{")[0] for name, value in metrics.items() if value >= NOW} == {
        # Ends, and a time whose alert is about the recent past.
        "hgfleet_certificate_expiry_timestamp_seconds",
        "hgfleet_web_drain_end_timestamp_seconds",
        "hgfleet_replication_lease_end_timestamp_seconds",
        "hgfleet_bundles_last_corrupt_timestamp_seconds",
    }
    # A drill of the future does not hide that another drill is recent.
    assert metrics["hgfleet_backup_last_drill_timestamp_seconds"] == NOW - DAY
    assert metrics["hgfleet_backup_last_run_timestamp_seconds"] == 0


def test_the_bundle_jobs_tell_of_their_last_run() -> None:
    metrics = values(
        Facts(
            NOW,
            enabled=frozenset({families.BUNDLES}),
            bundles=RUN,
            corrupt_bundles={"s3-1": NOW - 60, "pull bundles": 0.0},
        )
    )
    prefix = "hgfleet_bundles_"
    assert {
        name.removeprefix(prefix): value for name, value in metrics.items() if prefix in name
    } == {
        "last_run_timestamp_seconds": NOW - 4,
        "last_run_duration_seconds": 5,
        "last_run_failures": 1,
        "incomplete_repositories": 2,
        "repositories": 12,
        "covered_repositories": 10,
        "oldest_timestamp_seconds": NOW - DAY,
        "newest_timestamp_seconds": NOW - 5,
        "published_bytes{store=s3-1}": 800,
        "published_bytes{store=s3-2}": 0,
        "last_corrupt_timestamp_seconds{place=s3-1}": NOW - 60,
        "last_corrupt_timestamp_seconds{place=pull bundles}": 0,
    }


def test_the_busiest_repositories_have_names() -> None:
    metrics = values(Facts(NOW, enabled=frozenset({families.BUNDLES}), bundles=RUN))
    prefix = "hgfleet_repository_last_day_"
    assert {
        name.removeprefix(prefix): value for name, value in metrics.items() if "team/x" in name
    } == {
        "pushes{repository=team/x}": 1,
        "clones{repository=team/x}": 2,
        "pulls{repository=team/x}": 3,
        "busy_seconds{repository=team/x}": 4.5,
        "sent_bytes{repository=team/x}": 6,
    }
    assert metrics[f"{prefix}pushes{{repository=(other)}}"] == 7


def test_a_host_tells_of_the_verification_of_its_repositories() -> None:
    timer = frozenset({families.INTEGRITY})
    metrics = values(Facts(NOW, enabled=timer, integrity=Figures(30, NOW - 4, 12, 1, NOW - DAY)))
    prefix = "hgfleet_integrity_"
    assert {
        name.removeprefix(prefix): value for name, value in metrics.items() if prefix in name
    } == {
        "last_run_timestamp_seconds": NOW - 4,
        "repositories": 12,
        "corrupt_repositories": 1,
        "period_seconds": 30 * DAY,
        "oldest_verification_timestamp_seconds": NOW - DAY,
    }
    blank = values(Facts(NOW, enabled=timer, integrity=Figures(30, NOW, 0, 0, 0)))
    assert "hgfleet_integrity_oldest_verification_timestamp_seconds" not in blank


def test_a_job_that_never_ran_says_so_and_other_hosts_say_nothing() -> None:
    timers = frozenset({families.BUNDLES, families.INTEGRITY})
    metrics = values(Facts(NOW, enabled=timers))
    assert metrics["hgfleet_bundles_last_run_timestamp_seconds"] == 0
    assert metrics["hgfleet_integrity_last_run_timestamp_seconds"] == 0
    # The record of a host that had the part before.
    assert not values(Facts(NOW, bundles=RUN, integrity=Figures(30, NOW, 1, 0, NOW)))


def test_pushes_are_counted_by_result_and_reason() -> None:
    data = {
        "accepted": 7,
        "accepted seconds": 9.5,
        "accepted at most 1 s": 6,
        "access": 2,
        "locked": 1,
    }
    metrics = values(
        Facts(NOW, enabled=frozenset({families.SSH}), pushes=push_outcome.of(data | {"x": 1}))
    )
    assert metrics["hgfleet_pushes_total{result=accepted}"] == 7
    assert metrics["hgfleet_pushes_total{result=refused}"] == 2
    assert metrics["hgfleet_pushes_total{result=failed}"] == 1
    assert metrics["hgfleet_push_refusals_total{reason=access}"] == 2
    assert metrics["hgfleet_push_refusals_total{reason=policies}"] == 0
    assert metrics["hgfleet_push_failures_total{reason=locked}"] == 1
    assert metrics["hgfleet_push_duration_seconds{le=0.5}"] == 0
    assert metrics["hgfleet_push_duration_seconds{le=1}"] == 6
    assert metrics["hgfleet_push_duration_seconds{le=+Inf}"] == 7
    # A host without the SSH server takes no pushes.
    assert not values(Facts(NOW, pushes=push_outcome.of(data)))


def test_lookups_are_counted_by_result_and_reason() -> None:
    data = {"ok": 7, "unknown": 2, "expired": 1, "unavailable": 1, "seconds": 0.5}
    lookups = Lookups(data | {"at most 0.005 s": 6})
    metrics = values(Facts(NOW, enabled=frozenset({families.SSH}), lookups=lookups))
    assert metrics["hgfleet_key_lookups_total{result=allowed}"] == 7
    assert metrics["hgfleet_key_lookups_total{result=denied}"] == 3
    assert metrics["hgfleet_key_lookups_total{result=failed}"] == 1
    assert metrics["hgfleet_key_lookup_denials_total{reason=unknown}"] == 2
    assert metrics["hgfleet_key_lookup_failures_total{reason=unavailable}"] == 1
    assert metrics["hgfleet_key_lookup_duration_seconds{le=0.01}"] == 6
    assert metrics["hgfleet_key_lookup_duration_seconds{le=+Inf}"] == 11
    assert not values(Facts(NOW, lookups=lookups))


def test_sessions_are_counted_by_decision_and_command() -> None:
    data = {"serve: hg": 3, "refuse: none": 2, "because: usage": 2, "hg at most 0.5 s": 3}
    metrics = values(Facts(NOW, enabled=frozenset({families.SSH}), sessions=Sessions(data)))
    name = "hgfleet_ssh_sessions_total"
    assert metrics[f"{name}{{decision=serve,command=hg}}"] == 3
    assert metrics[f"{name}{{decision=refuse,command=none}}"] == 2
    assert metrics[f"{name}{{decision=answer,command=repo create}}"] == 0
    assert metrics["hgfleet_ssh_session_refusals_total{reason=usage}"] == 2
    duration = "hgfleet_ssh_session_duration_seconds"
    assert metrics[f"{duration}{{kind=hg,le=0.5}}"] == 3
    assert metrics[f"{duration}{{kind=self-service,le=+Inf}}"] == 0


def test_clones_are_counted_by_source_and_transport() -> None:
    clones = {
        "ssh": Answers({"clone live": 1, "clone live bytes": 500}),
        "https": Answers({"clone clone-bundle": 9, "pull pull-bundle": 4}),
    }
    both = frozenset({families.SSH, families.WEB})
    metrics = values(Facts(NOW, enabled=both, clones=clones))
    assert metrics["hgfleet_clones_total{source=live,transport=ssh}"] == 1
    assert metrics["hgfleet_clone_bytes_total{source=live,transport=ssh}"] == 500
    assert metrics["hgfleet_clones_total{source=clone-bundle,transport=https}"] == 9
    assert metrics["hgfleet_pulls_total{source=pull-bundle,transport=https}"] == 4
    assert "hgfleet_clone_bytes_total{source=clone-bundle,transport=https}" not in metrics
    # A mirror answers over HTTPS only.
    mirror = values(Facts(NOW, enabled=frozenset({families.WEB}), clones=clones))
    assert not any("transport=ssh" in name for name in mirror)


def test_requests_are_counted_by_kind_and_status() -> None:
    data = {
        "page 2xx": 5,
        "page 4xx": 1,
        "page at most 0.1 s": 4,
        "cache hit": 3,
        "refused busy": 1,
    }
    metrics = values(Facts(NOW, enabled=frozenset({families.WEB}), requests=Requests(data)))
    assert metrics["hgfleet_web_requests_total{kind=page,status=2xx}"] == 5
    assert metrics["hgfleet_web_request_duration_seconds{kind=page,le=0.1}"] == 4
    assert metrics["hgfleet_web_request_duration_seconds{kind=page,le=+Inf}"] == 6
    assert metrics["hgfleet_web_cache_lookups_total{result=hit}"] == 3
    assert metrics["hgfleet_web_refusals_total{reason=busy}"] == 1


def test_probes_are_counted_by_their_result_and_the_last_one_is_told() -> None:
    unit = frozenset({families.PROBES})
    history = add(add(History(Sum(7, 1, 6.0)), Result(NOW - 60, None)), Result(NOW, 0.5))
    metrics = values(Facts(NOW, enabled=unit, probes={"clone": history}, shows_page=True))
    assert metrics["hgfleet_probes_total{probe=clone,result=succeeded}"] == 8
    assert metrics["hgfleet_probes_total{probe=clone,result=failed}"] == 2
    assert metrics["hgfleet_probe_seconds_total{probe=clone}"] == 6.5
    assert metrics["hgfleet_probe_last_run_timestamp_seconds{probe=clone}"] == NOW
    assert metrics["hgfleet_probe_success{probe=clone}"] == 1
    assert metrics["hgfleet_probe_duration_seconds{probe=clone}"] == 0.5
    assert metrics["hgfleet_status_page_uploaded_timestamp_seconds"] == 0


def test_a_failed_probe_has_no_duration() -> None:
    history = add(History(), Result(NOW, None))
    metrics = values(Facts(NOW, enabled=frozenset({families.PROBES}), probes={"clone": history}))
    assert metrics["hgfleet_probe_success{probe=clone}"] == 0
    assert "hgfleet_probe_duration_seconds{probe=clone}" not in metrics
    assert "hgfleet_status_page_uploaded_timestamp_seconds" not in metrics


def test_pushes_are_told_apart_from_clones_also_before_the_first() -> None:
    history = add(History(), Result(NOW, 0.5))
    unit = frozenset({families.PROBES})
    metrics = values(Facts(NOW, enabled=unit, probes={"clone": history, "push": History()}))
    assert metrics["hgfleet_probes_total{probe=push,result=failed}"] == 0
    assert metrics["hgfleet_probe_last_run_timestamp_seconds{probe=push}"] == 0
    assert "hgfleet_probe_success{probe=push}" not in metrics
    assert metrics["hgfleet_probe_success{probe=clone}"] == 1
    both = values(Facts(NOW, enabled=unit, probes={"clone": History(), "push": history}))
    assert both["hgfleet_probes_total{probe=push,result=succeeded}"] == 1
    assert both["hgfleet_probe_duration_seconds{probe=push}"] == 0.5


def test_a_host_whose_probes_are_off_has_no_metrics_of_them() -> None:
    history = add(History(), Result(NOW, 0.5))
    assert not any("probe" in name for name in values(Facts(NOW, probes={"clone": history})))


def test_dead_events_are_told_by_receiver() -> None:
    state = {"ci": {"waiting": 2, "dead": 3}, "former receivers": {"dead": 1}}
    metrics = values(Facts(NOW, webhooks=state))
    assert metrics["hgfleet_webhooks_dead_events{receiver=ci}"] == 3
    assert metrics["hgfleet_webhooks_dead_events{receiver=former receivers}"] == 1
    assert metrics["hgfleet_webhooks_waiting_events{receiver=ci}"] == 2


@pytest.mark.parametrize(
    ("state", "in_force"),
    [
        ({"in_force": True, "looked": NOW - 20}, 1),
        ({"in_force": False, "looked": NOW - 20}, 0),
        # The program that looks has ended, or the clock was ahead.
        ({"in_force": True, "looked": NOW - 200}, 0),
        ({"in_force": True, "looked": NOW + 7200}, 0),
        ({}, 0),
    ],
)
def test_the_firewall_is_in_force_by_a_recent_look(state: dict[str, Any], in_force: int) -> None:
    metrics = values(Facts(NOW, firewall=state | {"restored": NOW - 60}))
    assert metrics["hgfleet_firewall_in_force"] == in_force
    assert metrics["hgfleet_firewall_restored_timestamp_seconds"] == NOW - 60


def test_units_on_replaced_files_and_disks_without_writes_are_told() -> None:
    facts = Facts(NOW, outdated={"a.service": "/usr/lib/x"}, readonly={"/dev/a": True, "b": False})
    metrics = values(facts)
    assert metrics["hgfleet_unit_outdated{name=a.service}"] == 1
    assert metrics["hgfleet_filesystem_readonly{device=/dev/a}"] == 1
    assert metrics["hgfleet_filesystem_readonly{device=b}"] == 0
    assert "hgfleet_firewall_in_force" not in metrics
