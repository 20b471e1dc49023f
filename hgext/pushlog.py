"""keep a push log: a record of each push in the store of its repository.

Every transaction that changes changesets, phases, bookmarks or obsolescence markers appends a
record to ``.hg/store/pushlog``: user, key, address, time, the changes, the verdicts of policies,
and the hash of the record before. The record is appended inside the transaction. It is there if
and only if the changes are: an abort removes it, and so does :hg:`recover` after a crash.

It is switched on for registered repositories of a host::

  [extensions]
  pushlog = /opt/hgfleet/current/hgext/pushlog.py

  [hgfleet]
  pushlog = yes
  # on a mirror: the host that pushes go to, and its address
  replica-of = hg1
  ssh-url = ssh://hg@hg.example.org
  # on a primary that a promotion may replace: a file that refuses all changes while it exists,
  # with the sentence in it; a folder with such files for single repositories, by identity; a file
  # that does so after a wait (seconds); the file with the epoch of new records
  fence = /var/lib/hgfleet-replication/fenced
  fences = /var/lib/hgfleet-replication/fences
  unconfirmed = /run/hgfleet-fence/unconfirmed
  unconfirmed-wait = 20
  epoch = /var/lib/hgfleet-replication/epoch.json
  # whether the disk has a record before its client hears of it (default: yes)
  durable = yes

==============================  ==============================================================
state                           result
==============================  ==============================================================
a push                          a record of the kind ``push``
the first push to a repository  before it a record of the kind ``adoption``, which stands for
that is older than its log      all of its changesets
the store changed without a     refused, with the way out; a removal of foreign changesets is
record                          not recorded, and ``debugpushlog --accept`` records the rest
:hg:`strip`, ``debugstrip``     a record of the kind ``strip`` with the changesets that were
                                removed, in a transaction after the command's; if the
                                process is killed between them, the next writer completes the
                                removal (:hg:`help -e recovery`)
:hg:`censor`, :hg:`rollback`,   refused, with the way out: no record can contain that for mirrors,
``debugobsolete --delete``      bundles and backups
a transaction with a record     the disk has it before the client hears of it; that is after the
                                release of the lock, so that the next push need not wait
the disk does not confirm it    the client hears that the record may be lost, and exits with an
                                error; mirrors do not get it
nothing changes                 no record
the log is damaged              refused: a record could not name the record before it
a repository without ``path``   no log: it is a clone of a person, or a copy for bundles
a mirror                        refused, for operators too, except where the replication applies
                                a record of the primary; that record is appended as it is
a fenced primary                refused likewise, also where the fence came after the beginning of
                                the transaction
a fenced repository             refused likewise: mirrors have pushes that its log does not have
a primary that has just started a transaction waits until the relay has confirmed with the
                                brokers that no other host was promoted; then it is refused
==============================  ==============================================================

:hg:`pushlog` shows the log, :hg:`debugpushlog --verify` compares it with the repository. The revset
``pushed()`` finds changesets by their push, and the template keywords ``{pushid}``, ``{pushuser}``
and ``{pushdate}`` show it.

The log holds names and addresses of people. It is never part of a clone, bundle or stream.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from mercurial import (
    cmdutil,
    encoding,
    error,
    extensions,
    logcmdutil,
    registrar,
    repair,
    revsetlang,
    scmutil,
    smartset,
    templateutil,
)

from hgfleet.hg.hooks import refuse, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.pushlog.record import Record

testedwith = b"7.2"
minimumhgversion = b"7.2"

cmdtable: dict[bytes, Any] = {}
_Function = TypeVar("_Function", bound="Callable[..., Any]")
command: Callable[..., Callable[[_Function], _Function]] = registrar.command(cmdtable)
revsetpredicate: Callable[..., Callable[[_Function], _Function]] = registrar.revsetpredicate()
templatekeyword: Callable[..., Callable[[_Function], _Function]] = registrar.templatekeyword()
configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pushlog", default=False)
configitem(b"hgfleet", b"replica-of", default=b"")
configitem(b"hgfleet", b"ssh-url", default=b"")
configitem(b"hgfleet", b"fence", default=list)
configitem(b"hgfleet", b"fences", default=b"")
configitem(b"hgfleet", b"unconfirmed", default=b"")
configitem(b"hgfleet", b"unconfirmed-wait", default=20)
configitem(b"hgfleet", b"epoch", default=b"")
configitem(b"hgfleet", b"durable", default=True)

_CATEGORY = b"pushlog"
"""Callbacks run in this order: after the changelog's (`000-cl-`), before `txnclose-hook`, which
would announce a transaction that a failed append aborts (7.2)."""


def extsetup(_ui: Any) -> None:
    """Wrap the functions that remove changesets, in transactions of their own (7.2)."""
    extensions.wrapfunction(repair, "strip", _strip)
    extensions.wrapfunction(repair, "backupbundle", _bundle)
    extensions.wrapfunction(repair, "deleteobsmarkers", _delete_markers)


def reposetup(_ui: Any, repo: Any) -> None:
    """Record each transaction of a repository on this host's disk; refuse them on a mirror."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"pretxnopen.pushlog", _check, b"pushlog")
        repo.__class__ = _recorded(repo.__class__)


