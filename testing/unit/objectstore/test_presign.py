"""Presigned URLs: in the form of S3, for bundles of the private stores and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from hgfleet.bundles.decide.names import make_key, parse_key
from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore.presign import PrivateStore, Signer, load, presign, unsigned

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
STORE = PrivateStore("closed", "https://s3.example:7443/private", "eu-1", "reader", "s3cr3t/+=")
KEY = make_key("team/closed", "a" * 40, "b" * 64, "zstd")
URL = f"{STORE.url}/{KEY}"


def test_the_example_of_the_specification_is_signed_as_it_says() -> None:
    """From "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)"."""
    store = PrivateStore(
        "example",
        "https://examplebucket.s3.amazonaws.com",
        "us-east-1",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )
    then = datetime(2013, 5, 24, tzinfo=UTC)
    assert presign(f"{store.url}/test.txt", store, then, 86400, "GET") == (
        "https://examplebucket.s3.amazonaws.com/test.txt"
        "?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://bucket.s3.eu-1.example/team/closed/x.hg",
        "http://127.0.0.1:9000/private/with%20blank/%C3%A9~x.hg",
    ],
)
def test_botocore_signs_the_same(url: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: NOW.replace(tzinfo=None))
    request = AWSRequest(method=method, url=url)
    who = Credentials(STORE.access_key, STORE.secret_key)
    S3SigV4QueryAuth(who, "s3", STORE.region, expires=600).add_auth(request)
    assert presign(url, STORE, NOW, 600, method) == request.url


def test_a_clock_of_another_zone_gives_the_same_url() -> None:
    local = NOW.astimezone(datetime.now().astimezone().tzinfo)
    assert presign(URL, STORE, local, 600, "GET") == presign(URL, STORE, NOW, 600, "GET")


def test_the_default_port_is_left_out_as_clients_do() -> None:
    url = URL.replace(":7443", ":443")
    plain = url.replace(":443", "")
    assert presign(url, STORE, NOW, 60, "GET") == presign(plain, STORE, NOW, 60, "GET")


def test_a_signature_is_for_one_object_method_time_and_key() -> None:
    signatures = {
        presign(url, store, when, lifetime, method).rpartition("=")[2]
        for url, store, when, lifetime, method in (
            (URL, STORE, NOW, 600, "GET"),
            (f"{URL}x", STORE, NOW, 600, "GET"),
            (URL.replace("s3.", "s4."), STORE, NOW, 600, "GET"),
            (URL, replace(STORE, secret_key="other"), NOW, 600, "GET"),
            (URL, replace(STORE, region="us-1"), NOW, 600, "GET"),
            (URL, STORE, NOW + timedelta(seconds=1), 600, "GET"),
            (URL, STORE, NOW, 601, "GET"),
            (URL, STORE, NOW, 600, "HEAD"),
        )
    }
    assert len(signatures) == 8


def test_what_is_logged_is_no_signed_url_any_more() -> None:
    signed = presign(URL, STORE, NOW, 600, "GET")
    shown = unsigned(f"applying clone bundle from {signed}\nabort: {signed} is bad")
    assert signed.rpartition("=")[2] not in shown
    assert STORE.access_key not in shown
    assert shown.count("X-Amz-Signature=...") == 2
    assert shown.endswith("is bad")


def test_only_bundles_of_the_store_have_a_key() -> None:
    assert STORE.object_key(URL) == str(KEY)
    for url in (
        f"{STORE.url}x/{KEY}",
        f"{STORE.url}/index.html",
        f"{STORE.url}/{KEY}?versionId=1",
        f"{STORE.url}/{KEY}#x",
        f"{STORE.url}//{KEY}".replace("//team", "/%74eam"),
        f"{STORE.url}/%74eam/closed/{KEY}".replace(f"team/closed/{KEY}", str(KEY)[5:]),
        URL.replace("https", "http"),
        "",
    ):
        assert parse_key(STORE.object_key(url) or "") is None, url


def test_the_store_of_a_url_is_found_and_no_other_is_signed_for() -> None:
    signer = Signer((STORE, replace(STORE, name="two", url="https://two.example")), 60)
    assert signer.sign(URL, NOW) == presign(URL, STORE, NOW, 60, "GET")
    assert signer.sign("https://two.example/x", NOW, "HEAD").startswith("https://two.example/x?")
    for url in ("https://two.example", "https://s3.example:7443/privately/x", "file:///etc"):
        with pytest.raises(ConfigurationError, match="no key to read it with"):
            signer.sign(url, NOW)


SETTINGS = """
lifetime = 120
[[store]]
name = "closed"
url = "https://s3.example:7443/private"
region = "eu-1"
access_key = "reader"
secret_key = "s3cr3t/+="
"""


def test_settings_are_read_and_the_secret_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "signing.toml"
    file.write_text(SETTINGS)
    signer = load(file)
    assert signer == Signer((STORE,), 120)
    assert STORE.secret_key not in repr(signer)
    file.write_text("")
    assert load(file) == Signer()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (SETTINGS.replace("120", "30"), "lifetime: got 30"),
        (SETTINGS.replace("120", "true"), "lifetime: got True"),
        (SETTINGS + 'more = "s3cr3t/+="', "unknown settings store.more"),
        (SETTINGS.replace("region", "reg"), "store.region: got nothing"),
        (SETTINGS.replace("s3cr3t", "s3cr 3t"), "store.secret_key"),
        (SETTINGS.replace("/private", "/private/"), "store.url"),
        (SETTINGS.replace("/private", "/private?x"), "store.url"),
        (SETTINGS.replace("https://", "https://a@"), "store.url"),
        (SETTINGS.replace("https:", "file:"), "store.url"),
        ("nonsense = 1", "unknown settings nonsense"),
        ("store = 1", "store: got 1, expected tables"),
        (SETTINGS.replace('"\n', "\n"), "not TOML"),
    ],
)
def test_wrong_settings_are_named_without_the_secret(tmp_path: Path, wrong: str, said: str) -> None:
    file = tmp_path / "signing.toml"
    file.write_text(wrong)
    with pytest.raises(ConfigurationError, match=said) as caught:
        load(file)
    assert "s3cr" not in str(caught.value)


def test_a_missing_file_says_who_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the role `mercurial` writes them"):
        load(tmp_path / "signing.toml")


def test_no_signature_is_dated_ahead() -> None:
    late = NOW.replace(microsecond=999_999)
    assert presign(URL, STORE, late, 600, "GET") == presign(URL, STORE, NOW, 600, "GET")
