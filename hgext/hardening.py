"""fetch nothing for a client, accept and answer only listed things, and reveal no internals.

This extension runs in the hg that serves a repository. It removes these things, which core offers
to every client:

* Parts of bundle2 that are not listed in ``hgfleet.hg.bundle_parts``, for the direction that they
 come from. Core has a single table for all directions. So a push could bring raw files of a store
 (``stream2``), which core writes outside of the transaction, or the server's cache of tags
 (``hgtagsfnodes``); and ``remote-changegroup`` made the server fetch a URL. Likewise parameters of
 parts, namespaces of ``pushkey``, variables of ``--pushvars``, and arguments of ``getbundle``.

* A push that is compressed, or that is not a bundle2. The limits of a push count the bytes that are
  sent, and no hg compresses a push.

* A push that core cannot decode. Its exception would end the session as a defect of this service.

* Wire commands that are not listed in ``hgfleet.hg.wire_commands`` do not exist. The web part
  reads the same list, so SSH and HTTPS answer the same commands. Of these, ``between`` answers the
  handshake of a client and nothing else.

* When a request breaks the server, core reports on stderr, which is the client's terminal, its
 version, its extensions, and where to report the defect. The client of ``hgfleet-shell`` gets a
 sentence instead, and the log of the host gets the exception.

==============================  ==============================================================
part                            answer
==============================  ==============================================================
listed for its direction        taken
of a push, and in core's table  refused with a sentence before its data is read, mandatory or
                                not; a line in the log (``event=push-part``), counted as
                                ``parts``
of a push, malformed            the same, after its data is read, counted as ``invalid``
of a file or an answer          skipped if it is advisory, else refused
raw files of a store            accepted only from files and answers, into repositories without
                                a push log (a trial of a bundle)
unknown to core                 core's way: skipped if it is advisory, else refused
==============================  ==============================================================

Enable it for everything that runs on the server::

  [extensions]
  hardening = /opt/hgfleet/current/hgext/hardening.py
"""

from __future__ import annotations

import contextlib
import syslog
from typing import TYPE_CHECKING, Any, NoReturn

from mercurial import (
    bundle2,
    changegroup,
    dispatch,
    encoding,
    exchange,
    extensions,
    pushkey,
    wireprototypes,
    wireprotov1server,
)
from mercurial.exchanges import bundle_caps

from hgfleet.core import logfmt
from hgfleet.hg import bundle_parts, malformed_parts, wire_arguments, wire_commands
from hgfleet.hg.bundle_parts import Answer, Direction
from hgfleet.hg.hooks import WriteRefusedError, refuse, text, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

testedwith = b"7.2"
minimumhgversion = b"7.2"


class _State:
    """Whether this process applies a push of a client at the moment, and its last part so far."""

    pushing = False
    part: str | None = None


_state = _State()


def uisetup(_ui: Any) -> None:
    """Remove things for which core 7.2 has no setting."""
    for name in wire_arguments.NOT_OFFERED:
        bundle2.capabilities.pop(name.encode(), None)
    bundle2.parthandlermapping.pop(b"remote-changegroup", None)
    extensions.wrapfunction(bundle_caps, "get_repo_caps", offered)
    extensions.wrapfunction(bundle2, "_gethandler", handler_of)
    extensions.wrapfunction(bundle2, "processbundle", processed)
    extensions.wrapfunction(exchange, "unbundle", unbundle)
    extensions.wrapfunction(pushkey, "push", push_key)
    extensions.wrapfunction(pushkey, "list", list_keys)
    extensions.wrapfunction(dispatch, "handlecommandexception", quietly)


def extsetup(_ui: Any) -> None:
    """Close every wire command and argument that is not listed; core 7.2 has no setting for it."""
    commands = wireprotov1server.commands
    for name in set(commands) - {command.encode() for command in wire_commands.OPEN}:
        del commands[name]
    commands[b"between"].func = handshake_only(commands[b"between"].func)
    arguments = wireprototypes.GETBUNDLE_ARGUMENTS
    for name in set(arguments) - {argument.encode() for argument in wire_arguments.GETBUNDLE}:
        del arguments[name]