def _check(ui: Any, repo: Any, txnname: bytes = b"", **_more: object) -> None:
    """Refuse a transaction on a host that takes no changes, or after unrecorded ones (a hook).

    Also refuse :hg:`censor`, whose changes no record can contain.
    """
    from hgfleet.pushlog import recording, unrecorded, writable

    writable.check(ui, repo)
    if is_logged(repo):
        if txnname == b"censor":
            _refuse_command(repo, unrecorded.CENSOR)
        recording.check(repo.unfiltered())


def _recorded(base: Any) -> Any:
    class _RecordedRepository(base):  # type: ignore[misc]  # core has no published types
        pushlog_class = True

        def transaction(self, *arguments: Any, **named: Any) -> Any:
            if self.currenttransaction() is not None or not is_logged(self):
                return super().transaction(*arguments, **named)
            from hgfleet.pushlog import confirming

            unfiltered = self.unfiltered()
            confirming.hold(unfiltered)
            transaction = super().transaction(*arguments, **named)
            transaction.addfinalize(_CATEGORY, lambda tr: _record(unfiltered, tr))
            return transaction

        def rollback(self, *arguments: Any, **named: Any) -> Any:
            from hgfleet.pushlog import unrecorded

            if is_logged(self):
                _refuse_command(self, unrecorded.ROLLBACK)
            return super().rollback(*arguments, **named)

    return _RecordedRepository


def is_logged(repo: Any) -> bool:
    """Whether a repository is registered on a host with push logs."""
    ui = repo.ui
    return bool(ui.configbool(b"hgfleet", b"pushlog") and ui.config(b"hgfleet", b"path"))


def _record(repo: Any, transaction: Any) -> None:
    """Append the record of a transaction, if it has changes; raises Abort where it cannot."""
    from hgfleet.core.errors import PushlogError
    from hgfleet.pushlog import confirming, facts, log_file, recording, shared, writable, writing

    state = shared.of(repo)
    if state.strips:
        return
    changes = state.given or (("push", facts.of_transaction(repo, transaction)),)
    line = state.applied
    if all(change.is_empty for _, change in changes) and line is None and not state.adopts:
        return
    try:
        tip = log_file.tip(os.fsdecode(repo.sjoin(b"pushlog")))
        if line is not None:
            last = writing.after(tip, writing.applied(tip, line, changes[-1][1].heads.digest), line)
            lines = [line]
        else:
            writable.check(repo.ui, repo, is_begun=True)
            tip = tip._replace(epoch=max(tip.epoch, writable.epoch(repo.ui)))
            lines, last = recording.lines(repo, transaction, tip, changes)
    except PushlogError as problem:
        path = text(repo.ui.config(b"hgfleet", b"path"))
        refuse(
            repo.ui,
            f"the push log of {path} does not go on, so nothing was changed",
            (f"tell the operators: {problem}",),
            reason="pushlog",
        )
    if lines:
        writing.append(repo.svfs, transaction, tip, lines)
        recorded = shared.Recorded(last.repository, last.id, last.end, last.hash)
        confirming.report_after(repo, transaction, recorded)


