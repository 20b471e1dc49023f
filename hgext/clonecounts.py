"""count clones and pulls by the source of their changesets, for metrics.

==================================  ==========================================================
answer                              counted as
==================================  ==========================================================
a manifest with clone bundles       a clone from a clone bundle: clients ask for the manifest
                                    when they clone, and take an entry
a getbundle of a client without     a clone, from pull bundles if the extension pullbundles
changesets, or a stream             has prepared the answer, else live
a getbundle of another client       a pull, from the same sources
the answer is a refusal             nothing; a clone over HTTPS that waits for a slot and gives
                                    up counts as live
a getbundle without changesets      nothing
==================================  ==========================================================

A client that supports no entry of the manifest counts twice, from a clone bundle and live.

Over SSH each answer adds to the counters in a folder when it ends, with the bytes sent. Over HTTPS
the access log of the web part gets the fields ``answer`` (``clone`` or ``pull``) and ``source``
(``clone-bundle``, ``pull-bundle`` or ``live``), and the web workers count.

A missing or full folder never fails an answer::

  [hgfleet]
  counters = /run/hgfleet-counters

Enable it after the extensions ``clonebundles_steer``, ``pullbundles`` and ``admission``::

  [extensions]
  clonecounts = /opt/hgfleet/current/hgext/clonecounts.py
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any

from mercurial import exchange, extensions, registrar, wireprototypes, wireprotov1server

from hgfleet.admission import prepared
from hgfleet.hg import clone_counts

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"counters", default=b"")

_source: ContextVar[str | None] = ContextVar("hgfleet_clonecounts_source", default=None)
"""Where the changesets of this thread's answer come from; None: core refuses the request."""


def extsetup(_ui: Any) -> None:
    """Wrap commands in core's table, and the function that begins an answer (7.2).

    Core turns refusals of that function into answers, so the command cannot tell them apart.
    """
    commands = wireprotov1server.commands
    for name in (b"clonebundles", b"clonebundles_manifest"):
        # Without the extension clonebundles, core has these commands too, for an empty manifest.
        commands[name].func = _manifest(commands[name].func)
    commands[b"getbundle"].func = _getbundle(commands[b"getbundle"].func)
    commands[b"stream_out"].func = _stream_out(commands[b"stream_out"].func)
    extensions.wrapfunction(exchange, "getbundlechunks", _begun)


def _manifest(original: Any) -> Any:
    def answer(repo: Any, proto: Any, *arguments: Any) -> Any:
        response = original(repo, proto, *arguments)
        if getattr(response, "data", b""):
            _log_answer(proto, clone_counts.CLONE, clone_counts.CLONE_BUNDLE)
            if proto.name == wireprototypes.SSHV1:
                _add(repo, clone_counts.CLONE, clone_counts.CLONE_BUNDLE, 0)
        return response

    return answer


def _getbundle(original: Any) -> Any:
    def answer(repo: Any, proto: Any, others: dict[bytes, bytes], *more: Any) -> Any:
        # Core removes the arguments from the mapping.
        kind = clone_counts.kind_of(others)
        token = _source.set(None)
        try:
            response = original(repo, proto, others, *more)
            source = _source.get()
        finally:
            _source.reset(token)
        if kind is not None and source is not None:
            _count(repo, proto, response, kind, source)
        return response

    return answer


def _begun(original: Any, repo: Any, *arguments: Any, **options: Any) -> Any:
    # Checked before the extension pullbundles hands over its answer.
    is_prepared = prepared.of(repo) is not None
    result = original(repo, *arguments, **options)
    _source.set(clone_counts.PULL_BUNDLE if is_prepared else clone_counts.LIVE)
    return result


def _stream_out(original: Any) -> Any:
    def answer(repo: Any, proto: Any, *arguments: Any) -> Any:
        response = original(repo, proto, *arguments)
        if isinstance(response, wireprototypes.streamreslegacy):
            _count(repo, proto, response, clone_counts.CLONE, clone_counts.LIVE)
        return response

    return answer


def _count(repo: Any, proto: Any, response: Any, kind: str, source: str) -> None:
    _log_answer(proto, kind, source)
    if proto.name == wireprototypes.SSHV1:
        response.gen = clone_counts.measured(
            response.gen, lambda size: _add(repo, kind, source, size)
        )


def _log_answer(proto: Any, kind: str, source: str) -> None:
    """Put an answer over HTTPS into its line of the access log."""
    request = getattr(proto, "_req", None)
    entry = request.rawenv.get(b"hgfleet.entry") if request is not None else None
    if entry is not None:
        entry.update(answer=kind, source=source)


def _add(repo: Any, kind: str, source: str, size: int) -> None:
    folder = repo.ui.config(b"hgfleet", b"counters")
    if not folder:
        return
    from hgfleet.core import counters

    amounts = clone_counts.counts(kind, source, size)
    problem = counters.try_add(os.fsdecode(folder), clone_counts.FILE, amounts)
    if problem is not None:
        repo.ui.log(b"clonecounts", b"not counted: %s\n", problem.encode("utf-8", "replace"))