def handshake_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answer `between` only for the pair of a client's handshake."""

    def between(repo: Any, proto: Any, pairs: bytes) -> Any:
        if pairs != wire_commands.HANDSHAKE_PAIRS:
            return wireprototypes.ooberror(b"this server compares histories with bundle2 only")
        return original(repo, proto, pairs)

    return between


def quietly(_original: Callable[[Any], bool], _ui: Any) -> bool:
    """Print nothing; with False, the exception goes on to the program that runs hg."""
    return False


def offered(original: Any, repo: Any, *arguments: Any, **named: Any) -> Any:
    """Return the listed capabilities of bundle2; a client in this process announces all."""
    capabilities = original(repo, *arguments, **named)
    if named.get("role") == b"server":
        listed = {name.encode() for name in wire_arguments.OFFERED}
        capabilities = {name: values for name, values in capabilities.items() if name in listed}
        versions = {version.encode() for version in bundle_parts.VERSIONS}
        capabilities[b"changegroup"] = tuple(
            version for version in capabilities[b"changegroup"] if version in versions
        )
    return capabilities


def unbundle(original: Any, repo: Any, bundle: Any, *arguments: Any) -> Any:
    """Apply a push: a plain bundle2 with listed parts."""
    with _of_a_push():
        if isinstance(bundle, bundle2.unbundle20):
            with _decoded(repo):
                compressed = bundle.compressed()
            if compressed:
                _refuse_part(
                    repo,
                    "a push may not be compressed: its limits count the bytes that are sent; "
                    "nothing was changed, use an unchanged hg push",
                )
            result = original(repo, bundle, *arguments)
            # Core answers with this number if a client asks for no reply, and fails without it.
            return 1 if result is None else result
        if not isinstance(bundle, changegroup.cg1unpacker):
            _refuse_part(
                repo,
                "a push may not be a bundle of raw files of a store: it would bypass policies, "
                "quota and push log; nothing was changed, use an unchanged hg push",
            )
        return original(repo, bundle, *arguments)


@contextlib.contextmanager
def _of_a_push() -> Iterator[None]:
    before = _state.pushing
    _state.pushing = True
    try:
        yield
    finally:
        _state.pushing = before
        _state.part = None


def processed(original: Any, repo: Any, *arguments: Any, **named: Any) -> Any:
    """Apply the parts of a bundle; refuse a push if core cannot decode a part."""
    with _decoded(repo):
        return original(repo, *arguments, **named)


@contextlib.contextmanager
def _decoded(repo: Any) -> Iterator[None]:
    try:
        yield
    except (malformed_parts.UNKNOWN, *malformed_parts.SENTENCES) as problem:
        malformed_parts.fit(problem)
        # The parameters of the bundle are read here, before core begins to apply it.
        problem.duringunbundle2 = True
        raise
    except (*malformed_parts.ERRORS, malformed_parts.STORAGE) as problem:
        if not _state.pushing or not _is_of_client(repo, problem):
            raise
        sentence = malformed_parts.sentence(_state.part, problem)
        _refuse_part(repo, sentence, reason="invalid", cause=malformed_parts.place(problem))


def _is_of_client(repo: Any, problem: BaseException) -> bool:
    if isinstance(problem, malformed_parts.ERRORS):
        return True
    transaction = repo.currenttransaction()
    return transaction is not None and malformed_parts.is_of_push(
        problem, transaction.changes[b"origrepolen"]
    )


