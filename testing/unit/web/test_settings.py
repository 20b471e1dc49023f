from __future__ import annotations

from pathlib import Path

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.web.http.headers import etag, etag_matches
from hgfleet.web.http.settings import Settings, from_environment


def test_an_empty_environment_gives_the_paths_of_a_host() -> None:
    assert from_environment({}) == Settings()
    assert Settings().registry == Path("/var/lib/hgfleet/registry.json")


def test_every_variable_is_read() -> None:
    settings = from_environment(
        {
            "HGFLEET_WEB_REGISTRY": "/r.json",
            "HGFLEET_WEB_ROOT": "/repos",
            "HGFLEET_WEB_ACCESS_LOG": "/log",
            "HGFLEET_WEB_PUBLIC_URL": "https://hg.example.org:8443/",
            "HGFLEET_WEB_SSH_URL": "ssh://hg@hg.example.org:2200",
            "HGFLEET_WEB_TITLE": "Ours",
            "HGFLEET_WEB_CACHE_BYTES": "1000",
            "HGFLEET_WEB_DRAIN": "/drain",
            "HGFLEET_WEB_MIRROR_STATE": "/state.json",
            "HGFLEET_WEB_AUTH_SOCKET": "/auth/socket",
            "HGFLEET_WEB_AUTH_CALLS": "2",
            "HGFLEET_WEB_REQUEST_CPU_SECONDS": "1.5",
            "HGFLEET_WEB_ARCHIVE_CPU_SECONDS": "20",
            "HGFLEET_WEB_REQUEST_MEMORY_BYTES": "100000000",
            "HGFLEET_WEB_RENDERERS": "3",
            "HGFLEET_WEB_WAITING": "5",
            "HGFLEET_WEB_HEALTH_SOCKET": "/health",
            "HGFLEET_WEB_STREAMS": "6",
            "HGFLEET_WEB_CLONES": "7",
            "HGFLEET_WEB_STREAM_CPU_SECONDS": "600",
            "HGFLEET_WEB_STREAM_MEMORY_BYTES": "200000000",
            "HGFLEET_WEB_STREAM_SECONDS": "7200",
            "HGFLEET_WEB_SPOOL": "/spool",
            "HGFLEET_WEB_SPOOL_FREE_BYTES": "1000",
        }
    )
    assert settings == Settings(
        registry=Path("/r.json"),
        root=Path("/repos"),
        access_log=Path("/log"),
        public_url="https://hg.example.org:8443",
        ssh_url="ssh://hg@hg.example.org:2200",
        title="Ours",
        cache_bytes=1000,
        drain=Path("/drain"),
        mirror_state=Path("/state.json"),
        auth_socket=Path("/auth/socket"),
        auth_calls=2,
        request_cpu_seconds=1.5,
        archive_cpu_seconds=20,
        request_memory_bytes=100_000_000,
        renderers=3,
        waiting=5,
        health_socket=Path("/health"),
        streams=6,
        clones=7,
        stream_cpu_seconds=600,
        stream_memory_bytes=200_000_000,
        stream_seconds=7200,
        spool=Path("/spool"),
        spool_free_bytes=1000,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HGFLEET_WEB_PUBLIC_URL", "hg.example.org"),
        ("HGFLEET_WEB_PUBLIC_URL", "https://hg.example.org/path"),
        ("HGFLEET_WEB_SSH_URL", "https://hg.example.org"),
        ("HGFLEET_WEB_CACHE_BYTES", "64M"),
        ("HGFLEET_WEB_AUTH_CALLS", "0"),
        ("HGFLEET_WEB_AUTH_CALLS", "all"),
        ("HGFLEET_WEB_REQUEST_CPU_SECONDS", "0"),
        ("HGFLEET_WEB_REQUEST_CPU_SECONDS", "2s"),
        ("HGFLEET_WEB_ARCHIVE_CPU_SECONDS", "-1"),
        ("HGFLEET_WEB_REQUEST_MEMORY_BYTES", "1024"),
        ("HGFLEET_WEB_RENDERERS", "0"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: got '{value}', expected"):
        from_environment({name: value})


def test_entity_tags_compare_as_rfc_9110_says() -> None:
    tag = etag(b"body")
    assert tag.startswith('"')
    assert etag(b"other") != tag
    for condition in (tag, f"W/{tag}", f'"x", {tag}', "*", f" {tag} "):
        assert etag_matches(condition, tag)
    for condition in ("", '"x"', tag.strip('"')):
        assert not etag_matches(condition, tag)
