"""Bucket of a store, with the credentials to write. Needs an S3 that honours `If-None-Match`.

Uploads are create-only, so an object never changes under an advertised URL. (AWS S3 and versitygw
honour the header; Garage 2.5 ignores it.)
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import itertools
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HgfleetError, TemporaryError, UnavailableError
from hgfleet.objectstore.parts import MAX_PARTS, PART, PARTS_IN_FLIGHT, Part, reusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from hgfleet.objectstore.settings import Credentials, Store

CONNECTIONS: Final = 32
"""Connections to keep open to a store: an upload and a check for each thread."""

CACHE_SECONDS: Final = 300
"""Time for which a cache may keep an object of a public store before it asks again.

The content of an object never changes, but an object may have to disappear.
"""
CACHE_CONTROL: Final = f"public, max-age={CACHE_SECONDS}, must-revalidate"

PRIVATE_CACHING: Final = "private, no-store"
"""A cached copy would outlive the signature of its URL."""

ATTEMPTS: Final = 5
"""Tries of a request, with growing pauses between them (`pause`)."""


def pause(attempt: int, chance: float) -> float:
    """Return the seconds to wait after a failed attempt (the first is 1).

    The pause doubles with each attempt, from half a second to 20 seconds. `chance` (0 to 1) picks a
    value in its upper half, so that uploads that failed together are not repeated together.
    """
    longest: float = min(20.0, 0.5 * 2.0 ** (attempt - 1))
    return longest * (0.5 + chance / 2)


_chance = random.SystemRandom().random


class StoreError(HgfleetError):
    """The store answered and refused."""


class MismatchError(StoreError):
    """The content of an object does not match its key: the store lost or changed data."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that was begun and not completed."""

    key: str
    id: str
    begun: datetime


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the bucket lists it; `size` in bytes."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Stored:
    """The headers of an object: `size` in bytes, and the metadata of its upload."""

    size: int
    modified: datetime
    metadata: Mapping[str, str]


def error_of(status: int) -> type[HgfleetError]:
    """Return the error of a request that failed with an HTTP status. Pure."""
    if status >= 500 or status == 429:
        return UnavailableError
    if status == 409:
        # Two uploads of the same key at once; S3 asks the loser to start again.
        return TemporaryError
    return StoreError


