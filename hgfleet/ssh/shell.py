"""hgfleet-shell: the one thing that a key can run over SSH.

sshd starts it for every session (the forced command that `hgfleet-keys` wrote) and hands over what
the client asked for in SSH_ORIGINAL_COMMAND. That is either exactly what an hg client sends,

    hg -R PATH serve --stdio

for a repository that the person may read, or one of the commands of `hgfleet.selfservice`, or
nothing (a bare login). Everything else is refused with a sentence. `decide` makes the decision and
touches nothing; `main` carries it out. A session of hg imports nothing that only the commands need.

PATH is the path of the registry. `ssh://host/team/x` makes it `team/x` and `ssh://host//team/x`
makes it `/team/x`; people type a slash at the end too. One slash at each end is therefore taken
off, and what remains is looked up as it stands: nothing is expanded, resolved or joined before it
has been found. A repository that the person may not read is answered as one that does not exist.

Reading is decided here. Pushing is refused inside hg (`hgext/access.py`), where no other way to
write can go round it; for that the session carries HGFLEET_USER and HGFLEET_GROUPS.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from hgfleet.core import logfmt, names, paths
from hgfleet.core.errors import (
    AccessDeniedError,
    ConfigurationError,
    HgfleetError,
    RegistryError,
    TemporaryError,
    UsageError,
)
from hgfleet.core.principal import Principal
from hgfleet.registry import permissions, user_repositories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.registry.model import Registry, Repository
    from hgfleet.selfservice.argv import Call

REGISTRY: Final = "/var/lib/hgfleet/registry.json"
ROOT: Final = "/srv/hg/repos"
HGRC: Final = "/etc/hgfleet/hgrc"

MAX_COMMAND: Final = 4096
"""Characters. The longest path of a registry has 200."""

INTERNAL_ERROR: Final = 70
"""EX_SOFTWARE of sysexits(3)."""

# What mercurial.sshpeer._serverquote produces: the bare word, or single quotes around anything with
# each quote inside written '\''.
_SERVE: Final = re.compile(
    r"hg -R (?P<bare>[A-Za-z0-9@%_+=:,./-]+) serve --stdio"
    r"|hg -R '(?P<quoted>(?:[^'\0]|'\\'')*)' serve --stdio"
)
_INIT: Final = re.compile(r"hg init( .*)?", re.DOTALL)
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,31}")
_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


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


def decide(command: str | None, principal: Principal, known: Registry) -> Decision:
    """Decide about SSH_ORIGINAL_COMMAND; None is a login without a command."""
    if command is None or not command.strip(" "):
        from hgfleet.selfservice import argv, commands

        return Do(argv.Call(commands.GREETING))
    if len(command) > MAX_COMMAND:
        return Refuse(
            f"That command has {len(command)} characters, more than the {MAX_COMMAND} that any "
            f"command of this service needs. {_WHAT_WORKS}",
            "too-long",
        )
    match _SERVE.fullmatch(command):
        case re.Match() as found:
            path = found["bare"] or (found["quoted"] or "").replace("'\\''", "'")
            return _repository(path, principal, known)
    if _INIT.fullmatch(command):
        return Refuse(
            'Repositories are not made with "hg init" here. "ssh hg@HOST repo create PATH" makes '
            'one; "ssh hg@HOST whoami" says where you may.',
            "init",
        )
    from hgfleet.selfservice import argv, commands

    try:
        call = argv.understand(command, commands.COMMANDS)
    except UsageError as error:
        return Refuse(str(error), "usage", error.exit_code)
    if call is not None:
        return Do(call)
    return Refuse(f"'{_shown(command)}' is not a command of this service. {_WHAT_WORKS}", "command")


def _repository(asked: str, principal: Principal, known: Registry) -> Decision:
    path = asked.removeprefix("/").removesuffix("/")
    if path in ("", "."):
        return Refuse(
            "Which repository? The URL has no path after the host: ssh://hg@HOST/PATH. "
            '"ssh hg@HOST repo list" shows them.',
            "no-path",
        )
    repository = known.repositories.get(path)
    if repository is not None and permissions.may_read(repository, principal):
        return Serve(repository)
    # One answer for both cases. The likely names come from what the person may read anyway.
    import difflib

    readable = [r.path for r in known.repositories.values() if permissions.may_read(r, principal)]
    likely = difflib.get_close_matches(path[: names.MAX_PATH_LENGTH], readable, n=1)
    hint = f"Did you mean {likely[0]}?" if likely else 'See "ssh hg@HOST repo list".'
    return Refuse(
        f"There is no repository '{_shown(path)}' here for {principal.name}. {hint}",
        "no-repository",
    )


# --- words ----------------------------------------------------------------------------------

_WHAT_WORKS: Final = (
    "This account serves Mercurial repositories (hg clone, pull and push with "
    'ssh://hg@HOST/PATH); "ssh hg@HOST help" says what else it does.'
)


def _shown(text: str) -> str:
    """What a client sent, safe to print on a terminal."""
    short = text if len(text) <= 100 else f"{text[:100]}..."
    return "".join(c if " " <= c <= "~" else "?" for c in short)


# --- the session ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options:
    """The command line; the paths differ from their defaults in tests only."""

    principal: Principal
    registry: str = REGISTRY
    dynamic: str = paths.DYNAMIC
    root: str = ROOT
    hgrc: str = HGRC
    fingerprint: str = ""
    """Of the key that opened the session; none where a certificate did."""


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Read `--user U [--groups G,H] [--fingerprint F]`, and for tests the paths.

    By hand, because argparse would cost every session 10 ms. Raises ConfigurationError: whoever
    wrote a wrong command line, it was not the client.
    """
    if len(arguments) % 2:
        raise ConfigurationError("hgfleet-shell: an option has no value")
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    user = given.pop("--user", "")
    groups = [group for group in given.pop("--groups", "").split(",") if group]
    if not _NAME.fullmatch(user) or not all(_GROUP.fullmatch(group) for group in groups):
        raise ConfigurationError("hgfleet-shell: --user or --groups is not a name of the directory")
    options = Options(
        Principal(user, frozenset(groups)),
        given.pop("--registry", REGISTRY),
        given.pop("--dynamic", paths.DYNAMIC),
        given.pop("--root", ROOT),
        given.pop("--hgrc", HGRC),
        given.pop("--fingerprint", ""),
    )
    if options.fingerprint and not _FINGERPRINT.fullmatch(options.fingerprint):
        raise ConfigurationError("hgfleet-shell: --fingerprint is not one")
    if given:
        raise ConfigurationError(f"hgfleet-shell: unknown option {min(given)}")
    return options


