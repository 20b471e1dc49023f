"""The promises of the role objectstore, on any host with an object store."""

from __future__ import annotations

import json
import shlex
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testinfra.host import Host

    from testing.conftest import WaitFor

UNIT = "hgfleet-objectstore.service"
ROOT = "/etc/hgfleet/secrets/objectstore-root.env"
USERS = "/etc/hgfleet/objectstore/users.json"

# Runs on the host: calls the S3 API as an account, or without a signature. Prints each answer as
# JSON. Its start, with boto3, takes as long as ten operations.
CLIENT = """
import json, sys
import boto3, botocore, botocore.config, botocore.exceptions
account, secret, endpoint, operations = json.load(sys.stdin)
unsigned = {} if account else {"signature_version": botocore.UNSIGNED}
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="us-east-1", verify="/etc/hgfleet/tls/ca.pem",
    aws_access_key_id=account, aws_secret_access_key=secret,
    config=botocore.config.Config(s3={"addressing_style": "path"}, **unsigned),
)
def call(operation, arguments):
    arguments = {
        name: value.encode() if name == "Body" else value for name, value in arguments.items()
    }
    try:
        answer = getattr(client, operation)(**arguments)
    except botocore.exceptions.ClientError as error:
        # A body that is sent after its refusal would be read as the start of the next request.
        client.close()
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        return {"status": status, "body": "", "keys": [], "cache": None}
    return {
        "status": answer["ResponseMetadata"]["HTTPStatusCode"],
        "body": answer["Body"].read().decode() if "Body" in answer else "",
        "keys": [item["Key"] for item in answer.get("Contents", [])],
        "cache": answer.get("CacheControl"),
    }
print(json.dumps([call(*operation) for operation in operations]))
"""

Operation = tuple[str, dict[str, Any]]


class Store:
    """The object store of a host, with a client on this host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        unit = host.check_output("systemctl cat %s", UNIT).replace("\\\n", " ")
        words = shlex.split(
            next(line for line in unit.splitlines() if line.startswith("ExecStart="))
        )
        self.port = words[words.index("--port") + 1].removeprefix(":")
        self.data = words[-1]
        self.endpoint = f"https://{host.check_output('hostname')}:{self.port}"
        pairs = (
            line.split("=", 1)
            for line in host.file(ROOT).content_string.splitlines()
            if "=" in line and not line.startswith("#")
        )
        self.root = dict(pairs)
        self.users = json.loads(host.file(USERS).content_string)["accessAccounts"]
        self.bucket = str(host.check_output("ls %s", self.data).split()[0])

    def call(self, account: str | None, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation as root, as a user, or (None) without a signature."""
        return self.call_each(account, [(operation, arguments)])[0]

    def call_each(
        self, account: str | None, operations: Sequence[Operation]
    ) -> list[dict[str, Any]]:
        """Call operations in turn, in a single process on the host."""
        secret = None
        name = account
        if account == "root":
            name, secret = self.root["ROOT_ACCESS_KEY_ID"], self.root["ROOT_SECRET_ACCESS_KEY"]
        elif account:
            secret = self.users[account]["secret"]
        request = json.dumps([name, secret, self.endpoint, operations])
        # printf is a builtin of the shell, so secrets are in no list of processes.
        done = self.host.run(f"printf %s {shlex.quote(request)} | python3 -c {shlex.quote(CLIENT)}")
        assert done.rc == 0, done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers

    def statuses(self, account: str | None, operations: Sequence[Operation]) -> dict[str, int]:
        """Return the status of each operation, by its name and arguments."""
        answers = self.call_each(account, operations)
        return {
            f"{operation} {arguments}": answer["status"]
            for (operation, arguments), answer in zip(operations, answers, strict=True)
        }


@pytest.fixture(scope="module")
def store(host: Host) -> Store:
    return Store(host)


@pytest.fixture
def writer(store: Store) -> str:
    return str(next(iter(store.users)))


@pytest.fixture
def key(store: Store) -> Iterator[str]:
    """A key that nothing else uses; its object is deleted afterwards."""
    name = f"hgfleet-test/{uuid.uuid4()}"
    yield name
    store.call("root", "delete_object", Bucket=store.bucket, Key=name)


