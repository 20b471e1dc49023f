"""Each push has a record in the repository's own store, and nothing else has a record."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.identity import FILE, is_identity
from hgfleet.pushlog.record import FIRST, hash_of
from testing.integration.pushlog.site import KEY, OPERATOR

if TYPE_CHECKING:
    from testing.conftest import WaitFor
    from testing.integration.pushlog.site import PushlogSite


def test_a_push_is_recorded_with_its_person_key_address_and_changes(site: PushlogSite) -> None:
    before = time.time()
    first, second = site.change(text="one\n"), site.change(text="two\n")
    site.push()
    (record,) = site.records()
    assert (record.id, record.kind, record.previous) == (1, "push", FIRST)
    assert (record.user, record.key, record.client) == ("alice", KEY, "192.0.2.7")
    assert before - 1 <= record.time / 1000 <= time.time() + 1
    assert record.changesets == (first, second)
    assert (record.heads.gone, record.heads.new) == ((), (second,))
    assert record.phases == ((first, None, "public"), (second, None, "public"))
    assert record.bookmarks == record.markers == ()

    third = site.change(text="three\n")
    site.push()
    record = site.records()[1]
    assert (record.id, record.changesets) == (2, (third,))
    assert (record.heads.gone, record.heads.new) == ((second,), (third,))


def test_records_name_the_identity_that_the_repository_has(site: PushlogSite) -> None:
    site.change()
    site.push()
    (first,) = site.records()
    assert is_identity(first.repository), "nothing registered it"
    site.hg("init", site.path("made"), **OPERATOR)
    site.configure("made")
    identity = "ab" * 16
    (site.path("made") / FILE).write_text(f"{identity}\n")
    site.change(text="two\n")
    site.at_work("push", site.url("made"))
    assert [record.repository for record in site.records("made")] == [identity]


def test_bookmarks_are_recorded_with_their_places_before_and_after(site: PushlogSite) -> None:
    node = site.change()
    site.at_work("bookmark", "stable")
    site.push("-B", "stable")
    second = site.change(text="two\n")
    site.push()
    site.at_work("bookmark", "-d", "stable")
    site.push("-B", "stable", code=1)
    site.push(code=1)  # nothing to push
    assert [record.bookmarks for record in site.records()] == [
        (("stable", None, node),),
        (("stable", node, second),),
        (("stable", second, None),),
    ]
    assert site.records()[2].changesets == ()


def test_a_draft_that_becomes_public_is_recorded(site: PushlogSite) -> None:
    site.configure("server", publishing=False)
    node = site.change()
    site.push()
    site.at_work("phase", "--public", "-r", node)
    site.push(code=1)
    first, second = site.records()
    assert first.phases == ((node, None, "draft"),)
    assert (second.changesets, second.phases) == ((), ((node, "draft", "public"),))


def test_obsolescence_markers_are_recorded(site: PushlogSite) -> None:
    site.configure("server", publishing=False)
    node = site.change()
    site.push()
    (site.work / "file").write_text("two\n")
    site.at_work("commit", "--cwd", site.work, "--amend", "-q", "-m", "amended")
    new = site.at_work("log", "-r", ".", "-T", "{node}")
    site.push("--force")
    record = site.records()[1]
    assert record.changesets == (new,)
    (marker,) = record.markers
    assert node in marker
    assert new in marker


def test_a_repository_with_changesets_is_adopted_by_its_first_push(site: PushlogSite) -> None:
    node = site.change()
    site.at_work("bundle", "--all", site.root / "all.hg")
    site.server("unbundle", site.root / "all.hg", "--config", "hgfleet.pushlog=no")
    assert not site.log().exists()
    second = site.change(text="two\n")
    said = site.push()
    assert "remote: the push log begins: record 1 stands for the 1 changesets from before" in said
    adoption, push = site.records()
    assert (adoption.kind, adoption.user, adoption.changesets) == ("adoption", "", ())
    assert adoption.heads.digest != push.heads.digest
    assert (push.kind, push.user, push.changesets) == ("push", "alice", (second,))
    assert push.heads.gone == (node,)


def test_a_refused_push_leaves_no_record(site: PushlogSite) -> None:
    site.configure("server", 'policies = {"commit-message": {"pattern": "^fix"}}')
    site.change()
    site.push(code=255)
    assert not site.log().exists()
    site.configure("server")
    site.push()
    site.configure("server", 'policies = {"commit-message": {"pattern": "^fix"}}')
    content = site.log().read_bytes()
    site.change(text="two\n")
    site.push(code=255)
    assert site.log().read_bytes() == content


def test_the_verdicts_of_policies_are_recorded(site: PushlogSite) -> None:
    closed = '"closed-tree": {"reason": "release", "except": ["staff"]}'
    site.configure("server", f'policies = {{"no-symlinks": {{}}, {closed}}}')
    site.change()
    site.push("--pushvars", "CLOSED_TREE=yes")
    site.server("bookmark", "-r", "0", "stable")
    site.configure("server", "policies = no JSON")
    site.server("bookmark", "-r", "0", "broken")
    assert [dict(record.verdicts) for record in site.records()] == [
        {
            "no-symlinks": "allowed",
            "closed-tree": "allowed with CLOSED_TREE=yes",
            "file-lists": "allowed",
            "metadata": "allowed",
            "names": "allowed",
        },
        {"no-symlinks": "bypassed", "closed-tree": "bypassed"},
        {"policies": "bypassed"},
    ]


def test_a_push_that_the_disk_has_no_room_for_leaves_no_record_and_no_news(
    site: PushlogSite,
) -> None:
    site.change()
    site.push()
    content = site.log().read_bytes()
    site.change(text="two\n")
    full = site.root / "full.py"
    full.write_text(
        "import errno, os\n"
        "from hgfleet.pushlog import writing\n"
        "def append(store, transaction, tip, lines, plain=writing.append):\n"
        "    plain(store, transaction, tip, [lines[0][:40]])\n"
        "    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "writing.append = append\n"
    )
    plain = site.hgrc.read_text()
    news = f"[hooks]\ntxnclose.news = touch {site.root}/news\n"
    site.hgrc.write_text(f"{plain}full = {full}\n{news}")
    assert "takes no more data, so nothing was changed" in site.push(code=255)
    assert not (site.root / "news").exists()
    assert site.log().read_bytes() == content
    site.hgrc.write_text(f"{plain}{news}")
    site.push()
    assert (site.root / "news").exists()
    assert [record.id for record in site.records()] == [1, 2]


def test_a_removal_by_an_operator_is_recorded(site: PushlogSite) -> None:
    first = site.change()
    site.push()
    second = site.change(text="two\n")
    site.at_work("bookmark", "two")
    site.push("-B", "two")
    site.at_work("update", "--cwd", site.work, "-q", first)
    other = site.change("other")
    site.push("--force")
    # Core removes and adds the later changesets again: neither is news.
    site.server("debugstrip", second)
    record = site.records()[-1]
    assert (record.id, record.kind, record.user) == (4, "strip", "operator:root")
    assert record.changesets == (second,)
    assert (record.heads.gone, record.heads.new) == ((second,), ())
    assert record.bookmarks == (("two", second, first),)
    assert site.server("log", "-T", "{node}\n").split() == [other, first]
    # Removed by accident, it can be pushed again.
    site.push("--force", "-r", second, code=0)
    assert [record.kind for record in site.records()] == ["push", "push", "push", "strip", "push"]


@pytest.mark.parametrize("damage", [b"no record\n", b'{"v":2}\n'])
def test_a_push_behind_a_damaged_log_is_refused_with_the_reason(
    site: PushlogSite, damage: bytes
) -> None:
    site.change()
    site.push()
    with site.log().open("ab") as file:
        file.write(damage)
    content = site.log().read_bytes()
    site.change(text="two\n")
    said = site.push(code=255)
    assert "the push log of server does not go on, so nothing was changed" in said
    assert site.server("log", "-T", "{rev}") == "0"
    assert site.log().read_bytes() == content


def test_a_mirror_refuses_every_transaction_but_that_of_a_record(site: PushlogSite) -> None:
    site.change()
    site.push()
    mirror = site.hgrc.read_text().replace(
        "[hgfleet]\n", "[hgfleet]\nreplica-of = hg1\nssh-url = ssh://hg@hg.example.org\n"
    )
    site.hgrc.write_text(mirror)
    site.change(text="two\n")
    sentence = (
        "server is a copy on this host, and nothing was changed: its primary is hg1, push to "
        "ssh://hg@hg.example.org/server"
    )
    assert sentence in site.push(code=255)
    done = site.start(
        "-R", site.path("server"), "bookmark", "-r", "0", "x", HGFLEET_USER="operator:root"
    )
    assert sentence in done.stderr
    assert done.returncode == 255
    assert len(site.records()) == 1


def test_a_mirror_appends_the_record_of_its_primary_as_it_is(site: PushlogSite) -> None:
    site.change()
    site.at_work("bookmark", "stable")
    site.push("-B", "stable")
    (line,) = site.log().read_bytes().splitlines()
    site.at_work("bundle", "--all", site.root / "all.hg")
    site.hg("init", site.path("mirror"))
    site.configure("mirror")
    apply = site.root / "apply.py"
    apply.write_text(
        "from mercurial import extensions, exchange, ui as u\n"
        "from mercurial.repo import factory\n"
        "import sys\n"
        "ui = u.ui.load(); extensions.loadall(ui)\n"
        "repo = factory.repository(ui, sys.argv[1].encode()).unfiltered()\n"
        "line = sys.argv[2].encode()\n"
        "repo.ui.setconfig(b'hgfleet', b'replica-of', b'hg1')\n"
        "from hgfleet.pushlog import shared; shared.of(repo).applied = line\n"
        "with repo.lock(), repo.transaction(b'apply') as tr, open(sys.argv[3], 'rb') as file:\n"
        "    from mercurial import bundle2\n"
        "    found = exchange.readbundle(repo.ui, file, b'all.hg')\n"
        "    bundle2.applybundle(repo, found, tr, source=b'apply', url=b'apply')\n"
        "print(*shared.of(repo).recorded)\n"
    )

    def applied(text: bytes) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, apply, site.path("mirror"), text.decode(), site.root / "all.hg"]
        env = site.environment(HGFLEET_USER="operator:applier")
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    # Another history than the primary's, and a record that does not continue this chain.
    digest = site.records()[0].heads.digest.encode()
    for wrong in (line.replace(digest, b"0" * 64), line.replace(b'"id":1', b'"id":2'), b"{}"):
        done = applied(wrong)
        assert "the push log of mirror does not go on, so nothing was changed" in done.stderr
        assert not site.log("mirror").exists()
        assert site.hg("-R", site.path("mirror"), "log") == ""
    done = applied(line)
    assert done.returncode == 0, done.stderr
    assert site.log("mirror").read_bytes() == line + b"\n"
    identity, number, end, hashed = done.stdout.split()[-4:]
    assert (number, int(end), hashed) == ("1", len(line) + 1, hash_of(line))
    assert identity == site.records()[0].repository


def test_a_line_that_a_crash_of_the_host_cut_off_is_replaced(site: PushlogSite) -> None:
    site.change()
    site.push()
    with site.log().open("ab") as file:
        file.write(b'{"bookmarks":[' * 1000)
    site.change(text="two\n")
    site.push()
    assert [record.id for record in site.records()] == [1, 2]


def test_an_unregistered_repository_has_no_log(site: PushlogSite) -> None:
    site.change()
    site.push()
    place = site.root / "snapshot"
    site.hg("clone", "--pull", "-q", site.path("server"), place, HGFLEET_USER="operator:bundles")
    assert not (place / ".hg/store/pushlog").exists()


def test_a_fenced_host_refuses_every_transaction_with_the_sentence_of_its_fence(
    site: PushlogSite,
) -> None:
    site.change()
    site.push()
    fenced = site.root / "fenced"
    site.hgrc.write_text(
        site.hgrc.read_text().replace("[hgfleet]\n", f"[hgfleet]\nfence = none, {fenced}\n")
    )
    site.change(text="two\n")
    fenced.write_text("hgweb1 is the primary since epoch 2; push to ssh://hg@hg.example.org\n")
    sentence = "server: nothing was changed: hgweb1 is the primary since epoch 2; push to ssh://hg@"
    assert sentence in site.push(code=255)
    done = site.start(
        "-R", site.path("server"), "bookmark", "-r", "0", "x", HGFLEET_USER="operator:root"
    )
    assert sentence in done.stderr
    assert done.returncode == 255
    fenced.unlink()
    site.push()
    assert len(site.records()) == 2


def test_a_fenced_repository_takes_no_changes_and_others_do(site: PushlogSite) -> None:
    fences = site.root / "fences"
    site.hgrc.write_text(
        site.hgrc.read_text().replace("[hgfleet]\n", f"[hgfleet]\nfences = {fences}\n")
    )
    site.change()
    site.push()
    fences.mkdir()
    (fences / ("2f" * 16)).write_text("of another one\n")
    site.change(text="two\n")
    site.push()
    fence = fences / site.records()[0].repository
    fence.write_text("mirrors have a push 3 that this host lost\n{}\n")
    site.change(text="three\n")
    sentence = "server: nothing was changed: mirrors have a push 3 that this host lost"
    assert sentence in site.push(code=255)
    words = ("-R", site.path("server"), "bookmark", "-r", "0", "x")
    assert sentence in site.start(*words, **OPERATOR).stderr
    # A file without a sentence, and a fence that is no file, refuse as well.
    fence.write_text("")
    assert "operators have to decide about its last pushes" in site.push(code=255)
    fence.unlink()
    fence.mkdir()
    assert "operators have to decide about its last pushes" in site.push(code=255)
    fence.rmdir()
    site.push()
    assert len(site.records()) == 3


def test_a_push_after_a_boot_waits_until_the_term_is_confirmed(
    site: PushlogSite, wait_for: WaitFor
) -> None:
    unconfirmed, told = site.root / "unconfirmed", site.root / "told"
    # The client hears the sentence only with the answer to the push.
    (site.root / "told.py").write_text(
        "from hgfleet.pushlog import term\n"
        "def extsetup(ui, wait=term.unconfirmed):\n"
        "    def unconfirmed(fence, name, seconds, tell):\n"
        f"        return wait(fence, name, seconds, lambda: (tell(), open({str(told)!r}, 'x')))\n"
        "    term.unconfirmed = unconfirmed\n"
    )
    written = site.hgrc.read_text() + f"[extensions]\ntold = {site.root / 'told.py'}\n"

    def wait(seconds: int) -> None:
        lines = f"[hgfleet]\nunconfirmed = {unconfirmed}\nunconfirmed-wait = {seconds}\n"
        site.hgrc.write_text(written.replace("[hgfleet]\n", lines))

    wait(0)
    site.change()
    unconfirmed.write_text("hg1 has just started\n")
    assert "server: nothing was changed: hg1 has just started" in site.push(code=255)
    assert not told.exists()
    wait(3600)
    with ThreadPoolExecutor(1) as pool:
        push = pool.submit(site.push)
        try:
            wait_for("the push waits", lambda: told.exists() or push.done())
            assert not push.done(), push.exception()
            assert (site.path("server") / ".hg/store/lock").is_symlink()
        finally:
            unconfirmed.unlink()
        assert "waiting for the brokers" in push.result()
    assert len(site.records()) == 1


def test_a_fence_that_comes_during_a_transaction_aborts_it(site: PushlogSite) -> None:
    fenced = site.root / "fenced"
    (site.root / "slow.py").write_text(
        "def hook(ui, repo, **more):\n"
        f"    open({str(fenced)!r}, 'w').write('hgweb1 is the primary')\n"
    )
    site.hgrc.write_text(
        site.hgrc.read_text().replace("[hgfleet]\n", f"[hgfleet]\nfence = {fenced}\n")
        + f"[hooks]\npretxnclose.slow = python:{site.root / 'slow.py'}:hook\n"
        f"prechangegroup.slow = python:{site.root / 'slow.py'}:hook\n"
    )
    site.change()
    assert "hgweb1 is the primary" in site.push(code=255)
    assert not site.log().exists()
    assert site.server("log", "-T", "{rev}") == ""


def test_records_have_the_epoch_of_their_host_and_never_a_lower_one(site: PushlogSite) -> None:
    file = site.root / "epoch.json"
    site.hgrc.write_text(
        site.hgrc.read_text().replace("[hgfleet]\n", f"[hgfleet]\nepoch = {file}\n")
    )
    epochs = []
    for number in (0, 3, 2):
        if number:
            file.write_text(f'{{"epoch": {number}, "primary": "hg1"}}')
        site.change(text=f"{number}\n")
        site.push()
        epochs.append(site.records()[-1].epoch)
    assert epochs == [1, 3, 3]
    file.write_text("{")
    site.change(text="damaged\n")
    assert "is not an epoch of this site" in site.push(code=255)
