"""Inventories and releases that ./deploy is given."""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from controller.deploy import run, trees
from controller.deploy.decide import DeployError

ROOT = Path(__file__).resolve().parents[3]

OLD, NEW = "0.1.0-aaaaaaaaaaaa", "0.1.0-bbbbbbbbbbbb"

RECAP = (
    "hg1  : ok=54   changed=3    unreachable=0    failed=0    skipped=13   rescued=0   ignored=0"
)


def test_variables_of_one_run_reach_every_playbook() -> None:
    site = run.Site("x", Path("/inv/hosts.yml"), extra_vars=("ansible_port=22", '{"a": [1]}'))
    assert site.playbook(Path("/site.yml"), "--check") == [
        *("ansible-playbook", "-i", "/inv/hosts.yml", "/site.yml", "--check"),
        *("--extra-vars", "ansible_port=22", "--extra-vars", '{"a": [1]}'),
    ]


def test_a_constructed_inventory_is_read_after_the_one_beside_it(tmp_path: Path) -> None:
    hosts, constructed = tmp_path / "hosts.yml", tmp_path / "constructed.yml"
    assert run.sources(hosts) == ["-i", str(hosts)]
    constructed.write_text("---\n")
    assert run.sources(hosts) == ["-i", str(hosts), "-i", str(constructed)]


def test_mitogen_finds_the_names_of_containers_in_the_clusters_inventory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HGFLEET_CLUSTER_NAME", "test")
    site = run.read_site("cluster", None)
    assert site.hosts
    assert {name: of["ansible_host"] for name, of in site.variables.items()} == {
        name: f"test-{name}" for name in site.hosts
    }


def test_an_inventory_is_a_file_a_folder_or_a_name(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("---\n")
    assert run.find_inventory(str(hosts)) == hosts
    assert run.find_inventory(str(tmp_path)) == hosts
    assert run.find_inventory("cluster") == ROOT / "ansible/inventories/cluster/hosts.yml"
    with pytest.raises(DeployError, match=r"no inventory nowhere.*\n.*cluster"):
        run.find_inventory("nowhere")


def test_a_copy_without_the_files_that_its_example_shares_is_refused(tmp_path: Path) -> None:
    example = ROOT / "ansible/inventories/production-large.example"
    shutil.copytree(example, tmp_path / "whole")
    run.require_no_dangling_link(tmp_path / "whole")
    shutil.copytree(example, tmp_path / "copy", symlinks=True)
    with pytest.raises(DeployError, match=r"group_vars/all/web\.yml.*registry\.yml.*\n.*cp -rL"):
        run.require_no_dangling_link(tmp_path / "copy")


def archive(path: Path, member: str) -> Path:
    with tarfile.open(path, "w:gz") as file:
        entry = tarfile.TarInfo(member)
        file.addfile(entry, io.BytesIO())
    return path


def test_the_version_of_an_archive_is_that_of_its_folder(tmp_path: Path) -> None:
    release = run.take_archive(archive(tmp_path / "renamed.tar.gz", f"{NEW}/"))
    assert release.version == NEW
    assert release.variables()["HGFLEET_RELEASE_ARCHIVE"] == str(tmp_path / "renamed.tar.gz")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="No such file"):
        run.take_archive(tmp_path / "missing")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(DeployError, match="no tar file"):
        run.take_archive(tmp_path / "text")
    with pytest.raises(DeployError, match="not the version"):
        run.take_archive(archive(tmp_path / "odd.tar.gz", "../../etc"))


def test_a_release_without_archive_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path)
    monkeypatch.delenv("HGFLEET_VERSITYGW", raising=False)
    assert run.known_release(OLD).variables() == {
        "HGFLEET_RELEASE_VERSION": OLD,
        "HGFLEET_RELEASE_ARCHIVE": "",
        "HGFLEET_VERSITYGW": "",
    }


@pytest.mark.parametrize(("number", "forks"), [(1, "1"), (31, "31"), (500, "64")])
def test_all_hosts_are_asked_at_once_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, forks: str
) -> None:
    program = tmp_path / "ansible-playbook"
    program.write_text(
        f"#!{sys.executable}\nimport os\n"
        f"open({str(tmp_path / 'forks')!r}, 'w').write(os.environ['ANSIBLE_FORKS'])\n"
        "print('{\"plays\": []}')\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(run, "environment", lambda: {"PATH": str(tmp_path)})
    hosts: dict[str, list[str]] = {f"h{each}": [] for each in range(number)}

    assert run.read_states(run.Site("x", tmp_path / "hosts.yml", hosts)) == {}

    assert (tmp_path / "forks").read_text() == forks


PROGRAM = f"""#!{sys.executable}
import os, sys
print(f"a task may take {{{{os.environ['ANSIBLE_TASK_TIMEOUT']}}}} s")
print("PLAY [Web workers and nginx] ****")
print({RECAP!r})
sys.exit({{code}})
"""


def test_a_run_is_shown_logged_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "environment", lambda _built: {"PATH": str(tmp_path)})
    site = run.Site("x", tmp_path / "x/hosts.yml", {"hg1": []})
    for code in (2, 0):
        program = tmp_path / "ansible-playbook"
        program.write_text(PROGRAM.format(code=code))
        program.chmod(0o755)
        results, ended, log = run.site_playbook(
            site, run.Built(NEW, None, None), ["hg1"], check=False
        )
        assert (ended, list(results)) == (code, ["hg1"])
        assert log.read_text().startswith("a task may take 600 s\n")


def test_a_message_names_the_file_of_the_inventory_and_not_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    program = tmp_path / "ansible-playbook"
    copy = trees.Kept(tmp_path / "tree", tmp_path / "kept/site/hosts.yml")
    wrong = f"{copy.inventory.parent}/registry.yml:3: wrong"
    program.write_text(f"#!{sys.executable}\nprint({wrong!r})\n")
    program.chmod(0o755)
    monkeypatch.setattr(run, "environment", lambda *_: {"PATH": str(tmp_path)})
    site = run.Site("x", tmp_path / "site/hosts.yml", {"hg1": []}, copy=copy)
    _results, _code, log = run.site_playbook(site, run.Built(NEW, None, None), ["hg1"], check=False)
    assert log.read_text() == f"{tmp_path}/site/registry.yml:3: wrong\n"
    assert site.named("elsewhere/registry.yml") == "elsewhere/registry.yml"
