from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hgfleet.bundles.decide import settings
from hgfleet.core.errors import ConfigurationError

STORE = """
[[store]]
name = "eu"
endpoint = "https://s3.example:7443"
bucket = "bundles"
public_url = "https://cdn.example/bundles/"
"""


def load(tmp_path: Path, text: str) -> settings.Config:
    path = tmp_path / "bundles.toml"
    path.write_text(text)
    return settings.load(path)


def test_only_the_store_has_no_default(tmp_path: Path) -> None:
    loaded = load(tmp_path, STORE)
    assert loaded.stores[0].public_url == "https://cdn.example/bundles"
    assert loaded.stores[0].region == "us-east-1"
    assert loaded.scratch == Path("/var/cache/hgfleet/bundles")
    assert loaded.retention == timedelta(days=7)


def test_the_page_may_know_where_clones_come_from(tmp_path: Path) -> None:
    assert load(tmp_path, STORE).clone_url == ""
    assert load(tmp_path, 'clone_url = ""' + STORE).clone_url == ""
    assert load(tmp_path, 'clone_url = "https://hg.example/"' + STORE).clone_url == (
        "https://hg.example"
    )
    with pytest.raises(ConfigurationError, match="clone_url"):
        load(tmp_path, 'clone_url = "javascript:1"' + STORE)


def test_stores_keep_their_order_and_have_a_location(tmp_path: Path) -> None:
    second = STORE.replace("eu", "us").replace("cdn", "us") + 'location = "us-west"\nregion = "r"\n'
    loaded = load(tmp_path, STORE + second)
    assert [store.name for store in loaded.stores] == ["eu", "us"]
    assert [store.location for store in loaded.stores] == ["us-east-1", "us-west"]
    assert list(loaded.public_urls) == ["eu", "us"]


def test_a_store_is_private_only_if_it_says_so(tmp_path: Path) -> None:
    second = STORE.replace("eu", "closed").replace("cdn", "closed") + "private = true\n"
    assert [store.private for store in load(tmp_path, STORE + second).stores] == [False, True]


def test_every_setting_can_be_given(tmp_path: Path) -> None:
    text = (
        'scratch = "/x"\nscratch_ram_size = 1000\nmemory = 5\ndigest_only = ["big/*"]\n'
        "verify_days = 0\nread_days = 2\njobs = 3\nretention_days = 0.5\nzstd_level = 19\n"
        'timeout = 2\nsigning = "/y"' + STORE + "[refresh]\nshare = 0.5\nage_days = 1\n"
    )
    loaded = load(tmp_path, text)
    assert (loaded.scratch, loaded.jobs, loaded.zstd_level) == (Path("/x"), 3, 19)
    assert loaded.signing == Path("/y")
    assert (loaded.scratch_ram_bytes, loaded.memory_bytes) == (1000, 5)
    assert (loaded.digest_only, loaded.verify_age) == (("big/*",), timedelta(0))
    assert loaded.read_age == timedelta(days=2)
    assert loaded.retention == timedelta(hours=12)
    assert loaded.refresh.share == 0.5
    assert loaded.refresh.age == timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "store: got nothing, expected 1 or more tables [[store]]"),
        ("store = 3", "store: got 3, expected 1 or more tables [[store]]"),
        ("[[store]]\nname = 'eu'", "store.endpoint: got nothing, expected a URL"),
        (STORE.replace('"eu"', '"E U"'), "store.name: got 'E U'"),
        (STORE + STORE, "store.name: got 'eu', expected a name of a-z 0-9 - that no other"),
        (STORE + STORE.replace("eu", "us"), "expected a URL in no other store's"),
        (STORE + "private = 1", "store.private: got 1, expected true or false"),
        ("digest_only = 'big'" + STORE, "digest_only: got 'big', expected a list of patterns"),
        (STORE.replace("https://s3", "file://s3"), "expected a URL like https://host:port/path"),
        ("jobs = 0" + STORE, "jobs: got 0, expected a whole number from 1 to 64"),
        ("jobs = true" + STORE, "jobs: got True"),
        ('scratch = "here"' + STORE, "scratch: got 'here', expected an absolute path"),
        ("retention = 3" + STORE, "got unknown settings retention"),
        (STORE + "secret = 1", "got unknown settings store.secret"),
        (
            '[zstd_levels]\n"big/*" = 23' + STORE,
            "zstd_levels.big/*: got 23, expected a whole",
        ),
        ("zstd_levels = 3" + STORE, "zstd_levels: got 3, expected a table"),
        ("jobs = [", "not TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "bundles.toml") in str(caught.value)


def test_the_first_pattern_that_matches_gives_the_level(tmp_path: Path) -> None:
    text = 'zstd_level = 5\n[zstd_levels]\n"team/big" = 22\n"team/*" = 19\n' + STORE
    loaded = load(tmp_path, text)
    levels = [loaded.zstd_level_of(path) for path in ("team/big", "team/sub/x", "other/team/big")]
    assert levels == [22, 19, 5]


def test_no_file_names_the_role_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the role `bundles` writes them"):
        settings.load(tmp_path / "none.toml")
