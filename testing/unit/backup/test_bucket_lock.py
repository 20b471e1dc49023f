from __future__ import annotations

from typing import Any

from hgfleet.backup.restic.bucket_lock import SID, closed, opened

OBJECTS = "arn:aws:s3:::hg-backup/*"


def allow(principal: object, *actions: str) -> dict[str, Any]:
    return {
        "Sid": "x",
        "Effect": "Allow",
        "Principal": principal,
        "Action": list(actions),
        "Resource": OBJECTS,
    }


POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        allow({"AWS": ["hg-backup", "other"]}, "s3:GetObject", "s3:PutObject"),
        allow({"AWS": "reader"}, "s3:GetObject"),
        allow({"AWS": ["hg-prune"]}, "s3:DeleteObject", "s3:PutObject"),
    ],
}


def test_every_writer_but_the_pruner_is_refused_during_a_prune() -> None:
    policy = closed(POLICY, "hg-prune", "hg-backup")
    *others, last = policy["Statement"]
    assert others == POLICY["Statement"]
    assert last == {
        "Sid": SID,
        "Effect": "Deny",
        "Principal": {"AWS": ["hg-backup", "other"]},
        "Action": "s3:PutObject",
        "Resource": OBJECTS,
    }


def test_the_policy_after_a_prune_is_that_from_before_even_after_a_killed_one() -> None:
    policy = closed(POLICY, "hg-prune", "hg-backup")
    assert opened(policy) == POLICY
    assert closed(policy, "hg-prune", "hg-backup") == policy
    assert opened(POLICY) == POLICY


def test_a_bucket_without_writers_needs_no_statement() -> None:
    policy = {"Version": "x", "Statement": [allow({"AWS": "hg-prune"}, "s3:PutObject")]}
    assert closed(policy, "hg-prune", "hg-backup") == policy
