"""hgfleet-shell: the forced command of every key, and so the only program that a key can run.

sshd starts it for every session, with the options that `hgfleet-keys` wrote and with the client's
command in SSH_ORIGINAL_COMMAND. `original_command` decides about that command and touches nothing;
`main` logs the decision and carries it out. A session of hg imports no module of the self-service.

Reading is decided here. Pushing is refused inside hg (`hgext/access.py`), through which every write
goes; for that the session carries HGFLEET_USER, HGFLEET_PERSON_ID and HGFLEET_GROUPS.
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

from hgfleet.core import logfmt, names, trace
from hgfleet.core.errors import (
    AccessDeniedError,
    ConfigurationError,
    HgfleetError,
    TemporaryError,
    UsageError,
)
from hgfleet.core.paths import COMPILED, COUNTERS, DYNAMIC, HGRC, REPOSITORIES
from hgfleet.core.principal import Principal
from hgfleet.hg import opened_identity
from hgfleet.hg.sessions import session_start
from hgfleet.hg.sessions.session_outcome import outcome
from hgfleet.registry.dynamic import user_repositories
from hgfleet.ssh.session import place, session_counts
from hgfleet.ssh.session.original_command import Do, Serve, decide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.registry.model.registry import Repository
    from hgfleet.selfservice.command import Call

INTERNAL_ERROR: Final = 70
"""EX_SOFTWARE of sysexits(3)."""

PROGRAM: Final = "/opt/hgfleet/current/bin/hgfleet-shell"

_FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_CERTIFICATE: Final = re.compile(r"[A-Za-z0-9._@:+=/-]{1,128}")
_LOGIN: Final = re.compile(r"[0-9]{0,12}")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line; the paths differ from their defaults in tests only."""

    principal: Principal
    registry: str = COMPILED
    dynamic: str = DYNAMIC
    root: str = REPOSITORIES
    hgrc: str = HGRC
    counters: str = COUNTERS
    fingerprint: str = ""
    """Fingerprint of the key that opened the session; empty where a certificate did."""
    certificate: str = ""
    """The id of the certificate that opened the session, if the command line can hold it."""
    login: str = ""
    """Time of the login in seconds since 1970: a connection may open sessions hours after it."""

    @property
    def key(self) -> str:
        """The key or certificate of the login, for the push log and the watch of the person."""
        if self.certificate:
            return f"certificate:{self.certificate}"
        return self.fingerprint


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Read `--user U [--person-id UUID] [--groups G,H] [--login TIME]` and the credential.

    The credential is `--fingerprint F` or `--certificate ID`. Tests give paths, too.
    By hand, because argparse would cost every session 10 ms. Raises ConfigurationError: the command
    line comes from this host, never from the client.
    """
    if len(arguments) % 2:
        raise ConfigurationError("hgfleet-shell: an option has no value")
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    user = given.pop("--user", "")
    person_id = given.pop("--person-id", "")
    groups = [group for group in given.pop("--groups", "").split(",") if group]
    if not names.is_person(user) or not all(map(names.is_group, groups)):
        raise ConfigurationError("hgfleet-shell: --user or --groups is not a name of the directory")
    if person_id and not names.is_person_id(person_id):
        raise ConfigurationError("hgfleet-shell: --person-id is not an entryUUID")
    options = Options(
        Principal(user, frozenset(groups), person_id),
        given.pop("--registry", COMPILED),
        given.pop("--dynamic", DYNAMIC),
        given.pop("--root", REPOSITORIES),
        given.pop("--hgrc", HGRC),
        given.pop("--counters", COUNTERS),
        given.pop("--fingerprint", ""),
        given.pop("--certificate", ""),
        given.pop("--login", ""),
    )
    if options.fingerprint and not _FINGERPRINT.fullmatch(options.fingerprint):
        raise ConfigurationError("hgfleet-shell: --fingerprint is not a fingerprint")
    if options.certificate and not _CERTIFICATE.fullmatch(options.certificate):
        raise ConfigurationError("hgfleet-shell: --certificate is not the id of a certificate")
    if not _LOGIN.fullmatch(options.login):
        raise ConfigurationError("hgfleet-shell: --login is not a time")
    if given:
        raise ConfigurationError(f"hgfleet-shell: unknown option {min(given)}")
    return options


def session_environment(
    options: Options, inherited: Mapping[str, str], repository: str = ""
) -> dict[str, str]:
    """Return the environment of hg; only the client's address in it comes from the client.

    `repository` is the identity of the repository that the session may use.
    """
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
    if options.principal.person_id:
        environment["HGFLEET_PERSON_ID"] = options.principal.person_id
    if options.key:
        environment["HGFLEET_KEY"] = options.key
    if options.login:
        environment["HGFLEET_LOGIN"] = options.login
    if repository:
        environment[opened_identity.VARIABLE] = repository
    if number := trace.current():
        environment[trace.VARIABLE] = number
    if "SSH_CONNECTION" in inherited:
        environment["SSH_CONNECTION"] = inherited["SSH_CONNECTION"]
    return environment


def _client(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return address and port of the client; sshd names both in its own lines of the log."""
    address, _, rest = environment.get("SSH_CONNECTION", "").partition(" ")
    return address or None, rest.partition(" ")[0] or None