def handler_of(original: Any, op: Any, part: Any) -> Any:
    """Return core's handler of a part, None to skip the part; refuse a part in its place."""
    if isinstance(op, bundle2.interruptoperation):
        direction, repo = Direction.INTERRUPTION, None
    else:
        from hgfleet.pushlog import shared

        repo = op.repo
        # The first transaction of a push completes a removal that was killed, from core's bundle.
        is_own = shared.of(repo).strips
        direction = Direction.PUSH if _state.pushing and not is_own else Direction.TAKEN
    name = text(part.type)
    _state.part = bundle_parts.name(name)
    handler = bundle2.parthandlermapping.get(part.type)
    answer = bundle_parts.answer(
        direction,
        name,
        mandatory=part.mandatory,
        known=handler is not None,
        logged=repo is not None and bool(repo.ui.config(b"hgfleet", b"path")),
    )
    if answer is Answer.SKIP:
        return None
    sentence: str | None = None
    if answer is Answer.REFUSE:
        sentence = bundle_parts.refusal(direction, name)
    elif direction is Direction.PUSH and handler is not None:
        sentence = _parameters(repo, name, part, handler.params)
    if sentence is not None:
        _refuse_part(repo or op, sentence)
    return original(op, part)


def _parameters(repo: Any, name: str, part: Any, known: Any) -> str | None:
    """Return why the parameters of a push's part are refused; drop variables that nothing reads."""
    if name == "pushvars":
        part.advisoryparams = tuple(_variables(repo.ui, part.advisoryparams))
        return None
    given = {text(key) for key in part.params}
    sentence = bundle_parts.parameters_refusal(name, given, {text(key) for key in known})
    if sentence is None and name == "changegroup":
        versions = changegroup.supportedincomingversions(repo)
        sentence = bundle_parts.version_refusal(
            text(part.params.get(b"version", b"01")), {text(version) for version in versions}
        )
    return sentence


def _variables(ui: Any, parameters: Any) -> Iterator[tuple[bytes, bytes]]:
    listed = {name.encode() for name in wire_arguments.VARIABLES}
    for name, value in parameters:
        if name.upper() in listed:
            yield name, value
        else:
            known = ", ".join(sorted(wire_arguments.VARIABLES))
            told = f"the variable {bundle_parts.name(text(name))} of --pushvars is not known here"
            ui.warn(encoding.strtolocal(f"{told}, expected {known}\n"))


def push_key(original: Any, repo: Any, namespace: bytes, *arguments: Any) -> Any:
    """Change a key in a listed namespace."""
    if text(namespace) not in wire_arguments.PUSHED_NAMESPACES | wire_arguments.READ_NAMESPACES:
        known = ", ".join(sorted(wire_arguments.PUSHED_NAMESPACES))
        _refuse_part(
            repo,
            f"keys of the namespace '{bundle_parts.name(text(namespace))}' cannot be pushed here, "
            f"expected {known}; nothing was changed",
        )
    return original(repo, namespace, *arguments)


def list_keys(original: Any, repo: Any, namespace: bytes) -> Any:
    """Return the keys of a listed namespace; as in core, an unknown namespace has none."""
    if text(namespace) not in wire_arguments.READ_NAMESPACES:
        return {}
    return original(repo, namespace)


def _refuse_part(
    repo: Any, sentence: str, *, reason: str = "parts", cause: str | None = None
) -> NoReturn:
    """Refuse a part of a bundle, and log it with the cause; `repo` is anything with a ui."""
    ui = repo.ui
    if _state.pushing:
        line = logfmt.line(
            "push-part",
            user=writer().name or None,
            repository=text(ui.config(b"hgfleet", b"path") or b"") or None,
            decision="refuse",
            reason=reason,
            detail=f"{sentence} ({cause})" if cause else sentence,
        )
        ui.log(b"hardening", b"%s\n", encoding.strtolocal(line))
        # The session's own name and connection to the log: hgfleet-shell opened it.
        syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_INFO, line)
    try:
        refuse(ui, sentence, reason=reason)
    except WriteRefusedError as refusal:
        # The form that clients with bundle2 understand; all have it (server.bundle1 is off).
        refusal.duringunbundle2 = True
        raise
