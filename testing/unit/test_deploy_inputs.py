"""A run touches only the parts that a change concerns, and in doubt all of them."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ansible"))

from deploy import inputs, partial, run, ways  # noqa: E402
from deploy.decide import HostState, Result  # noqa: E402

REGISTRY = "/site/registry.yml"
FOLDER = "/site"
FILES = {REGISTRY: b"version: 1\n", "/site/motd": b"hello\n"}
AUTHORITIES = {"/ca/ca.pem": b"certificate"}
NOW = 1_000_000.0

LISTING: dict[str, Any] = {
    "_meta": {
        "hostvars": {
            "hg1": {
                "mercurial_registry": "{{ inventory_dir }}/registry.yml",
                "directory_people": [{"name": "alice", "keys": ["ssh-ed25519 AAAA"]}],
                "directory_groups": [{"name": "all", "members": ["alice"]}],
                "release_version": "{{ lookup('built_release', 'version') }}",
                "base_tls_ca_folder": "{{ lookup('ansible.builtin.env', 'HOME') }}/ca",
                "web_title": "Repositories",
            },
            "proxy1": {"base_address": "192.0.2.1"},
        }
    },
    "web": {"hosts": ["hg1"]},
}


def digest(
    listing: dict[str, Any] = LISTING,
    files: dict[str, bytes] = FILES,
    environment: dict[str, str] | None = None,
    others: tuple[str, ...] = ("0.1.0-aaaa",),
    authorities: dict[str, bytes] = AUTHORITIES,
) -> dict[str, str] | None:
    variables = environment or {"HOME": "/root"}
    return inputs.digest(json.dumps(listing), FOLDER, files, authorities, variables, others)


def changed(**variables: Any) -> dict[str, Any]:
    """The listing with other variables of hg1."""
    result = copy.deepcopy(LISTING)
    result["_meta"]["hostvars"]["hg1"].update(variables)
    return result


def note(whole: float = NOW - 100) -> dict[str, Any]:
    present = digest()
    assert present is not None
    return dict(json.loads(inputs.note(present, whole)))


def parts(present: dict[str, str] | None, *notes: dict[str, Any]) -> list[str]:
    return inputs.parts(present, notes or [note(), note()], NOW)


def test_a_person_or_a_group_concerns_the_directory_alone() -> None:
    people = [{"name": "alice", "keys": []}, {"name": "bob"}]
    assert parts(digest(changed(directory_people=people))) == ["directory"]
    assert parts(digest(changed(directory_groups=[]))) == ["directory"]


def test_a_repository_concerns_the_hosts_of_mercurial_alone() -> None:
    files = FILES | {REGISTRY: b"version: 1\nrepositories: {a: {}}\n"}
    assert parts(digest(files=files)) == ["mercurial"]
    both = digest(changed(directory_people=[]), files)
    assert parts(both) == ["directory", "mercurial"]


@pytest.mark.parametrize(
    "present",
    [
        digest(changed(directory_people=[], web_title="Other")),
        digest(changed(directory_people=[], directory_exact=False)),
        digest(changed(directory_people=[], mercurial_registry="/elsewhere/registry.yml")),
        digest(changed(directory_people=[]), FILES | {"/site/motd": b"other\n"}),
        digest(changed(directory_people=[]), FILES | {"/site/new": b""}),
        digest(changed(directory_people=[]), authorities={"/ca/ca.pem": b"another"}),
        digest(changed(directory_people=[]), authorities={}),
        digest(changed(directory_people=[]), environment={"HOME": "/home/other"}),
        digest(changed(directory_people=[]), others=("0.1.0-bbbb",)),
        digest(changed(directory_people=[]), environment={"HOME": "/root", "ANSIBLE_X": "1"}),
        digest({**changed(directory_people=[]), "web": {"hosts": ["hg1", "proxy1"]}}),
    ],
)
def test_any_other_change_is_a_whole_run(present: dict[str, str] | None) -> None:
    assert parts(present) == []


def test_a_site_as_it_was_is_looked_at_as_a_whole() -> None:
    assert parts(digest()) == []


@pytest.mark.parametrize(
    "value",
    [
        "{{ lookup('file', '/etc/motd') }}",
        "{{ query('ansible.builtin.pipe', 'date') }}",
        '{{ q("x") }}',
        "{{ now() }}",
        "{{ [1, 2] | random }}",
        "{{ lookup('env', name_of_it) }}",
        "{{ vars['directory' ~ '_people'] }}",
        "{{ directory_people | map(attribute='name') }}",
        "{{ hostvars['hg1'].directory_groups }}",
    ],
)
def test_a_value_that_cannot_be_followed_is_a_whole_run(value: str) -> None:
    assert digest(changed(web_title=value)) is None
    assert parts(None) == []


def test_a_registry_that_is_not_among_the_files_is_a_whole_run() -> None:
    assert digest(files={"/site/motd": b"hello\n"}) is None
    assert digest(changed(mercurial_registry="{{ ours }}/registry.yml")) is None


@pytest.mark.parametrize(
    "notes",
    [
        [],
        [{}, {}],
        [note(), {}],
        [note(), note(NOW - 200)],
        [note() | {"inputs": None}],
        [{"inputs": note()["inputs"]}],
        [note() | {"inputs": {"rest": note()["inputs"]["rest"]}}, note()],
    ],
)
def test_hosts_whose_notes_are_missing_or_differ_are_a_whole_run(
    notes: list[dict[str, Any]],
) -> None:
    assert inputs.parts(digest(changed(directory_people=[])), notes, NOW) == []


@pytest.mark.parametrize(("days", "expected"), [(6.9, ["directory"]), (7.1, []), (-0.1, [])])
def test_a_whole_run_is_due_after_a_week(days: float, expected: list[str]) -> None:
    old = note(NOW - days * 86400)
    assert parts(digest(changed(directory_people=[])), old, old) == expected


def test_files_that_ansible_parses_are_not_read_twice(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    parsed = ("hosts.yml", "group_vars/all/web.yml", "host_vars/hg1", ".git/HEAD")
    others = ("registry.yml", "hosts.yml.old", "group_vars_old/a.yml", "group_vars/all/cert.pem")
    for name in (*parsed, *others):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    linked, ca = tmp_path / "linked", tmp_path / "ca.pem"
    linked.mkdir()
    (linked / "motd").write_text("hello")
    (folder / "files").symlink_to(linked)
    ca.write_text("ca")
    found = inputs.files_below(folder / "hosts.yml", [ca, tmp_path / "missing.pem"])
    expected = {str(folder / name) for name in (*others, "files/motd")}
    assert set(found) == {str(ca), *expected}


def test_paths_on_the_controller_are_found_in_the_inventory() -> None:
    listing = changed(base_tls_ca_folder="{{ lookup('env', 'HOME') }}/ca", motd="/etc/motd")
    assert inputs.paths(json.dumps(listing), FOLDER, {"HOME": "/home/op"}) == {
        "/site/registry.yml",
        "/home/op/ca",
        "/etc/motd",
    }


def test_a_path_that_begins_with_another_variable_cannot_be_followed() -> None:
    assert inputs.paths(json.dumps(changed(motd="{{ ours }}/motd")), FOLDER, {}) is None


@pytest.mark.parametrize(
    ("names", "role"), [(inputs.VARIABLES, "directory"), ((inputs.REGISTRY,), "mercurial")]
)
def test_no_other_role_reads_these_variables(names: tuple[str, ...], role: str) -> None:
    word = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)")
    left_out = {"molecule", "__pycache__", "inventories"}
    readers = set()
    for path in (path for path in (ROOT / "ansible").rglob("*") if path.is_file()):
        inside = path.relative_to(ROOT / "ansible").parts
        if not left_out.intersection(inside) and word.search(path.read_text("utf-8")):
            readers.add("/".join(inside[:2]))
    # The checks of ./deploy and the preflight read all of the inventory, and change nothing.
    checks = ("deploy/", "playbooks/preflight.yml", "playbooks/state.yml", "plugins/filter")
    assert {name for name in readers if not name.startswith(checks)} == {f"roles/{role}"}


def test_every_tag_is_one_of_site_yml() -> None:
    site = (ROOT / "ansible/site.yml").read_text()
    for tag in inputs.PARTS.values():
        assert f"tags: [{tag}]" in site


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, ("directory",)),
        ({"is_unfinished": True}, ()),
        ({"current": "0.1.0-other"}, ()),
        ({"inputs": {}}, ()),
    ],
)
def test_a_host_in_another_state_than_its_note_says_gets_all_parts(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], expected: tuple[str, ...]
) -> None:
    present = digest(changed(directory_people=[]))
    monkeypatch.setattr(partial, "_present", lambda *_: present)
    site = run.Site("site", Path("/site/hosts.yml"), {"hg1": ["release"], "proxy1": ["release"]})
    found = note(time.time() - 100)
    host = HostState(current="0.1.0-aaaa", inputs=found)
    states = {"hg1": replace(host, **state), "proxy1": host}
    built = run.Built("0.1.0-aaaa", None, None)
    assert tuple(partial.scope(site, built, states, new=[], whole=False).tags) == expected
    whole = partial.scope(site, built, states, new=[], whole=True)
    assert not whole.tags
    assert json.loads(whole.note)["whole"] > found["whole"]
    assert not partial.scope(site, built, states, new=["hg1"], whole=False).tags


def test_a_run_of_parts_is_taken_back_on_the_hosts_that_it_changed() -> None:
    had = ways.Way("0.1.0-aaaa", "tree", "site1")
    states = {
        name: HostState(current=had.release, record=ways.done(None, had, 1.0))
        for name in ("hg1", "proxy1")
    }
    has = ways.Way("0.1.0-aaaa", "tree", "site2")
    results = {"hg1": Result(2, failed=False), "proxy1": Result(0, failed=False)}
    records = partial.records(states, results, {"hg1": has, "proxy1": has}, 2.0)
    assert ways.back(records["hg1"], had.release) == had
    assert records["proxy1"] == states["proxy1"].record


def test_the_ca_that_a_first_run_makes_is_in_the_note_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = json.dumps({"_meta": {"hostvars": {"hg1": {"base_tls_ca_folder": str(tmp_path)}}}})
    site = run.Site("site", tmp_path / "site/hosts.yml", {"hg1": []}, listing=listing)
    built = run.Built("0.1.0-aaaa", None, None)
    left: list[str] = []

    def run_playbook(_command: object, *, env: dict[str, str], **_: object) -> object:
        left.append(env["HGFLEET_INPUTS"])
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(subprocess, "run", run_playbook)
    states = {"hg1": HostState()}
    first = partial.scope(site, built, states, new=["hg1"], whole=False)
    (tmp_path / "ca.pem").write_text("certificate")
    partial.leave(site, first, {"hg1": {}})
    second = partial.scope(site, built, states, new=[], whole=False)
    assert json.loads(left[0])["inputs"] == json.loads(second.note)["inputs"]
    assert json.loads(left[0]) != json.loads(first.note)


def test_a_ca_that_is_to_follow_or_was_before_is_an_input(tmp_path: Path) -> None:
    seen = []
    for name in ("ca.pem", "next/ca.pem", "former/ca.pem"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        seen.append(inputs.of_files(partial._authorities([str(tmp_path)])))
    assert len(set(seen)) == 3
