"""Object lock of the bucket of backups, and its pause for a prune.

A bucket with a default retention lets no account replace or delete an object. During a prune the
retention is off. Instead, a statement in the policy of the bucket refuses new objects from the
hosts, so no host can replace an object then. A bucket with versioning needs neither: it keeps the
former version of a replaced object.
"""

from __future__ import annotations

import configparser
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.backup.restic.settings import Settings

Policy = dict[str, Any]

SID: Final = "NobodyWritesDuringAPrune"
RETENTION: Final = {"Mode": "GOVERNANCE", "Years": 100}
"""The retention that the role `objectstore` sets."""


def closed(policy: Policy, pruner: str, bucket: str) -> Policy:
    """Return the policy that refuses new objects from every account but the pruner's."""
    writers = sorted(
        name
        for statement in opened(policy)["Statement"]
        if statement["Effect"] == "Allow" and "s3:PutObject" in _list(statement["Action"])
        for name in _names(statement["Principal"])
        if name != pruner
    )
    if not writers:
        return opened(policy)
    statement = {
        "Sid": SID,
        "Effect": "Deny",
        "Principal": {"AWS": writers},
        "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{bucket}/*",
    }
    return {**policy, "Statement": [*opened(policy)["Statement"], statement]}


def opened(policy: Policy) -> Policy:
    """Return the policy as it is between prunes; a killed prune leaves the policy of `closed`."""
    kept = [statement for statement in policy["Statement"] if statement.get("Sid") != SID]
    return {**policy, "Statement": kept}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _names(principal: object) -> list[str]:
    return _list(principal.get("AWS", [])) if isinstance(principal, dict) else _list(principal)


class Bucket:
    """The bucket of backups, with the account of the pruner."""

    def __init__(self, settings: Settings, credentials: Path) -> None:
        import boto3
        from botocore.config import Config

        endpoint, self._name, _ = settings.repository.removeprefix("s3:").rsplit("/", 2)
        keys = configparser.ConfigParser()
        keys.read(credentials)
        self._account = keys["default"]["aws_access_key_id"]
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=settings.region,
            aws_access_key_id=self._account,
            aws_secret_access_key=keys["default"]["aws_secret_access_key"],
            verify=str(settings.ca),
            config=Config(s3={"addressing_style": "path"}, retries={"mode": "standard"}),
        )

    @contextlib.contextmanager
    def unlocked(self) -> Iterator[None]:
        """Allow deletion of objects, and let no host create any. Raises UnavailableError."""
        if not self._has_lock():
            yield
            return
        policy: Policy = json.loads(self._call("get_bucket_policy")["Policy"])
        self._put_policy(closed(policy, self._account, self._name))
        try:
            self._retain(None)
            yield
        finally:
            self._retain(RETENTION)
            self._put_policy(opened(policy))

    def _has_lock(self) -> bool:
        """Whether the bucket has object lock without versioning."""
        if self._call("get_bucket_versioning").get("Status") == "Enabled":
            return False
        from botocore.exceptions import ClientError

        try:
            lock = self._client.get_object_lock_configuration(Bucket=self._name)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ObjectLockConfigurationNotFoundError":
                return False
            raise self._unavailable(error) from error
        return bool(lock["ObjectLockConfiguration"].get("ObjectLockEnabled") == "Enabled")

    def _put_policy(self, policy: Policy) -> None:
        self._call("put_bucket_policy", Policy=json.dumps(policy))

    def _retain(self, retention: dict[str, Any] | None) -> None:
        wanted: dict[str, Any] = {"ObjectLockEnabled": "Enabled"}
        if retention:
            wanted["Rule"] = {"DefaultRetention": retention}
        self._call("put_object_lock_configuration", ObjectLockConfiguration=wanted)

    def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self._client, name)(Bucket=self._name, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise self._unavailable(error) from error
        return answer

    def _unavailable(self, error: Exception) -> UnavailableError:
        return UnavailableError(f"bucket {self._name}: {error}; the next prune tries again")
