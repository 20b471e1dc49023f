"""Pull bundles with a real hg at both ends: a clone from bundles equals a live clone."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.bundles.steps.pullbundle_store import PullbundleStore
from hgfleet.bundles.stores import corruption
from hgfleet.core.report import Report
from hgfleet.hg import fingerprint
from hgfleet.hg.command_server import Hg
from testing.bench import repos
from testing.integration.bundles.pullbundle_host import SIZE
from testing.integration.support.site import identity_of

if TYPE_CHECKING:
    from testing.integration.bundles.pullbundle_host import Host


def test_a_pull_from_any_point_gives_what_it_gave_live(host: Host) -> None:
    assert len(host.chain()) == 8
    total = host.last() + 1
    assert f"links=8 from_disk={total - 9} live=9 " in host.compare()
    for have in (20, 125, total - 40):
        assert "event=pullbundle repository=" in host.compare(have=[str(have)]), have


def test_a_pull_gets_no_more_than_it_asked_for(host: Host) -> None:
    assert "links=3 " in host.compare("-r", "100")
    assert "event=pullbundle" in host.compare("-b", "release-1", "-B", "mark-0", have=["2"])
    assert host.compare("-r", "20") == ""


def test_phases_of_a_server_that_does_not_publish(host: Host) -> None:
    (host.source / ".hg/hgrc").write_text("[phases]\npublish = no\n")
    host.hg("-R", host.source, "phase", "--draft", "--force", "-r", "120:")
    assert "links=" in host.compare(have=["60"])
    # A changeset that became public after its link was made is public for clients.
    host.hg("-R", host.source, "phase", "--public", "-r", "180")
    assert "links=8" in host.compare()


def test_secret_and_obsolete_changesets_are_in_no_pull(host: Host) -> None:
    tip = host.hg("-R", host.source, "log", "-r", "tip", "-T", "{node}")
    host.hg("-R", host.source, "phase", "--secret", "--force", "-r", "tip")
    host.run()
    assert all(tip not in link.heads for link in host.chain())
    host.hg("-R", host.source, "phase", "--draft", "-r", "tip")
    newest = repos.append(host.source, 20, seed=9)
    host.run()
    assert newest in host.chain()[-1].heads
    # A client that knows the node of a secret changeset does not get it from disk either.
    host.hg("-R", host.source, "phase", "--secret", "--force", "-r", newest)
    assert "event=pullbundle" in host.compare(have=["100"])
    assert all(newest not in line for line in host.content(host.root / "clone"))
    clone = ("clone", "-U", *host.ssh(), "-r", newest, host.url("project"), host.root / "curious")
    assert "abort:" in host.start(*clone).stderr
    # Obsolete is hidden, too.
    host.hg("-R", host.source, "phase", "--draft", "-r", newest)
    host.hg("-R", host.source, "debugobsolete", newest)
    host.compare(have=["200"])
    assert host.run().error is None
    assert all(newest not in link.heads for link in host.chain())


def test_a_strip_between_two_runs_breaks_no_pull(host: Host) -> None:
    host.hg("-R", host.source, "strip", "--no-backup", "-r", "last(branch(default), 30)")
    said = host.compare()
    assert "event=pullbundle" in said
    assert "links=8" not in said
    before = host.chain()
    assert host.run().error is None
    assert "pull bundles: rebase: the repository no longer has" in host.said.getvalue()
    assert host.chain() != before
    host.compare(have=["100"])
    # Another repository in its place.
    shutil.rmtree(host.source)
    repos.generate(host.source, SIZE, seed=99)
    host.serve()
    assert host.compare() == ""
    assert host.run().error is None
    assert "links=8" in host.compare()


def test_files_that_are_gone_or_not_whole_are_passed_over(host: Host) -> None:
    folder, chain = host.folder, host.chain()
    (folder / chain[2].name).unlink()
    (folder / chain[5].name).write_bytes(b"HG20")
    assert "links=6 " in host.compare()
    status = Pipeline(host.config, Report("text", host.said)).pullbundles
    assert [*status.problems(host.repository, chain)] == [chain[2].name, chain[5].name]
    assert host.run().error is None
    assert status.problems(host.repository, host.chain()) == {}
    said = host.compare()
    assert "live=0 " in said
    (folder / "manifest").write_text("rubbish\n")
    assert host.compare() == ""
    assert host.run().error is None
    assert "links=8 " in host.compare()


@pytest.mark.parametrize("number", [0, 4, 7])
def test_a_corrupt_file_is_passed_over_and_made_anew(host: Host, number: int) -> None:
    folder, damaged = host.folder, host.chain()[number]
    file, now = folder / damaged.name, datetime.now(UTC)
    assert host.run(now=now).error is None
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    said = host.compare()
    assert f"event=pullbundle-corrupt repository={host.source} file={damaged.name} " in said
    assert "links=7 " in said or number == 7
    # No client sees it, so the next read is early enough.
    assert host.run(now=now).error is None
    assert host.run(now=now + host.config.read_age).error is None
    assert f"deleted the pull bundle {damaged.name}: " in host.said.getvalue()
    assert "event=pullbundle-corrupt" not in host.compare()
    assert host.pipeline().verify(host.repository).error is None


def test_a_corrupt_file_that_verify_finds_is_made_anew_by_the_next_run(host: Host) -> None:
    (damaged, *_) = host.chain()
    file = host.folder / damaged.name
    whole = file.read_bytes()
    file.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    assert "got sha256" in str(host.pipeline().verify(host.repository).error)
    findings = corruption.parse((host.config.state / corruption.NAME).read_bytes())
    assert set(findings) == {corruption.PULL_BUNDLES}
    assert host.run(dry_run=True).error is None
    assert file.exists()
    assert host.run().error is None
    assert host.pipeline().verify(host.repository).error is None
    assert "links=8 " in host.compare()


@pytest.mark.parametrize("step", ["generate_link", "apply_link", "_publish"])
def test_a_killed_run_is_completed_by_the_next(
    host: Host, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_arguments: object) -> None:
        raise Killed

    before = host.chain()
    repos.append(host.source, 30, seed=9)
    with monkeypatch.context() as patched:
        patched.setattr(PullbundleStore if step == "_publish" else hg_side, step, die)
        patched.setattr(shutil, "rmtree", lambda *_arguments, **_more: None)
        with pytest.raises(Killed):
            host.run()
    assert host.chain() == before
    assert "links=8" in host.compare()
    assert host.run().error is None
    assert host.files() == {"manifest", *(link.name for link in host.chain())}
    assert len(host.chain()) == 9
    assert "live=0 " in host.compare()
    assert not list((host.config.scratch / "work").iterdir())


def test_an_idle_run_starts_no_hg(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    repos.append(host.source, 5, seed=9)
    monkeypatch.setattr(fingerprint, "SETTLED_NS", -(10**18))
    for _ in range(2):
        assert host.run().error is None
    before = host.files(), host.chain()
    monkeypatch.setattr(Hg, "run", None)
    assert host.run().error is None
    assert (host.files(), host.chain()) == before


def test_links_are_rolled_up_and_deleted_after_a_while(host: Host) -> None:
    for seed in range(9, 13):
        repos.append(host.source, 12, seed=seed)
        assert host.run().error is None
    assert "live=0 " in host.compare(have=["5"])
    named = {link.name for link in host.chain()}
    superfluous = host.files() - named - {"manifest"}
    assert superfluous
    assert len(host.chain()) < 8 + 4
    for name in superfluous:
        os.utime(host.folder / name, (1, 1))
    host.run(dry_run=True)
    assert superfluous < host.files()
    assert "would delete the pull bundle" in host.said.getvalue()
    host.run()
    assert host.files() == {"manifest", *named}


def test_a_chain_that_begins_later(host: Host) -> None:
    host.config = replace(host.config, pull=replace(host.config.pull, whole=False))
    host.run()
    assert [link.on_disk for link in host.chain()] == [False]
    assert host.compare() == ""
    repos.append(host.source, 15, seed=9)
    host.run()
    said = host.compare()
    assert "links=1 from_disk=15 " in said
    assert "live=0 " not in said


def test_a_repository_without_readers_has_no_pull_bundles(host: Host) -> None:
    folder = host.folder
    host.repository = replace(host.repository, read=())
    host.run()
    assert not folder.exists()
    host.repository = replace(host.repository, read=("staff",))
    host.run()
    assert all(path.stat().st_mode & 0o7777 == 0o640 for path in folder.iterdir())
    # A repository that left the registry has none either.
    other = replace(host.repository, path="other", identity=identity_of("other"))
    host.create("other")
    host.identify("other")
    host.enter(other)
    host.leave("project")
    host.pipeline().prune([other], everything=True)
    assert not folder.exists()


def test_pull_bundles_of_the_release_before_are_taken_over(host: Host) -> None:
    host.run()
    chain = host.chain()
    assert chain
    host.folder.rename(host.config.pull_bundles / "project")
    host.run()
    assert host.chain() == chain
    assert [path.name for path in host.config.pull_bundles.iterdir()] == [host.folder.name]