def test_server_runs_and_starts_with_the_host(host: Host) -> None:
    service = host.service(UNIT)
    assert service.is_running, host.run("journalctl -u %s -n 30 --no-pager", UNIT).stdout
    assert service.is_enabled


def test_server_is_sandboxed_and_not_root(host: Host) -> None:
    assert host.check_output("systemctl show -P User %s", UNIT) == "objectstore"
    exposure = host.check_output("systemd-analyze security --no-pager %s", UNIT).splitlines()[-1]
    assert float(exposure.split()[-3]) < 2, exposure


def test_version_is_named_by_its_content_and_nobody_but_root_can_change_it(host: Host) -> None:
    path = host.check_output("readlink -f /opt/hgfleet/objectstore/current/versitygw")
    binary = host.file(path)
    assert path.split("/")[-2] == binary.sha256sum[:16]
    assert (binary.user, binary.group, binary.mode) == ("root", "root", 0o755)
    assert host.file("/opt/hgfleet/objectstore/current").linked_to == path.rpartition("/")[0]


def test_secrets_are_closed_and_in_no_list_of_processes(host: Host, store: Store) -> None:
    for path, group, mode in ((ROOT, "root", 0o600), (USERS, "objectstore", 0o640)):
        file = host.file(path)
        assert (file.user, file.group, file.mode) == ("root", group, mode)
    told = host.check_output("ps -eww -o args") + host.check_output("systemctl show %s", UNIT)
    secrets = [store.root["ROOT_SECRET_ACCESS_KEY"]]
    secrets += [user["secret"] for user in store.users.values()]
    assert not [secret for secret in secrets if secret in told]


def test_the_host_certificate_is_served_and_nothing_in_clear(host: Host, store: Store) -> None:
    name = host.check_output("hostname")
    shaken = host.run(
        "openssl s_client -connect %s:%s -verify_return_error -verify_hostname %s </dev/null",
        name,
        store.port,
        name,
    )
    assert shaken.rc == 0, shaken.stderr
    served = host.check_output(
        "openssl s_client -connect %s:%s </dev/null 2>/dev/null | openssl x509 -noout -fingerprint",
        name,
        store.port,
    )
    own = host.check_output("openssl x509 -in /etc/hgfleet/tls/cert.pem -noout -fingerprint")
    assert served == own
    old = host.run("openssl s_client -tls1_1 -connect %s:%s </dev/null", name, store.port)
    assert old.rc != 0
    suites = "openssl s_client -tls1_2 -cipher %s -connect %s:%s </dev/null"
    for kind in ("ECDSA", "RSA"):
        for bits in (128, 256):
            suite = f"ECDHE-{kind}-AES{bits}-SHA"
            assert host.run(suites, suite, name, store.port).rc != 0, suite
    modern = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"
    assert host.run(suites, modern, name, store.port).rc == 0


def test_a_connection_is_kept_for_the_next_request(host: Host, store: Store) -> None:
    """Probers send requests all the time; a handshake for each would cost more than the answer."""
    script = (
        "import http.client, ssl, sys; "
        "context = ssl.create_default_context(cafile='/etc/hgfleet/tls/ca.pem'); "
        "one = http.client.HTTPSConnection(sys.argv[1], int(sys.argv[2]), context=context); "
        "one.request('GET', '/healthz'); one.getresponse().read(); print(one.sock is not None)"
    )
    name = host.check_output("hostname")
    assert host.check_output("python3 -c %s %s %s", script, name, store.port) == "True"


@pytest.mark.changes
def test_everybody_downloads_and_nobody_lists_or_writes(
    store: Store, writer: str, key: str
) -> None:
    put = store.call(writer, "put_object", Bucket=store.bucket, Key=key, Body="content")
    assert put["status"] == 200
    got = store.call(None, "get_object", Bucket=store.bucket, Key=key)
    assert (got["status"], got["body"]) == (200, "content")
    refused: list[Operation] = [
        ("list_buckets", {}),
        ("list_objects_v2", {"Bucket": store.bucket}),
        ("get_bucket_policy", {"Bucket": store.bucket}),
        ("put_object", {"Bucket": store.bucket, "Key": f"{key}-more", "Body": "x"}),
        ("delete_object", {"Bucket": store.bucket, "Key": key}),
    ]
    statuses = store.statuses(None, refused)
    assert set(statuses.values()) <= {403, 405}, statuses
    assert store.call(None, "get_object", Bucket=store.bucket, Key=key)["body"] == "content"


