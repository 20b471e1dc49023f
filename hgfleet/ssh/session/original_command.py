"""The decision about SSH_ORIGINAL_COMMAND: serve a repository, run a command, or refuse.

The only command that an hg client sends is

    hg -R PATH serve --stdio

for a repository that the person may read. The other accepted commands are those in
`hgfleet.selfservice`, and the empty command (a bare login). Every other command is refused.

PATH is the path of the registry. `ssh://host/team/x` makes it `team/x` and `ssh://host//team/x`
makes it `/team/x`; people type a slash at the end too. So a slash is taken off each end, and the
rest is looked up as it stands: the path is neither expanded nor resolved nor joined before the
lookup. A repository that the person may not read gets the same answer as a missing repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import AccessDeniedError, UsageError
from hgfleet.registry.model import permissions

if TYPE_CHECKING:
    from hgfleet.core.principal import Principal
    from hgfleet.registry.model.registry import Registry, Repository
    from hgfleet.selfservice.command import Call

MAX_COMMAND: Final = 4096
"""Characters. The longest path of a registry has 200."""

# The quoting of mercurial.sshpeer._serverquote: the bare word, or single quotes around a text with
# each quote inside written '\''.
_SERVE: Final = re.compile(
    r"hg -R (?P<bare>[A-Za-z0-9@%_+=:,./-]+) serve --stdio"
    r"|hg -R '(?P<quoted>(?:[^'\0]|'\\'')*)' serve --stdio"
)
_INIT: Final = re.compile(r"hg init( .*)?", re.DOTALL)
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,31}")
_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_USAGE: Final = (
    "This account serves Mercurial repositories (hg clone, pull and push with "
    'ssh://hg@HOST/PATH); "ssh hg@HOST help" shows the other commands.'
)


@dataclass(frozen=True, slots=True)
class Serve:
    """Run `hg serve --stdio` on this repository."""

    repository: Repository


@dataclass(frozen=True, slots=True)
class Do:
    """Carry out a command of the self-service."""

    call: Call


@dataclass(frozen=True, slots=True)
class Refuse:
    """Print this sentence on stderr and end with an error; `reason` is for the log."""

    message: str
    reason: str
    exit_code: int = AccessDeniedError.exit_code


Decision = Serve | Do | Refuse


def decide(command: str | None, principal: Principal, registry: Registry) -> Decision:
    """Decide about SSH_ORIGINAL_COMMAND; None is a login without a command."""
    if command is None or not command.strip(" "):
        from hgfleet.selfservice import commands
        from hgfleet.selfservice.command import Call

        return Do(Call(commands.GREETING))
    if len(command) > MAX_COMMAND:
        return Refuse(
            f"That command has {len(command)} characters, more than the {MAX_COMMAND} that any "
            f"command of this service needs. {_USAGE}",
            "too-long",
        )
    match _SERVE.fullmatch(command):
        case re.Match() as match:
            path = match["bare"] or (match["quoted"] or "").replace("'\\''", "'")
            return _repository(path, principal, registry)
    if _INIT.fullmatch(command):
        return Refuse(
            'Repositories are not made with "hg init" here. "ssh hg@HOST repo create PATH" creates '
            'a repository; "ssh hg@HOST whoami" shows where you may.',
            "init",
        )
    from hgfleet.selfservice import commands
    from hgfleet.selfservice.command import understand

    try:
        call = understand(command, commands.COMMANDS)
    except UsageError as error:
        return Refuse(str(error), "usage", error.exit_code)
    if call is not None:
        return Do(call)
    return Refuse(f"'{_shown(command)}' is not a command of this service. {_USAGE}", "command")


def _repository(asked: str, principal: Principal, registry: Registry) -> Decision:
    path = asked.removeprefix("/").removesuffix("/")
    if path in ("", "."):
        return Refuse(
            "Which repository? The URL has no path after the host: ssh://hg@HOST/PATH. "
            '"ssh hg@HOST repo list" shows them.',
            "no-path",
        )
    repository = registry.repositories.get(path)
    if repository is not None and permissions.may_read(repository, principal):
        return Serve(repository)
    if new := permissions.renamed(registry, path, principal):
        from hgfleet.registry.dynamic.renames import sentence

        return Refuse(sentence(path, new), "renamed")
    # The same answer for both cases. The person may read all paths that are suggested.
    from hgfleet.ssh.session.likely_path import likely

    readable = (
        r.path for r in registry.repositories.values() if permissions.may_read(r, principal)
    )
    suggestion = likely(path, readable)
    hint = f"Did you mean {suggestion}?" if suggestion else 'See "ssh hg@HOST repo list".'
    if _is_of_before(principal, registry):
        hint += (
            " Your own repositories are not found over this connection, which does not tell who "
            "you are: it was opened before an update. Close it (ssh -O exit) and log in again."
        )
    return Refuse(
        f"There is no repository '{_shown(path)}' here for {principal.name}. {hint}",
        "no-repository",
    )


def _is_of_before(principal: Principal, registry: Registry) -> bool:
    """Whether a login without a person id hides the repositories of that name from their owner."""
    return not principal.person_id and any(
        r.owner == principal.name and r.owner_id for r in registry.repositories.values()
    )


def _shown(text: str) -> str:
    """Shorten a text of a client, and make it safe to print on a terminal."""
    short = text if len(text) <= 100 else f"{text[:100]}..."
    return "".join(c if " " <= c <= "~" else "?" for c in short)