def session_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return all that hg gets to see: nothing of it is the client's, but where it comes from."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "HGRCPATH": options.hgrc,
        "HGPLAIN": "1",
        "HGENCODING": "utf-8",
        "HGFLEET_USER": options.principal.name,
        "HGFLEET_GROUPS": ",".join(sorted(options.principal.groups)),
    }
    if "SSH_CONNECTION" in inherited:
        environment["SSH_CONNECTION"] = inherited["SSH_CONNECTION"]
    return environment


def serve(path: str) -> int:
    """Run `hg -R path serve --stdio` in this process; return its status."""
    # As hg's own script does; without it the start takes three times as long.
    importlib.import_module("hgdemandimport").enable()
    from mercurial import dispatch, main_script

    dispatch.initstdio()
    request = main_script.request([b"-R", os.fsencode(path), b"serve", b"--stdio"])
    return int(dispatch.dispatch(request)) & 255


def written() -> int | None:
    """Bytes that this process has written: to the client and, in a push, to the repository.

    A clone that comes from a bundle costs some kilobytes, any other what the repository weighs, so
    the log shows which ones the object store did not take over. None if the kernel does not count.
    """
    try:
        with open("/proc/self/io", "rb") as counters:  # noqa: PTH123  (pathlib is slow to import)
            for line in counters:
                if line.startswith(b"wchar:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def session(arguments: Sequence[str], environment: Mapping[str, str], log: logfmt.Log) -> int:
    """Decide, log and carry out one session; return its exit status."""
    start = time.monotonic()
    options = parse_arguments(arguments)
    name = options.principal.name
    client = environment.get("SSH_CONNECTION", "").partition(" ")[0] or None
    command = environment.get("SSH_ORIGINAL_COMMAND")
    known = user_repositories.load_effective(
        options.registry,
        options.dynamic,
        lambda problem: log(logfmt.line("session-registry", user=name, detail=problem)),
    )
    decision = decide(command, options.principal, known)
    match decision:
        case Do(call):
            return _carry_out(call, options, client, log)
        case Serve(repository):
            path = f"{options.root}/{repository.path}"
            if os.path.isdir(f"{path}/.hg"):  # noqa: PTH112  (pathlib is slow to import)
                fields: dict[str, object] = {
                    "user": name,
                    "repo": repository.path,
                    "client": client,
                }
                log(logfmt.line("session", decision="serve", **fields))
                os.umask(0o027)
                os.chdir("/")
                kept = session_environment(options, environment)
                os.environ.clear()
                os.environ.update(kept)
                status = serve(path)
                seconds = time.monotonic() - start
                fields["bytes"] = written()
                log(logfmt.line("session-end", **fields, status=status, seconds=seconds))
                return status
            decision = Refuse(
                f"The repository {repository.path} is registered, but this host does not have it "
                "yet. The operators can see this in their log.",
                "not-on-this-host",
                RegistryError.exit_code,
            )
    log(
        logfmt.line(
            "session",
            decision="refuse",
            reason=decision.reason,
            user=name,
            client=client,
            command=command,
        )
    )
    _tell(f"{decision.message}\n", sys.stderr)
    return decision.exit_code


def _carry_out(call: Call, options: Options, client: str | None, log: logfmt.Log) -> int:
    """Run a command of the self-service, log it, and print its answer or refusal."""
    from hgfleet.selfservice.context import Context

    start = time.monotonic()
    os.umask(0o027)
    context = Context(
        options.principal,
        options.registry,
        options.dynamic,
        options.root,
        options.hgrc,
        options.fingerprint,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    fields: dict[str, object] = {
        "reason": call.command.name or "login",
        "user": options.principal.name,
        "client": client,
        "arguments": " ".join(call.arguments) or None,
    }
    answer, refusal = "", None
    try:
        answer = call.command.run(context, call)
    except (UsageError, AccessDeniedError, TemporaryError) as error:
        refusal = error
    except BrokenPipeError:
        # The client has gone while it waited, and what it asked for was given up.
        refusal = TemporaryError("nobody waits for it any more")
    log(
        logfmt.line(
            "session",
            decision="answer" if refusal is None else "refuse",
            **fields,
            detail=refusal,
            seconds=time.monotonic() - start,
        )
    )
    if refusal is not None:
        _tell(f"{refusal}\n", sys.stderr)
        return refusal.exit_code
    _tell(answer, sys.stdout)
    return 0


def _tell(text: str, stream: TextIO) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        # The client is gone. Python would try again at exit, and complain on a stderr nobody reads.
        with contextlib.suppress(OSError):
            stream.close()


def main() -> int:
    """Run as the forced command of an SSH session."""
    log = logfmt.to_syslog("hgfleet-shell")
    user = " ".join(sys.argv[1:])
    try:
        return session(sys.argv[1:], dict(os.environ), log)
    except HgfleetError as error:
        log(logfmt.line("session", decision="fail", arguments=user, detail=error))
        _tell(
            "This service is not in order at the moment, and nothing was changed. "
            "The operators can see why in their log; please try again later.\n",
            sys.stderr,
        )
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        import traceback

        detail = "".join(traceback.format_exception(error))[-logfmt.MAX_VALUE :]
        log(logfmt.line("session", decision="crash", arguments=user, detail=detail))
        _tell(
            "Something in this service broke while it worked on your command; what was not "
            "confirmed did not happen. The operators can see it in their log.\n",
            sys.stderr,
        )
        return INTERNAL_ERROR