def test_a_missing_object_is_missing_and_not_forbidden(store: Store) -> None:
    key = f"hgfleet-test/{uuid.uuid4()}"
    assert store.call(None, "get_object", Bucket=store.bucket, Key=key)["status"] == 404


@pytest.mark.changes
def test_an_object_is_created_once_with_headers_for_ever(
    store: Store, writer: str, key: str
) -> None:
    def create(body: str) -> int:
        answer = store.call(
            writer,
            "put_object",
            Bucket=store.bucket,
            Key=key,
            Body=body,
            IfNoneMatch="*",
            CacheControl="public, immutable",
        )
        status: int = answer["status"]
        return status

    assert create("first") == 200
    assert create("second") == 412
    got = store.call(None, "get_object", Bucket=store.bucket, Key=key)
    assert (got["body"], got["cache"]) == ("first", "public, immutable")


@pytest.mark.changes
def test_a_writer_may_nothing_but_write_and_list_objects(
    store: Store, writer: str, key: str
) -> None:
    store.call(writer, "put_object", Bucket=store.bucket, Key=key, Body="content")
    listed = store.call(writer, "list_objects_v2", Bucket=store.bucket, Prefix=key)
    assert listed["keys"] == [key]
    refused: list[Operation] = [
        ("create_bucket", {"Bucket": "hgfleet-test"}),
        ("delete_bucket", {"Bucket": store.bucket}),
        ("put_bucket_policy", {"Bucket": store.bucket, "Policy": "{}"}),
        ("delete_bucket_policy", {"Bucket": store.bucket}),
        ("put_bucket_acl", {"Bucket": store.bucket, "ACL": "public-read-write"}),
    ]
    statuses = store.statuses(writer, refused)
    assert set(statuses.values()) == {403}, statuses
    assert store.call(writer, "delete_object", Bucket=store.bucket, Key=key)["status"] == 204


@pytest.mark.changes
def test_a_reader_may_download_from_its_bucket_and_nothing_else(store: Store, writer: str) -> None:
    """The private bucket; clients' URLs are signed with the reader's key."""
    if "reader" not in store.users:
        pytest.skip("no bucket of this host is private")
    bucket, name = "private", f"hgfleet-test/{uuid.uuid4()}"
    put = store.call(writer, "put_object", Bucket=bucket, Key=name, Body="content")
    assert put["status"] == 200
    try:
        got = store.call("reader", "get_object", Bucket=bucket, Key=name)
        assert (got["status"], got["body"]) == (200, "content")
        assert store.call(None, "get_object", Bucket=bucket, Key=name)["status"] == 403
        refused: list[Operation] = [
            ("list_objects_v2", {"Bucket": bucket}),
            ("list_objects_v2", {"Bucket": store.bucket}),
            ("put_object", {"Bucket": bucket, "Key": f"{name}-more", "Body": "x"}),
            ("put_object", {"Bucket": bucket, "Key": name, "Body": "x"}),
            ("delete_object", {"Bucket": bucket, "Key": name}),
            ("get_bucket_policy", {"Bucket": bucket}),
        ]
        statuses = store.statuses("reader", refused)
        assert len(statuses) == len(refused)
        assert set(statuses.values()) == {403}, statuses
    finally:
        store.call(writer, "delete_object", Bucket=bucket, Key=name)


