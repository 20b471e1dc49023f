"""A restore refuses a host that lives, asks the mirrors first, and brings back nothing revoked."""

from __future__ import annotations

import getpass
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.integration.deploy.plays import inventory, play

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GROUPS: Final = {
    "ssh": ["hg1"],
    "backup": ["hg1"],
    "web": ["hg1", "hgweb1", "hgweb2"],
    "broker": ["broker1"],
}
WITH_LOCK: Final = {**GROUPS, "ssh": ["hg1", "hgweb1"], "metrics": ["lock1"]}


PRIMARY: Final = "restore-primary.yml"


class Site:
    """Hosts that are this machine; `restore_mark.py` looks into a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark, self.root = folder / "restore.json", folder / "repos"

    def play(
        self,
        book: str,
        *options: str,
        away: Sequence[str] = (),
        groups: Any = GROUPS,
        **variables: Any,
    ) -> tuple[int, str]:
        paths = {"mark": str(self.mark), "root": str(self.root)}
        given = {"restore_host": "hg1", "__restore_paths": paths, **variables}
        return play(inventory(self.folder, groups, away), book, given, *options)

    def repository(self, path: str) -> None:
        store = self.root / path / ".hg/store"
        store.mkdir(parents=True)
        (store / "00changelog.i").write_text("x")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("book", ["restore.yml", "restore-primary.yml"])
def test_a_host_that_lives_is_refused_before_anything_is_changed(site: Site, book: str) -> None:
    site.repository("team/tool")
    code, told = site.play(book)
    assert code != 0
    assert "hg1 has 1 repositories with changesets (team/tool), expected a host that lost" in told
    assert "changed=0" in told
    assert not site.mark.exists()


def test_a_host_that_may_be_restored_is_not_touched_without_the_lock_of_the_site(
    site: Site,
) -> None:
    site.repository("team/tool")
    given = {"restore_over": "hg1", "lock_hosts": ["lock1"], "groups": WITH_LOCK}
    code, told = site.play(PRIMARY, **given, away=["lock1"])
    assert code != 0
    assert "lock1 has the lock of the site: it did not answer" in told
    assert "changed=0" in told
    assert "TASK [Role base" not in told
    assert not site.mark.exists()


def test_no_limit_leaves_the_checks_out(site: Site) -> None:
    code, told = site.play("restore.yml", "--limit", "all:!hgweb1")
    assert code != 0
    assert "--limit leaves the controller out" in told
    # The lock is on a host that is left out, and is asked for nevertheless.
    given = {"lock_hosts": "lock1", "groups": WITH_LOCK, "away": ["lock1"]}
    code, told = site.play(PRIMARY, "--limit", "all:localhost:!lock1", **given)
    assert code != 0
    assert "lock1 has the lock of the site: it did not answer" in told
    assert "changed=0" in told
    assert not site.mark.exists()


@pytest.mark.parametrize("host", ["hgweb1", "hg11", ""])
def test_a_host_without_backups_is_refused(site: Site, host: str) -> None:
    code, told = site.play("restore.yml", restore_host=host)
    assert code != 0
    assert f"restore_host is '{host}', expected -e restore_host=HOST" in told
    assert "changed=0" in told


def test_mirrors_that_have_more_than_the_backup_refuse_the_restore(site: Site) -> None:
    program = site.folder / "hgfleet"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "if sys.argv[1] == 'backup':\n    sys.exit(print('a point'))\n"
        "assert sys.stdin.read().strip() == 'a point'\n"
        "if '--accept-loss=tool@4' not in sys.argv:\n"
        "    print('hgweb1: tool has pushes 4 after the backup; tool@4 gives it up')\n"
        "print('hgweb1: gone was deleted after the backup', file=sys.stderr)\n"
    )
    program.chmod(0o755)
    asked = {"__restore_step": "begun", "__restore_hgfleet": str(program)}
    code, told = site.play("internal/restore_beyond.yml", **asked)
    assert code != 0
    assert "Mirrors have more than the backup: hgweb1: tool has pushes 4 after the backup" in told
    assert "restore-primary.yml" in told
    code, told = site.play("internal/restore_beyond.yml", **asked, restore_accept_loss=["tool@4"])
    assert code == 0, told
    assert "hgweb1: gone was deleted after the backup" in told
    code, told = site.play(
        "internal/restore_beyond.yml", **asked, restore_accept_loss=["tool@4"], away=["hgweb2"]
    )
    assert code != 0
    assert "These mirrors do not tell what they have: hgweb2 (" in told
    given = {"restore_accept_loss": ["tool@4"], "restore_without": ["hgweb2"]}
    code, told = site.play("internal/restore_beyond.yml", **asked, **given, away=["hgweb2"])
    assert code == 0, told


def document(file: Path, token: str, number: int) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"tokens": {token: {}}, "generation": {"term": 1, "number": number}}) + "\n"
    file.write_text(text)
    return text


def test_a_restored_host_gets_the_tokens_of_the_newest_generation(site: Site) -> None:
    name = "tokens/tokens.json"
    document(site.folder / "hg1" / name, "revoked", 7)
    document(site.folder / "hgweb1" / name, "revoked", 8)
    newest = document(site.folder / "hgweb2" / name, "kept", 9)
    given = {
        "documents_to": "hg1",
        "documents_named": ["tokens"],
        "__documents_place": f"{site.folder}/{{{{ inventory_hostname }}}}",
        "__documents_owner": getpass.getuser(),
    }
    code, told = site.play("internal/restore_documents.yml", **given)
    assert code == 0, told
    assert (site.folder / "hg1" / name).read_text() == newest
    assert "gave no document" not in told
    # hg1 has the newest itself now, and a mirror that is away changes nothing.
    code, told = site.play("internal/restore_documents.yml", **given, away=["hgweb2"])
    assert code == 0, told
    assert "These hosts gave no document: hgweb2 (tokens: " in told
    assert (site.folder / "hg1" / name).read_text() == newest
    document(site.folder / "hgweb1" / name, "other", 9)
    code, told = site.play("internal/restore_documents.yml", **given)
    assert code != 0
    assert "have different versions of it with generation 1.9" in told
    assert (site.folder / "hg1" / name).read_text() == newest