def serve(path: str) -> int:
    """Run `hg -R path serve --stdio` in this process; return its status."""
    # hg's own script does the same; without it the start takes three times as long.
    importlib.import_module("hgdemandimport").enable()
    from mercurial import dispatch, main_script

    dispatch.initstdio()
    request = main_script.request([b"-R", os.fsencode(path), b"serve", b"--stdio"])
    return int(dispatch.dispatch(request)) & 255


def written() -> int | None:
    """Bytes that this process has written: to the client and, in a push, to the repository.

    A clone from a bundle costs some kilobytes. Any other clone costs the size of the repository, so
    the log shows which clones the object store did not serve. None if the kernel does not count.
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
    """Decide, log and carry out a session; return its exit status."""
    start = time.monotonic()
    options = parse_arguments(arguments)
    name = options.principal.name
    client, port = _client(environment)
    command = environment.get("SSH_ORIGINAL_COMMAND")
    registry = user_repositories.load_effective(
        options.registry,
        options.dynamic,
        lambda problem: log(logfmt.line("session-registry", user=name, detail=problem)),
    )
    decision = decide(command, options.principal, registry)
    match decision:
        case Do(call):
            return _carry_out(call, options, (client, port), log)
        case Serve(repository):
            path = f"{options.root}/{repository.path}"
            if repository.owner and not os.path.lexists(path):
                _finish_rename(repository.path, options)
            refused = place.refusal(path, repository)
            if refused is None:
                return _serve(start, repository, options, environment, log)
            decision = refused
    log(
        logfmt.line(
            "session",
            decision="refuse",
            reason=decision.reason,
            user=name,
            client=client,
            port=port,
            command=command,
        )
    )
    _count(options.counters, log, "refuse", session_counts.NONE, reason=decision.reason)
    _write(_addressed(f"{decision.message}\n", options.hgrc), sys.stderr)
    return decision.exit_code


def _serve(
    start: float,
    repository: Repository,
    options: Options,
    environment: Mapping[str, str],
    log: logfmt.Log,
) -> int:
    """Run a session of hg that began at `start`, and log and count it."""
    client, port = _client(environment)
    fields: dict[str, object] = {
        "user": options.principal.name,
        "repository": repository.path,
        "client": client,
    }
    log(logfmt.line("session", decision="serve", **fields, port=port))
    os.umask(0o027)
    os.chdir("/")
    kept = session_environment(options, environment, repository.identity)
    os.environ.clear()
    os.environ.update(kept)
    status = serve(f"{options.root}/{repository.path}")
    seconds = time.monotonic() - start
    fields["bytes"] = written()
    fields["reason"], fields["detail"] = outcome.reason, outcome.detail
    log(logfmt.line("session-end", **fields, status=status, seconds=seconds))
    _count(options.counters, log, "serve", session_counts.HG, seconds)
    return status


def _count(
    folder: str,
    log: logfmt.Log,
    decision: str,
    command: str,
    seconds: float = 0.0,
    *,
    reason: str = "",
) -> None:
    problem = session_counts.add(folder, decision, command, seconds, reason)
    if problem is not None:
        log(logfmt.line("not-counted", detail=problem))


def _finish_rename(path: str, options: Options) -> None:
    """Finish a rename that was killed before the folder was at this path."""
    from hgfleet.selfservice import change_refusals, renaming
    from hgfleet.selfservice.context import Context

    context = Context(
        options.principal, options.registry, options.dynamic, options.root, options.hgrc
    )
    # While another session finishes it, the repository is not on this host yet. On a mirror, the
    # applier finishes the rename.
    with contextlib.suppress(TemporaryError):
        change_refusals.check(context.configuration)
        renaming.finish(context, path)


def _addressed(text: str, hgrc: str) -> str:
    """Name the address of the service, where this host knows it, in a message to a person."""
    from hgfleet.selfservice import service_address

    try:
        with open(hgrc, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            return service_address.addressed(text, service_address.configured(file.read()))
    except (OSError, UnicodeDecodeError):
        return text


def _carry_out(
    call: Call, options: Options, client: tuple[str | None, str | None], log: logfmt.Log
) -> int:
    """Run a command of the self-service, log it, and print its answer or refusal."""
    from hgfleet.selfservice import change_refusals, login_check, mirrors, session_slot
    from hgfleet.selfservice.context import Context

    start = time.monotonic()
    session_start.done()
    os.umask(0o027)
    context = Context(
        options.principal,
        options.registry,
        options.dynamic,
        options.root,
        options.hgrc,
        options.fingerprint,
        progress=logfmt.to_journal,
    )
    fields: dict[str, object] = {
        "reason": call.command.name or "login",
        "user": options.principal.name,
        "client": client[0],
        "port": client[1],
        "arguments": " ".join(call.arguments) or None,
    }
    answer, refusal = "", None
    try:
        session_slot.take(
            context, lambda problem: log(logfmt.line("session-uncounted", detail=problem))
        )
        login_check.check(context, options.login)
        if call.command.document:
            change_refusals.check(context.configuration)
        answer = call.command.run(context, call)
    except (UsageError, AccessDeniedError, TemporaryError) as error:
        refusal = error
    except BrokenPipeError:
        # The client disconnected while it waited, and its command was given up.
        refusal = TemporaryError("client disconnected")
    decision = "answer" if refusal is None else "refuse"
    seconds = time.monotonic() - start
    log(logfmt.line("session", decision=decision, **fields, detail=refusal, seconds=seconds))
    _count(options.counters, log, decision, call.command.name or "login", seconds)
    if refusal is not None:
        _write(_addressed(f"{refusal}\n", options.hgrc), sys.stderr)
        return refusal.exit_code
    _write(_addressed(answer, options.hgrc), sys.stdout)
    # After the answer: a client that does not wait must not lose the secret of its new token.
    _write(mirrors.sentence(context, call.command), sys.stderr)
    return 0


def _write(text: str, stream: TextIO) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        # The client disconnected. Python would try again at exit, and complain on its stderr.
        with contextlib.suppress(OSError):
            stream.close()


def main() -> int:
    """Run as the forced command of an SSH session."""
    log = logfmt.to_syslog("hgfleet-shell")
    user = " ".join(sys.argv[1:])
    session_start.begin()
    if session_start.is_of_another_release():
        # The release changed between the start of this program and here.
        os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])  # noqa: S606  (our own program)
    trace.begin(trace.new())
    try:
        return session(sys.argv[1:], dict(os.environ), log)
    except HgfleetError as error:
        log(logfmt.line("session", decision="fail", arguments=user, detail=error))
        _count(COUNTERS, log, "fail", session_counts.NONE)
        _write(
            "This service is not in order at the moment, and nothing was changed. "
            f"The operators find the reason in their log as {trace.current()}; please try again "
            "later.\n",
            sys.stderr,
        )
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        import traceback

        detail = "".join(traceback.format_exception(error))[-logfmt.MAX_VALUE :]
        log(logfmt.line("session", decision="crash", arguments=user, detail=detail))
        _count(COUNTERS, log, "crash", session_counts.NONE)
        _write(
            "Something went wrong in this service while it worked on your command. Changes "
            "that you have not seen confirmed were not made. The operators find the details "
            f"in their log as {trace.current()}.\n",
            sys.stderr,
        )
        return INTERNAL_ERROR
