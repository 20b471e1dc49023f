"""The decision about SSH_ORIGINAL_COMMAND: serve, run a command, or refuse with a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.principal import Principal
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.selfservice import commands
from hgfleet.selfservice.command import Call
from hgfleet.ssh.session import original_command
from hgfleet.ssh.session.original_command import Do, Refuse, Serve

if TYPE_CHECKING:
    from hgfleet.registry.model import registry


def repository(path: str, read: registry.Read = "public") -> Repository:
    return Repository(path, f"About {path}", read, ("maintainers",), publishing=True, bundles=())


REGISTRY = Registry(
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


def decide(command: str | None, principal: Principal = BOB) -> original_command.Decision:
    return original_command.decide(command, principal, REGISTRY)


# --- accepted commands-----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "hg -R hgfleet serve --stdio",
        # ssh://host//hgfleet
        "hg -R /hgfleet serve --stdio",
        # Shell completion adds a slash.
        "hg -R hgfleet/ serve --stdio",
        "hg -R 'hgfleet' serve --stdio",
    ],
)
def test_hg_is_served_a_repository_that_the_person_may_read(command: str) -> None:
    assert decide(command) == Serve(REGISTRY.repositories["hgfleet"])


def test_a_private_repository_is_served_to_its_readers() -> None:
    assert decide("hg -R staff/plans serve --stdio", ALICE) == Serve(
        REGISTRY.repositories["staff/plans"]
    )


def test_a_private_repository_is_answered_as_one_that_does_not_exist() -> None:
    there = decide("hg -R staff/plans serve --stdio")
    absent = decide("hg -R staff/plant serve --stdio")
    assert isinstance(there, Refuse)
    assert isinstance(absent, Refuse)
    assert there.message.replace("plans", "plant") == absent.message
    assert (there.reason, there.exit_code) == (absent.reason, absent.exit_code)


def test_a_connection_from_before_person_ids_is_told_to_log_in_again() -> None:
    former, today = (f"b862b310-7ccc-103{n}-8a1f-1b0c5d2e3f40" for n in "de")
    own = replace(repository("people/bob/x", read=()), owner="bob", owner_id=former)
    registry = Registry({**REGISTRY.repositories, own.path: own})

    def said(path: str, principal: Principal) -> str:
        command = f"hg -R {path} serve --stdio"
        decision = original_command.decide(command, principal, registry)
        assert isinstance(decision, Refuse)
        return decision.message

    assert "log in again" in said("people/bob/x", BOB)
    # Also for a path without a repository: the answer does not tell whether it exists.
    assert "log in again" in said("people/bob/z", BOB)
    assert "log in again" not in said("people/bob/x", replace(BOB, person_id=today))
    assert "log in again" not in said("people/bob/x", ALICE)


@pytest.mark.parametrize("command", [None, "", " "])
def test_a_bare_login_is_greeted(command: str | None) -> None:
    assert decide(command) == Do(Call(commands.GREETING))


def test_a_command_of_the_self_service_is_one_to_be_done() -> None:
    answer = decide(" repo  create people/bob/x --description 'Two words' ")
    assert isinstance(answer, Do)
    assert answer.call.command.name == "repo create"
    assert answer.call.arguments == ("people/bob/x",)
    assert answer.call.options == {"--description": "Two words"}


# --- refused commands -----------------------------------------------------------------------

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
