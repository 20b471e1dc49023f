"""Whole runs of the bundle jobs: real hg on both ends, real HTTP, a store that can fail and lie."""

from __future__ import annotations

import fcntl
import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from hgfleet.bundles import reader
from hgfleet.bundles import repository as hg_side
from hgfleet.bundles.config import Config
from hgfleet.bundles.explain import explain
from hgfleet.bundles.job import Options, Outcome
from hgfleet.bundles.manifest import Entry, Manifests, locate
from hgfleet.bundles.pipeline import Pipeline
from hgfleet.bundles.plan import Action, Refresh
from hgfleet.core.errors import UnavailableError
from hgfleet.core.report import Report
from hgfleet.hg import fingerprint as files
from hgfleet.hg.command_server import HgError
from hgfleet.objectstore.bucket import Bucket, Stored, StoredObject, Upload
from hgfleet.objectstore.presign import PrivateStore
from hgfleet.objectstore.settings import Store
from hgfleet.registry import dynamic_update, user_repositories
from hgfleet.registry.compiled import dump_compiled
from hgfleet.registry.model import Namespace, Repository, Settings, build
from hgfleet.registry.purged import note_purged
from testing.integration.closedstore import SECRET, admits, write_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testing.conftest import WaitFor

HG = Path(sys.executable).with_name("hg")
EXTENSION = Path(__file__).resolve().parents[2] / "hgext/bundle_verify.py"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class FakeStore:
    """A bucket in memory, and its public side over HTTP.

    `lie` changes what is downloaded, `refuse` what is answered to the one who uploads; `forbids`
    refuses everybody, and `cut` ends each answer after so many bytes. A private
    one has a `reader`; whatever `is_open` says of a path is answered to everybody all the same.
    """

    def __init__(self, name: str = "main", *, private: bool = False) -> None:
        self.name = name
        self.reader: PrivateStore | None = None
        self.is_open: Callable[[str], bool] = lambda _path: False
        self.content: dict[str, bytes] = {}
        self.modified: dict[str, datetime] = {}
        self.metadata: dict[str, dict[str, str]] = {}
        self.pages: dict[str, bytes] = {}
        self.unfinished: list[Upload] = []
        self.lie: Callable[[bytes], bytes] = lambda data: data
        self.refuse: Exception | None = None
        self.silent = self.forbids = False
        self.cut: int | None = None
        self.ranges = True
        self.asked: list[str] = []
        self.requests: list[str] = []
        self.clock = NOW
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                key = path.removeprefix("/bundles/")
                data = store.content.get(key, store.pages.get(key))
                if store.reader and not store.is_open(key):
                    store.requests.append(self.path)
                    if not admits(store.reader, self.command, self.path):
                        self.send_error(403)
                        return
                if data is None or store.forbids:
                    self.send_error(403 if store.forbids else 404)
                    return
                store.asked.append(f"{self.command} {path}")
                if store.silent:
                    self.close_connection = True
                    return
                data = store.lie(data)
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if asked and store.ranges:
                    whole, first, last = len(data), int(asked[1]), int(asked[2])
                    data = data[first : last + 1]
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data[: store.cut])

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/bundles"
        if private:
            self.reader = PrivateStore(name, self.url, "eu-1", "reader", SECRET)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    # What Bucket does.

    def upload(self, key: str, path: Path, sha256: str, metadata: Any) -> bool:
        assert len(sha256) == 64
        assert set(metadata) == {"bundlespec", "changesets", "made", "required-ram"}
        if self.refuse:
            raise self.refuse
        if key in self.content:
            return False
        self.content[key] = path.read_bytes()
        self.modified[key] = self.clock
        self.metadata[key] = {**metadata, "sha256": sha256}
        return True

    def head(self, key: str) -> Stored | None:
        if key not in self.content:
            return None
        return Stored(len(self.content[key]), self.modified[key], self.metadata.get(key, {}))

    def put_page(self, key: str, body: bytes, content_type: str, max_age: int) -> bool:
        assert content_type
        assert max_age <= 3600
        self.pages[key] = body
        return True

    def objects(self, prefix: str) -> list[StoredObject]:
        if self.refuse:
            raise self.refuse
        return [
            StoredObject(key, len(data), self.modified[key])
            for key, data in sorted(self.content.items())
            if key.startswith(prefix)
        ]

    def uploads(self, prefix: str) -> Iterator[Upload]:
        return (upload for upload in self.unfinished if upload.key.startswith(prefix))

    def delete(self, key: str) -> None:
        self.content.pop(key, None)

    def spoil(self, entry: Entry) -> None:
        """Turn a bit behind everybody's back; no list, no header and no probe tells of it."""
        key = entry.url.removeprefix(f"{self.url}/")
        data = self.content[key]
        self.content[key] = data[:50] + bytes([data[50] ^ 1]) + data[51:]

    def abort(self, upload: Upload) -> None:
        self.unfinished.remove(upload)


