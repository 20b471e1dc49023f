"""Metrics of replication, of the primary and of a mirror, out of the state of its daemon. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hgfleet.monitoring.exposition import Family, labelled, single

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def of(state: Mapping[str, Any]) -> Iterator[Family]:
    """Return the metrics of the state of a relay, or of an applier."""
    role = str(state.get("role", ""))
    yield labelled("hgfleet_replication_role", "The role of this host.", "role", {role: 1})
    yield single(
        "hgfleet_replication_waiting_pushes",
        "Pushes that wait: on the primary for a broker, on a mirror for their application.",
        state.get("waiting", 0),
    )
    if role == "mirror":
        yield from _mirror(state)
        return
    broker = state.get("broker", {})
    yield single(
        "hgfleet_replication_broker_connected",
        "Whether the primary is connected to a broker.",
        broker.get("connected") is True,
    )
    yield single(
        "hgfleet_replication_broker_refuses",
        "Whether a broker is connected that refuses messages of the primary.",
        broker.get("connected") is True and bool(broker.get("problem")),
    )
    yield single(
        "hgfleet_replication_broker_warnings",
        "Streams of the brokers, and the bucket, that are not as this host's settings have them.",
        len(broker.get("warnings", ())),
    )
    yield single(
        "hgfleet_replication_waiting_seconds",
        "Longest time for which pushes of a repository wait for a broker.",
        state.get("waiting_seconds", 0),
    )
    events = state.get("events", {})
    for name, text, value in (
        ("event_problems", "Problems of push events.", len(events.get("problems", ()))),
        ("waiting_events", "Repositories whose push events wait.", events.get("waiting", 0)),
        ("waiting_events_seconds", "Longest wait of a push event.", events.get("seconds", 0)),
    ):
        yield single(f"hgfleet_replication_{name}", text, value)
    yield single(
        "hgfleet_replication_problems",
        "Repositories whose pushes the primary cannot publish.",
        len(state.get("problems", {})),
    )
    yield _refused(state.get("problems", {}))
    yield single(
        "hgfleet_replication_fenced_repositories",
        "Repositories that take no pushes: mirrors have pushes that the primary lost.",
        state.get("fenced_repositories", 0),
    )
    mirrors = state.get("mirrors", {})
    for name, text, key in (
        ("live", "Whether the lease of a mirror lasts.", "live"),
        ("caught_up", "Whether a mirror has every push.", "caught_up"),
        ("waiting_pushes", "Pushes that wait on a mirror.", "waiting"),
        ("parked_repositories", "Repositories that a mirror has parked.", "parked"),
    ):
        values = {mirror: mirror_state.get(key) or 0 for mirror, mirror_state in mirrors.items()}
        yield labelled(f"hgfleet_replication_mirror_{name}", text, "mirror", values)


def _mirror(state: Mapping[str, Any]) -> Iterator[Family]:
    yield single(
        "hgfleet_replication_caught_up",
        "Whether this mirror has compared itself, and only parked repositories are late.",
        state.get("caught_up") is True,
    )
    yield single(
        "hgfleet_replication_lease_end_timestamp_seconds",
        "End of the lease of this mirror.",
        state.get("lease_until") or 0,
    )
    yield single(
        "hgfleet_replication_parked_repositories",
        "Repositories that this mirror has parked.",
        state.get("parked_repositories", 0),
    )
    yield single(
        "hgfleet_replication_behind_repositories",
        "Repositories of this mirror that wait for pushes to be applied.",
        state.get("behind", 0),
    )
    yield labelled(
        "hgfleet_replication_away",
        "Whether this mirror cannot ask the source, or the broker.",
        "server",
        {name: bool(state.get(name)) for name in ("source", "broker")},
    )
    yield single(
        "hgfleet_replication_paused",
        "Whether this mirror has paused after failures of several repositories.",
        state.get("paused") is True,
    )
    yield _refused(state.get("refused", {}))
    yield single(
        "hgfleet_replication_documents_away",
        "Documents of the primary that this mirror cannot bring.",
        state.get("documents_away", 0),
    )
    yield single(
        "hgfleet_replication_set_aside_repositories",
        "Repositories that the registry lost, which this mirror keeps for some days.",
        state.get("aside_repositories", 0),
    )


def of_webhooks(state: Mapping[str, Mapping[str, Any]]) -> Iterator[Family]:
    """Return the metrics of push events for receivers, by the names of the receivers."""
    for name, text, key in (
        ("dead_events", "Push events that were given up, of a receiver.", "dead"),
        ("waiting_events", "Push events that wait for a receiver.", "waiting"),
    ):
        values = {receiver: one.get(key, 0) for receiver, one in state.items()}
        yield labelled(f"hgfleet_webhooks_{name}", text, "receiver", values)


def _refused(reasons: Mapping[str, Any]) -> Family:
    return labelled(
        "hgfleet_replication_document_refused",
        "Whether the registry or the tokens were refused as older than this host's.",
        "document",
        {name: name in reasons for name in ("registry", "tokens")},
    )
