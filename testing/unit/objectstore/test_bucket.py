from __future__ import annotations

import base64
import hashlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from hgfleet.core.errors import TemporaryError, UnavailableError
from hgfleet.objectstore import bucket as module
from hgfleet.objectstore.bucket import (
    ATTEMPTS,
    CACHE_CONTROL,
    Bucket,
    MismatchError,
    StoreError,
    Upload,
    pause,
)
from hgfleet.objectstore.parts import BytesGate, Part, reusable
from hgfleet.objectstore.settings import Credentials, Store

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

KEY = f"team/project/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def checksum(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def refusal(status: int) -> ClientError:
    return ClientError({"ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


class FakeClient:
    """The methods of boto3's client for a bucket; the next requests raise `failures`."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.headers: dict[str, dict[str, Any]] = {}
        self.failures: list[Exception] = []
        self.sent: list[str] = []
        self.numbers = itertools.count()

    def _asked(self, what: str) -> None:
        self.sent.append(what)
        if self.failures and what != "head":
            raise self.failures.pop(0)

    def head_object(self, Bucket: str, Key: str) -> Any:  # noqa: N803
        self._asked("head")
        assert Bucket == "bundles"
        if Key not in self.objects:
            raise refusal(404)
        stored = self.objects[Key]
        return {
            "ContentLength": len(stored["Body"]),
            "LastModified": NOW,
            "Metadata": stored["Metadata"],
        }

    def _create(self, key: str, made: dict[str, Any]) -> None:
        assert made["IfNoneMatch"] == "*"
        if key in self.objects:
            raise refusal(412)
        self.objects[key] = made

    def put_object(self, **made: Any) -> None:
        made["Body"] = made["Body"].read()
        self._asked("put")
        assert checksum(made["Body"]) == made["ChecksumSHA256"]
        self._create(made["Key"], made)

    def create_multipart_upload(self, **headers: Any) -> Any:
        self._asked("begin")
        name = f"upload-{next(self.numbers)}"
        self.parts[name], self.headers[name] = {}, headers
        return {"UploadId": name}

    def upload_part(self, UploadId: str, PartNumber: int, Body: bytes, **rest: Any) -> Any:  # noqa: N803
        self._asked(f"part {PartNumber}")
        assert rest["ChecksumSHA256"] == checksum(Body)
        self.parts[UploadId][PartNumber] = Body
        return {"ETag": f"etag-{PartNumber}"}

    def complete_multipart_upload(self, UploadId: str, IfNoneMatch: str, **rest: Any) -> None:  # noqa: N803
        self._asked("complete")
        numbers = [part["PartNumber"] for part in rest["MultipartUpload"]["Parts"]]
        body = b"".join(self.parts[UploadId][number] for number in numbers)
        made = {**self.headers[UploadId], "Body": body, "IfNoneMatch": IfNoneMatch}
        self._create(rest["Key"], made)
        del self.parts[UploadId]

    def abort_multipart_upload(self, UploadId: str, **_rest: Any) -> None:  # noqa: N803
        self._asked("abort")
        if self.parts.pop(UploadId, None) is None:
            raise refusal(404)

    def get_paginator(self, name: str) -> Any:
        client = self

        class Pages:
            def paginate(self, **asked: Any) -> list[dict[str, Any]]:
                if name == "list_multipart_uploads":
                    return [
                        {
                            "Uploads": [
                                {
                                    "Key": client.headers[upload_id]["Key"],
                                    "UploadId": upload_id,
                                    "Initiated": NOW,
                                }
                                for upload_id in client.parts
                            ]
                        }
                    ]
                parts = client.parts[asked["UploadId"]]
                return [
                    {
                        "Parts": [
                            {
                                "PartNumber": number,
                                "ETag": f"etag-{number}",
                                "Size": len(data),
                                "ChecksumSHA256": checksum(data),
                            }
                            for number, data in parts.items()
                        ]
                    }
                ]

        return Pages()


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def bucket(client: FakeClient, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    import boto3

    monkeypatch.setattr(boto3, "client", lambda *_arguments, **_more: client)
    store = Store("eu", "https://s3.example", "bundles", "https://cdn.example")
    return Bucket(store, Credentials("who", "secret"), Path("/ca"), 1, slept.append)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle.hg"
    path.write_bytes(bytes(range(250)))
    return path


def upload(bucket: Bucket, path: Path) -> bool:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return bucket.upload(KEY, path, sha256, {"bundlespec": "zstd-v2"})


def test_pauses_grow_and_are_spread() -> None:
    assert [pause(attempt, 1) for attempt in (1, 2, 3, 4)] == [0.5, 1, 2, 4]
    assert pause(50, 1) == 20
    assert pause(1, 0) == 0.25
    assert 0.25 < pause(1, 0.3) < 0.5


def test_a_part_is_reused_only_if_it_is_this_very_content() -> None:
    part = Part(2, "etag", checksum(b"two"), 3)
    assert reusable([part], 2, b"two", checksum(b"two")) == part
    assert reusable([part], 1, b"two", checksum(b"two")) is None
    assert reusable([part], 2, b"TWO", checksum(b"TWO")) is None
    # A store that tells no checksums gets the part again.
    assert reusable([Part(2, "etag", "", 3)], 2, b"two", checksum(b"two")) is None


def test_an_object_is_created_once_with_headers_for_ever(
    bucket: Bucket, client: FakeClient, bundle: Path
) -> None:
    assert upload(bucket, bundle)
    assert client.objects[KEY]["CacheControl"] == CACHE_CONTROL
    # It may be withdrawn.
    assert "max-age=300, must-revalidate" in CACHE_CONTROL
    assert not upload(bucket, bundle)


def test_no_cache_keeps_what_is_private(
    client: FakeClient, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boto3.client", lambda *_arguments, **_more: client)
    url = "https://s3.example/bundles"
    store = Store("closed", "https://s3.example", "bundles", url, private=True)
    assert upload(Bucket(store, Credentials("who", "secret"), Path("/ca"), 1), bundle)
    assert client.objects[KEY]["CacheControl"] == "private, no-store"


def test_other_content_under_the_name_is_never_overwritten(
    bucket: Bucket, client: FakeClient, bundle: Path
) -> None:
    upload(bucket, bundle)
    before = client.objects[KEY]["Body"]
    bundle.write_bytes(b"something else")
    with pytest.raises(MismatchError, match="other content than its name says"):
        upload(bucket, bundle)
    assert client.objects[KEY]["Body"] == before


@pytest.mark.parametrize(
    "failure",
    [
        refusal(500),
        refusal(503),
        refusal(429),
        refusal(409),
        EndpointConnectionError(endpoint_url=""),
    ],
    ids=["500", "slow down", "too many", "conflict", "no answer"],
)
def test_a_bad_moment_is_tried_again(
    bucket: Bucket, client: FakeClient, bundle: Path, slept: list[float], failure: Exception
) -> None:
    client.failures = [failure, failure]
    assert upload(bucket, bundle)
    assert client.objects[KEY]["Body"] == bundle.read_bytes()
    assert len(slept) == 2
    assert slept[0] <= 0.5 <= slept[1]


@pytest.mark.parametrize(
    ("failure", "kind"), [(refusal(500), UnavailableError), (refusal(409), TemporaryError)]
)
def test_after_some_attempts_it_is_a_failure(
    bucket: Bucket, client: FakeClient, bundle: Path, failure: Exception, kind: type[Exception]
) -> None:
    client.failures = [failure] * ATTEMPTS
    with pytest.raises(kind):
        upload(bucket, bundle)


def test_a_refusal_is_not_tried_again(
    bucket: Bucket, client: FakeClient, bundle: Path, slept: list[float]
) -> None:
    client.failures = [refusal(403)]
    with pytest.raises(StoreError, match="cannot upload"):
        upload(bucket, bundle)
    assert slept == []


def test_a_lost_answer_is_no_failure(
    bucket: Bucket, client: FakeClient, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = client.put_object

    def lose(**made: Any) -> None:
        monkeypatch.setattr(client, "put_object", put)
        put(**made)
        raise EndpointConnectionError(endpoint_url="")

    monkeypatch.setattr(client, "put_object", lose)
    # The second attempt finds the object of the first attempt; the verification compares it.
    assert not upload(bucket, bundle)
    assert client.objects[KEY]["Body"] == bundle.read_bytes()


class TestParts:
    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PART", 100)

    def test_large_bundles_go_in_parts(
        self, bucket: Bucket, client: FakeClient, bundle: Path
    ) -> None:
        assert upload(bucket, bundle)
        assert client.sent == ["head", "begin", "part 1", "part 2", "part 3", "complete"]
        assert client.objects[KEY]["Body"] == bundle.read_bytes()
        assert client.objects[KEY]["CacheControl"] == CACHE_CONTROL

    def test_parts_of_parallel_uploads_are_bounded_together(
        self, bucket: Bucket, client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Eight uploads at once, and room for two parts: the others wait, and all arrive."""
        uploads, room = 8, 2

        class Gate(BytesGate):
            def holding(self, size: int) -> _GeneratorContextManager[None]:
                with lock:
                    asked.append(size)
                    if len(asked) == uploads:
                        all_asked.set()
                return super().holding(size)

        monkeypatch.setattr(module, "PARTS_IN_FLIGHT", Gate(room * 100))
        lock, all_asked = threading.Lock(), threading.Event()
        asked: list[int] = []
        now, most = 0, 0
        upload_part = client.upload_part

        def count(**sent: Any) -> Any:
            nonlocal now, most
            with lock:
                now += len(sent["Body"])
                most = max(most, now)
            # The first parts stay in flight until all uploads have asked for room.
            assert all_asked.wait(60)
            try:
                return upload_part(**sent)
            finally:
                with lock:
                    now -= len(sent["Body"])

        monkeypatch.setattr(client, "upload_part", count)

        def upload_file(number: int) -> bool:
            path = tmp_path / str(number)
            path.write_bytes(bytes([number]) * 250)
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            return bucket.upload(f"{KEY}.{number}", path, sha256, {})

        with ThreadPoolExecutor(uploads) as pool:
            assert all(pool.map(upload_file, range(uploads)))
        assert len(asked) == 3 * uploads
        assert most <= room * 100

    def test_a_part_larger_than_all_room_goes_alone(self) -> None:
        gate = BytesGate(100)
        with gate.holding(300):
            assert gate.held == 300
        with gate.holding(60), gate.holding(40):
            assert gate.held == 100
        assert gate.held == 0

    def test_a_killed_upload_goes_on_where_it_was(
        self, bucket: Bucket, client: FakeClient, bundle: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            pass

        upload_part = client.upload_part

        def die(**asked: Any) -> Any:
            if asked["PartNumber"] == 3:
                raise Killed
            return upload_part(**asked)

        with monkeypatch.context() as patched:
            patched.setattr(client, "upload_part", die)
            with pytest.raises(Killed):
                upload(bucket, bundle)
        client.sent.clear()
        assert upload(bucket, bundle)
        assert client.sent == ["head", "part 3", "complete"]
        assert client.objects[KEY]["Body"] == bundle.read_bytes()

    def test_parts_with_other_content_are_sent_again(
        self, bucket: Bucket, client: FakeClient, bundle: Path
    ) -> None:
        client.parts["old"] = {1: bundle.read_bytes()[:100], 2: b"x" * 100}
        client.headers["old"] = {"Key": KEY, "Metadata": {}}
        assert upload(bucket, bundle)
        assert "part 1" not in client.sent
        assert {"part 2", "part 3"} < {*client.sent}
        assert client.objects[KEY]["Body"] == bundle.read_bytes()

    def test_an_upload_of_another_key_is_left_alone(
        self, bucket: Bucket, client: FakeClient, bundle: Path
    ) -> None:
        client.parts["other"], client.headers["other"] = {}, {"Key": KEY + ".x"}
        assert upload(bucket, bundle)
        assert "other" in client.parts

    def test_who_comes_second_leaves_no_parts(
        self, bucket: Bucket, client: FakeClient, bundle: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upload(bucket, bundle)
        # Two at once: neither saw the object when it began.
        monkeypatch.setattr(bucket, "holds", lambda *_arguments: False)
        assert not upload(bucket, bundle)
        assert client.parts == {}


def test_an_abort_deletes_the_parts_of_one_upload(bucket: Bucket, client: FakeClient) -> None:
    client.parts = {"killed": {1: b"one"}, "other": {1: b"one"}}
    bucket.abort(Upload(KEY, "killed", NOW))
    assert client.parts == {"other": {1: b"one"}}
    assert client.sent == ["abort"]


def test_an_abort_of_an_upload_that_is_gone_is_no_error(bucket: Bucket, client: FakeClient) -> None:
    client.parts["other"] = {1: b"one"}
    bucket.abort(Upload(KEY, "gone", NOW))
    # A single request, which the store answered with 404; nothing else was touched.
    assert client.sent == ["abort"]
    assert client.parts == {"other": {1: b"one"}}


def test_an_abort_that_the_store_refuses_is_an_error(bucket: Bucket, client: FakeClient) -> None:
    client.failures = [refusal(403)]
    with pytest.raises(StoreError, match="cannot abort the upload of"):
        bucket.abort(Upload(KEY, "killed", NOW))