class Site:
    """A host with repositories and stores; `store` is the first of them."""

    def __init__(self, root: Path, *stores: FakeStore) -> None:
        self.root, self.store, self.stores = root, stores[0], stores
        hgrc = root / "hgrc"
        hgrc.write_text(
            "[trusted]\nusers = *\n[extensions]\nclonebundles =\n"
            f"bundle_verify = {EXTENSION}\n[ui]\nusername = t\n"
        )
        self.config = Config(
            stores=tuple(
                Store(one.name, "http://unused", "bundles", one.url, private=one.reader is not None)
                for one in stores
            ),
            signing=root / "signing.toml",
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            repositories=root / "repos",
            manifests=root / "manifests",
            pull_bundles=root / "pullbundles",
            registry=root / "registry.json",
            dynamic=root / "dynamic/registry.json",
            scratch=root / "scratch",
            hg=HG,
            hgrc=hgrc,
            # No TLS here; any certificate will do.
            ca=Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")),
        )
        self.config.scratch.mkdir()
        self.manifests = Manifests(self.config.manifests)
        self.said = StringIO()

    def hg(self, *arguments: str | Path) -> str:
        environment = {**os.environ, "HGRCPATH": str(self.config.hgrc), "HGPLAIN": "1"}
        done = subprocess.run(
            [HG, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def repository(
        self, path: str, *, kinds: tuple[str, ...] = ("zstd",), commits: int = 2
    ) -> Repository:
        folder = self.config.repositories / path
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.hg("init", folder)
        for _ in range(commits):
            self.commit(path)
        return Repository(path, "", "public", (), True, kinds)

    def commit(self, path: str, *more: str) -> str:
        folder = self.config.repositories / path
        with (folder / "file").open("a") as file:
            file.write("line\n")
        said = self.hg("-R", folder, "--debug", "commit", "-A", "-m", "change", *more)
        return said.rpartition(":")[2].strip()

    def run(self, *repositories: Repository, now: datetime = NOW, **more: Any) -> list[Outcome]:
        everything = more.pop("everything", False)
        return self.pipeline(now, **more).run(repositories, everything=everything)

    def pipeline(self, now: datetime = NOW, **more: Any) -> Pipeline:
        for store in self.stores:
            store.clock = now
        buckets = {store.name: cast("Bucket", store) for store in self.stores}
        self.said = StringIO()
        return Pipeline(self.config, Report("text", self.said), buckets, Options(now=now, **more))

    def published(self, path: str) -> tuple[Entry, ...]:
        return self.manifests.read(path)


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def site(tmp_path: Path, store: FakeStore) -> Site:
    return Site(tmp_path, store)


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[Site]:
    """A host with two stores: `eu`, which comes first, and `us`."""
    stores = FakeStore("eu"), FakeStore("us")
    yield Site(tmp_path, *stores)
    for one in stores:
        one.server.shutdown()
        one.server.server_close()


@pytest.fixture(autouse=True)
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the probe see a few bytes only: bundles here are tiny, and the rest is hg's to find."""
    monkeypatch.setattr(reader, "TAIL", 8)


def test_every_kind_is_published_in_the_order_of_the_registry(site: Site) -> None:
    project = site.repository("team/project", kinds=("zstd", "stream", "gzip"))
    (outcome,) = site.run(project)
    assert outcome.error is None
    specs = [entry.bundlespec.split(";requirements")[0] for entry in site.published("team/project")]
    assert specs == ["zstd-v2", "none-v2;stream=v2", "gzip-v2"]
    assert len(site.store.content) == 3
    # A second run finds nothing to do and touches nothing.
    (again,) = site.run(project)
    assert again.plan is not None
    assert again.plan.action is Action.KEEP
    assert not list((site.config.scratch / "work").iterdir())


def test_a_client_with_the_published_manifest_clones_from_the_store(site: Site) -> None:
    project = site.repository("project", kinds=("stream",))
    site.run(project)
    source = site.config.repositories / "project"
    (source / ".hg/clonebundles.manifest").symlink_to(site.manifests.path("project"))
    said = site.hg(
        *("clone", "-U", "--config", """ui.ssh=sh -c 'eval "$2"' ssh"""),
        *("--config", f"ui.remotecmd={HG}", f"ssh://localhost/{source}", site.root / "clone"),
    )
    assert f"applying clone bundle from {site.published('project')[0].url}" in said
    assert "no changes found" in said
    heads = ("log", "-r", "heads(all())", "-T", "{node}")
    assert site.hg("-R", site.root / "clone", *heads) == site.hg("-R", source, *heads)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda data: data[:-1], "bytes instead of"),
        (lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:], "got sha256"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its last bytes are not those uploaded"),
        (lambda _: b"", "it has 0 bytes"),
    ],
    ids=["truncated", "bit flipped", "last bit flipped", "empty"],
)
def test_a_lying_store_is_never_published(
    site: Site, lie: Callable[[bytes], bytes], said: str
) -> None:
    project = site.repository("project")
    site.store.lie = lie
    (outcome,) = site.run(project)
    assert said in str(outcome.error)
    assert not site.manifests.path("project").exists()
    # It would be "already there" for ever; so it is not left there.
    assert site.store.content == {}
    # Once the store tells the truth again, all is well.
    site.store.lie = lambda data: data
    assert site.run(project)[0].error is None
    assert len(site.published("project")) == 1


