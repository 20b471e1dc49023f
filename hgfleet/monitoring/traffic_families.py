"""Metrics of the requests of clients: logins, sessions, pushes, clones, requests over HTTPS. Pure.

Each metric starts at 0 for every label value the code knows, so `increase()` counts the first
request too.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from hgfleet.monitoring.exposition import COUNTER, Family, Histogram, Series, labelled
from hgfleet.ssh.keys import lookup_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hgfleet.bundles.decide.activity import Activity
    from hgfleet.hg.clone_counts import Answers
    from hgfleet.hg.push_outcome import Pushes
    from hgfleet.monitoring.facts import Facts
    from hgfleet.ssh.keys.lookup_counts import Lookups
    from hgfleet.ssh.session.session_counts import Sessions
    from hgfleet.web.http.request_counts import Requests


def of(facts: Facts, *, takes_ssh: bool, takes_https: bool) -> Iterator[Family | Histogram]:
    """Yield the metrics of a host that clients connect to with SSH, over HTTPS, or both."""
    if takes_ssh and facts.lookups is not None:
        yield from _lookups(facts.lookups)
    if takes_ssh and facts.sessions is not None:
        yield from _sessions(facts.sessions)
    if takes_ssh and facts.pushes is not None:
        yield from _pushes(facts.pushes)
    if takes_https and facts.requests is not None:
        yield from _requests(facts.requests)
    takes = {"ssh": takes_ssh, "https": takes_https}
    clones = {transport: counts for transport, counts in facts.clones.items() if takes[transport]}
    if clones:
        yield from _clones(clones)


def of_repositories(busiest: Mapping[str, Activity]) -> Iterator[Family]:
    """Yield the activity of the busiest repositories; gauges, since the repositories change."""
    for name, text, value in (
        ("pushes", "Pushes to", attrgetter("pushes")),
        ("clones", "Clones without clone bundles of", attrgetter("clones")),
        ("pulls", "Pulls of", attrgetter("pulls")),
        ("sent_bytes", "Bytes sent for clones and pulls of", attrgetter("bytes")),
        ("busy_seconds", "Time for clones and pulls of", attrgetter("seconds")),
    ):
        yield labelled(
            f"hgfleet_repository_last_day_{name}",
            f"{text} a repository in the day before the last run of the bundle jobs, on this host.",
            "repository",
            {path: value(activity) for path, activity in busiest.items()},
        )


def _lookups(lookups: Lookups) -> Iterator[Family | Histogram]:
    denied = {reason: lookups.by_reason[reason] for reason in lookup_counts.DENIED}
    failed = {reason: lookups.by_reason[reason] for reason in lookup_counts.FAILED}
    results = {
        "allowed": lookups.by_reason[lookup_counts.ALLOWED],
        "denied": sum(denied.values()),
        "failed": sum(failed.values()),
    }
    yield labelled(
        "hgfleet_key_lookups_total",
        "Lookups of keys and certificates by their result; a login takes two.",
        "result",
        results,
        COUNTER,
    )
    yield labelled(
        "hgfleet_key_lookup_denials_total",
        "Lookups that were denied, by the reason.",
        "reason",
        denied,
        COUNTER,
    )
    yield labelled(
        "hgfleet_key_lookup_failures_total",
        "Lookups that the service failed, by the reason.",
        "reason",
        failed,
        COUNTER,
    )
    yield Histogram(
        "hgfleet_key_lookup_duration_seconds",
        "Time of lookups, without the start of their program.",
        (Series(lookups.buckets, lookups.count, lookups.seconds),),
    )


def _sessions(sessions: Sessions) -> Iterator[Family | Histogram]:
    yield Family(
        "hgfleet_ssh_sessions_total",
        "SSH sessions that ended, by the decision of the access shell and the command.",
        tuple(
            ({"decision": decision, "command": command}, count)
            for (decision, command), count in sorted(sessions.by_kind.items())
        ),
        COUNTER,
    )
    yield labelled(
        "hgfleet_ssh_session_refusals_total",
        "SSH sessions whose command is none of the service, by the reason.",
        "reason",
        sessions.by_reason,
        COUNTER,
    )
    yield Histogram(
        "hgfleet_ssh_session_duration_seconds",
        "Time of SSH sessions of hg, and of commands of the self-service.",
        tuple(Series(*times, {"kind": kind}) for kind, times in sorted(sessions.times.items())),
    )


def _pushes(pushes: Pushes) -> Iterator[Family | Histogram]:
    refused, failed = sum(pushes.refused.values()), sum(pushes.failed.values())
    yield labelled(
        "hgfleet_pushes_total",
        "Pushes over SSH by their result: accepted, refused by a rule, failed by the service.",
        "result",
        {"accepted": pushes.accepted, "refused": refused, "failed": failed},
        COUNTER,
    )
    yield labelled(
        "hgfleet_push_refusals_total",
        "Pushes that were refused, by the reason.",
        "reason",
        pushes.refused,
        COUNTER,
    )
    yield labelled(
        "hgfleet_push_failures_total",
        "Pushes that the service failed, by the reason.",
        "reason",
        pushes.failed,
        COUNTER,
    )
    yield Histogram(
        "hgfleet_push_duration_seconds",
        "Time of accepted pushes from the last byte to the answer, waits for mirrors included.",
        (Series(pushes.buckets, pushes.accepted, pushes.seconds),),
    )


def _clones(by_transport: Mapping[str, Answers]) -> Iterator[Family]:
    for kind, text in (
        ("clone", "Clones by the source of their changesets."),
        ("pull", "Pulls by the source of their changesets."),
    ):
        yield Family(
            f"hgfleet_{kind}s_total",
            text,
            tuple(
                ({"source": source, "transport": transport}, count)
                for transport, counted in sorted(by_transport.items())
                for (counted_kind, source), count in counted.counts.items()
                if counted_kind == kind
            ),
            COUNTER,
        )
        yield Family(
            f"hgfleet_{kind}_bytes_total",
            f"Bytes that this host sent for {kind}s; an object store sends clone bundles.",
            tuple(
                ({"source": source, "transport": transport}, size)
                for transport, counted in sorted(by_transport.items())
                for (counted_kind, source), size in counted.bytes.items()
                if counted_kind == kind
            ),
            COUNTER,
        )


def _requests(requests: Requests) -> Iterator[Family | Histogram]:
    yield Family(
        "hgfleet_web_requests_total",
        "Requests that the web workers answered, by kind and class of the status.",
        tuple(
            ({"kind": kind, "status": status}, count)
            for (kind, status), count in sorted(requests.counts.items())
        ),
        COUNTER,
    )
    yield Histogram(
        "hgfleet_web_request_duration_seconds",
        "Time of requests from their arrival at a web worker to the last byte.",
        tuple(Series(*times, {"kind": kind}) for kind, times in sorted(requests.times.items())),
    )
    yield labelled(
        "hgfleet_web_response_bytes_total",
        "Bytes of the answers of the web workers.",
        "kind",
        requests.bytes,
        COUNTER,
    )
    yield labelled(
        "hgfleet_web_cache_lookups_total",
        "Requests whose answer the cache may have, by whether it had it.",
        "result",
        requests.cache,
        COUNTER,
    )
    yield labelled(
        "hgfleet_web_refusals_total",
        "Requests that the web workers refused, by the reason.",
        "reason",
        requests.refused,
        COUNTER,
    )