def _strip(original: Any, ui: Any, repo: Any, nodelist: Any, *arguments: Any, **named: Any) -> Any:
    """Strip, and record the removal."""
    repo = repo.unfiltered()
    nodes = [nodelist] if isinstance(nodelist, bytes) else nodelist
    if not is_logged(repo) or not nodes:
        return original(ui, repo, nodelist, *arguments, **named)
    from hgfleet.pushlog import removing

    return removing.strip(repo, nodes, lambda: original(ui, repo, nodelist, *arguments, **named))


def _bundle(original: Any, repo: Any, *arguments: Any, **named: Any) -> Any:
    """Write a bundle of core's, and record the bundle of changesets that a strip adds again."""
    name = original(repo, *arguments, **named)
    from hgfleet.pushlog import removing, shared

    if shared.of(repo).strips and named.get("tmp_backup"):
        removing.bundled(repo, name)
    return name


def _delete_markers(original: Any, obsstore: Any, indices: Any) -> Any:
    """Delete obsolescence markers only within a strip: no record can contain another deletion."""
    repo = obsstore.repo.unfiltered()
    from hgfleet.pushlog import shared, unrecorded

    if indices and is_logged(repo) and not shared.of(repo).strips:
        _refuse_command(repo, unrecorded.MARKERS)
    return original(obsstore, indices)


def _refuse_command(repo: Any, sentence: str) -> NoReturn:
    path = text(repo.ui.config(b"hgfleet", b"path"))
    refuse(repo.ui, f"{path}: nothing was changed: {sentence}", reason="policies")


@command(
    b"pushlog",
    [
        (b"u", b"user", b"", b"pushes of this user (a name, or re:PATTERN)", b"USER"),
        (b"d", b"date", b"", b"pushes of this time, see hg help dates", b"DATE"),
        (b"i", b"id", b"", b"pushes with these ids: 42, 40:50, 40: or :50", b"RANGE"),
        (b"r", b"rev", [], b"pushes of these changesets", b"REV"),
        (b"l", b"limit", b"", b"at most so many pushes", b"NUM"),
        *cmdutil.formatteropts,
    ],
    b"[OPTION]...",
    helpcategory=registrar.command.CATEGORY_CHANGE_NAVIGATION,
)
def pushlog(ui: Any, repo: Any, **options: Any) -> int:
    """Show who pushed what and when, the newest push first.

    The words for -T: id, kind, user, date, key, client, changesets, heads, bookmarks, verdicts.
    Returns 0 if a push was found, 1 if not.
    """
    from hgfleet.pushlog import reading

    wanted = reading.conditions(options["user"], options["date"], options["id"])
    if options["rev"]:
        numbers = scmutil.revrange(repo, options["rev"])
        nodes = frozenset(repo[number].hex().decode("ascii") for number in numbers)
        wanted = wanted._replace(changesets=nodes)
    limit = logcmdutil.getlimit({b"limit": options["limit"]})
    count = 0
    with ui.formatter(b"pushlog", {b"template": options["template"]}) as fm:
        for record in reading.last(repo, wanted, limit):
            count += 1
            _show(fm, record)
    return 0 if count else 1


def _show(fm: Any, record: Record) -> None:
    def listed(values: Iterable[str], name: bytes) -> Any:
        return fm.formatlist([encoding.strtolocal(value) for value in values], name)

    fm.startitem()
    fm.write(b"id kind", b"%d %s", record.id, record.kind.encode())
    fm.write(b"user", b" %s", record.user.encode() or b"-")
    fm.write(b"date", b" %s", fm.formatdate((record.time / 1000, 0), b"%Y-%m-%d %H:%M:%S UTC"))
    fm.condwrite(record.client, b"client", b" from %s", record.client.encode())
    fm.condwrite(record.key, b"key", b" with %s", record.key.encode())
    fm.plain(b": %d changesets" % len(record.changesets))
    fm.data(changesets=listed(record.changesets, b"changeset"))
    fm.data(heads=listed(record.heads.new, b"head"))
    names = [name for name, _, _ in record.bookmarks]
    fm.condwrite(names, b"bookmarks", b", bookmarks %s", listed(names, b"bookmark"))
    verdicts = [f"{name}: {verdict}" for name, verdict in sorted(record.verdicts.items())]
    fm.data(verdicts=listed(verdicts, b"verdict"))
    fm.plain(b"\n")


