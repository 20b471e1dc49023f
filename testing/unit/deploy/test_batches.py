"""The order in which a deploy changes hosts."""

from __future__ import annotations

import pytest

from controller.deploy.batches import Batch, order

SITE = {
    "proxy1": ["proxy", "release"],
    "proxy2": ["proxy", "release"],
    "hg1": ["ssh", "web", "bundles", "release"],
    "web1": ["web", "ssh", "release"],
    "web2": ["web", "release"],
    "ldap1": ["directory", "release"],
    "s3-1": ["objectstore", "release"],
    "s3-2": ["objectstore", "release"],
    "cdn1": ["cdn", "release"],
    "broker1": ["broker", "release"],
    "broker2": ["broker", "release"],
    "web3": ["web", "broker", "release"],
    "logs": ["all"],
}


def said(batches: list[Batch]) -> list[str]:
    return [batch.said for batch in batches]


def test_support_comes_first_then_a_canary_and_the_primary_last() -> None:
    assert said(order(SITE, list(SITE), [], "hg1")) == [
        "support: broker1",
        "support: broker2",
        "support: ldap1",
        "support: s3-1",
        "support: s3-2",
        "support: cdn1",
        "support: logs",
        "canary: web1",
        "mirrors: web3",
        "mirrors: web2",
        "proxies: proxy1",
        "proxies: proxy2",
        "primary: hg1",
    ]


def test_hosts_without_a_change_are_left_alone() -> None:
    assert said(order(SITE, ["hg1", "web2"], [], "hg1")) == ["canary: web2", "primary: hg1"]


def test_many_mirrors_change_a_quarter_at_a_time_after_the_canary() -> None:
    site = {f"web{number}": ["web"] for number in range(9)} | {"hg1": ["ssh", "web"]}
    assert [len(batch.hosts) for batch in order(site, list(site), [], "hg1")] == [1, *[2] * 4, 1]


@pytest.mark.parametrize("groups", [["ssh", "web", "proxy", "broker", "directory"], ["ssh"]])
def test_a_host_with_all_parts_is_a_roll_of_one(groups: list[str]) -> None:
    assert said(order({"hg1": groups}, ["hg1"], [], "hg1")) == ["primary: hg1"]


def test_the_first_deploy_changes_all_hosts_at_once() -> None:
    (batch,) = order(SITE, list(SITE), list(SITE), "hg1")
    assert batch == Batch("new", tuple(SITE))


def test_new_hosts_come_after_the_brokers_and_before_those_that_send_clients_to_them() -> None:
    batches = said(order(SITE, ["broker1", "web2", "web1", "proxy1", "hg1"], ["web2"], "hg1"))
    assert batches == [
        "support: broker1",
        "new: web2",
        "canary: web1",
        "proxies: proxy1",
        "primary: hg1",
    ]


def test_every_changing_host_is_in_one_batch() -> None:
    for new in ([], ["web2", "s3-1"], ["hg1"]):
        names = [name for batch in order(SITE, list(SITE), new, "hg1") for name in batch.hosts]
        assert sorted(names) == sorted(SITE)
