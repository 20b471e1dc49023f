"""Set-up refuses with a cause and a way out, before anything is touched."""

from __future__ import annotations

import ast
import os
import queue
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller import bootstrap, entry
from controller.cluster import cli, client, cluster, images, lock, marks, release, settings
from controller.cluster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTER = Settings("hgfleet-abc123", "10.213.20", 21000, "")
HOSTS = {
    "ldap1": cluster.Host("ldap1", {"ldap": 636}, ["directory"]),
    "hg1": cluster.Host("hg1", {"ssh": 22}, ["ssh", "web"]),
}


def without(*programs: str) -> Callable[[str], str | None]:
    """Return a `shutil.which` that does not find these."""
    return lambda name: None if name in programs else f"/usr/bin/{name}"


ENTRY_POINTS = ("cluster", "deploy", "run-tests")


# --- the wrong machine ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRY_POINTS)
@pytest.mark.parametrize("version", ["3.8.10", "3.10.12"])
def test_an_old_python_is_refused_in_a_sentence(name: str, version: str) -> None:
    path = bootstrap.ROOT / name
    pretend = (
        f"import sys; sys.version_info = {tuple(int(n) for n in version.split('.'))};"
        f"sys.version = '{version} (main)'; path = {str(path)!r};"
        "exec(compile(open(path).read(), path, 'exec'), {'__file__': path})"
    )

    done = subprocess.run(
        [sys.executable, "-c", pretend],
        capture_output=True,
        text=True,
        check=False,
        cwd=bootstrap.ROOT,
    )

    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"{name}: Python 3.11 or newer is needed, this is {version}. Run: python3.11 ./{name}"
    )


@pytest.mark.parametrize("name", [*ENTRY_POINTS, "controller/__init__.py", "controller/entry.py"])
def test_an_old_python_can_at_least_read_the_refusal(name: str) -> None:
    ast.parse((bootstrap.ROOT / name).read_text(), feature_version=(3, 7))