def test_no_signature_of_a_url_is_logged(host: Host, store: Store, wait_for: WaitFor) -> None:
    name = f"hgfleet-test/{uuid.uuid4()}"
    asked = f"{store.endpoint}/{store.bucket}/{name}?X-Amz-Signature=0123abc&x=y"
    script = (
        "import ssl, sys, urllib.request as u\n"
        "trust = ssl.create_default_context(cafile='/etc/hgfleet/tls/ca.pem')\n"
        "u.urlopen(sys.argv[1], context=trust)"
    )
    assert host.run("python3 -c %s %s", script, asked).rc != 0  # the signature is invalid

    def logged() -> str:
        host.check_output("journalctl --sync")
        read = "journalctl --unit=%s --output=cat --since=-1min --grep=%s"
        return str(host.run(read, UNIT, name).stdout)

    wait_for("the request is logged", logged)
    assert "X-Amz-Signature=...&x=y" in logged()
    assert "0123abc" not in logged()


def test_a_wrong_secret_is_refused(store: Store) -> None:
    store.users = {**store.users, "stranger": {"secret": "x" * 40}}
    assert store.call("stranger", "list_objects_v2", Bucket=store.bucket)["status"] == 403


def test_accounts_cannot_be_managed_from_the_network(host: Host, store: Store) -> None:
    def patch(path: str) -> str:
        script = (
            "import sys, ssl, urllib.request as u, urllib.error\n"
            "c = ssl.create_default_context(cafile='/etc/hgfleet/tls/ca.pem')\n"
            "try: print(u.urlopen(u.Request(sys.argv[1], method='PATCH'), context=c).status)\n"
            "except urllib.error.HTTPError as e: print(e.code)"
        )
        answer: str = host.check_output("python3 -c %s %s", script, f"{store.endpoint}{path}")
        return answer

    # The administration API would demand credentials (403); here the path does not exist.
    assert patch("/list-users") == patch("/no-such-thing") != "403"
    folder = host.file("/run/hgfleet-objectstore")
    assert (folder.user, folder.mode) == ("objectstore", 0o700)


def test_data_is_closed_to_other_users(host: Host, store: Store) -> None:
    assert host.run("runuser -u nobody -- ls %s", store.data).rc != 0


@pytest.mark.changes
def test_downloads_are_in_the_journal(host: Host, store: Store, writer: str, key: str) -> None:
    store.call(writer, "put_object", Bucket=store.bucket, Key=key, Body="content")
    store.call(None, "get_object", Bucket=store.bucket, Key=key)
    host.check_output("journalctl --sync")
    lines = host.check_output("journalctl -u %s -o cat --no-pager -n 200", UNIT).splitlines()
    assert [line for line in lines if f"GetObject {key}" in line and " 200 " in line]


@pytest.mark.changes
def test_what_a_prober_has_read_is_not_in_the_journal(
    host: Host, store: Store, writer: str, key: str, wait_for: WaitFor
) -> None:
    if "127[.]0[.]0[.]9" not in host.check_output("systemctl cat %s", UNIT):
        pytest.skip("only on a host whose probers include an address of itself")
    store.call(writer, "put_object", Bucket=store.bucket, Key=key, Body="content")
    script = """
import http.client, ssl, sys
name, port, source, *paths = sys.argv[1:]
trust = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
for path in paths:
    client = http.client.HTTPSConnection(
        name, int(port), context=trust, source_address=(source, 0)
    )
    client.request("GET", path)
    print(client.getresponse().status)
"""
    name = host.check_output("hostname")
    for source in ("127.0.0.8", "127.0.0.9"):
        paths = (f"/{store.bucket}/{key}", f"/{store.bucket}/{key}-{source}")
        asked = ("python3 -c %s %s %s %s %s %s", script, name, store.port, source, *paths)
        assert host.check_output(*asked).split() == ["200", "404"]

    def logged() -> list[tuple[str, str]]:
        host.check_output("journalctl --sync")
        read = "journalctl --unit=%s --output=cat --since=-1min --grep=GetObject"
        requests = [
            line.split() for line in host.run(read, UNIT).stdout.splitlines() if key in line
        ]
        return [(fields[4], fields[10]) for fields in requests if fields[4].startswith("127.0.0.")]

    wait_for("the last request is logged", lambda: ("127.0.0.9", "404") in logged())
    # A prober's successful requests are not logged; its failures and other clients' requests are.
    assert logged() == [("127.0.0.8", "200"), ("127.0.0.8", "404"), ("127.0.0.9", "404")]
