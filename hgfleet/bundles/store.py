"""The bucket, as the one who may write to it. Works with any S3 that honours `If-None-Match`.

That is the one demand: uploads are create-only, so that an object never changes under a URL that
somebody was told. (AWS S3 and versitygw honour it; Garage 2.5 ignores it.)
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.bundles.prune import StoredObject
from hgfleet.errors import HgfleetError, TemporaryError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from hgfleet.bundles.config import Config, Credentials

PART: Final = 64 * 1024 * 1024
"""Bytes of one part of a multipart upload, and the largest upload in one request. A part is held
in memory; S3 takes at most 10,000 of them, so larger bundles get larger parts."""

MAX_PARTS: Final = 10_000

CACHE_CONTROL: Final = "public, max-age=31536000, immutable"
"""A year, the longest that HTTP recommends: the key names the content, so it never changes."""

ATTEMPTS: Final = 5
"""Tries of one request, with botocore's growing pauses between them."""


class StoreError(HgfleetError):
    """The store answered, and refused."""


class MismatchError(StoreError):
    """An object has other content than its name says: the store lost or changed something."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that was begun and not completed."""

    key: str
    id: str
    begun: datetime


class Bucket:
    """The bucket of the configuration, for any number of threads.

    Every method raises UnavailableError if the store does not answer, StoreError if it refuses.
    """

    def __init__(self, config: Config, credentials: Credentials) -> None:
        import boto3  # takes 0.3 s, which `plan` and `--help` need not wait for
        from botocore.config import Config as BotoConfig

        self._endpoint = config.store.endpoint
        self._name = config.store.bucket
        self._client = boto3.client(
            "s3",
            endpoint_url=config.store.endpoint,
            region_name=config.store.region,
            aws_access_key_id=credentials.access_key_id,
            aws_secret_access_key=credentials.secret_access_key,
            verify=str(config.ca),
            config=BotoConfig(
                connect_timeout=config.timeout,
                read_timeout=config.timeout,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                # An S3 that is not Amazon's has no subdomain and no certificate per bucket.
                s3={"addressing_style": "path"},
            ),
        )

    def upload(self, key: str, path: Path, sha256: str, metadata: Mapping[str, str]) -> bool:
        """Create an object; False if it is there already. `sha256` (hexadecimal) is of the file.

        Raises MismatchError if what is there is something else; nothing is ever overwritten.
        """
        headers = {
            "Bucket": self._name,
            "Key": key,
            "CacheControl": CACHE_CONTROL,
            "ContentType": "application/octet-stream",
            "Metadata": {**metadata, "sha256": sha256},
        }
        if self._there(key, path, sha256):
            return False
        with self._errors(f"upload {key}"):
            if path.stat().st_size <= PART:
                return self._put(path, sha256, headers)
            return self._put_parts(path, headers)

    def _there(self, key: str, path: Path, sha256: str) -> bool:
        from botocore.exceptions import ClientError

        with self._errors(f"look for {key}"):
            try:
                found = self._client.head_object(Bucket=self._name, Key=key)
            except ClientError as error:
                # 403: a store that tells nobody what is not there.
                if _status(error) in {403, 404}:
                    return False
                raise
        if (
            found["ContentLength"] != path.stat().st_size
            or found["Metadata"].get("sha256") != sha256
        ):
            raise MismatchError(
                f"{self._endpoint}: {key} is there with other content than its name says"
            )
        return True

    def _put(self, path: Path, sha256: str, headers: Mapping[str, Any]) -> bool:
        # The store compares the checksum before it creates anything.
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        with path.open("rb") as body:
            return self._create(
                lambda: self._client.put_object(
                    **headers, Body=body, IfNoneMatch="*", ChecksumSHA256=checksum
                )
            )

    def _put_parts(self, path: Path, headers: Mapping[str, Any]) -> bool:
        where = {"Bucket": headers["Bucket"], "Key": headers["Key"]}
        size = max(PART, -(-path.stat().st_size // MAX_PARTS))
        begun = self._client.create_multipart_upload(**headers, ChecksumAlgorithm="SHA256")
        where["UploadId"] = begun["UploadId"]
        created = False
        try:
            parts = []
            with path.open("rb") as file:
                for number, data in enumerate(iter(lambda: file.read(size), b""), start=1):
                    checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
                    part = self._client.upload_part(
                        **where, PartNumber=number, Body=data, ChecksumSHA256=checksum
                    )
                    parts.append(
                        {"PartNumber": number, "ETag": part["ETag"], "ChecksumSHA256": checksum}
                    )
            created = self._create(
                lambda: self._client.complete_multipart_upload(
                    **where, IfNoneMatch="*", MultipartUpload={"Parts": parts}
                )
            )
        finally:
            if not created:
                # Killed before this, the parts stay until a later run finds them: stale_uploads.
                with contextlib.suppress(Exception):
                    self._client.abort_multipart_upload(**where)
        return created

    def _create(self, request: Any) -> bool:
        from botocore.exceptions import ClientError

        try:
            request()
        except ClientError as error:
            # Somebody else created it a moment ago; the name says that it has the same content,
            # and the verification will look.
            if _status(error) == 412:
                return False
            raise
        return True

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """List all objects whose keys begin with the prefix."""
        with self._errors(f"list {prefix or 'its objects'}"):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._name, Prefix=prefix):
                for item in page.get("Contents", ()):
                    yield StoredObject(item["Key"], item["Size"], item["LastModified"])

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """List the unfinished multipart uploads whose keys begin with the prefix."""
        with self._errors("list unfinished uploads"):
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._name, Prefix=prefix):
                for item in page.get("Uploads", ()):
                    yield Upload(item["Key"], item["UploadId"], item["Initiated"])

    def delete(self, key: str) -> None:
        """Delete an object; it is no error if it is gone already."""
        with self._errors(f"delete {key}"):
            self._client.delete_object(Bucket=self._name, Key=key)

    def abort(self, upload: Upload) -> None:
        """Delete what an unfinished upload has sent."""
        with self._errors(f"abort the upload of {upload.key}"):
            self._client.abort_multipart_upload(
                Bucket=self._name, Key=upload.key, UploadId=upload.id
            )

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            status = _status(error)
            kind: type[HgfleetError] = UnavailableError if status >= 500 else StoreError
            if status == 409:
                # Two uploads of one key at once; S3 asks the loser to start again.
                kind = TemporaryError
            raise kind(f"{self._endpoint}: cannot {what}: {error}") from error
        except BotoCoreError as error:
            raise UnavailableError(f"{self._endpoint}: cannot {what}: {error}") from error


def _status(error: Any) -> int:
    """The HTTP status of botocore's ClientError."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