def test_the_commands_and_the_environment_need_the_same_python() -> None:
    assert entry.OLDEST == bootstrap.OLDEST_PYTHON


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose distribution brings no Python."""
    monkeypatch.setattr(bootstrap, "DISTRIBUTION_PYTHON", str(tmp_path / "python3"))


@pytest.mark.parametrize("fits", [True, False])
def test_the_python_of_the_distribution_comes_first_if_it_can_make_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fits: bool
) -> None:
    python = tmp_path / "python3"
    monkeypatch.setattr(bootstrap, "DISTRIBUTION_PYTHON", str(python))
    python.write_text(f"#!/bin/sh\n[ $1 = -c ] && exit {0 if fits else 1}\n")
    python.chmod(0o755)

    assert (bootstrap.find_python() == str(python)) is fits


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ("pass", True),
        ("sys.version_info = (3, 14, 0)", False),
        ("sys.version_info = (3, 10, 13)", False),
        ("sysconfig.get_path = lambda _: '/no/headers'", False),
        ("sys.modules['ensurepip'] = None", False),
    ],
)
def test_a_python_without_a_part_that_the_environment_needs_does_not_fit(
    tmp_path: Path, change: str, fits: bool
) -> None:
    (tmp_path / "Python.h").touch()
    headers = f"sysconfig.get_path = lambda _: {str(tmp_path)!r}"
    script = f"import sys, sysconfig\n{headers}\n{change}\n{bootstrap.FITS}"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode == 0) is fits, done.stderr


@pytest.mark.usefixtures("bare")
def test_a_python_that_is_too_new_is_exchanged_for_one_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    monkeypatch.setattr(shutil, "which", without("python3.13"))

    assert bootstrap.find_python() == "/usr/bin/python3.12"


@pytest.mark.usefixtures("bare")
def test_no_python_that_fits_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(bootstrap.SetupError, match=r"Python 3\.11 to 3\.13 is needed.*\n.*apt-get"):
        bootstrap.find_python()


def test_another_system_than_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(bootstrap.SetupError, match="needs Linux; this is darwin"):
        bootstrap.check_platform()


def test_a_full_disk_is_noticed_before_it_is_full(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free

    bootstrap.check_free_space(tmp_path / "not/yet/there", free // 2)
    with pytest.raises(
        bootstrap.SetupError, match=r"GiB free; .* GiB are needed\.\n.*Free some"
    ) as e:
        bootstrap.check_free_space(tmp_path / "not/yet/there", free * 2)
    # It would remove the images, networks and caches of every other project of the machine.
    assert "prune" not in str(e.value)


# --- Docker -----------------------------------------------------------------------------------


def test_no_engine_and_no_right_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", without("docker", "dockerd"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(bootstrap.SetupError) as error:
        bootstrap.ensure_engine()
    assert "No Docker Engine answers, and only root may start it." in str(error.value)
    assert "sudo apt-get install docker.io" in str(error.value)


def test_root_where_packages_cannot_be_installed_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", without("docker", "dockerd", "apt-get"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(bootstrap.SetupError, match=r"docker\.io.\n.*On Debian or Ubuntu: sudo"):
        bootstrap.ensure_engine()


def test_an_engine_that_is_closed_to_this_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_engine_info", lambda: None)
    monkeypatch.setattr(shutil, "which", without())
    monkeypatch.setattr(Path, "exists", lambda _: True)
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(bootstrap.SetupError, match=r"not open to this user.\n.*usermod -aG docker"):
        bootstrap.ensure_engine()


def test_an_engine_with_cgroup_v1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"ServerVersion": "20.10", "CgroupVersion": "1"}
    monkeypatch.setattr(bootstrap, "_engine_info", lambda: info)

    with pytest.raises(bootstrap.SetupError, match="uses cgroup v1"):
        bootstrap.ensure_engine()


@pytest.mark.parametrize(
    ("code", "answer"),
    [(0, ""), (0, "not json"), (0, '"x"'), (0, "{}"), (1, '{"ServerVersion": "27"}'), (0, "null")],
)
def test_what_is_no_answer_of_an_engine(
    monkeypatch: pytest.MonkeyPatch, code: int, answer: str
) -> None:
    def fake(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, code, stdout=answer)

    monkeypatch.setattr(shutil, "which", without())
    monkeypatch.setattr(subprocess, "run", fake)

    assert bootstrap._engine_info() is None


def test_the_engine_runs_as_it_is_where_systemd_finds_cgroup_v2() -> None:
    # No docker exec works without the folder that a run of tests removes at its end.
    assert bootstrap.engine_command(cgroup_v2=True) == ["env", "--unset=TMPDIR", "dockerd"]


def test_the_engine_gets_a_namespace_of_its_own_where_the_machine_has_cgroup_v1() -> None:
    command = bootstrap.engine_command(cgroup_v2=False)

    assert command[:4] == ["env", "--unset=TMPDIR", "unshare", "--mount"]
    script = command[-1]
    # In this order: the machine's own mounts must be out of reach before any is removed.
    steps = ["--make-rprivate /", "umount -R /sys/fs/cgroup", "mount -t cgroup2", "exec dockerd"]
    assert [script.index(step) for step in steps] == sorted(script.index(step) for step in steps)
    assert script.count("&&") == 3


def test_cgroup_v2_is_known_by_its_file(tmp_path: Path) -> None:
    assert not bootstrap.uses_cgroup_v2(tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    assert bootstrap.uses_cgroup_v2(tmp_path)


# --- commands ---------------------------------------------------------------------------------


def test_a_command_that_fails_shows_its_last_lines_and_the_way_out() -> None:
    script = "for i in $(seq 100); do echo line $i; done; echo broken >&2; exit 3"

    with pytest.raises(bootstrap.SetupError) as error:
        bootstrap.run(["sh", "-c", script], what="Building it", way_out="Build it better.")

    text = str(error.value)
    assert text.startswith("Building it failed (sh exited with 3):")
    assert text.endswith("\n  Build it better.")
    assert "| broken" in text
    assert "| line 100" in text
    assert "| line 1\n" not in text


def test_a_step_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with bootstrap.Step("image", "making it"):
        pass
    with pytest.raises(KeyboardInterrupt), bootstrap.Step("image", "making it"):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="no"), bootstrap.Step("image", "making it"):
        raise ValueError("no")

    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[-4] for line in lines[1::2]] == ["done", "interrupted", "failed"]


def test_a_step_shows_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: queue.Queue[str] = queue.Queue()
    step = bootstrap.Step("image", "making it")
    monkeypatch.setattr(step, "say", lambda _subject, text: lines.put(text))
    monkeypatch.setattr(step, "_heartbeat_seconds", 0.01)

    with step:
        assert lines.get(timeout=10) == "making it"
        assert re.fullmatch(r"\.\.\. making it, \d+ s so far", lines.get(timeout=10))


def test_the_tools_of_the_controller_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")

    env = bootstrap.controller_environment()

    assert env["PATH"] == f"{bootstrap.VENV / 'bin'}:/usr/bin"
    assert env["ANSIBLE_CONFIG"] == str(bootstrap.ROOT / "ansible.cfg")


def test_mitogen_can_be_switched_off() -> None:
    assert bootstrap.mitogen_environment({"HGFLEET_MITOGEN": "0"}) == {}


def test_ssl_cert_file_decides_what_build_steps_trust(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "ca.pem"
    own.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    assert bootstrap.ca_bundle() == own
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    assert bootstrap.ca_bundle() != tmp_path / "missing.pem"


# --- ./cluster --------------------------------------------------------------------------------


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder that takes the place of .cluster, in which there is nothing."""
    for module in (cluster, cli, client, lock, marks, settings):
        monkeypatch.setattr(module, "STATE", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("words", [["env"], ["exec", "hg1", "--", "true"], ["logs", "hg1"]])
def test_without_a_cluster_each_command_says_how_to_get_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 1
    assert capsys.readouterr().err == (
        "cluster: This checkout has no running cluster.\n  Bring it up: ./cluster up\n"
    )


@pytest.mark.usefixtures("no_cluster")
def test_status_and_down_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status"]) == 1
    assert "./cluster up" in capsys.readouterr().out
    assert cli.main(["down"]) == 0
    assert "no cluster" in capsys.readouterr().err


def test_build_makes_images_and_release_and_no_host(
    no_cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for module, name in (
        (bootstrap, "ensure_engine"),
        (release, "ensure"),
        (release, "older_clients"),
        (images, "ensure_client"),
    ):
        monkeypatch.setattr(module, name, lambda name=name: made.append(name))
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/chromium")
    monkeypatch.setattr(cluster, "containers", lambda _: {})
    monkeypatch.setattr(settings, "_networks_in_use", frozenset)

    assert cli.main(["build"]) == 0
    assert made == ["ensure_engine", "ensure"]
    assert (no_cluster / "settings.json").exists(), "roles and the cluster share one"
    assert cli.main(["build", "--tests"]) == 0
    assert made[2:] == ["ensure_engine", "ensure", "older_clients", "ensure_client"]


def test_damaged_settings_are_an_error_and_no_traceback(
    no_cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (no_cluster / "settings.json").write_text('{"name": "hal')

    assert cli.main(["status"]) == 1
    assert "settings.json is damaged" in capsys.readouterr().err


def test_a_stopped_host_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "load", lambda: CLUSTER)
    monkeypatch.setattr(cluster, "containers", lambda _: {"hg1": "exited", "s3-1": "running"})

    assert cli.main(["env"]) == 1
    assert "Not running: hg1." in capsys.readouterr().err


def test_an_unknown_host_and_an_unknown_person_are_answered_with_the_known_ones(
    no_cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "load", lambda: CLUSTER)
    monkeypatch.setattr(cluster, "containers", lambda _: {"hg1": "running", "s3-1": "running"})
    (no_cluster / "keys").mkdir()
    (no_cluster / "keys/alice.pub").touch()

    assert cli.main(["exec", "hg9", "--", "true"]) == 1
    assert "There is no host hg9.\n  The hosts are: hg1, s3-1." in capsys.readouterr().err
    assert cli.main(["ssh", "eve"]) == 1
    assert "There is no key of eve.\n  The people are: alice." in capsys.readouterr().err


@pytest.mark.usefixtures("no_cluster")
def test_two_commands_cannot_change_the_cluster_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with lock.exclusively():
        assert cli.main(["down"]) == 1
    assert "Another command is changing this checkout's cluster." in capsys.readouterr().err
    with lock.exclusively():
        pass


@pytest.mark.usefixtures("no_cluster")
def test_an_interrupted_command_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: bool) -> Settings:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "up", interrupted)

    assert cli.main(["up"]) == 130
    assert "interrupted. './cluster up' goes on from here." in capsys.readouterr().err


