"""Prometheus sees every host and reports a fault in time; its alerts end with the fault."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from testing.e2e import metrics
from testing.e2e.command import run, wait_until
from testing.e2e.people import DENIED
from testing.e2e.prometheus import IN_TIME, SEEN

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.prometheus import Prometheus

REPOSITORY: Final = "e2e/monitoring"


def test_every_host_and_every_probe_is_well(cluster: Cluster, prometheus: Prometheus) -> None:
    hosts = {host.name for host in cluster.hosts}

    def are_well() -> bool:
        targets = prometheus.ask("targets", state="active")["activeTargets"]
        wrong = [f"{a['scrapeUrl']}: {a['lastError']}" for a in targets if a["health"] != "up"]
        assert not wrong, wrong
        watched = {
            target["labels"]["host"] for target in targets if target["scrapePool"] == "hosts"
        }
        assert watched == hosts
        probes = prometheus.ask("query", query="probe_success")["result"]
        failed = [probe["metric"] for probe in probes if probe["value"][1] != "1"]
        assert not failed, failed
        assert {probe["metric"]["part"] for probe in probes} == {
            "proxy",
            "cdn",
            "objectstore",
            "ssh",
        }
        # On a kernel without one of the pressure figures, this collector fails but has the others.
        query = 'node_scrape_collector_success{collector!="pressure"} == 0'
        assert not prometheus.ask("query", query=query)["result"]
        return True

    wait_until("all targets and probes are well", are_well, IN_TIME)


def test_the_alert_that_always_fires_is_at_the_alertmanager(
    cluster: Cluster, prometheus: Prometheus
) -> None:
    ask = ("amtool", "--alertmanager.url", "http://127.0.0.1:9093", "alert", "--output=json")

    def is_there() -> bool:
        firing = {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}
        assert "Watchdog" in firing
        listed = json.loads(cluster.first("monitoring").run(*ask).ok().stdout)
        (receivers,) = [
            alert["receivers"] for alert in listed if alert["labels"]["alertname"] == "Watchdog"
        ]
        assert [receiver["name"] for receiver in receivers] == ["heartbeat"]
        return True

    wait_until("the alert is delivered", is_there, IN_TIME)


def test_metrics_of_parts_come_from_their_hosts(cluster: Cluster, prometheus: Prometheus) -> None:
    mirrors = {host.name for host in cluster.all("web")} - {cluster.first("ssh").name}
    primary = cluster.first("ssh").name
    backed_up = {host.name for host in cluster.all("backup")} - {
        host.name for host in cluster.all("objectstore")
    }
    assert prometheus.query("hgfleet_replication_caught_up").keys() == mirrors
    assert prometheus.query("hgfleet_replication_broker_connected").keys() == {primary}
    assert prometheus.query("hgfleet_backup_repositories").keys() == backed_up
    answering = {host.name for group in ("ssh", "web") for host in cluster.all(group)}
    assert prometheus.query("min by (host) (hgfleet_steering_endpoint_up)").keys() == answering
    # Before the first run of a job its time is 0.
    assert prometheus.query("hgfleet_integrity_last_run_timestamp_seconds").keys() == answering
    failures = prometheus.query('hgfleet_push_failures_total{reason="error"}')
    assert failures.keys() == {host.name for host in cluster.all("ssh")}
    bundles = {host.name for host in cluster.all("bundles")}
    assert prometheus.query("hgfleet_bundles_last_run_timestamp_seconds").keys() == bundles
    checks = "hgfleet_backup_last_check_timestamp_seconds"
    pruners = {host.name for host in cluster.all("backup")} - backed_up
    assert prometheus.query(f"min by (host) ({checks})").keys() == pruners
    checked = prometheus.ask("query", query=checks)["result"]
    assert {sample["metric"]["backed_up_host"] for sample in checked} == backed_up


def test_a_run_of_the_bundle_jobs_is_seen_with_its_bundles(
    cluster: Cluster, prometheus: Prometheus
) -> None:
    host = cluster.first("bundles")

    def value(name: str) -> float:
        return prometheus.query(f"sum by (host) (hgfleet_bundles_{name})")[host.name]

    before = value("last_run_timestamp_seconds")
    # A failed run leaves its figures too; it may fail because other tests break stores.
    host.systemctl("start", "hgfleet-bundles.service")
    metrics.written([host])
    wait_until("the run is seen", lambda: value("last_run_timestamp_seconds") > before, SEEN)
    assert 0 < value("covered_repositories") <= value("repositories")
    assert value("published_bytes") > 0
    begun = value("last_run_timestamp_seconds") - value("last_run_duration_seconds")
    assert 0 < value("oldest_timestamp_seconds") <= value("newest_timestamp_seconds")
    assert begun >= before
    assert value("last_run_failures") >= 0
    assert value("incomplete_repositories") >= 0
    # The busiest repositories of the last day; other tests have pushed and cloned before.
    busiest = prometheus.ask("query", query="hgfleet_repository_last_day_pushes")["result"]
    named = {sample["metric"]["repository"] for sample in busiest}
    assert 0 < len(named) <= 22
    assert not named & {"e2e/private", "e2e/confidential"}


def test_pushes_are_counted_by_their_result(cluster: Cluster, tmp_path: Path) -> None:
    # Other tests push too, so each count grows at least by these pushes.
    names = (
        'hgfleet_pushes_total{result="accepted"}',
        'hgfleet_pushes_total{result="refused"}',
        'hgfleet_push_refusals_total{reason="access"}',
        "hgfleet_push_duration_seconds_count",
        'hgfleet_push_duration_seconds_bucket{le="+Inf"}',
        "hgfleet_push_duration_seconds_sum",
    )

    def counts() -> list[float]:
        series = metrics.written([cluster.first("ssh")])
        return [metrics.total(series, name) for name in names]

    before = counts()
    for name, is_accepted in (("alice", True), ("bob", False)):
        person = cluster.person(name)
        work = person.clone(person.ssh_url(REPOSITORY), tmp_path / name)
        work.commit(f"{name}.txt", uuid.uuid4().bytes, "counted")
        if is_accepted:
            work.hg("push").ok()
        else:
            work.hg("push").refused("bob may not push to")

    def have_grown() -> bool:
        now = counts()
        assert all(new > old for new, old in zip(now, before, strict=True)), (before, now)
        return True

    wait_until("the pushes are counted", have_grown)


def test_logins_sessions_clones_and_requests_are_counted(cluster: Cluster, tmp_path: Path) -> None:
    alice, live = cluster.person("alice"), ("--config", "ui.clonebundles=false")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    work.commit("counted.txt", uuid.uuid4().bytes, "counted")
    work.hg("push").ok()
    # Other tests do the same, so each count grows at least by these.
    expressions = (
        'hgfleet_key_lookups_total{result="allowed"}',
        'hgfleet_key_lookups_total{result="denied"}',
        'hgfleet_key_lookup_denials_total{reason="unknown"}',
        "hgfleet_key_lookup_duration_seconds_count",
        "hgfleet_key_lookup_duration_seconds_sum",
        'hgfleet_ssh_sessions_total{decision="serve", command="hg"}',
        'hgfleet_ssh_sessions_total{decision="answer", command="whoami"}',
        'hgfleet_ssh_session_refusals_total{reason="command"}',
        'hgfleet_ssh_session_duration_seconds_count{kind="hg"}',
        'hgfleet_clones_total{transport="ssh", source!="clone-bundle"}',
        'hgfleet_clone_bytes_total{transport="ssh"}',
        'hgfleet_clones_total{transport="https", source!="clone-bundle"}',
        'hgfleet_clone_bytes_total{transport="https"}',
        'hgfleet_web_requests_total{kind="changesets", status="2xx"}',
        'hgfleet_web_requests_total{kind="page", status="2xx"}',
        'hgfleet_web_requests_total{kind="other", status="4xx"}',
        'hgfleet_web_request_duration_seconds_count{kind="wire"}',
        "hgfleet_web_response_bytes_total",
        'hgfleet_web_cache_lookups_total{result="miss"}',
    )

    hosts = {host.name: host for group in ("ssh", "web") for host in cluster.all(group)}

    def counts() -> list[float]:
        series = metrics.written(hosts.values())
        return [metrics.total(series, expression) for expression in expressions]

    before = counts()
    alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "ssh", *live)
    alice.clone(cluster.url(REPOSITORY), tmp_path / "https", *live)
    alice.ssh("whoami").ok()
    assert alice.ssh("uname").code != 0
    stranger = tmp_path / "stranger"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)]).ok()
    replace(alice, key=stranger).ssh("whoami").refused(DENIED)
    # No cache has this page yet, since the changeset is new.
    assert cluster.get(f"{REPOSITORY}/rev/{work.hg('id', '-i').ok().stdout.strip()}").status == 200
    assert cluster.get("no/such/repository").status == 404

    def have_grown() -> bool:
        now = counts()
        same = [
            expression
            for expression, new, old in zip(expressions, now, before, strict=True)
            if new <= old
        ]
        assert not same, same
        return True

    wait_until("logins, sessions, clones and requests are counted", have_grown)


def test_key_lookup_writes_its_counts_and_nothing_else(cluster: Cluster) -> None:
    host = cluster.first("ssh")
    owned = host.shell("stat -c '%U %G %a' /run/hgfleet-lookups /run/hgfleet-lookups/lookups")
    assert owned.split("\n")[:2] == ["hgkeys hgkeys 755", "hgkeys hgkeys 644"]