def test_a_lie_in_a_new_bundle_leaves_the_published_one(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    before = site.published("project")
    site.commit("project")
    site.store.lie = lambda data: data if len(data) == before[0].size else b"x"
    (outcome,) = site.run(project)
    assert outcome.error is not None
    assert site.published("project") == before
    assert list(site.store.content) == [before[0].url.removeprefix(f"{site.store.url}/")]


def test_what_the_store_spoilt_is_replaced_under_the_same_key(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    (entry,) = site.published("project")
    right = dict(site.store.content)
    site.store.spoil(entry)
    # Nothing but a look at the whole content finds it, and --force makes the same key.
    assert site.run(project, force=True)[0].error is None
    assert "already in main" in site.said.getvalue()
    assert [one.url for one in site.published("project")] == [entry.url]
    assert site.store.content == right


def test_a_failing_repository_does_not_touch_another(site: Site) -> None:
    broken, fine = site.repository("broken"), site.repository("fine")
    (site.config.repositories / "broken/.hg/store/00manifest.i").write_bytes(b"rubbish")
    outcomes = site.run(broken, fine)
    assert [outcome.error is None for outcome in outcomes] == [False, True]
    assert "hg clone failed" in str(outcomes[0].error)
    assert len(site.published("fine")) == 1
    assert site.published("broken") == ()


def test_a_store_that_is_down_stops_the_run_before_anything_happens(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    before = site.published("project")
    site.commit("project")
    site.store.refuse = UnavailableError("connection refused")
    with pytest.raises(UnavailableError):
        site.run(project)
    assert site.published("project") == before
    site.store.refuse = None
    assert site.run(project)[0].error is None
    assert site.published("project")[0].changesets == 3


def test_another_run_at_work_is_left_alone(site: Site) -> None:
    project = site.repository("project")
    locks = site.config.scratch / "locks"
    locks.mkdir()
    with (locks / "project").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (outcome,) = site.run(project)
    assert (outcome.error, outcome.plan) == (None, None)
    assert "another run is at work" in site.said.getvalue()
    assert site.run(project)[0].plan is not None


@pytest.mark.parametrize("step", ["generate", "clone_through", "publish"])
def test_a_run_killed_at_any_step_is_mended_by_the_next(
    site: Site, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    project = site.repository("project", kinds=("zstd", "gzip"))

    class Killed(BaseException):
        pass

    def die(*_arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Manifests if step == "publish" else hg_side, step, die)
        # A killed process cleans nothing up.
        patched.setattr(shutil, "rmtree", lambda *_arguments, **_more: None)
        with pytest.raises(Killed):
            site.run(project)
    assert site.published("project") == ()
    (outcome,) = site.run(project)
    assert outcome.error is None
    assert len(site.published("project")) == 2
    assert not list((site.config.scratch / "work").iterdir())
    # What the killed run uploaded is what this one publishes: the same content, the same key.
    assert len(site.store.content) == 2


def test_an_interrupted_snapshot_is_made_again(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    snapshot = site.config.scratch / "snapshots/project"
    (snapshot / ".hg/store/journal").write_bytes(b"00changelog.i\x000\n")
    site.commit("project")
    assert site.run(project)[0].error is None
    assert site.published("project")[0].changesets == 3
    assert not (snapshot / ".hg/store/journal").exists()


def test_the_scratch_folder_may_be_lost(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    shutil.rmtree(site.config.scratch)
    site.config.scratch.mkdir()
    site.commit("project")
    assert site.run(project)[0].error is None


def test_history_that_was_removed_leaves_the_bundles(site: Site) -> None:
    project = site.repository("project", commits=3)
    gone = site.hg("-R", site.config.repositories / "project", "log", "-r", "tip", "-T", "{node}")
    site.run(project)
    source = site.config.repositories / "project"
    site.hg("-R", source, "--config", "extensions.strip=", "strip", "--no-backup", "tip")
    (outcome,) = site.run(project)
    assert outcome.plan is not None
    assert "no longer has" in outcome.plan.reasons[0]
    (entry,) = site.published("project")
    assert entry.changesets == 2
    snapshot = site.config.scratch / "snapshots/project"
    assert gone not in site.hg("-R", snapshot, "log", "-T", "{node}\n")


@pytest.fixture
def asked(site: Site, tmp_path: Path) -> Path:
    """Have the site's hg note each of its runs in this file, a line each."""
    notes, program = tmp_path / "asked", tmp_path / "hg"
    program.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nexec {HG} "$@"\n')
    program.chmod(0o755)
    site.config = replace(site.config, hg=program)
    return notes


def settle(site: Site, path: str, wait_for: WaitFor) -> None:
    """Wait until the files of a repository are old enough for their stat to be trusted."""
    watched = files.paths(site.config.repositories / path / ".hg")
    wait_for("files to settle", lambda: files.read(watched).is_settled())


def test_an_untouched_repository_is_not_asked_twice(
    site: Site, asked: Path, wait_for: WaitFor
) -> None:
    project = site.repository("project")
    site.run(project)
    settle(site, "project", wait_for)
    site.run(project)
    asked.write_text("")
    (outcome,) = site.run(project)
    assert outcome.plan is not None
    assert outcome.plan.action is Action.KEEP
    assert asked.read_text() == ""


@pytest.mark.parametrize("damage", ["", "{", '{"for": 1}', "[]"])
def test_a_damaged_memory_is_as_good_as_none(
    site: Site, asked: Path, wait_for: WaitFor, damage: str
) -> None:
    project = site.repository("project")
    site.run(project)
    settle(site, "project", wait_for)
    site.run(project)
    (site.config.scratch / "known/project").write_text(damage)
    asked.write_text("")
    assert site.run(project)[0].error is None
    assert "serve" in asked.read_text()


def test_whatever_changes_a_repository_is_noticed(site: Site, wait_for: WaitFor) -> None:
    project = site.repository("project", commits=3)
    source = site.config.repositories / "project"
    site.run(project)
    pipeline = Pipeline(site.config, Report("text", site.said))

    def heads() -> frozenset[str]:
        settle(site, "project", wait_for)
        _, seen = pipeline.plan(project, remember=True)
        assert pipeline.plan(project)[1] == seen
        return seen.heads

    seen = [heads()]
    site.commit("project")
    seen.append(heads())
    # Neither adds to the changelog: a phase, and a marker of obsolescence.
    site.hg("-R", source, "phase", "--force", "--secret", "tip")
    seen.append(heads())
    site.hg("-R", source, "phase", "--draft", "tip")
    seen.append(heads())
    tip = site.hg("-R", source, "log", "-r", "tip", "-T", "{node}")
    evolution = ("--config", "experimental.evolution=all")
    site.hg("-R", source, "update", "--rev", "tip^", *evolution)
    site.hg("-R", source, "debugobsolete", tip, *evolution)
    with site.config.hgrc.open("a") as file:
        file.write("[experimental]\nevolution = all\n")
    seen.append(heads())
    site.hg("-R", source, "--config", "extensions.strip=", "strip", "--no-backup", "--hidden", tip)
    site.commit("project")
    seen.append(heads())
    for before, after in itertools.pairwise(seen):
        assert before != after
    assert seen[0] == seen[2] == seen[4]
    assert seen[1] == seen[3]


def test_secret_changesets_are_in_no_bundle(site: Site) -> None:
    project = site.repository("project", kinds=("stream", "zstd"))
    secret = site.commit("project", "--secret")
    site.run(project)
    snapshot = site.config.scratch / "snapshots/project"
    assert secret not in site.hg("-R", snapshot, "log", "-T", "{node}\n")
    for entry in site.published("project"):
        assert secret not in entry.url
        assert entry.changesets == 2
    # Committing more secrets is no reason for a new bundle.
    before = site.published("project")
    site.commit("project", "--secret")
    (outcome,) = site.run(project)
    assert outcome.plan is not None
    assert outcome.plan.action is Action.KEEP
    assert site.published("project") == before


def test_drafts_of_a_repository_that_does_not_publish_stay_drafts(site: Site) -> None:
    project = site.repository("project", commits=0)
    hgrc = site.config.repositories / "project/.hg/hgrc"
    hgrc.write_text("[phases]\npublish = false\n")
    site.commit("project")
    assert site.run(project)[0].error is None
    snapshot = site.config.scratch / "snapshots/project"
    assert site.hg("-R", snapshot, "log", "-T", "{phase}\n") == "draft\n"


def test_an_empty_repository_gets_no_manifest(site: Site) -> None:
    (outcome,) = site.run(site.repository("project", commits=0))
    assert outcome.error is None
    assert not site.manifests.path("project").exists()


def test_a_deleted_object_is_withdrawn_even_if_nothing_can_replace_it(site: Site) -> None:
    project = site.repository("project", kinds=("stream", "zstd"))
    site.run(project)
    stream, zstd = site.published("project")
    del site.store.content[stream.url.removeprefix(f"{site.store.url}/")]
    shutil.move(site.config.hgrc, site.root / "away")
    with pytest.MonkeyPatch.context() as patched:

        def full(*_arguments: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(hg_side, "generate", full)
        (outcome,) = site.run(project)
    assert "No space left" in str(outcome.error)
    assert site.published("project") == (zstd,)
    shutil.move(site.root / "away", site.config.hgrc)
    assert site.run(project)[0].error is None
    assert [entry.sha256 for entry in site.published("project")] == [stream.sha256, zstd.sha256]


def test_replaced_bundles_are_deleted_after_the_retention_time(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    (first,) = site.published("project")
    site.commit("project")
    # The first bundle is old when it is replaced; a client may have been sent to it just before.
    real_now = datetime.now(UTC)
    site.run(project, now=real_now)
    assert len(site.store.content) == 2
    site.run(project, now=real_now + timedelta(days=6))
    assert len(site.store.content) == 2
    site.run(project, now=real_now + timedelta(days=8))
    (second,) = site.published("project")
    assert list(site.store.content) == [second.url.removeprefix(f"{site.store.url}/")]
    assert second != first


def test_a_repository_that_becomes_private_is_withdrawn_at_once(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    private = Repository("project", "", ("staff",), (), True, ("zstd",))
    (outcome,) = site.run(private, now=NOW + timedelta(seconds=1))
    assert outcome.error is None
    assert site.manifests.read_text("project") == ""
    assert site.store.content == {}
    assert not (site.config.scratch / "snapshots/project").exists()


def test_what_killed_uploads_left_is_deleted_when_it_is_old(site: Site) -> None:
    project = site.repository("project")
    key = f"project/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
    site.store.unfinished = [
        Upload(key, "old", NOW - timedelta(days=8)),
        Upload(key, "young", NOW - timedelta(days=6)),
        Upload("other/file", "not ours", NOW - timedelta(days=80)),
    ]
    site.run(project)
    assert [upload.id for upload in site.store.unfinished] == ["young", "not ours"]


def test_a_dry_run_changes_nothing(site: Site) -> None:
    project = site.repository("project")
    site.run(project, dry_run=True)
    assert site.store.content == {}
    assert not site.manifests.path("project").exists()
    assert "generate: zstd: no bundle is published" in site.said.getvalue()


def test_published_bundles_can_be_verified_again(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    site.commit("project")
    assert Pipeline(site.config, Report("text", StringIO())).verify(project).error is None
    site.store.lie = lambda data: data[:50] + b"?" + data[51:]
    outcome = Pipeline(site.config, Report("text", StringIO())).verify(project)
    assert "got sha256" in str(outcome.error)
    assert len(site.published("project")) == 1


# --- repositories that people create --------------------------------------------------------


def test_a_repository_that_is_archived_loses_its_bundles_in_the_next_run(site: Site) -> None:
    site.repository("people/bob/x", commits=3)
    static = build({}, {"people": Namespace("people")}, Settings(bundles=("zstd",)))
    site.config.registry.write_text(dump_compiled(static))
    site.config.dynamic.parent.mkdir()
    entry = user_repositories.Entry("bob", "", "2026-11-20T00:00:00Z")
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = entry
    pipeline = Pipeline(site.config, Report("text", site.said))
    known, archived = pipeline.known()
    site.run(*known.repositories.values(), *archived)
    assert site.published("people/bob/x")
    assert site.store.content
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = replace(entry, archived="2026-11-20T12:00:00Z")
    known, archived = pipeline.known()
    assert list(known.repositories) == []
    site.run(*archived, now=NOW + timedelta(hours=1))
    assert site.published("people/bob/x") == ()
    assert site.store.content == {}


def test_what_is_purged_before_any_run_saw_it_archived_goes_in_the_next_run(site: Site) -> None:
    for path in ("people/bob/x", "people/bob/stays"):
        site.repository(path, commits=3)
    static = build({}, {"people": Namespace("people")}, Settings(bundles=("zstd",)))
    site.config.registry.write_text(dump_compiled(static))
    site.config.dynamic.parent.mkdir()
    entry = user_repositories.Entry("bob", "", "2026-11-20T00:00:00Z")
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = entries["people/bob/stays"] = entry

    def run(hours: float) -> set[str]:
        pipeline = site.pipeline(now=NOW + timedelta(hours=hours))
        known, archived = pipeline.known()
        for outcome in pipeline.run([*known.repositories.values(), *archived], everything=True):
            assert outcome.error is None
        return {key.rpartition("/")[0] for key in site.store.content}

    assert run(0) == {"people/bob/x", "people/bob/stays"}
    with dynamic_update.update(site.config.dynamic) as entries:
        note_purged(site.config.dynamic, "people/bob/x")
        del entries["people/bob/x"]
    assert run(1) == {"people/bob/stays"}
    assert site.published("people/bob/x") == ()
    # Whoever takes the name later has bundles like anybody.
    site.commit("people/bob/x")
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = entry
    assert run(2) == run(3) == {"people/bob/x", "people/bob/stays"}


def test_a_damaged_dynamic_registry_withdraws_nothing(site: Site) -> None:
    site.config.registry.write_text(dump_compiled(build({}, {}, Settings())))
    site.config.dynamic.parent.mkdir()
    site.config.dynamic.write_text("half of it")
    known, archived = Pipeline(site.config, Report("text", site.said)).known()
    assert (list(known.repositories), archived) == ([], [])
    assert "not a dynamic registry" in site.said.getvalue()


# --- several stores ------------------------------------------------------------------------


def kinds_and_stores(site: Site, path: str) -> list[tuple[str, str]]:
    """What is published, in the order of the manifest: kind and store of each entry."""
    urls = {store.name: store.url for store in site.stores}
    places = [locate(entry, urls) for entry in site.published(path)]
    return [(place[1].kind, place[0]) for place in places if place]


def test_every_store_gets_every_bundle_and_kinds_come_first(regions: Site) -> None:
    project = regions.repository("team/project", kinds=("zstd", "stream"))
    (outcome,) = regions.run(project)
    assert (outcome.error, outcome.missing) == (None, {})
    both = [("zstd", "eu"), ("zstd", "us"), ("stream", "eu"), ("stream", "us")]
    assert kinds_and_stores(regions, "team/project") == both
    eu, us = regions.stores
    assert eu.content == us.content
    # Each was cloned from under the URL that is published.
    for store in regions.stores:
        assert len([line for line in store.asked if line.startswith("GET")]) >= 4
    assert regions.run(project)[0].plan.action is Action.KEEP  # type: ignore[union-attr]


def test_a_store_that_is_down_is_left_out_and_mended_by_the_next_run(regions: Site) -> None:
    project = regions.repository("project", kinds=("zstd", "gzip"))
    eu, us = regions.stores
    us.refuse, us.silent = UnavailableError("connection refused"), True
    (outcome,) = regions.run(project)
    assert outcome.error is None
    assert set(outcome.missing) == {"us"}
    assert kinds_and_stores(regions, "project") == [("zstd", "eu"), ("gzip", "eu")]
    # It is back: what the others have is copied, nothing is generated.
    us.refuse, us.silent = None, False
    (outcome,) = regions.run(project)
    assert outcome.missing == {}
    assert outcome.plan is not None
    assert outcome.plan.action is Action.COPY
    assert outcome.plan.reasons == ("zstd: not in us", "gzip: not in us")
    assert "generated" not in regions.said.getvalue()
    assert len(regions.published("project")) == 4
    assert eu.content == us.content


def test_a_store_that_dies_takes_its_entries_with_it(regions: Site) -> None:
    project = regions.repository("project")
    regions.run(project)
    eu = regions.stores[0]
    eu.refuse, eu.silent = UnavailableError("connection refused"), True
    (outcome,) = regions.run(project)
    assert set(outcome.missing) == {"eu"}
    assert kinds_and_stores(regions, "project") == [("zstd", "us")]
    # Back with all its objects: they are verified again, and not uploaded.
    eu.refuse, eu.silent = None, False
    regions.run(project)
    assert "already in eu" in regions.said.getvalue()
    assert kinds_and_stores(regions, "project") == [("zstd", "eu"), ("zstd", "us")]


def test_a_store_that_takes_no_uploads_but_answers_keeps_its_entries(regions: Site) -> None:
    project = regions.repository("project")
    regions.run(project)
    regions.stores[0].refuse = UnavailableError("connection refused")
    (outcome,) = regions.run(project)
    assert len(regions.published("project")) == 2
    assert set(outcome.missing) == {"eu"}


def test_one_lying_store_does_not_keep_the_other_from_publishing(regions: Site) -> None:
    project = regions.repository("project")
    eu = regions.stores[0]
    eu.lie = lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:]
    (outcome,) = regions.run(project)
    assert "got sha256" in str(outcome.missing["eu"])
    assert kinds_and_stores(regions, "project") == [("zstd", "us")]
    assert eu.content == {}
    eu.lie = lambda data: data
    regions.run(project)
    assert kinds_and_stores(regions, "project") == [("zstd", "eu"), ("zstd", "us")]


def test_a_new_store_gets_what_is_published(regions: Site) -> None:
    project = regions.repository("project")
    both = regions.config
    regions.config = replace(both, stores=both.stores[:1])
    regions.run(project)
    regions.commit("project")
    regions.config = replace(both, refresh=Refresh(share=0.9, age=timedelta(days=7)))
    (outcome,) = regions.run(project)
    assert outcome.plan is not None
    # Even if it is a little behind: making all of them anew is no reason to wait for.
    assert outcome.plan.action is Action.COPY
    first, second = regions.published("project")
    assert first.changesets == second.changesets == 2


def test_a_store_that_ignores_ranges_is_not_published(site: Site) -> None:
    site.store.ranges = False
    (outcome,) = site.run(site.repository("project"))
    assert "asked for a range, got status 200" in str(outcome.error)


def test_large_repositories_are_compared_and_not_cloned(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.config = replace(site.config, digest_only=("big/*",))
    giant = site.repository("big/one")
    with monkeypatch.context() as patched:
        patched.setattr(hg_side, "clone_through", None)
        assert site.run(giant)[0].error is None
        # `hg verify` is not for them, however long it is ago: they are read (`read_age`).
        for days in (0, 31):
            site.run(giant, now=NOW + timedelta(days=days))
            assert "snapshot" not in site.said.getvalue()
    site.store.lie = lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:]
    assert "got sha256" in str(site.run(giant, force=True)[0].error)


def test_a_run_in_ram_leaves_nothing_on_disk_or_in_ram(site: Site, tmp_path: Path) -> None:
    ram = tmp_path / "ram"
    ram.mkdir()
    site.config = replace(site.config, scratch_ram=ram, scratch_ram_bytes=64 * 1024 * 1024)
    project = site.repository("project", kinds=("stream", "zstd", "gzip"))
    assert site.run(project)[0].error is None
    assert not (site.config.scratch / "snapshots").exists()
    assert not list((ram / "work").iterdir())
    # What does not fit goes to the disk.
    site.config = replace(site.config, scratch_ram_bytes=1000)
    assert site.run(project, force=True)[0].error is None
    assert (site.config.scratch / "snapshots/project").exists()


def test_hg_verify_checks_a_clone_on_schedule(site: Site) -> None:
    site.config = replace(site.config, verify_age=timedelta(days=30))
    project = site.repository("project")
    site.run(project)
    said = []
    for days in (31, 32, 62):
        site.run(project, now=NOW + timedelta(days=days))
        said.append("hg verify found nothing wrong" in site.said.getvalue())
    assert said == [True, False, True]


def test_what_hg_verify_finds_fails_the_repository(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = site.repository("project")
    site.run(project)

    def find(*_arguments: object) -> None:
        raise HgError("hg verify failed: data/file.i@0: broken revlog")

    later = NOW + timedelta(days=31)
    with monkeypatch.context() as patched:
        patched.setattr(hg_side, "verify_clone", find)
        for _ in range(2):
            (outcome,) = site.run(project, now=later)
            assert "broken revlog" in str(outcome.error)
    assert site.run(project, now=later)[0].error is None


# --- what a store spoils later ---------------------------------------------------------------

DUE = NOW + timedelta(days=8)


@pytest.fixture
def reading(regions: Site) -> Site:
    """Two stores, whose objects are read every week, and nothing else is checked."""
    regions.config = replace(
        regions.config, read_age=timedelta(days=7), verify_age=timedelta(0), digest_only=()
    )
    return regions


def one_store(site: Site) -> FakeStore:
    """Leave a site its first store."""
    site.config = replace(site.config, stores=site.config.stores[:1])
    site.stores = site.stores[:1]
    return site.store


def test_what_one_store_spoilt_is_copied_from_another(reading: Site) -> None:
    project = reading.repository("project", kinds=("stream",))
    reading.run(project, everything=True)
    before = reading.manifests.read_text("project")
    eu, us = reading.stores
    eu.spoil(reading.published("project")[0])
    # Its time has not come.
    assert reading.run(project, everything=True)[0].plan.action is Action.KEEP  # type: ignore[union-attr]

    (outcome,) = reading.run(project, everything=True, now=DUE)
    said = reading.said.getvalue()
    assert (outcome.error, outcome.missing) == (None, {})
    assert said.index("withdrawn: ") < said.index("uploaded to eu")
    assert "stream: not in eu (got sha256 " in said
    # Nothing wrong was in the way of the right one.
    assert "already in eu" not in said
    assert "generated" not in said
    assert eu.content == us.content
    assert reading.manifests.read_text("project") == before
    assert reading.pipeline().verify(project).error is None
    # Once a week is enough.
    asked = len(us.asked)
    reading.run(project, everything=True, now=DUE + timedelta(days=1))
    assert len(us.asked) == asked


def test_what_the_only_store_spoilt_is_made_again_and_a_killed_run_loses_nothing(
    reading: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = one_store(reading)
    project = reading.repository("project", kinds=("zstd", "gzip"))
    reading.run(project)
    right, before = dict(store.content), reading.published("project")

    class Killed(BaseException):
        pass

    def die(_key: str) -> None:
        raise Killed

    store.spoil(before[0])
    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", die)
        with pytest.raises(Killed):
            reading.run(project, everything=True, now=DUE)
    assert reading.published("project") == before[1:]
    assert store.content != right
    # The next run meets the wrong object under the name of the right one.
    assert reading.run(project, everything=True, now=DUE)[0].error is None
    assert store.content == right
    assert [one.url for one in reading.published("project")] == [one.url for one in before]

    # `verify` changes nothing, but the next run, whenever that is, looks.
    store.spoil(before[1])
    assert "got sha256" in str(reading.pipeline(DUE).verify(project).error)
    assert len(reading.published("project")) == 2
    assert "the next run: something is wrong" in "\n".join(explain(reading.pipeline(), project))
    assert reading.run(project, now=DUE)[0].error is None
    assert "uploaded to eu" in reading.said.getvalue()
    assert store.content == right
    assert reading.pipeline(DUE).verify(project).error is None


def test_what_cannot_be_read_is_not_taken_for_wrong(reading: Site) -> None:
    project = reading.repository("project")
    reading.run(project)
    before = reading.manifests.read_text("project")
    eu, us = reading.stores
    right = dict(us.content)
    for trouble in ({"silent": True}, {"forbids": True}, {"cut": 60}):
        for name, value in trouble.items():
            setattr(us, name, value)
        (outcome,) = reading.run(project, everything=True, now=DUE)
        assert (outcome.error, set(outcome.missing)) == (None, {"us"}), trouble
        assert reading.manifests.read_text("project") == before
        assert us.content == right
        us.silent, us.forbids, us.cut = False, False, None
    # It is still due.
    us.spoil(reading.published("project")[1])
    reading.run(project, everything=True, now=DUE)
    assert eu.content == us.content == right
    # A store that cannot even be listed is not read.
    us.refuse = UnavailableError("connection refused")
    us.asked.clear()
    reading.run(project, everything=True, now=DUE + timedelta(days=8))
    assert not [line for line in us.asked if line.startswith("GET")]
    assert reading.manifests.read_text("project") == before


def test_a_wrong_object_is_withdrawn_even_if_hg_fails(reading: Site) -> None:
    store = one_store(reading)
    project = reading.repository("project")
    reading.run(project)
    store.spoil(reading.published("project")[0])
    (reading.config.repositories / "project/.hg/store/00changelog.i").write_bytes(b"rubbish")
    (outcome,) = reading.run(project, everything=True, now=DUE)
    assert isinstance(outcome.error, HgError)
    assert reading.published("project") == ()


def test_a_copy_that_finds_its_source_wrong_lets_the_next_run_mend_both(reading: Site) -> None:
    both, stores = reading.config, reading.stores
    eu = one_store(reading)
    project = reading.repository("project")
    reading.run(project)
    right = dict(eu.content)
    eu.spoil(reading.published("project")[0])
    reading.config, reading.stores = both, stores
    (outcome,) = reading.run(project)
    assert "got sha256" in str(outcome.missing["us"])
    assert reading.run(project)[0].missing == {}
    assert stores[0].content == stores[1].content == right
    assert kinds_and_stores(reading, "project") == [("zstd", "eu"), ("zstd", "us")]


def test_a_run_reads_a_share_of_what_is_due(reading: Site) -> None:
    one_store(reading)
    repositories = [reading.repository("one"), reading.repository("two")]
    reading.run(*repositories, everything=True)
    read = []
    # Pushes, and people who name a repository, do not wait for it.
    for everything in (False, True, True, True):
        reading.run(*repositories, everything=everything, now=DUE)
        said = reading.said.getvalue()
        read.append([path for path in ("one", "two") if f"{path}: read 1 bundles" in said])
    assert read[0] == read[3] == []
    assert sorted(read[1] + read[2]) == ["one", "two"]
    assert len(read[1]) == 1


# --- what is left of others ----------------------------------------------------------------


def test_what_left_the_registry_is_withdrawn_and_deleted_after_the_retention_time(
    regions: Site,
) -> None:
    stays, leaves = regions.repository("stays"), regions.repository("team/leaves")
    regions.run(stays, leaves, everything=True)
    now = datetime.now(UTC)
    (_, outcome) = regions.run(stays, everything=True, now=now)
    assert outcome.repository == "team/leaves"
    assert regions.published("team/leaves") == ()
    assert not (regions.config.scratch / "snapshots/team+leaves").exists()
    # A client may still be downloading.
    assert all(len(store.content) == 2 for store in regions.stores)
    regions.run(stays, everything=True, now=now + timedelta(days=8))
    for store in regions.stores:
        assert {key.split("/")[0] for key in store.content} == {"stays"}
    assert len(regions.run(stays, everything=True, now=now + timedelta(days=9))) == 1


def test_a_run_for_some_repositories_leaves_the_others_alone(site: Site) -> None:
    one, other = site.repository("one"), site.repository("other")
    site.run(one, other, everything=True)
    site.run(one, now=datetime.now(UTC) + timedelta(days=400))
    assert site.published("other")
    assert len(site.store.content) == 2


def test_a_run_leaves_bundles_of_another_host_alone_and_prune_does_not(site: Site) -> None:
    project = site.repository("project")
    foreign = f"elsewhere/project/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
    site.store.content[foreign] = b"x"
    site.store.modified[foreign] = NOW - timedelta(days=400)
    site.run(project, everything=True)
    assert foreign in site.store.content
    site.pipeline().prune([project], everything=True)
    assert foreign not in site.store.content


def test_a_registry_that_is_empty_or_damaged_deletes_nothing(site: Site) -> None:
    one, other = site.repository("one"), site.repository("other")
    site.run(one, other, everything=True)
    later = datetime.now(UTC) + timedelta(days=400)
    assert site.run(everything=True, now=later) == []
    pipeline = site.pipeline(later)
    pipeline.partial = True
    pipeline.run([one], everything=True)
    assert len(site.store.content) == 2
    assert site.published("other")


def test_prune_deletes_what_killed_runs_left_and_makes_nothing(site: Site) -> None:
    project = site.repository("project")
    site.run(project)
    (entry,) = site.published("project")
    orphan = f"project/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
    for key in (orphan, "index.html"):
        site.store.content[key] = b"x"
        site.store.modified[key] = NOW - timedelta(days=8)
    left = site.config.scratch / "work/gone+repository"
    left.mkdir()
    site.commit("project")
    dry = site.pipeline(dry_run=True)
    dry.prune([project], everything=True)
    assert f"would delete {orphan}" in site.said.getvalue()
    assert orphan in site.store.content
    site.pipeline().prune([project], everything=True)
    assert {*site.store.content} == {entry.url.removeprefix(f"{site.store.url}/"), "index.html"}
    assert site.published("project") == (entry,)
    assert not left.exists()


# --- a manifest that was lost ---------------------------------------------------------------


def test_a_lost_manifest_is_made_anew_from_what_the_stores_hold(regions: Site) -> None:
    project = regions.repository("project", kinds=("stream", "zstd"))
    regions.run(project)
    regions.commit("project")
    regions.run(project)
    before = regions.manifests.read_text("project")
    shutil.rmtree(regions.config.manifests)
    (outcome,) = regions.pipeline().publish([project])
    assert (outcome.error, outcome.missing) == (None, {})
    # The newer ones, each after a clone.
    assert regions.manifests.read_text("project") == before
    assert "generated" not in regions.said.getvalue()
    assert regions.run(project)[0].plan.action is Action.KEEP  # type: ignore[union-attr]


def test_what_is_not_what_its_name_says_is_not_published_again(regions: Site) -> None:
    project = regions.repository("project")
    regions.run(project)
    shutil.rmtree(regions.config.manifests)
    eu = regions.stores[0]
    eu.lie = lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:]
    (outcome,) = regions.pipeline().publish([project])
    assert set(outcome.missing) == {"eu"}
    assert kinds_and_stores(regions, "project") == [("zstd", "us")]


def test_with_nothing_to_publish_the_way_out_is_told(site: Site) -> None:
    (outcome,) = site.pipeline().publish([site.repository("project")])
    assert "`hgfleet bundles run` makes them" in str(outcome.error)
    assert not site.manifests.path("project").exists()


# --- explain, demand, pages -----------------------------------------------------------------


def test_explain_names_every_input_of_a_plan(regions: Site, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        json.dumps(
            {
                "time": "2026-11-20T11:00:00.000Z",
                "repository": "project",
                "command": "getbundle",
                "changesets": True,
                "full": True,
                "duration": 90.5,
            }
        )
        + "\n"
    )
    regions.config = replace(regions.config, access_log=log)
    project = regions.repository("project", kinds=("zstd",))
    regions.run(project)
    regions.commit("project")
    said = "\n".join(explain(regions.pipeline(), project))
    for words in (
        "project: generate",
        "zstd: 1 of 3 changesets (33.3%) are newer than the bundle (limit 1.0%)",
        "readable by everyone; bundles: zstd",
        "1.0% of the changesets, 7 days, 60 s of the server a day",
        "1 clones and 0 pulls took 90.5 s of the server in the last day",
        "3 changesets, 1 heads",
        "covers 2,",
        "zstd in us",
        "of scratch, on disk",
    ):
        assert words in said, said


def test_every_store_has_a_page_of_what_is_public(regions: Site) -> None:
    project = regions.repository("team/project", kinds=("stream", "zstd"))
    project = replace(project, description="<script>alert(1)</script>")
    private = Repository("team/confidential", "secret plans", ("staff",), (), True, ("zstd",))
    regions.config = replace(regions.config, clone_url="https://hg.example")
    regions.run(project, private, everything=True)
    for store in regions.stores:
        index = store.pages["index.html"].decode()
        assert "hg clone https://hg.example/team/project" in index
        assert "<script>alert" not in index
        assert "confidential" not in index
        data = json.loads(store.pages["bundles.json"])
        assert [*data["repositories"]] == ["team/project"]
        urls = [one["url"] for one in data["repositories"]["team/project"]["bundles"]]
        assert len(urls) == 2
        assert all(url.startswith(store.url) for url in urls)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Site]:
    """A host with a public store, `main`, and a private one, `closed`."""
    stores = FakeStore("main"), FakeStore("closed", private=True)
    made = Site(tmp_path, *stores)
    assert stores[1].reader is not None
    write_settings(made.config.signing, stores[1].reader)
    yield made
    for one in stores:
        one.server.shutdown()
        one.server.server_close()


def team_only(repository: Repository) -> Repository:
    return replace(repository, read=("team",))


def bundles(site: Site) -> list[list[str]]:
    """The repositories of the objects in each store."""
    return [
        [key.rpartition("/")[0] for key in store.content if key.endswith(".hg")]
        for store in site.stores
    ]


def test_what_is_private_goes_to_the_private_store_and_nowhere_else(closed: Site) -> None:
    public = closed.repository("open", kinds=("stream", "zstd"))
    private = team_only(closed.repository("team/secret", kinds=("stream", "zstd")))
    assert [one.error for one in closed.run(public, private, everything=True)] == [None, None]

    assert bundles(closed) == [["open", "open"], ["team/secret", "team/secret"]]
    assert not any(entry.private for entry in closed.published("open"))
    entries = closed.published("team/secret")
    assert all(entry.private and "?" not in entry.url for entry in entries)
    main, store = closed.stores
    # The probe, the comparison and the clone were all signed, and strangers are refused.
    for entry in entries:
        asked = [one.split(" ")[0] for one in store.asked if one.endswith(entry.url[-60:])]
        assert asked == ["HEAD", "GET", "GET"]
    assert sum("X-Amz-Signature=" not in one for one in store.requests) == 1 + len(entries)
    assert "X-Amz" not in closed.said.getvalue()
    assert SECRET not in closed.said.getvalue()
    # No page tells of it.
    assert "secret" not in main.pages["index.html"].decode() + main.pages["bundles.json"].decode()
    assert list(store.pages) == ["closed.txt"]

    # And a second run has nothing to do.
    again = closed.run(public, private, everything=True)
    assert [one.plan.action for one in again if one.plan] == [Action.KEEP, Action.KEEP]
    assert closed.pipeline().verify(private).error is None
    said = "\n".join(explain(closed.pipeline(), private))
    assert "closed; not for it: main" in said


def test_a_private_store_that_is_open_gets_nothing(closed: Site) -> None:
    public = closed.repository("open")
    private = team_only(closed.repository("secret"))
    closed.stores[1].is_open = lambda _path: True
    outcomes = closed.run(public, private)
    assert outcomes[0].error is None
    assert "open to all: without a signature the answer is 206" in str(outcomes[1].error)
    assert bundles(closed) == [["open"], []]
    assert closed.stores[1].metadata == {}, "something was there for a moment"
    assert closed.published("secret") == ()
    # Closed, it is filled by the next run.
    closed.stores[1].is_open = lambda _path: False
    assert [one.error for one in closed.run(public, private)] == [None, None]
    assert len(closed.published("secret")) == 1


def test_a_bundle_that_everybody_can_read_is_taken_back(closed: Site) -> None:
    """The store opens after it was found closed, or only for bundles."""
    private = team_only(closed.repository("secret"))
    closed.stores[1].is_open = lambda path: path.endswith(".hg")
    (outcome,) = closed.run(private)
    assert "open to all" in str(outcome.error)
    assert bundles(closed) == [[], []]
    assert closed.published("secret") == ()


@pytest.mark.parametrize("wrong", ["another key", "no key", "no file"])
def test_without_the_readers_key_nothing_private_is_brought_anywhere(
    closed: Site, wrong: str
) -> None:
    reader = closed.stores[1].reader
    assert reader is not None
    if wrong == "another key":
        write_settings(closed.config.signing, replace(reader, secret_key="other"))
        said = "the answer to a signed request is 403"
    elif wrong == "no key":
        write_settings(closed.config.signing, replace(reader, url="https://other.example"))
        said = "no key to read it with"
    else:
        closed.config.signing.unlink()
        said = "cannot read the keys of the private stores"
    public = closed.repository("open")
    outcomes = closed.run(public, team_only(closed.repository("secret")))
    assert outcomes[0].error is None
    assert said in str(outcomes[1].error)
    assert bundles(closed) == [["open"], []]


def test_who_turns_private_leaves_the_public_store_at_once(closed: Site) -> None:
    project = closed.repository("project")
    closed.run(project)
    assert bundles(closed) == [["project"], []]
    private = team_only(project)
    closed.stores[1].refuse = UnavailableError("connection refused")
    # Even where no other bundles can be made.
    (outcome,) = closed.run(private, now=NOW + timedelta(seconds=1))
    assert "connection refused" in str(outcome.error)
    assert closed.published("project") == ()

    closed.stores[1].refuse = None
    (outcome,) = closed.run(private, now=NOW + timedelta(seconds=2))
    assert outcome.error is None
    assert bundles(closed) == [[], ["project"]]
    assert [entry.private for entry in closed.published("project")] == [True]


def test_prune_also_takes_back_what_is_not_public_any_more(closed: Site) -> None:
    project = closed.repository("project")
    closed.run(project)
    closed.pipeline(NOW + timedelta(seconds=1)).prune([team_only(project)], everything=True)
    assert closed.published("project") == ()
    assert bundles(closed) == [[], []]


def test_who_turns_public_leaves_the_private_store_when_downloads_are_over(closed: Site) -> None:
    project = closed.repository("project")
    closed.run(team_only(project))
    (outcome,) = closed.run(project, now=NOW + timedelta(days=1))
    assert outcome.error is None
    assert [entry.private for entry in closed.published("project")] == [False]
    assert bundles(closed) == [["project"], ["project"]]
    later = datetime.now(UTC) + timedelta(days=8)
    closed.run(project, now=later)
    assert bundles(closed) == [["project"], []]


def test_a_private_store_that_becomes_public_is_emptied_of_what_is_private_first(
    closed: Site,
) -> None:
    """The order that the runbook tells: the settings, a run, and only then the bucket."""
    public, private = closed.repository("open"), team_only(closed.repository("secret"))
    closed.run(public, private, everything=True)
    main, store = closed.config.stores
    closed.config = replace(closed.config, stores=(main, replace(store, private=False)))
    outcomes = closed.run(public, private, everything=True, now=NOW + timedelta(seconds=1))
    assert "403 Forbidden; this public store must answer requests without a signature" in str(
        outcomes[0].missing["closed"]
    )
    assert bundles(closed) == [["open"], []]
    assert closed.published("secret") == ()
    closed.stores[1].reader = None
    outcomes = closed.run(public, private, everything=True)
    assert [(one.error, one.missing) for one in outcomes] == [(None, {}), (None, {})]
    assert bundles(closed) == [["open"], ["open"]]


def test_private_bundles_are_kept_for_the_retention_time_too(closed: Site) -> None:
    private = team_only(closed.repository("secret"))
    closed.run(private)
    closed.commit("secret")
    closed.run(private, now=NOW + timedelta(hours=1))
    assert bundles(closed) == [[], ["secret", "secret"]]
    closed.run(private, now=datetime.now(UTC) + timedelta(days=8))
    assert bundles(closed) == [[], ["secret"]]


def test_a_lost_private_manifest_is_made_anew_from_the_private_store(closed: Site) -> None:
    private = team_only(closed.repository("secret"))
    closed.run(private)
    before = closed.published("secret")
    # Whatever else lies where it must not is no source.
    key = before[0].url.removeprefix(f"{closed.stores[1].url}/")
    closed.store.content[key] = closed.stores[1].content[key]
    closed.store.metadata[key] = closed.stores[1].metadata[key]
    closed.store.modified[key] = NOW
    closed.manifests.path("secret").unlink()
    assert closed.pipeline().publish([private])[0].error is None
    assert closed.published("secret") == before


def test_what_hg_complains_about_has_no_signature(
    closed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_hg: object, _snapshot: object, line: str, _target: object) -> frozenset[str]:
        assert "X-Amz-Signature=" in line
        raise HgError(f"hg clone failed: {line}")

    monkeypatch.setattr(hg_side, "clone_through", fail)
    (outcome,) = closed.run(team_only(closed.repository("secret")))
    assert "hg clone failed: http://" in str(outcome.error)
    signatures = re.findall(r"X-Amz-Signature=([^&\s]+)", str(outcome.error))
    assert signatures == ["..."]


def test_a_dry_run_writes_nothing_into_a_private_store(closed: Site) -> None:
    (outcome,) = closed.run(team_only(closed.repository("secret")), dry_run=True)
    assert outcome.error is None
    assert closed.stores[1].pages == {}


def test_a_page_that_cannot_be_renewed_fails_no_run(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> bool:
        raise UnavailableError("connection refused")

    monkeypatch.setattr(site.store, "put_page", refuse)
    (outcome,) = site.run(site.repository("project"), everything=True)
    assert outcome.error is None
    assert "the page of main is old: connection refused" in site.said.getvalue()


def test_pages_are_renewed_after_a_run_for_some_that_published_something(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = site.repository("one"), site.repository("other")

    def run() -> list[str]:
        """What a run after pushes to `one` says; return what is in the page then."""
        pipeline = site.pipeline()
        assert [outcome.error for outcome in pipeline.run([one])] == [None]
        pipeline.renew_pages([one, other])
        return [*json.loads(site.store.pages["bundles.json"])["repositories"]]

    site.run(other)
    assert site.store.pages == {}
    assert run() == ["one", "other"]
    # Nothing was published: nobody looks at them.
    site.store.pages["bundles.json"] = b'{"repositories": []}'
    assert run() == []
    site.commit("one")

    def refuse(*_arguments: object) -> bool:
        raise UnavailableError("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(site.store, "put_page", refuse)
        assert run() == []
    assert "the page of main is old: connection refused" in site.said.getvalue()
    # Nor are they made of half a registry.
    site.commit("one")
    pipeline = site.pipeline()
    pipeline.partial = True
    pipeline.run([one])
    pipeline.renew_pages([one])
    assert site.store.pages["bundles.json"] == b'{"repositories": []}'
