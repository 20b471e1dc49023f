"""refuse changesets that a repository's policies and rules do not allow.

This extension runs in the hg that serves a repository and checks every transaction just before
it would become permanent. At that moment all changes are visible (changesets, phases, bookmarks,
markers), from every source: a push over SSH, old pushkey requests, a bundle that is unbundled, a
commit on the server. If there is a problem, the transaction is rolled back and the client reads
every problem with its way out.

The policies of a repository are in its hgrc, written from the registry by
``hgfleet registry apply``, each value a line of JSON::

  [hgfleet]
  # the path of the repository in the registry, for messages
  path = team/tool
  # the options of each policy, by its name
  policies = {"no-symlinks": {}, "file-size": {"max": 10485760}}
  # who may push to some branches and paths
  rules = [{"branches": ["stable"], "push": ["release"]}]

The policies and their options are in the handbook of the operators; the decisions are in the
package ``hgfleet.policies``, where each policy is a class.

==============================  ==============================================================
state                           answer
==============================  ==============================================================
no policies and no rules        malformed names are refused (see below), the rest is stored
no problem                      stored
problems                        refused; the first 10 problems are named, the others counted
``operator:NAME``               stored without a check, logged (NAME as in the extension access)
a policy this hg does not know  refused, because it cannot be checked
a check that breaks             refused, and the operators have the traceback in their log
a check without enough memory   refused with the way out: fewer changesets or smaller files
==============================  ==============================================================

Names of bookmarks, branches, tags and files are checked in every repository, without an option:
control characters, blanks at an end, bytes that are not UTF-8, paths that leave the working copy or
enter ``.hg``. See ``hgfleet.policies.names``. So are the user, the date and the extra field of each
changeset (``hgfleet.policies.metadata``), before all else, and that a clone can be made from its
list and revisions of files (``hgfleet.policies.file_lists``), and user and date of each
obsolescence marker. This admits a history with other dates::

  [hgfleet]
  accept-dates = any

The policies check the changesets that the transaction adds, including secret and obsolete
changesets: a client can pull them by their hash later. Closed trees and rules also check bookmarks,
and changesets that change their phase, become obsolete, or are shown or hidden. Rules compare the
changesets that names of branches and tags give before and after.

Each answer is a line in the system log (``event=policy``), with the seconds each policy took,
and has the event ``hgfleet_policy`` (see :hg:`help -e blackbox`).

A person whom a closed tree excepts pushes with ``hg push --pushvars CLOSED_TREE=yes``; the server
accepts that because of ``[push] pushvars.server = yes``.

Enable it for everything that runs on the server::

  [extensions]
  policies = /opt/hgfleet/current/hgext/policies.py
"""

from __future__ import annotations

import json
import syslog
import time
import traceback
from typing import TYPE_CHECKING, Any

from mercurial import changegroup, changelog, encoding, extensions, registrar
from mercurial.node import hex as to_hex

from hgfleet.core import logfmt
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.policies.base import Policy

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"policies", default=b"")
configitem(b"hgfleet", b"rules", default=b"")
configitem(b"hgfleet", b"accept-dates", default=b"")


class _UnreadableError(Exception):
    """A changeset that arrives cannot be read; its arguments are the node and the text."""


def uisetup(_ui: Any) -> None:
    """Check changesets while they arrive: core 7.2 reads each at once, and has no hook there."""
    extensions.wrapfunction(changelog.changelog, "addgroup", _each_readable)
    extensions.wrapfunction(changegroup.cg1unpacker, "apply", _or_refused)


def _each_readable(
    original: Callable[..., Any],
    log: Any,
    *args: Any,
    addrevisioncb: Callable[[Any, int], None],
    **kwargs: Any,
) -> Any:
    from hgfleet.policies.metadata import is_readable

    def added(store: Any, rev: int) -> None:
        stored = bytes(store.revision(rev))
        if not is_readable(stored):
            raise _UnreadableError(store.node(rev), stored)
        addrevisioncb(store, rev)

    return original(log, *args, addrevisioncb=added, **kwargs)


def _or_refused(
    original: Callable[..., Any], unpacker: Any, repo: Any, *args: Any, **kw: Any
) -> Any:
    from hgfleet.policies import evaluate
    from hgfleet.policies.metadata import Metadata, problems

    try:
        return original(unpacker, repo, *args, **kw)
    except _UnreadableError as error:
        node, stored = error.args
        texts = tuple(
            f"{to_hex(node)[:12].decode()} has {p}" for p in problems(stored, any_date=True)
        )
        user = writer().name or "this user"
        path = text(repo.ui.config(b"hgfleet", b"path") or b"") or "this repository"
        refused = evaluate.refusal([evaluate.Finding(Metadata.name, texts, 0)], user, path)
        assert refused, "an unreadable changeset has a problem"
        fields = {"user": user, "repository": path, "decision": "refuse"}
        _log(repo.ui, {**fields, "problems": len(texts), "detail": "; ".join(refused[1])})
        refuse(repo.ui, *refused, reason="policies")


def reposetup(_ui: Any, repo: Any) -> None:
    """Put the check at the end of every transaction of a repository on this host's disk."""
    if repo.local():
        # The overlay wins over every hgrc, so no configuration file can take the hook out.
        repo.ui.setconfig(b"hooks", b"pretxnopen.policies", begin, b"policies")
        repo.ui.setconfig(b"hooks", b"pretxnclose.policies", check, b"policies")


