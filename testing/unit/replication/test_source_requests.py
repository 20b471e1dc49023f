"""Requests of mirrors to the source."""

from __future__ import annotations

import json

import pytest

from hgfleet.replication.source.requests import (
    RefusedError,
    Request,
    Selection,
    parse,
    parse_selection,
)

NODE = "5f" * 20
ONE = "7d" * 16


@pytest.mark.parametrize(
    ("method", "target", "request_"),
    [
        ("GET", "/v1/repositories", Request("repositories")),
        ("GET", f"/v1/log?repository={ONE}&after=3", Request("log", ONE, after=3)),
        ("GET", f"/v1/log?repository={ONE}", Request("log", ONE)),
        ("GET", f"/v1/state?repository={ONE}&full=1", Request("state", ONE, full=True)),
        ("POST", f"/v1/changesets?repository={ONE}", Request("changesets", ONE)),
        # A request of a mirror of the release before.
        ("GET", "/v1/log?path=a%2Fb&after=3", Request("log", path="a/b", after=3)),
        ("POST", "/v1/changesets?path=a", Request("changesets", path="a")),
        ("GET", "/v1/registry", Request("registry")),
        ("GET", "/v1/documents", Request("documents")),
        (
            "GET",
            "/v1/documents/manifests%2Fa%2Fb.manifest",
            Request("documents", name="manifests/a/b.manifest"),
        ),
    ],
)
def test_a_request_is_read(method: str, target: str, request_: Request) -> None:
    assert parse(method, target) == request_


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/unknown", 404),
        ("GET", "/v1/log/more?path=a", 404),
        ("DELETE", "/v1/repositories", 405),
        ("GET", "/v1/changesets?path=a", 405),
        ("GET", "/v1/log", 400),
        ("GET", "/v1/log?path=", 400),
        ("GET", "/v1/log?path=../a", 400),
        ("GET", "/v1/log?repository=", 400),
        ("GET", "/v1/log?repository=a/b", 400),
        ("GET", f"/v1/log?repository={ONE.upper()}", 400),
        ("GET", f"/v1/log?repository={ONE}&path=a", 400),
        ("GET", "/v1/log?path=a&after=x", 400),
        ("GET", "/v1/log?path=a&after=-1", 400),
        ("GET", "/v1/log?path=a&after=99999999999999999999", 400),
        ("GET", "/v1/log?path=a&path=b", 400),
        ("GET", "/v1/log?path=a&more=b", 400),
        ("GET", "/v1/repositories?path=a", 400),
        ("GET", "/v1/documents/a%0ab", 400),
        ("GET", "/v1/documents/%ff", 400),
        ("GET", f"/v1/documents/{'a' * 600}", 400),
    ],
)
def test_another_request_is_refused_with_a_sentence(method: str, target: str, status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        parse(method, target)
    assert refused.value.status == status
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "selection",
    [Selection(nodes=(NODE,)), Selection(heads=(NODE,)), Selection(heads=(NODE,), common=(NODE,))],
)
def test_a_selection_comes_back_as_it_was_sent(selection: Selection) -> None:
    assert parse_selection(selection.body()) == selection


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        json.dumps({"nodes": []}).encode(),
        json.dumps({"nodes": NODE}).encode(),
        json.dumps({"nodes": [NODE[:-1]]}).encode(),
        json.dumps({"nodes": [NODE.upper()]}).encode(),
        json.dumps({"nodes": [1]}).encode(),
        json.dumps({"heads": [NODE]}).encode(),
        json.dumps({"heads": [], "common": []}).encode(),
        json.dumps({"heads": [NODE], "common": [NODE], "more": 1}).encode(),
    ],
)
def test_another_selection_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_selection(body)
    assert refused.value.status == 400