@command(
    b"debugpushlog",
    [
        (b"", b"verify", None, b"compare the log with the repository"),
        (b"", b"adopt", None, b"begin the log of a repository that has none"),
        (b"", b"accept", None, b"record changesets that bypassed the log"),
    ],
    b"--verify | --adopt | --accept",
)
def debugpushlog(ui: Any, repo: Any, **options: Any) -> int:
    """Verify the push log, begin it, or accept changesets that bypassed it.

    --verify checks the chain of records and their form, that each changeset of the repository is in
    a single record or was adopted, that each recorded changeset exists or was removed, and the
    heads. --accept lets an operator answer for changesets that came, or went, without a record.
    Returns 0 if all is right, 1 with a line for each problem.
    """
    from hgfleet.pushlog import reading, recording

    act = recording.adopt if options["adopt"] else recording.accept if options["accept"] else None
    if act is not None:
        if not is_logged(repo):
            raise error.Abort(
                b"this repository has no push log", hint=b"only registered repositories have one"
            )
        act(repo.unfiltered())
    elif not options["verify"]:
        raise error.InputError(b"expected --verify, --adopt or --accept")
    problems = list(reading.problems(repo))
    for problem in problems:
        ui.write(b"%s\n" % encoding.strtolocal(problem))
    return 1 if problems else 0


@revsetpredicate(b"pushed([user], [date], [id])")
def pushed(repo: Any, subset: Any, x: Any) -> Any:
    """Changesets by the user, the time and the id of their push; without arguments, of all pushes.

    Forms: ``pushed(alice)``, ``pushed("re:^a")``, ``pushed(date="2026-11")``,
    ``pushed(id="40:50")``. See :hg:`help dates`.
    """
    from hgfleet.pushlog import reading

    arguments = revsetlang.getargsdict(x, b"pushed", b"user date id")
    values = {
        name: revsetlang.getstring(value, b"pushed takes texts: user, date, id")
        for name, value in arguments.items()
    }
    wanted = reading.conditions(values.get(b"user"), values.get(b"date"), values.get(b"id"))
    rev = repo.unfiltered().changelog.index.get_rev
    numbers = (
        rev(bytes.fromhex(node))
        for node, record in reading.pushes_of(repo).items()
        if wanted.fits(record)
    )
    return subset & smartset.baseset(sorted({number for number in numbers if number is not None}))


def _push_of(context: Any, mapping: Any) -> Record | None:
    from hgfleet.pushlog import reading

    node = context.resource(mapping, b"ctx").hex().decode("ascii")
    return reading.pushes_of(context.resource(mapping, b"repo")).get(node)


@templatekeyword(b"pushid", requires={b"repo", b"ctx"})
def pushid(context: Any, mapping: Any) -> Any:
    """Integer. The id of the push that brought the changeset; empty if it was adopted."""
    record = _push_of(context, mapping)
    return record.id if record else None


@templatekeyword(b"pushuser", requires={b"repo", b"ctx"})
def pushuser(context: Any, mapping: Any) -> Any:
    """String. The user who pushed the changeset; empty if it was adopted."""
    record = _push_of(context, mapping)
    return record.user.encode() if record else b""


@templatekeyword(b"pushdate", requires={b"repo", b"ctx"})
def pushdate(context: Any, mapping: Any) -> Any:
    """Date information. The time of the push; none for an adopted changeset."""
    record = _push_of(context, mapping)
    return templateutil.date((record.time / 1000, 0)) if record else None
