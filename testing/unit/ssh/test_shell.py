"""The forced command: its options, the environment of hg, and sessions of a real hg."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import counters, identity
from hgfleet.core.errors import ConfigurationError
from hgfleet.hg.sessions import session_slots
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.ssh.session import session_counts, shell
from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Mapping


TOP = Path(__file__).resolve().parents[3]


REGISTRY = Registry(
    {
        "hgfleet": Repository(
            "hgfleet", "The service", "public", ("maintainers",), publishing=True, bundles=()
        )
    }
)


# --- command line and environment -----------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--user"],
        ["--user", ""],
        ["--user", "operator:root"],
        ["--user", "Alice"],
        ["--user", "../x"],
        ["--user", "alice", "--groups", "a b"],
        ["--user", "alice", "--groups", "a,-b"],
        ["--user", "alice", "--shell", "/bin/sh"],
        ["--user", "alice", "--person-id", "x"],
        ["--user", "alice", "--fingerprint", "x"],
        ["--user", "alice", "--login", "-1"],
        ["--user", "alice", "--login", "1" * 13],
        ["--user", "alice", "--certificate", "a b"],
        ["--user", "alice", "--certificate", "x" * 129],
        ["alice"],
    ],
)
def test_a_wrong_command_line_is_an_error(arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        shell.parse_arguments(arguments)


def test_hg_sees_nothing_of_the_environment_but_where_the_client_comes_from() -> None:
    options = shell.parse_arguments(["--user", "alice", "--groups", "staff,maintainers"])
    inherited = {
        "SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22",
        "SSH_ORIGINAL_COMMAND": "x",
        "HGRCPATH": "/tmp/evil",
        "HGFLEET_USER": "operator:root",
        "HGFLEET_KEY": "certificate:root",
        "HGFLEET_IDENTITY": "b" * 32,
        "HGFLEET_LOGIN": "4000000000",
        "HGFLEET_PERSON_ID": "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40",
        "HGFLEET_ID": "ab" * 8,
        "LD_PRELOAD": "/tmp/evil.so",
        "PYTHONPATH": "/tmp",
        "HGPLAINEXCEPT": "alias",
    }
    assert shell.session_environment(options, inherited) == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "HGRCPATH": "/etc/hgfleet/hgrc",
        "HGPLAIN": "1",
        "HGENCODING": "utf-8",
        "HGFLEET_USER": "alice",
        "HGFLEET_GROUPS": "maintainers,staff",
        "SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22",
    }


def test_hg_knows_which_person_of_the_name_it_is() -> None:
    person_id = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
    options = shell.parse_arguments(["--user", "alice", "--person-id", person_id])
    assert options.principal.person_id == person_id
    assert shell.session_environment(options, {})["HGFLEET_PERSON_ID"] == person_id


def test_hg_knows_when_the_person_logged_in() -> None:
    options = shell.parse_arguments(["--user", "alice", "--login", "1764345600"])
    assert shell.session_environment(options, {})["HGFLEET_LOGIN"] == "1764345600"


def test_hg_knows_which_repository_the_session_is_for() -> None:
    options = shell.parse_arguments(["--user", "alice"])
    environment = shell.session_environment(options, {"HGFLEET_IDENTITY": "b" * 32}, "a" * 32)
    assert environment["HGFLEET_IDENTITY"] == "a" * 32


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("--fingerprint", f"SHA256:{'k' * 43}", f"SHA256:{'k' * 43}"),
        ("--certificate", "alice@laptop", "certificate:alice@laptop"),
    ],
)
def test_hg_knows_the_key_or_certificate_for_the_push_log(
    option: str, value: str, key: str
) -> None:
    options = shell.parse_arguments(["--user", "alice", option, value])
    assert shell.session_environment(options, {})["HGFLEET_KEY"] == key


# --- the process ----------------------------------------------------------------------------


class Site:
    """A registry and a repository on disk, and the shell as sshd starts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "registry.json").write_text(dump_compiled(REGISTRY))
        (path / "hgrc").write_text("")
        (path / "counters").mkdir()
        (path / "client.rc").write_text(f"[ui]\nssh = {path}/ssh\nusername = test\n")
        # In place of ssh: drops the host and hands the command over as sshd does.
        # The system log of the machine that runs the tests is not ours to fill.
        start = (
            "import sys; from hgfleet.ssh.session import session_counts, shell; "
            f"shell.logfmt.to_syslog = lambda _: lambda t: print(t, file=open('{path}/log', 'a')); "
            "sys.exit(shell.main())"
        )
        ssh = path / "ssh"
        ssh.write_text(
            "#!/bin/sh\n"
            'shift; SSH_ORIGINAL_COMMAND="$*"; export SSH_ORIGINAL_COMMAND\n'
            f"PYTHONPATH={TOP} exec {sys.executable} -c {shlex.quote(start)}"
            f" --user bob --groups sandbox --registry {path}/registry.json"
            f" --dynamic {path}/dynamic/registry.json --root {path}/repos"
            f" --hgrc {path}/hgrc --counters {path}/counters\n"
        )
        ssh.chmod(0o755)

    def hg(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the hg of a client; the sessions that it opens are real processes."""
        return self.run([str(prefork.shared(os.environ).program), *arguments], {})

    def ssh(self, command: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(self.path / "ssh"), "host", command], {})

    def run(self, words: list[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HGRCPATH": str(self.path / "client.rc"), **more}
        return subprocess.run(words, capture_output=True, text=True, env=env, check=False)

    @property
    def sessions(self) -> session_counts.Sessions:
        file = self.path / "counters" / session_counts.FILE
        return session_counts.Sessions(counters.parse(file.read_bytes()))

    @property
    def log(self) -> list[str]:
        return (self.path / "log").read_text().splitlines()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_clone_through_the_shell(site: Site) -> None:
    repos = site.path / "repos"
    repos.mkdir()
    assert site.hg("init", str(repos / "hgfleet")).returncode == 0
    (repos / "hgfleet/file").write_text("one")
    site.hg("-R", str(repos / "hgfleet"), "commit", "-qAm", "one")
    cloned = site.hg("clone", "ssh://host/hgfleet", str(site.path / "clone"))
    assert cloned.returncode == 0, cloned.stderr
    assert (site.path / "clone/file").read_text() == "one"
    assert "event=session decision=serve user=bob repository=hgfleet" in site.log[0]
    end = re.fullmatch(
        r"event=session-end user=bob repository=hgfleet bytes=(\d+) status=0 seconds=[\d.]+"
        r" id=([0-9a-f]{16})",
        site.log[-1],
    )
    assert end, site.log[-1]
    assert int(end[1]) > 500  # even the greeting of the protocol has more
    assert site.log[0].endswith(f" id={end[2]}")
    assert site.sessions.by_kind["serve", "hg"] == 1
    buckets, count, seconds = site.sessions.times["hg"]
    assert (count, dict(buckets)[1800.0]) == (1, 1)
    assert 0 < seconds < 60


def test_the_log_says_how_much_a_session_sent(site: Site) -> None:
    """The bytes of a session show whether its clone came from the object store."""
    sizes = {}
    for name, size in (("small", 1), ("large", 300_000)):
        path = site.path / "repos/hgfleet"
        path.mkdir(parents=True, exist_ok=True)
        if name == "small":
            site.hg("init", str(path))
        (path / name).write_bytes(os.urandom(size))
        site.hg("-R", str(path), "commit", "-qAm", name)
        cloned = site.hg("clone", "-q", "ssh://host/hgfleet", str(site.path / name))
        assert cloned.returncode == 0, cloned.stderr
        match = re.search(r" bytes=(\d+) ", site.log[-1])
        assert match, site.log[-1]
        sizes[name] = int(match[1])
    assert sizes["small"] < 20_000
    assert 300_000 < sizes["large"] < 400_000


def test_a_refusal_reaches_the_client_of_hg(site: Site) -> None:
    cloned = site.hg("clone", "ssh://host/staff/plans", str(site.path / "clone"))
    assert cloned.returncode == 255
    assert "remote: There is no repository 'staff/plans' here for bob." in cloned.stderr
    assert "reason=no-repository user=bob" in site.log[0]
    assert site.sessions.by_kind["refuse", "none"] == 1
    assert site.sessions.by_reason["no-repository"] == 1


def test_a_repository_that_is_not_on_this_host_yet(site: Site) -> None:
    refused = site.ssh("hg -R hgfleet serve --stdio")
    assert refused.returncode != 0
    assert refused.stderr.startswith("The repository hgfleet is registered, but this host")
    assert "reason=not-on-this-host" in site.log[0]


def test_another_repository_at_the_path_is_not_served(site: Site) -> None:
    """On a mirror folders are moved after the registry is replaced."""
    own, other = "a" * 32, "b" * 32
    place = site.path / "repos/hgfleet"
    assert site.hg("init", str(place)).returncode == 0
    (place / "plan.txt").write_text("the plan\n")
    assert site.hg("-R", str(place), "commit", "-qAm", "the plan").returncode == 0
    dynamic = site.path / "dynamic/registry.json"
    dynamic.parent.mkdir()
    dynamic.write_text(
        json.dumps({"format": 1, "repositories": {}, "identities": {"hgfleet": own}})
    )
    for text in (other, "", own):
        (place / identity.FILE).write_text(identity.text(text) if text else "")
        cloned = site.hg("clone", "-q", "ssh://host/hgfleet", str(site.path / f"clone{text}"))
        served = site.ssh("hg -R hgfleet serve --stdio")
        if text == own:
            assert (cloned.returncode, served.returncode) == (0, 0), cloned.stderr
            continue
        assert cloned.returncode == 255
        assert "remote: The repository hgfleet is being brought to its place" in cloned.stderr
        assert "Try again in a minute" in cloned.stderr
        assert served.returncode == 75
        assert served.stdout == ""
        assert "reason=not-in-its-place" in site.log[-1]
    assert site.sessions.by_reason["not-in-its-place"] == 4


@pytest.mark.parametrize("content", [None, "", "{", '{"format": 0}', "[]"])
def test_a_broken_registry_is_no_traceback(site: Site, content: str | None) -> None:
    if content is None:
        (site.path / "registry.json").unlink()
    else:
        (site.path / "registry.json").write_text(content)
    refused = site.ssh("whoami")
    assert refused.returncode not in (0, 255)
    assert refused.stdout == ""
    assert refused.stderr.startswith("This service is not in order at the moment")
    assert "Traceback" not in refused.stderr
    assert "decision=fail" in site.log[0]
    assert "registry.json" in site.log[0]


def test_a_defect_is_no_traceback(site: Site) -> None:
    # hg cannot even read its settings.
    (site.path / "repos/hgfleet/.hg").mkdir(parents=True)
    (site.path / "hgrc").write_text("[extensions]\nx = /nonexistent.py\nx:required = yes\n")
    refused = site.ssh("hg -R hgfleet serve --stdio")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr


def test_a_mirror_answers_and_changes_nothing(site: Site) -> None:
    (site.path / "hgrc").write_text("[hgfleet]\nreplica-of = hg1\nssh-url = ssh://hg@hg.test\n")
    assert site.ssh("whoami").returncode == 0
    refused = site.ssh("token create")
    assert refused.returncode == 75
    assert "its primary is hg1; expected a command to ssh://hg@hg.test" in refused.stderr
    assert "decision=refuse" in site.log[-1]
    assert site.sessions.by_kind["answer", "whoami"] == 1
    assert site.sessions.by_kind["refuse", "token create"] == 1


def test_a_session_goes_on_where_it_cannot_be_counted(site: Site) -> None:
    (site.path / "counters" / session_counts.FILE).mkdir()
    assert site.ssh("whoami").returncode == 0
    assert "event=not-counted" in site.log[-1]
    (site.path / "counters" / session_counts.FILE).rmdir()
    (site.path / "counters").rmdir()
    assert site.ssh("whoami").returncode == 0
    assert "decision=answer" in site.log[-1]


def test_a_client_that_has_gone_is_no_traceback(site: Site) -> None:
    done = site.run(["sh", "-c", f"{site.path}/ssh host help 2>{site.path}/err | true"], {})
    assert done.returncode == 0
    assert (site.path / "err").read_text() == ""


# --- commands take a slot of the person ------------------------------------------------------


def counted(site: Site, most: int) -> Path:
    """Have the sessions of each person counted; return the folder of the slots."""
    folder = site.path / "sessions"
    folder.mkdir(mode=0o700)
    settings = f"[hgfleet]\nsessions = {folder}\nsessions-person = {most}\n"
    (site.path / "hgrc").write_text(settings)
    return folder


@pytest.mark.parametrize("command", ["whoami", "help", "repo list", "token create", ""])
def test_a_command_without_a_free_slot_is_refused_as_a_session_of_hg_is(
    site: Site, command: str
) -> None:
    folder = counted(site, 1)
    held = session_slots.take(str(folder), "bob", 1)
    refused = site.ssh(command)
    assert (refused.returncode, refused.stdout) == (75, "")
    assert refused.stderr == (
        "bob has too many sessions on this server: 1 at a time are allowed; wait until a clone, "
        "pull or push of yours is done, or end a session\n"
    )
    assert "decision=refuse" in site.log[-1]
    held.leave()
    other = session_slots.take(str(folder), "carol", 1)
    assert site.ssh("whoami").returncode == 0
    other.leave()


def test_a_command_leaves_its_slot(site: Site) -> None:
    folder = counted(site, 1)
    for _ in range(2):
        assert site.ssh("whoami").returncode == 0
    assert [path.name for path in folder.iterdir()] == ["bob.0.slot"]


def test_a_command_goes_on_where_slots_cannot_be_taken(site: Site) -> None:
    counted(site, 1).rmdir()
    assert site.ssh("whoami").returncode == 0
    assert any("event=session-uncounted" in line for line in site.log)


# --- sessions that end early ------------------------------------------------------------------


@pytest.fixture
def limited(site: Site) -> Site:
    """A repository whose sessions have limits."""
    (site.path / "sessions").mkdir(mode=0o700)
    names = ("hardening", "session_limits")
    extensions = "".join(f"{name} = {TOP}/hgext/{name}.py\n" for name in names)
    (site.path / "hgrc").write_text(
        f"[extensions]\n{extensions}[hgfleet]\nsessions = {site.path}/sessions\n"
    )
    (site.path / "repos").mkdir()
    site.hg("init", str(site.path / "repos/hgfleet"))
    return site


def send(site: Site, request: bytes) -> subprocess.CompletedProcess[bytes]:
    """Send a request to the session, and disconnect."""
    command = [str(site.path / "ssh"), "host", "hg -R hgfleet serve --stdio"]
    return subprocess.run(command, input=request, capture_output=True, check=False)


def test_a_pusher_who_disconnects_is_no_crash(limited: Site) -> None:
    done = send(limited, b"unbundle\nheads 10\n666f72636599\nHG20")

    assert done.stderr == b""
    assert "crash" not in "".join(limited.log)
    assert " reason=disconnected detail=unbundle status=0 " in limited.log[-1]


def test_a_malformed_request_is_one_sentence_and_two_lines_of_the_log(limited: Site) -> None:
    done = send(limited, b"lookup\nkey x\n")

    assert done.stderr.startswith(b"abort: this request cannot be read: got 'x' for the length")
    assert done.returncode == 255
    first, last = limited.log
    assert "decision=serve" in first
    assert "event=session-end" in last
    assert " reason=malformed " in last


def test_the_log_tells_operators_where_a_request_failed(limited: Site) -> None:
    done = send(limited, b"batch\ncmds 1\n;* 0\n")

    assert done.stderr.startswith(b"abort: the request 'batch' cannot be carried out: ")
    assert len(done.stderr.splitlines()) == 1
    assert " reason=request-failed " in limited.log[-1]
    assert ".py:" in limited.log[-1]


def test_a_client_that_disconnects_before_the_answer_is_no_crash(limited: Site) -> None:
    command = [str(limited.path / "ssh"), "host", "hg -R hgfleet serve --stdio"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdout.close()
        session.stdin.write(b"hello\n")
        session.stdin.close()
        session.wait()

    assert "crash" not in "".join(limited.log)
    assert " reason=disconnected detail=hello " in limited.log[-1]
