"""What a key can run: hg serve on a repository the person may read, and three kinds of answers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.core.principal import Principal
from hgfleet.registry.compiled import dump_compiled
from hgfleet.registry.model import Registry, Repository
from hgfleet.selfservice import argv, commands
from hgfleet.ssh import shell
from hgfleet.ssh.shell import Do, Refuse, Serve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.registry import model

TOP = Path(__file__).resolve().parents[2]


def repository(path: str, read: model.Read = "public") -> Repository:
    return Repository(path, f"About {path}", read, ("maintainers",), publishing=True, bundles=())


KNOWN = Registry(
    {
        r.path: r
        for r in (
            repository("hgfleet"),
            repository("sandbox/playground"),
            repository("staff/plans", read=("staff",)),
        )
    }
)
ALICE = Principal("alice", frozenset({"maintainers", "staff"}))
BOB = Principal("bob", frozenset({"sandbox"}))


def decide(command: str | None, principal: Principal = BOB) -> shell.Decision:
    return shell.decide(command, principal, KNOWN)


# --- what works -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "hg -R hgfleet serve --stdio",
        # ssh://host//hgfleet
        "hg -R /hgfleet serve --stdio",
        # What completion leaves behind.
        "hg -R hgfleet/ serve --stdio",
        "hg -R 'hgfleet' serve --stdio",
    ],
)
def test_hg_is_served_a_repository_that_the_person_may_read(command: str) -> None:
    assert decide(command) == Serve(KNOWN.repositories["hgfleet"])


def test_a_private_repository_is_served_to_its_readers() -> None:
    assert decide("hg -R staff/plans serve --stdio", ALICE) == Serve(
        KNOWN.repositories["staff/plans"]
    )


def test_a_private_repository_is_answered_as_one_that_does_not_exist() -> None:
    there = decide("hg -R staff/plans serve --stdio")
    absent = decide("hg -R staff/plant serve --stdio")
    assert isinstance(there, Refuse)
    assert isinstance(absent, Refuse)
    assert there.message.replace("plans", "plant") == absent.message
    assert (there.reason, there.exit_code) == (absent.reason, absent.exit_code)


@pytest.mark.parametrize("command", [None, "", " "])
def test_a_bare_login_is_greeted(command: str | None) -> None:
    assert decide(command) == Do(argv.Call(commands.GREETING))


def test_a_command_of_the_self_service_is_one_to_be_done() -> None:
    answer = decide(" repo  create people/bob/x --description 'Two words' ")
    assert isinstance(answer, Do)
    assert answer.call.command.name == "repo create"
    assert answer.call.arguments == ("people/bob/x",)
    assert answer.call.options == {"--description": "Two words"}


# --- what does not --------------------------------------------------------------------------

HOSTILE = {
    # Other commands.
    "a shell": "sh",
    "bash -i": "bash -i",
    "id": "id",
    "scp": "scp -t /tmp",
    "sftp": "/usr/lib/openssh/sftp-server",
    "rsync": "rsync --server -e.Lsf . /srv",
    "git": "git-upload-pack '/hgfleet'",
    "help and more": "help; id",
    "help on two lines": "help\nid",
    "whoami of another": "whoami alice",
    "capitals": "HELP",
    # hg, but not this.
    "hg": "hg",
    "hg version": "hg version",
    "serve without stdio": "hg -R hgfleet serve",
    "serve as a daemon": "hg -R hgfleet serve -p 8000 --stdio",
    "command server": "hg -R hgfleet serve --cmdserver pipe",
    "further arguments": "hg -R hgfleet serve --stdio --config ui.debugger=1",
    "debugger": "hg -R hgfleet serve --stdio --debugger",
    "hidden": "hg -R hgfleet serve --stdio --hidden",
    "option before": "hg --config extensions.x=/tmp/x.py -R hgfleet serve --stdio",
    "option as repository": "hg -R --config=alias.serve=!id serve --stdio",
    "debugger as repository": "hg -R --debugger serve --stdio",
    "long option": "hg --repository hgfleet serve --stdio",
    "joined option": "hg -Rhgfleet serve --stdio",
    "path to hg": "/usr/bin/hg -R hgfleet serve --stdio",
    "other hg": "chg -R hgfleet serve --stdio",
    "assignment before": "HGRCPATH=/tmp/x hg -R hgfleet serve --stdio",
    "two blanks": "hg  -R hgfleet serve --stdio",
    "tab": "hg\t-R hgfleet serve --stdio",
    "blank after": "hg -R hgfleet serve --stdio ",
    "newline after": "hg -R hgfleet serve --stdio\n",
    "second command": "hg -R hgfleet serve --stdio; id",
    "pipe": "hg -R hgfleet serve --stdio | sh",
    "background": "hg -R hgfleet serve --stdio & id",
    "second line": "hg -R hgfleet serve --stdio\nid",
    "redirection": "hg -R hgfleet serve --stdio > /tmp/x",
    "init": "hg init new",
    "init with tricks": "hg init 'x'; id",
    # Quoting.
    "double quotes": 'hg -R "hgfleet" serve --stdio',
    "backslash": "hg -R hg\\fleet serve --stdio",
    "substitution": "hg -R $(id) serve --stdio",
    "backquotes": "hg -R `id` serve --stdio",
    "variable": "hg -R $HOME serve --stdio",
    "tilde": "hg -R ~/x serve --stdio",
    "glob": "hg -R hg* serve --stdio",
    "open quote": "hg -R 'hgfleet serve --stdio",
    "quote in the middle": "hg -R hg'fl'eet serve --stdio",
    "two words in one": "hg -R 'hgfleet' 'x' serve --stdio",
    "quoted command": "'hg' -R hgfleet serve --stdio",
    "escaped quote": "hg -R ''\\''' serve --stdio",
    "everything quoted": "hg -R 'hgfleet serve --stdio; id' serve --stdio",
    # Paths.
    "no path": "hg -R  serve --stdio",
    "empty path": "hg -R '' serve --stdio",
    "dot": "hg -R . serve --stdio",
    "slash": "hg -R / serve --stdio",
    "root": "hg -R /srv/hg/repos/hgfleet serve --stdio",
    "up": "hg -R .. serve --stdio",
    "up and away": "hg -R ../../etc serve --stdio",
    "up and back": "hg -R sandbox/../hgfleet serve --stdio",
    "up inside": "hg -R hgfleet/.. serve --stdio",
    "dot inside": "hg -R ./hgfleet serve --stdio",
    "below": "hg -R hgfleet/.hg serve --stdio",
    "namespace": "hg -R sandbox serve --stdio",
    "two slashes": "hg -R //hgfleet serve --stdio",
    "two slashes inside": "hg -R sandbox//playground serve --stdio",
    "two slashes after": "hg -R hgfleet// serve --stdio",
    "percent": "hg -R %68gfleet serve --stdio",
    "escaped dots": "hg -R %2e%2e/etc serve --stdio",
    "capitals in the path": "hg -R HGFLEET serve --stdio",
    "NUL": "hg -R 'hgfleet\0' serve --stdio",
    "newline in the path": "hg -R 'hgfleet\n' serve --stdio",
    "escape sequence": "hg -R '\x1b[2J' serve --stdio",
    "unicode": "hg -R 'hgfleét' serve --stdio",
    "looks the same": "hg -R 'hgfl\u0435et' serve --stdio",
    "wide letters": "hg -R '\uff48gfleet' serve --stdio",
    "undecodable": "hg -R '\udcff' serve --stdio",
    "bundle": "hg -R bundle:hgfleet+/tmp/x.hg serve --stdio",
    "union": "hg -R union:hgfleet+staff/plans serve --stdio",
    "other scheme": "hg -R ssh://-oProxyCommand=id/x serve --stdio",
    "file": "hg -R file:///srv/hg/repos/hgfleet serve --stdio",
    "long path": f"hg -R {'a/' * 1000}b serve --stdio",
    "64 KiB": "A" * 65536,
    "64 KiB of quotes": "hg -R '" + "'\\''" * 16384 + "' serve --stdio",
}


@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE)
def test_everything_else_is_refused_with_a_sentence(command: str) -> None:
    answer = decide(command)
    assert isinstance(answer, Refuse), answer
    assert answer.exit_code != 0
    assert answer.message.isprintable()
    assert answer.message.isascii()
    assert len(answer.message) < 500
    assert "staff/plans" not in answer.message or "staff/plans" in command


def test_a_likely_name_is_offered_but_never_a_hidden_one() -> None:
    answer = decide("hg -R sandbox/playgruond serve --stdio")
    assert isinstance(answer, Refuse)
    assert answer.message.endswith("Did you mean sandbox/playground?")
    hidden = decide("hg -R staff/plan serve --stdio")
    assert isinstance(hidden, Refuse)
    assert "Did you mean" not in hidden.message


def test_a_url_without_a_path_is_explained() -> None:
    answer = decide("hg -R . serve --stdio")
    assert isinstance(answer, Refuse)
    assert answer.message.startswith("Which repository?")


def test_init_is_explained() -> None:
    answer = decide("hg init new")
    assert isinstance(answer, Refuse)
    assert "repo create PATH" in answer.message


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
        ["--user", "alice", "--fingerprint", "x"],
        ["alice"],
    ],
)
def test_a_wrong_command_line_serves_nobody(arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        shell.parse_arguments(arguments)


def test_hg_sees_nothing_of_the_environment_but_where_the_client_comes_from() -> None:
    options = shell.parse_arguments(["--user", "alice", "--groups", "staff,maintainers"])
    inherited = {
        "SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22",
        "SSH_ORIGINAL_COMMAND": "x",
        "HGRCPATH": "/tmp/evil",
        "HGFLEET_USER": "operator:root",
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


# --- the process ----------------------------------------------------------------------------


class Site:
    """A registry and a repository on disk, and the shell as sshd starts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "registry.json").write_text(dump_compiled(KNOWN))
        (path / "hgrc").write_text("")
        (path / "client.rc").write_text(f"[ui]\nssh = {path}/ssh\nusername = test\n")
        # In place of ssh: drops the host and hands the command over as sshd does.
        # The system log of the machine that runs the tests is not ours to fill.
        start = (
            "import sys; from hgfleet.ssh import shell; "
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
            f" --hgrc {path}/hgrc\n"
        )
        ssh.chmod(0o755)

    def hg(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(Path(sys.executable).parent / "hg"), *arguments], {})

    def ssh(self, command: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(self.path / "ssh"), "host", command], {})

    def run(self, words: list[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HGRCPATH": str(self.path / "client.rc"), **more}
        return subprocess.run(words, capture_output=True, text=True, env=env, check=False)

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
    assert "event=session decision=serve user=bob repo=hgfleet" in site.log[0]
    end = re.fullmatch(
        r"event=session-end user=bob repo=hgfleet bytes=(\d+) status=0 seconds=[\d.]+", site.log[-1]
    )
    assert end, site.log[-1]
    assert int(end[1]) > 500  # the greeting of the protocol alone has more


def test_the_log_says_how_much_a_session_sent(site: Site) -> None:
    """What shows that clones over SSH come from the object store."""
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
        found = re.search(r" bytes=(\d+) ", site.log[-1])
        assert found, site.log[-1]
        sizes[name] = int(found[1])
    assert sizes["small"] < 20_000
    assert 300_000 < sizes["large"] < 400_000


def test_a_refusal_reaches_the_client_of_hg(site: Site) -> None:
    cloned = site.hg("clone", "ssh://host/staff/plans", str(site.path / "clone"))
    assert cloned.returncode == 255
    assert "remote: There is no repository 'staff/plans' here for bob." in cloned.stderr
    assert "reason=no-repository user=bob" in site.log[0]


def test_a_repository_that_is_not_on_this_host_yet(site: Site) -> None:
    refused = site.ssh("hg -R hgfleet serve --stdio")
    assert refused.returncode != 0
    assert refused.stderr.startswith("The repository hgfleet is registered, but this host")
    assert "reason=not-on-this-host" in site.log[0]


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


def test_a_client_that_has_gone_is_no_traceback(site: Site) -> None:
    done = site.run(["sh", "-c", f"{site.path}/ssh host help 2>{site.path}/err | true"], {})
    assert done.returncode == 0
    assert (site.path / "err").read_text() == ""