class Bucket:
    """The bucket of a store, for any number of threads.

    Every method raises UnavailableError if the store does not answer, StoreError if it refuses.
    Errors that may pass (no answer, 5xx, "slow down", a conflict) are retried.
    """

    def __init__(
        self,
        store: Store,
        credentials: Credentials,
        ca: Path,
        timeout: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        import boto3  # takes 0.3 s, which `plan` and `--help` do not need to spend
        from botocore.config import Config as BotoConfig

        self._endpoint = store.endpoint
        self._name = store.bucket
        self._is_public = not store.private
        self._sleep = sleep
        self._client = boto3.client(
            "s3",
            endpoint_url=store.endpoint,
            region_name=store.region,
            aws_access_key_id=credentials.access_key_id,
            aws_secret_access_key=credentials.secret_access_key,
            verify=str(ca),
            config=BotoConfig(
                connect_timeout=timeout,
                read_timeout=timeout,
                # botocore cannot send the body of a pipe or a part again; `_request` can.
                retries={"mode": "standard", "total_max_attempts": 1},
                max_pool_connections=CONNECTIONS,
                # Stores other than Amazon's have no subdomain and no certificate per bucket.
                s3={"addressing_style": "path"},
            ),
        )

    def head(self, key: str) -> Stored | None:
        """Return the headers of an object; None if it is missing."""

        def look() -> Any:
            from botocore.exceptions import ClientError

            try:
                return self._client.head_object(Bucket=self._name, Key=key)
            except ClientError as error:
                # Some stores answer 403 for a missing key.
                if _status(error) in {403, 404}:
                    return None
                raise

        headers = self._request(f"look for {key}", look)
        if headers is None:
            return None
        return Stored(headers["ContentLength"], headers["LastModified"], headers["Metadata"])

    def holds(self, key: str, size: int, sha256: str) -> bool:
        """Whether the store has a bundle. Raises MismatchError if the key has other content."""
        stored = self.head(key)
        if stored is None:
            return False
        if stored.size != size or stored.metadata.get("sha256") != sha256:
            raise MismatchError(
                f"{self._endpoint}: {key} is there with other content than its name says"
            )
        return True

    def upload(self, key: str, path: Path, sha256: str, metadata: Mapping[str, str]) -> bool:
        """Create an object from a file and its digest; False if the object is there already.

        Raises MismatchError if the object there has other content; no object is overwritten.
        """
        headers = {
            "Bucket": self._name,
            "Key": key,
            "CacheControl": CACHE_CONTROL if self._is_public else PRIVATE_CACHING,
            "ContentType": "application/octet-stream",
            "Metadata": {**metadata, "sha256": sha256},
        }
        if self.holds(key, path.stat().st_size, sha256):
            return False
        if path.stat().st_size <= PART:
            return self._put(path, sha256, headers)
        return self._put_parts(path, headers)

    def _put(self, path: Path, sha256: str, headers: Mapping[str, Any]) -> bool:
        # The store compares the checksum before it creates anything.
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()

        def put() -> Any:
            with path.open("rb") as body:
                return self._client.put_object(
                    **headers, Body=body, IfNoneMatch="*", ChecksumSHA256=checksum
                )

        return self._create(headers["Key"], put)

    def _put_parts(self, path: Path, headers: Mapping[str, Any]) -> bool:
        """Upload in parts, and continue an unfinished upload of the same key.

        A failed upload is kept: the next run continues it, or prunes it if it is outdated.
        """
        key = headers["Key"]
        size = max(PART, -(-path.stat().st_size // MAX_PARTS))
        upload, there = self._begun(key)
        if upload is None:
            begun = self._request(
                f"begin the upload of {key}",
                lambda: self._client.create_multipart_upload(**headers, ChecksumAlgorithm="SHA256"),
            )
            upload = begun["UploadId"]
        where = {"Bucket": self._name, "Key": key, "UploadId": upload}
        parts: list[dict[str, object]] = []
        left = path.stat().st_size
        with path.open("rb") as file:
            while left > 0:
                length = min(size, left)
                left -= length
                part = self._part(file, length, len(parts) + 1, where, there)
                parts.append(
                    {"PartNumber": part.number, "ETag": part.etag, "ChecksumSHA256": part.sha256}
                )
        created = self._create(
            key,
            lambda: self._client.complete_multipart_upload(
                **where, IfNoneMatch="*", MultipartUpload={"Parts": parts}
            ),
        )
        if not created:
            with contextlib.suppress(HgfleetError):
                self.abort(Upload(key, upload, datetime.now(UTC)))
        return created

    def _part(
        self,
        file: BinaryIO,
        length: int,
        number: int,
        where: Mapping[str, str],
        there: Iterable[Part],
    ) -> Part:
        """Upload the next bytes of a file as a part, unless the store has that part already."""
        with PARTS_IN_FLIGHT.holding(length):
            data = file.read(length)
            checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
            part = reusable(there, number, data, checksum)
            if part is not None:
                return part
            sent = self._request(
                f"upload part {number} of {where['Key']}",
                functools.partial(
                    self._client.upload_part,
                    **where,
                    PartNumber=number,
                    Body=data,
                    ChecksumSHA256=checksum,
                ),
            )
            return Part(number, sent["ETag"], checksum, len(data))

    def _begun(self, key: str) -> tuple[str | None, tuple[Part, ...]]:
        """Find the newest unfinished upload of this key, and its parts."""
        begun = sorted(
            (upload for upload in self.uploads(key) if upload.key == key),
            key=lambda upload: upload.begun,
        )
        if not begun:
            return None, ()
        upload = begun[-1]

        def parts() -> list[Part]:
            pages = self._client.get_paginator("list_parts").paginate(
                Bucket=self._name, Key=key, UploadId=upload.id
            )
            return [
                Part(part["PartNumber"], part["ETag"], part.get("ChecksumSHA256", ""), part["Size"])
                for page in pages
                for part in page.get("Parts", ())
            ]

        return upload.id, tuple(self._request(f"list the parts of {key}", parts))

    def _create(self, key: str, request: Callable[[], Any]) -> bool:
        from botocore.exceptions import ClientError

        def create() -> bool:
            try:
                request()
            except ClientError as error:
                # Another run created it a moment ago, or this run did and the answer was lost. The
                # key says that the content is the same, and the verification compares it.
                if _status(error) == 412:
                    return False
                raise
            return True

        return bool(self._request(f"upload {key}", create))

    def put_page(self, key: str, body: bytes, content_type: str, max_age: int) -> bool:
        """Create or replace a page; False if the store has it already.

        Pages are the only objects that ever change; caches may keep public pages for `max_age`
        seconds.
        """
        sha256 = hashlib.sha256(body).hexdigest()
        stored = self.head(key)
        if stored is not None and stored.metadata.get("sha256") == sha256:
            return False
        self._request(
            f"upload {key}",
            lambda: self._client.put_object(
                Bucket=self._name,
                Key=key,
                Body=body,
                ContentType=content_type,
                CacheControl=f"public, max-age={max_age}" if self._is_public else PRIVATE_CACHING,
                Metadata={"sha256": sha256},
                ChecksumSHA256=base64.b64encode(bytes.fromhex(sha256)).decode(),
            ),
        )
        return True

    def objects(self, prefix: str) -> list[StoredObject]:
        """List all objects whose keys begin with the prefix."""

        def find() -> list[StoredObject]:
            pages = self._client.get_paginator("list_objects_v2")
            return [
                StoredObject(item["Key"], item["Size"], item["LastModified"])
                for page in pages.paginate(Bucket=self._name, Prefix=prefix)
                for item in page.get("Contents", ())
            ]

        objects: list[StoredObject] = self._request(f"list {prefix or 'its objects'}", find)
        return objects

    def uploads(self, prefix: str) -> list[Upload]:
        """List the unfinished multipart uploads whose keys begin with the prefix."""

        def find() -> list[Upload]:
            pages = self._client.get_paginator("list_multipart_uploads")
            return [
                Upload(item["Key"], item["UploadId"], item["Initiated"])
                for page in pages.paginate(Bucket=self._name, Prefix=prefix)
                for item in page.get("Uploads", ())
            ]

        uploads: list[Upload] = self._request("list unfinished uploads", find)
        return uploads

    def delete(self, key: str) -> None:
        """Delete an object; a missing object is no error."""
        self._request(
            f"delete {key}", lambda: self._client.delete_object(Bucket=self._name, Key=key)
        )

    def abort(self, upload: Upload) -> None:
        """Delete the parts of an unfinished upload; a missing upload is no error."""

        def abort() -> None:
            from botocore.exceptions import ClientError

            try:
                self._client.abort_multipart_upload(
                    Bucket=self._name, Key=upload.key, UploadId=upload.id
                )
            except ClientError as error:
                if _status(error) != 404:
                    raise

        self._request(f"abort the upload of {upload.key}", abort)

    def _request(self, what: str, send: Callable[[], Any]) -> Any:
        """Send a request with retries, and translate its errors."""
        from botocore.exceptions import BotoCoreError, ClientError

        for attempt in itertools.count(1):
            try:
                return send()
            except ClientError as error:
                kind = error_of(_status(error))
                if kind is StoreError or attempt == ATTEMPTS:
                    raise kind(f"{self._endpoint}: cannot {what}: {error}") from error
            except BotoCoreError as error:
                if attempt == ATTEMPTS:
                    raise UnavailableError(f"{self._endpoint}: cannot {what}: {error}") from error
            self._sleep(pause(attempt, _chance()))
        raise AssertionError("itertools.count ends")


def _status(error: Any) -> int:
    """The HTTP status of botocore's ClientError."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