def begin(ui: Any, repo: Any, **_kwargs: object) -> None:
    """Record what is served, and heads and tags for policies that compare them (a hook).

    At the end of the transaction they could be found only by reading the history.
    """
    from hgfleet.policies import before
    from hgfleet.pushlog import shared

    # A damaged value is left to `check`, which refuses it with a sentence.
    rules = ui.config(b"hgfleet", b"rules") or b""
    policies = ui.config(b"hgfleet", b"policies") or b""
    # An operator's write is not compared; a mirror applies every push as an operator's write.
    compares = not OPERATOR.fullmatch(writer().name)
    repo.unfiltered().hgfleet_before = before.noted(
        repo,
        heads=compares and (b'"single-head"' in policies or bool(rules)),
        tags=compares and bool(rules),
    )
    # The verdicts are for the record of the push log.
    shared.of(repo).verdicts = {}


def check(ui: Any, repo: Any, **_kwargs: object) -> None:
    """Refuse the transaction if a policy or rule finds a problem (a hook)."""
    configured = bool(ui.config(b"hgfleet", b"policies") or ui.config(b"hgfleet", b"rules"))
    transaction = repo.currenttransaction()
    if not configured and not _brings_names(repo, transaction):
        return
    start = time.perf_counter()
    # Imported here: every session loads this extension, and few of them push.
    from hgfleet.policies import evaluate
    from hgfleet.policies.file_lists import FileLists
    from hgfleet.policies.metadata import Metadata
    from hgfleet.policies.names import Names
    from hgfleet.policies.push_facts import RepositoryPush
    from hgfleet.pushlog import shared

    principal = writer()
    path = text(ui.config(b"hgfleet", b"path") or b"") or "this repository"
    fields: dict[str, object] = {"user": principal.name or None, "repository": path}
    refused: tuple[str, Sequence[str]] | None = None
    reason = "policies"
    try:
        if OPERATOR.fullmatch(principal.name):
            fields["decision"] = "bypass"
            verdicts = _bypassed(ui)
        else:
            before = repo.unfiltered().hgfleet_before
            push = RepositoryPush(repo, transaction, principal, before)
            metadata = Metadata(any_date=ui.config(b"hgfleet", b"accept-dates") == b"any")
            findings = [evaluate.finding(metadata, push)]
            if not findings[0].problems:
                # These read the fields of changesets, and can now.
                always = (Names({}), FileLists({}))
                findings += evaluate.evaluate([*_policies(ui), *always], push)
            refused = evaluate.refusal(findings, principal.name, path)
            verdicts = evaluate.verdicts(findings, push.variables)
            fields["decision"] = "refuse" if refused else "allow"
            fields["changesets"] = len(push.added)
            fields["problems"] = sum(len(finding.problems) for finding in findings)
            fields["policies"] = ",".join(f"{f.policy}:{f.seconds:.3f}" for f in findings)
            fields["detail"] = "; ".join(refused[1]) or refused[0] if refused else None
        shared.of(repo).verdicts = verdicts
    except Exception as error:
        # An error must neither let a change through nor show a traceback to a client.
        fields["decision"] = "fail"
        fields["detail"] = "".join(traceback.format_exception(error))[-logfmt.MAX_VALUE :]
        reason, why = _failure(error)
        refused = (f"{principal.name} may not push this to {path}: {why}", ())
    fields["seconds"] = time.perf_counter() - start
    if configured or refused:
        _log(ui, fields)
    if refused:
        refuse(ui, *refused, reason=reason)


def _failure(error: Exception) -> tuple[str, str]:
    """Return the reason of a check that failed, for metrics, and the clause for the pusher."""
    if isinstance(error, MemoryError):
        return "memory", (
            "its policies need more memory than a session may take, and nothing was changed; push "
            "fewer changesets at a time (--rev), or smaller files"
        )
    return "policies-failed", (
        "its policies could not be checked, and nothing was changed; the operators can see why in "
        "their log"
    )


def _brings_names(repo: Any, transaction: Any) -> bool:
    changes = transaction.changes
    moves = changes[b"bookmarks"] or changes[b"phases"] or changes[b"obsmarkers"]
    return bool(moves) or changes[b"origrepolen"] < len(repo.unfiltered())


def _policies(ui: Any) -> list[Policy]:
    from hgfleet.policies import evaluate
    from hgfleet.policies.rule import Rule

    policies, rules = _configured(ui)
    return evaluate.build(policies, [Rule.from_json(rule) for rule in rules])


def _configured(ui: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the policies with their options, and the rules, of the generated hgrc."""
    policies = json.loads(ui.config(b"hgfleet", b"policies") or b"{}")
    return policies, json.loads(ui.config(b"hgfleet", b"rules") or b"[]")


def _bypassed(ui: Any) -> dict[str, str]:
    """Return the verdicts on an operator's write, which no damaged value may stop."""
    from hgfleet.policies import evaluate

    try:
        return evaluate.bypassed(*_configured(ui))
    except (ValueError, TypeError):
        return {"policies": "bypassed"}


def _log(ui: Any, fields: dict[str, object]) -> None:
    line = logfmt.line("policy", **fields)
    ui.log(b"hgfleet_policy", b"%s\n", encoding.strtolocal(line))
    # The session's own name and connection to the log: hgfleet-shell opened it.
    syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_INFO, line)
