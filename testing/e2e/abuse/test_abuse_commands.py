"""Argv and self-service commands that the SSH shell refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.abuse.support import MINE, NAME_OF_64_KIB
from testing.e2e.abuse.witness import refusal

if TYPE_CHECKING:
    from testing.e2e.abuse.support import Connection
    from testing.e2e.abuse.witness import Witness

pytestmark = pytest.mark.alone

COMMANDS: Final = {
    "a shell": "sh",
    "an interactive shell": "/bin/sh -i",
    "a shell with a command": "bash -c id",
    "a program": "id",
    "another command of hg": "hg version",
    "a repository's log": "hg -R hgfleet log",
    "no repository": "hg serve --stdio",
    "no stdio": "hg -R hgfleet serve",
    "only a web server": "hg -R hgfleet serve --port 8000",
    "configuration behind": "hg -R hgfleet serve --stdio --config extensions.x=/tmp/x.py",
    "configuration in front": "hg --config alias.serve=!id -R hgfleet serve --stdio",
    "configuration between": "hg -R hgfleet --config ui.debug=1 serve --stdio",
    "configuration of files": "hg -R hgfleet serve --stdio --config-file /tmp/rc",
    "a debugger behind": "hg -R hgfleet serve --stdio --debugger",
    "a debugger in front": "hg --debugger -R hgfleet serve --stdio",
    "a profiler": "hg --profile -R hgfleet serve --stdio",
    "a traceback": "hg -R hgfleet serve --stdio --traceback",
    "two repositories": "hg -R hgfleet -R sandbox/playground serve --stdio",
    "a second repository behind": "hg -R sandbox/playground serve --stdio -R hgfleet",
    "another folder": "hg --cwd / -R hgfleet serve --stdio",
    "another folder behind": "hg -R hgfleet serve --stdio --cwd /",
    "another folder alone": "hg serve --stdio --cwd /srv/hg/repos/hgfleet",
    "a daemon": "hg -R hgfleet serve --stdio --daemon --port 8000",
    "a daemon's file": "hg -R hgfleet serve --stdio --daemon-postexec unlink:/tmp/x",
    "a file of its own": "hg -R hgfleet serve --stdio --lock-file /tmp/x",
    "a pid file": "hg -R hgfleet serve --stdio --pid-file /tmp/x",
    "an access log": "hg -R hgfleet serve --stdio -A /tmp/x",
    "a command server": "hg -R hgfleet serve --cmdserver pipe",
    "an equals sign": "hg -R=hgfleet serve --stdio",
    "no blank": "hg -Rhgfleet serve --stdio",
    "the long option": "hg --repository hgfleet serve --stdio",
    "an abbreviation": "hg --repo hgfleet serve --stdio",
    "an abbreviated option": "hg -R hgfleet serve --std",
    "an abbreviated command": "hg -R hgfleet serv --stdio",
    "the end of options": "hg -R hgfleet serve --stdio --",
    "a second command": "hg -R hgfleet serve --stdio; id",
    "a second line": "hg -R hgfleet serve --stdio\nid",
    "a line in front": "id\nhg -R hgfleet serve --stdio",
    "an empty line behind": "hg -R hgfleet serve --stdio\n",
    "a carriage return": "hg -R hgfleet serve --stdio\rid",
    "and": "hg -R hgfleet serve --stdio && id",
    "or": "hg -R hgfleet serve --stdio || id",
    "in the background": "hg -R hgfleet serve --stdio & id",
    "a pipe": "hg -R hgfleet serve --stdio | tee /tmp/x",
    "into a file": "hg -R 'hgfleet' serve --stdio > /tmp/x",
    "from a file": "hg -R hgfleet serve --stdio < /etc/passwd",
    "a substitution": "hg -R $(id) serve --stdio",
    "backticks": "hg -R `id` serve --stdio",
    "a variable": "hg -R ${HOME} serve --stdio",
    "a pattern": "hg -R hgfle?t serve --stdio",
    "braces": "hg -R {hgfleet,sandbox/playground} serve --stdio",
    "double quotes": 'hg -R "hgfleet" serve --stdio',
    "a quote that goes on": "hg -R 'hgfleet'; id' serve --stdio",
    "a quote that ends early": "hg -R 'hgfleet'' serve --stdio",
    "a quote inside": "hg -R hgf'lee't serve --stdio",
    "an open quote": "hg -R 'hgfleet serve --stdio",
    "a backslash": "hg -R hgfleet\\ serve --stdio",
    "ANSI quotes": "hg -R $'hgfleet' serve --stdio",
    "two blanks": "hg  -R hgfleet  serve  --stdio",
    "a blank behind": "hg -R hgfleet serve --stdio ",
    "a blank in front": " hg -R hgfleet serve --stdio",
    "tabs": "hg\t-R\thgfleet\tserve\t--stdio",
    "a vertical tab": "hg -R hgfleet serve\v--stdio",
    "a no-break space": "hg -R hgfleet serve\u00a0--stdio",
    "an ideographic space": "hg\u3000-R hgfleet serve --stdio",
    "a zero-width space": "hg -R hgfleet serve\u200b --stdio",
    "a text that runs backwards": "hg -R hgfleet serve \u202e--stdio",
    "other hyphens": "hg -R hgfleet serve \u2010\u2010stdio",
    "a dash": "hg \u2013R hgfleet serve --stdio",
    "a Cyrillic letter": "hg -R hgfleet s\u0435rve --stdio",
    "full width": "\uff48\uff47 -R hgfleet serve --stdio",
    "capitals": "HG -R hgfleet serve --stdio",
    "a variable in front": "HGFLEET_USER=alice hg -R hgfleet serve --stdio",
    "env": "env HGRCPATH=/tmp/rc hg -R hgfleet serve --stdio",
    "exec": "exec hg -R hgfleet serve --stdio",
    "hg by its path": "/opt/hgfleet/current/bin/hg -R hgfleet serve --stdio",
    "our own command": "hgfleet registry apply",
    "our own shell": "hgfleet-shell --user alice",
    "an option of our shell": "--user alice",
    "help and more": "help; id",
    "whoami and more": "whoami --user alice",
    "scp, writing": "scp -t /tmp",
    "scp, reading": "scp -f /etc/passwd",
    "rsync": "rsync --server --sender . /etc",
    "git": "git-upload-pack 'hgfleet'",
    "sftp": "internal-sftp",
    "sftp by its path": "/usr/lib/openssh/sftp-server",
    "colours for the terminal": "\x1b[2J\x1b]0;owned\x07\x1b[31m",
    "a line for the log": "x\nevent=session decision=serve user=alice repo=hgfleet",
    "a field for the log": 'x" user=alice decision=serve command="',
    "control characters": "".join(map(chr, range(1, 32))),
    "4 KiB": "hg -R " + "x" * 5000 + " serve --stdio",
    "64 KiB": NAME_OF_64_KIB,
    "64 KiB of a path": f"hg -R '{NAME_OF_64_KIB}' serve --stdio",
    "64 KiB of quotes": "hg -R '" + "'\\''" * 16384 + "' serve --stdio",
}


def test_any_other_command_is_refused(bobs: Connection, witness: Witness) -> None:
    witness.try_each(
        COMMANDS, lambda command: bobs.run(command).refused(), lambda _, lines: refusal(lines)
    )


def test_a_command_that_is_no_text_is_refused(bobs: Connection, witness: Witness) -> None:
    for latin1 in ("hg -R h\udce4 serve --stdio", "\udcff\udcfe", "hg -R '\udcc3' serve --stdio"):
        bobs.run(latin1).refused()

    assert len(witness.lines("hgfleet-shell")) == 3


# --- self-service with hostile words ----------------------------------------------------------

WORDS: Final = {
    "create nothing": "repo create",
    "create too much": f"repo create {MINE}/x {MINE}/y",
    "create above": f"repo create {MINE}/../x",
    "create far above": f"repo create {MINE}/../../../../../tmp/x",
    "create at an absolute path": "repo create /tmp/x",
    "create at the root": "repo create x",
    "create in a namespace that is not open": "repo create e2e/x",
    "create in somebody else's": "repo create people/alice/x",
    "create what there is": "repo create hgfleet",
    "create inside a repository": "repo create hgfleet/x",
    "create inside its store": "repo create hgfleet/.hg/x",
    "create the store": f"repo create {MINE}/.hg",
    "create a hidden one": f"repo create {MINE}/.x",
    "create an option": "repo create --config=x",
    "create with configuration": f"repo create {MINE}/x --config extensions.x=/tmp/x.py",
    "create after the end of options": "repo create -- -R",
    "create a blank": f"repo create '{MINE}/x y'",
    "create a line": f"repo create '{MINE}/x\ny'",
    "create a tab": f"repo create '{MINE}/x\ty'",
    "create a quote": f'repo create "{MINE}/x\'y"',
    "create half a quote": f"repo create '{MINE}/x",
    "create a substitution": f"repo create {MINE}/$(id)",
    "create backticks": f"repo create {MINE}/`id`",
    "create and more": f"repo create {MINE}/x; id",
    "create with a coded slash": f"repo create {MINE}%2fx",
    "create with a format": f"repo create {MINE}/%s%n",
    "create in capitals": f"repo create {MINE}/X".upper(),
    "create a letter that looks like another": f"repo create {MINE}/\u0430",
    "create what hg encodes": f"repo create {MINE}/x.hg",
    "create a backslash": f"repo create {MINE}\\x",
    "create 300 letters": f"repo create {MINE}/{'x' * 300}",
    "create 64 KiB": f"repo create {MINE}/{NAME_OF_64_KIB}",
    "create 4000 letters": f"repo create {MINE}/{'x' * 4000}",
    "create a text that runs backwards": f"repo create {MINE}/\u202ex",
    "create with colours": f"repo create {MINE}/\x1b[31mx",
    "create in another registry": f"repo create {MINE}/x --registry /tmp/x.json",
    "create for everybody and a group": f"repo create {MINE}/x --read public,staff",
    "create for a group with a comma": f"repo create {MINE}/x --read ,",
    "create for a group that is none": f"repo create {MINE}/x --read '../x y'",
    "create with two readers": f"repo create {MINE}/x --read public --read private",
    "describe with a line": f"repo create {MINE}/x --description 'x\npush = *'",
    "describe with colours": f"repo create {MINE}/x --description '\x1b[31m'",
    "describe with 64 KiB": f"repo create {MINE}/x --description {NAME_OF_64_KIB}",
    "fork what is private": f"repo fork e2e/private {MINE}/x",
    "fork an option": f"repo fork --debugger {MINE}/x",
    "fork what is not there": f"repo fork nothing {MINE}/x",
    "fork a bundle": f"repo fork bundle:/srv/hg/repos/e2e/private {MINE}/x",
    "fork another server": f"repo fork ssh://-oProxyCommand=id/x {MINE}/x",
    "fork a path": f"repo fork /srv/hg/repos/e2e/private {MINE}/x",
    "fork to above": f"repo fork hgfleet {MINE}/../x",
    "fork over another": "repo fork hgfleet sandbox/playground",
    "fork onto itself": "repo fork hgfleet hgfleet",
    "describe what is not mine": "repo describe hgfleet mine now",
    "describe what is private": "repo describe e2e/private mine now",
    "drafts of what is not mine": "repo drafts hgfleet on",
    "drafts of what is private": "repo drafts e2e/private on",
    "drafts with a line": f"repo drafts {MINE}/x 'on\n[hooks]'",
    "drafts that are neither": f"repo drafts {MINE}/x true",
    "rename what is not mine": f"repo rename hgfleet {MINE}/x",
    "rename what is private": f"repo rename e2e/private {MINE}/x",
    "rename over another": f"repo rename {MINE}/x hgfleet",
    "rename to above": f"repo rename {MINE}/x {MINE}/../../x",
    "rename to an absolute path": f"repo rename {MINE}/x /tmp/x",
    "rename to a line": f"repo rename {MINE}/x '{MINE}/x\ny'",
    "rename to an option": f"repo rename {MINE}/x --config=x",
    "archive what is not mine": "repo archive hgfleet",
    "archive what is private": "repo archive e2e/private",
    "archive above": "repo archive ../../etc",
    "archive everything": "repo archive *",
    "restore what is not mine": "repo restore hgfleet",
    "restore by an option": "repo restore --all",
    "delete what is not mine": "repo delete hgfleet hgfleet",
    "delete what is private": "repo delete e2e/private e2e/private",
    "delete without the confirmation": "repo delete hgfleet",
    "delete another": f"repo delete {MINE}/x hgfleet",
    "delete above": "repo delete ../../etc ../../etc",
    "delete the deleted": "repo delete .purged .purged",
    "info about what is private": "repo info e2e/private",
    "info about a path": "repo info /etc/passwd",
    "list with an option": "repo list --config=x",
    "list with a line": "repo list 'x\ny'",
    "purge": "repo purge hgfleet",
    "chown": "repo chown hgfleet bob",
    "abbreviated": "repo cre x",
    "tabs": "repo\tlist",
    "another blank": "repo\u00a0list",
    "keys of another": "keys alice",
    "keys, added": "keys add ssh-ed25519 AAAA",
    "a token for ever": "token create --days 99999999999999999999",
    "a token of yesterday": "token create --days -1",
    "a token with its option behind": "token create x --days",
    "a token with an unknown option behind": "token create x --scope push",
    "a token that is a number": "token create 30",
    "a token that is another command": "token create list",
    "a token in words": "token create --days NaN",
    "a token's line": "token create 'x\ny'",
    "a token elsewhere": "token revoke ../../../etc/passwd",
    "all tokens": "token revoke *",
    "tokens of another": "token list alice",
    "help about what is none": "help $(id)",
}


def test_self_service_takes_no_hostile_words(bobs: Connection, witness: Witness) -> None:
    def send(words: str) -> None:
        said = bobs.run(words).refused()
        assert said.stderr.count("\n") == 1, said

    witness.try_each(WORDS, send, lambda _, lines: refusal(lines))


def test_what_is_private_is_answered_as_what_is_not_there(
    bobs: Connection, witness: Witness
) -> None:
    commands = (
        "repo info {}",
        "repo archive {}",
        "repo fork {} " + MINE + "/x",
        "repo rename {} " + MINE + "/x",
    )
    for command in commands:
        private = bobs.run(command.format("e2e/private")).refused()
        missing = bobs.run(command.format("e2e/pravite")).refused()

        assert private.code == missing.code
        assert private.stderr.replace("e2e/private", "e2e/pravite") == missing.stderr

    assert len(witness.lines("hgfleet-shell")) == 2 * len(commands)
