from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.bundles.decide.manifest import Entry, Manifests, object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.steps.job import Outcome
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.bundles.steps.published import PublishedBundles
from hgfleet.bundles.stores.reader import Reader
from hgfleet.core.errors import HgfleetError, TemporaryError, UnavailableError
from hgfleet.hg import push_spool
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
IDENTITY = "5f" * 16
CDN = "https://cdn.example/bundles"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    repository = Repository("team/project", "", "public", (), True, ("zstd", "gzip"))
    (tmp_path / "registry.json").write_text(dump_compiled(Registry({"team/project": repository})))
    (tmp_path / "dynamic").mkdir()
    with dynamic_update.update(tmp_path / "dynamic/registry.json") as entries:
        entries.note_identity("team/project", IDENTITY)
    path = tmp_path / "bundles.toml"
    path.write_text(
        f'registry = "{tmp_path}/registry.json"\n'
        f'dynamic = "{tmp_path}/dynamic/registry.json"\n'
        f'manifests = "{tmp_path}/manifests"\nscratch = "{tmp_path}"\n'
        f'repositories = "{tmp_path}/repos"\n[[store]]\nname = "eu"\nbucket = "b"\n'
        f'endpoint = "https://s3.example"\npublic_url = "{CDN}"\n'
    )
    published = [
        Entry(object_url(CDN, key), spec, digit * 64, 1000, 42, NOW, identity=IDENTITY)
        for digit, spec, key in (
            ("1", "zstd-v2", make_key(IDENTITY, "a" * 40, "1" * 64, "zstd")),
            ("2", "gzip-v2", make_key(IDENTITY, "a" * 40, "2" * 64, "gzip")),
        )
    ]
    Manifests(tmp_path / "manifests").publish(IDENTITY, published, NOW)
    return path


def hgfleet(*arguments: object) -> int:
    return cli.main(["bundles", *map(str, arguments)])


def test_status_is_there_for_programs_too(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def problem(_reader: Reader, entry: Entry) -> str:
        return "the answer is 404 Not Found" if "gzip" in entry.url else ""

    monkeypatch.setattr(Reader, "problem", problem)
    assert hgfleet("status", "--json", "--config", config) == 1
    said = json.loads(capsys.readouterr().out)
    zstd, gzip = said["repositories"]["team/project"]
    assert zstd == {
        "url": f"{CDN}/{IDENTITY}/{'a' * 40}.{'1' * 16}.zstd-v2.hg",
        "store": "eu",
        "kind": "zstd",
        "bundlespec": "zstd-v2",
        "sha256": "1" * 64,
        "size": 1000,
        "changesets": 42,
        "made": "2026-11-20T12:00:00+00:00",
        "problem": None,
    }
    assert gzip["problem"] == "the answer is 404 Not Found"


def test_explain_needs_no_credentials_and_no_store(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hgfleet("explain", "team/project", "--config", config) == 0
    said = capsys.readouterr().out
    assert said.startswith("team/project: skip\n    not on this host")
    assert "zstd in eu" in said


@pytest.mark.parametrize("command", ["run", "publish", "prune"])
def test_what_writes_asks_for_the_credentials_of_each_store(
    config: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert hgfleet(command, "--config", config) == 78
    assert "no credentials for the object store eu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcomes", "code", "said"),
    [
        ([Outcome("a")], 0, "failed=0 degraded=0"),
        ([Outcome("a", missing={"us": HgfleetError("x")})], 69, "degraded=1 missing=us"),
        ([Outcome("a", error=TemporaryError("x")), Outcome("b")], 75, "failed=1 failures=a"),
        (
            [
                Outcome("a", error=TemporaryError("x")),
                Outcome("b", missing={"us": HgfleetError("x")}),
            ],
            75,
            "degraded=1",
        ),
        (
            [Outcome("a", error=UnavailableError("x")), Outcome("b", error=TemporaryError("x"))],
            1,
            "",
        ),
    ],
    ids=["fine", "degraded", "failed", "both", "several"],
)
def test_the_exit_code_tells_what_to_do(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcomes: list[Outcome],
    code: int,
    said: str,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(Pipeline, "run", lambda *_arguments, **_more: outcomes)
    assert hgfleet("run", "--config", config, "--format", "events") == code
    assert said in capsys.readouterr().out


def test_only_a_run_over_all_repositories_looks_for_those_that_are_gone(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def run(_pipeline: Pipeline, _repositories: object, *, everything: bool) -> list[Outcome]:
        seen.append(everything)
        return []

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    for command in ("run", "prune"):
        monkeypatch.setattr(Pipeline, command, run)
        hgfleet(command, "--config", config)
        hgfleet(command, "team/project", "--config", config)
    assert seen == [True, False, True, False]


@pytest.mark.parametrize("has_published", [True, False])
def test_a_run_after_pushes_renews_the_pages_of_all_once(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    has_published: bool,
) -> None:
    def run(pipeline: Pipeline, repositories: list[Repository]) -> list[Outcome]:
        pipeline.job.publisher.has_published = has_published
        return [Outcome(repository.path) for repository in repositories]

    def fail(_published: PublishedBundles, repositories: list[Repository]) -> None:
        renewed.append([repository.path for repository in repositories])
        raise PermissionError(13, "Permission denied")

    renewed: list[list[str]] = []
    both = [Repository(f"team/{name}", "", "public", (), True, ()) for name in ("other", "project")]
    registry = Registry({repository.path: repository for repository in both})
    (tmp_path / "registry.json").write_text(dump_compiled(registry))
    spool = tmp_path / "spool"
    spool.mkdir()
    push_spool.mark(str(spool), "team/project")
    monkeypatch.setattr(push_spool, "SPOOL", spool)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(Pipeline, "run", run)
    monkeypatch.setattr(PublishedBundles, "publish_pages", fail)
    # A failure is a note.
    assert hgfleet("run", "--pushed", "--config", config) == 0
    assert renewed == ([["team/other", "team/project"]] if has_published else [])
    assert ("event=bundles.page" in capsys.readouterr().out) is has_published


def test_nothing_is_forgotten_without_a_name(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hgfleet("forget", "--config", config) == 2
    assert "name the repositories" in capsys.readouterr().err


def test_a_withdrawal_looks_again_if_the_registry_changed_meanwhile(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd does not look for changes while its unit is active."""
    looks: list[list[str]] = []

    def withdraw(
        _pipeline: Pipeline, repositories: list[Repository], *, everything: bool
    ) -> list[Outcome]:
        assert everything
        looks.append([repository.path for repository in repositories])
        if len(looks) == 1:
            with dynamic_update.update(tmp_path / "dynamic/registry.json") as entries:
                entries.note_purged("9a" * 16)
        return []

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(Pipeline, "withdraw", withdraw)
    assert hgfleet("withdraw", "--config", config) == 0
    assert looks == [["team/project"], ["team/project"]]
