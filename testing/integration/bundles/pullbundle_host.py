"""A host whose pulls are answered with pull bundles, and clients of it."""

from __future__ import annotations

import hashlib
import shutil
from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from hgfleet.bundles.decide.plan import Refresh
from hgfleet.bundles.decide.pullbundle_chain import Chain, Limits
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.steps.job import Options, Outcome
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core.report import Report
from hgfleet.objectstore.settings import Store
from hgfleet.registry.model.registry import Repository
from testing.bench import repos
from testing.integration.support import site

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

EVERYTHING = (
    "{node} {phase} {branch} [{bookmarks}] [{tags}] {extras} {p1.node} {p2.node} {file_mods}\n"
)
LIVE: Final[dict[tuple[tuple[str, ...], tuple[str, ...], str], list[str]]] = {}
"""Content of a clone after a live pull, by arguments, content before and the repository's state."""

SIZE = repos.Size(changesets=240, files=20)


HGRC = f"""\
[extensions]
pullbundles = {site.HGEXT}/pullbundles.py
blackbox =
strip =
[blackbox]
track = pullbundles
[trusted]
users = *
[ui]
username = t
[experimental]
evolution = all
"""


class Host(site.Site):
    """A host with a private repository, whose pulls are answered with the extension."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, HGRC)
        self.source = self.path("project")
        self.live_hgrc = root / "live.hgrc"
        self.live_hgrc.write_text(f"%include {self.hgrc}\n[hgfleet]\npullbundles = no\n")
        self.config = Config(
            stores=(Store("main", "http://unused", "bundles", "http://unused/bundles"),),
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            repositories=self.repos,
            registry=self.registry,
            dynamic=self.dynamic,
            manifests=root / "manifests",
            pull=Limits(least=100, step=10),
            pull_bundles=root / "pullbundles",
            access_log=root / "access.log",
            scratch=root / "scratch",
            state=root / "state",
            hg=site.program(),
            hgrc=self.hgrc,
        )
        self.repository = Repository(
            "project", "", ("staff",), (), True, (), identity=site.identity_of("project")
        )
        self.folder = self.config.pull_bundles / self.repository.identity
        self.said = StringIO()

    def serve(self) -> None:
        """Link the folder, as `hgfleet registry apply` does."""
        (self.source / ".hg/pullbundles").symlink_to(self.folder)

    def pipeline(self, **more: Any) -> Pipeline:
        self.said = StringIO()
        return Pipeline(self.config, Report("text", self.said), None, Options(**more))

    def run(self, **more: Any) -> Outcome:
        everything = more.pop("everything", False)
        self.identify("project")
        self.enter(self.repository)
        (outcome,) = self.pipeline(**more).run([self.repository], everything=everything)
        return outcome

    def chain(self) -> Chain:
        return Pipeline(self.config, Report("text", self.said)).pullbundles.chain(self.repository)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    def log(self) -> str:
        """Return the log since the last call: answers from disk."""
        file = self.source / ".hg/blackbox.log"
        text = file.read_text() if file.exists() else ""
        file.unlink(missing_ok=True)
        return text

    def content(self, clone: Path) -> list[str]:
        return sorted(self.hg("-R", clone, "log", "--hidden", "-T", EVERYTHING).splitlines())

    def pull(self, name: str, *arguments: str, have: Iterable[str] = (), live: bool) -> Path:
        """Make a clone that has only `have`, and pull into it, all `live` or not."""
        clone = self.root / name
        shutil.rmtree(clone, ignore_errors=True)
        self.hg("init", clone)
        revisions = [word for revision in have for word in ("--rev", revision)]
        if revisions:
            self.hg("-R", clone, "pull", "-q", *revisions, self.source)
        ssh = self.ssh(self.live_hgrc if live else self.hgrc)
        done = self.start("-R", clone, "pull", *ssh, *arguments, self.url("project"))
        assert done.returncode in {0, 1}, done.stderr
        return clone

    def state(self) -> str:
        """Return a digest of all that live answers are made from."""
        digest, control = hashlib.sha256(), self.source / ".hg"
        chosen = (control / name for name in ("hgrc", "bookmarks", "localtags", "requires"))
        for file in sorted([*control.glob("store/**/*"), *chosen]):
            if file.is_file():
                digest.update(b"%s\0" % file.relative_to(control).as_posix().encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def compare(self, *arguments: str, have: Iterable[str] = ()) -> str:
        """Pull live and with pull bundles; return the log of the pull with pull bundles."""
        have = tuple(have)
        asked = (arguments, have, self.state())
        if asked not in LIVE:
            live = self.pull("live", *arguments, have=have, live=True)
            assert "event=pullbundle" not in self.log()
            LIVE[asked] = self.content(live)
        clone = self.pull("clone", *arguments, have=have, live=False)
        assert self.content(clone) == LIVE[asked]
        assert self.hg("-R", clone, "verify", "-q") == ""
        return self.log()

    def last(self) -> int:
        """The number of the newest revision."""
        return int(self.hg("-R", self.source, "log", "-r", "tip", "-T", "{rev}"))