@pytest.mark.usefixtures("no_cluster")
def test_env_prints_the_whole_contract() -> None:
    names = set(client.contract(CLUSTER))

    assert names >= {
        *("HGFLEET_HTTP_URL", "HGFLEET_SSH_HOST", "HGFLEET_SSH_PORT", "HGFLEET_CA_CERT"),
        *("HGFLEET_KNOWN_HOSTS", "HGFLEET_KEYS", "HGFLEET_PASSWORDS"),
        *("HGFLEET_LDAP_URL", "HGFLEET_LDAP_BASE"),
        *("HGFLEET_S3_URL", "HGFLEET_BUNDLE_URL", "HGFLEET_HGRC", "HGFLEET_ADMIN_SSH_PORT"),
    }
    assert client.contract(CLUSTER)["HGFLEET_SSH_PORT"] == "21002"


def test_a_host_is_found_by_its_group() -> None:
    assert client.first_in(HOSTS, "web") == "hg1"
    with pytest.raises(bootstrap.SetupError, match="no host in the group proxy"):
        client.first_in(HOSTS, "proxy")


def test_client_files_trust_this_cluster_and_nothing_else(
    no_cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "ssh-ed25519 AAAAC3 root@hg1\nssh-rsa AAAAB3 root@hg1\n"
    monkeypatch.setattr(cluster, "on_host", lambda *_, **__: keys)

    client.write_client_files(CLUSTER, HOSTS)

    folder = no_cluster / "client"
    assert (folder / "known_hosts").read_text().splitlines() == [
        "[127.0.0.1]:21002,hg1 ssh-ed25519 AAAAC3",
        "[127.0.0.1]:21002,hg1 ssh-rsa AAAAB3",
        "[127.0.0.1]:21006 ssh-ed25519 AAAAC3",
        "[127.0.0.1]:21006 ssh-rsa AAAAB3",
    ]
    assert "StrictHostKeyChecking yes" in (folder / "ssh_config").read_text()
    assert f"cacerts = {no_cluster / 'pki/ca.pem'}" in (folder / "hgrc").read_text()


@pytest.mark.parametrize(
    ("content", "command", "stays"),
    [("7\n", "dockerd", True), ("7\n", "bash", False), ("8\n", "dockerd", False), ("", "", False)],
)
def test_pid_file_of_a_dead_engine_is_forgotten(
    tmp_path: Path, content: str, command: str, stays: bool
) -> None:
    pid_file = tmp_path / "docker.pid"
    pid_file.write_text(content)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/comm").write_text(f"{command}\n")
    bootstrap.forget_dead(pid_file, "dockerd", tmp_path / "proc")
    assert pid_file.exists() is stays
