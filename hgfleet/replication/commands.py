"""Commands of `hgfleet replication`, for operators: inspect, compare, repair and decide."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import ConfigurationError, HgfleetError, PushlogError, UsageError
from hgfleet.core.names import path_problem
from hgfleet.core.report import Report
from hgfleet.registry.owned_files import become
from hgfleet.replication.protocol.settings import Role, load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from hgfleet.replication.mirror.places import Place
    from hgfleet.replication.mirror.verify import Result
    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.client import SourceClient
    from hgfleet.replication.terms.losses import Accepted, Known

DIFFERENT: Final = 65
"""Exit code: a repository differs, and no push repairs it."""
LATE: Final = 75
"""Exit code: a mirror is behind, and catches up."""

_FENCES: Final = "only the primary fences repositories: it is where pushes arrive"


def settings_of(options: argparse.Namespace, role: Role, reason: str) -> Settings:
    """Read the settings of a host of this role; `reason` ends the message for another role.

    Raises ConfigurationError.
    """
    settings = load(options.config)
    if settings.role is not role:
        raise ConfigurationError(
            f"{options.config}: role: got '{settings.role}', expected '{role}': {reason}"
        )
    return settings


# -- a mirror and its primary ----------------------------------------------------------------------


def status(options: argparse.Namespace) -> int:
    """Print the state of this host."""
    from hgfleet.replication.mirror import status

    now, state = time.time(), status.load(load(options.config).state)
    if options.json:
        print(json.dumps(state, sort_keys=True))
    else:
        print("\n".join(status.lines(state, now)))
    return 0 if status.is_well(state, now) else DIFFERENT


def lag(options: argparse.Namespace) -> int:
    """Print the repositories in which this mirror is behind."""
    from hgfleet.replication.mirror import status

    settings, source = _mirror(options)
    behind = list(status.lags(settings, source, time.time()))
    for late in behind:
        print(f"{late.path}: {late.there - late.here} records behind, for {late.seconds:.0f} s")
    if not behind:
        print("this mirror has every record of the primary")
    return LATE if behind else 0


def verify(options: argparse.Namespace) -> int:
    """Compare repositories of this mirror with the primary."""
    from hgfleet.replication.mirror.verify import Finding, Verification

    settings, source = _mirror(options)
    _become_owner(settings, source)
    report = Report(options.format, part="replication")
    started = time.monotonic()

    def tell(result: Result) -> None:
        if result.finding is not Finding.EQUAL:
            report.step(
                "verify",
                result.path,
                f"{result.finding}: {result.text}",
                finding=result.finding,
                problem=result.text,
            )

    results = Verification(settings, source).run(options.repositories, tell)
    findings = [result.finding for result in results]
    late = findings.count(Finding.BEHIND)
    equal = findings.count(Finding.EQUAL)
    wrong = len(findings) - late - equal
    report.summary(
        f"{equal} of {len(results)} repositories are equal, {late} behind, {wrong} wrong",
        equal=equal,
        behind=late,
        wrong=wrong,
        duration_s=time.monotonic() - started,
    )
    return DIFFERENT if wrong else LATE if late else 0


def resync(options: argparse.Namespace) -> int:
    """Replace repositories of this mirror by fresh copies."""
    from hgfleet.replication.mirror.resync import resync
    from hgfleet.replication.repositories.registry_paths import identity_at

    settings, source = _mirror(options)
    for path in options.repositories:
        if problem := path_problem(path):
            raise UsageError(f"got {path!r}, expected {problem}")
    _become_owner(settings, source)
    report = Report(options.format, part="replication")
    code = 0
    for path in options.repositories:
        started = time.monotonic()

        def say(sentence: str, path: str = path) -> None:
            report.step("resync", path, sentence, problem=sentence)

        try:
            identity = identity_at(settings, path)
            state = resync(settings, source, identity, say=say, certificates=options.certificates)
        except HgfleetError as error:
            report.step("failed", path, f"FAILED, it stays as it was: {error}", error=error)
            code = error.exit_code
            continue
        took = time.monotonic() - started
        text = f"replaced by a fresh copy in {took:.1f} s, at record {state.id}"
        report.step("resynced", path, text, record=state.id, duration_s=took)
    return code


def _mirror(options: argparse.Namespace) -> tuple[Settings, SourceClient]:
    from hgfleet.replication.source.client import SourceClient

    settings = load(options.config)
    if settings.role is not Role.MIRROR:
        raise ConfigurationError(
            f"this host is the {settings.role.value}, and has nothing to compare with; run this "
            f"command on a mirror: {', '.join(settings.mirrors)}"
        )
    return settings, SourceClient(settings)


def _become_owner(settings: Settings, source: SourceClient | None = None) -> None:
    """Work with the rights of the repositories' owner from now on; only root can read the key."""
    if source is not None:
        source.read_certificates()
    become(settings.repositories.owner())


# -- documents -------------------------------------------------------------------------------------


def begin_term(options: argparse.Namespace) -> int:
    """Begin a new term of the registry and the tokens of this primary."""
    from hgfleet.auth import token_file
    from hgfleet.core import generation
    from hgfleet.registry.dynamic import dynamic_update, repair
    from hgfleet.replication.documents.document_files import TOKENS_FILE, TOKENS_FOLDER

    repair.on_primary(options.hgrc)
    become(options.user)
    tokens = options.dynamic.parent / TOKENS_FOLDER / TOKENS_FILE
    dynamic_update.begin_term(options.dynamic, options.epoch)
    token_file.begin_term(str(tokens), options.epoch)
    for name, file, none in (
        ("registry", options.dynamic, "there is none"),
        ("tokens", tokens, "there are none"),
    ):
        newest = generation.read_beside(file).generation if file.exists() else None
        print(f"{name}: {f'generation {newest}' if newest else f'{none}, and no term begins'}")
    return 0


def missing(options: argparse.Namespace) -> int:
    """Print the repositories that the primary's registry lost."""
    from hgfleet.registry.dynamic import missing

    print(missing.text(missing.load(load(options.config).dynamic).values()), end="")
    return 0


# -- terms of the primary --------------------------------------------------------------------------


def promote(options: argparse.Namespace) -> int:
    """Begin the next term, with this mirror as the primary."""
    from hgfleet.replication.promotion import promote
    from hgfleet.replication.protocol import connection
    from hgfleet.replication.source.client import SourceClient

    settings = load(options.config)
    accepted, elsewhere = _accepted(options), _elsewhere(options)
    source = SourceClient(settings) if settings.primary != settings.host else None
    # Only root can read the key.
    tls = connection.tls(settings)
    _become_owner(settings, source)
    run = promote.Promotion(settings, source, elsewhere, accepted, print)
    term = asyncio.run(run.run(tls, dry_run=options.dry_run))
    did = "would be" if options.dry_run else "is"
    print(f"{term.primary} {did} the primary of epoch {term.epoch}")
    return 0


def new_term(options: argparse.Namespace) -> int:
    """Begin the next term of this primary."""
    from hgfleet.replication.promotion import lifting, promote
    from hgfleet.replication.protocol import connection

    settings = load(options.config)
    if settings.role is not Role.PRIMARY:
        raise ConfigurationError(
            f"{settings.host} is a mirror, expected the primary {settings.primary}; a mirror "
            "becomes the primary by `hgfleet replication promote` (runbook promote)"
        )
    accepted, elsewhere = _accepted(options), _elsewhere(options)
    tls = connection.tls(settings)
    _become_owner(settings)
    run = promote.Promotion(settings, None, elsewhere, accepted, print, again=True)
    # No push is on its way to a primary, so there is nothing to wait for.
    run.patience = 0.0
    term = asyncio.run(run.run(tls, dry_run=options.dry_run))
    if not options.dry_run:
        for path in lifting.lift_decided(settings):
            print(f"{path} takes pushes again")
    did = "would begin" if options.dry_run else "has begun"
    print(f"epoch {term.epoch} of {term.primary} {did}")
    return 0


def _accepted(options: argparse.Namespace) -> list[Accepted]:
    from hgfleet.replication.terms import losses

    return [losses.parse_accepted(text) for text in options.accept_loss]


def _elsewhere(options: argparse.Namespace) -> list[Known]:
    from hgfleet.replication.promotion import promote

    return [position for file in options.positions for position in promote.read_positions(file)]


def fence(options: argparse.Namespace) -> int:
    """Make this host refuse all pushes, or take them again."""
    from hgfleet.replication.terms import host_terms

    settings = load(options.config)
    _become_owner(settings)
    if not options.lift:
        host_terms.fence(
            settings,
            f"{settings.host} takes no pushes: operators are making another host the primary; try "
            "again in some minutes",
        )
        print(f"{settings.host} refuses pushes")
        return 0
    epoch, primary = host_terms.own(settings)
    if settings.role is Role.PRIMARY and primary not in ("", settings.host):
        raise ConfigurationError(
            f"{primary} has been the primary since epoch {epoch}: the fence of {settings.host} "
            f"stays; promote {settings.host} (runbook promote)"
        )
    host_terms.lift(settings)
    print(f"{settings.host} has no fence")
    return 0


def positions(options: argparse.Namespace) -> int:
    """Print the last record of each repository of this host."""
    from hgfleet.replication.promotion import promote

    for position in promote.positions(load(options.config)):
        print(json.dumps(position, sort_keys=True))
    return 0


def beyond(options: argparse.Namespace) -> int:
    """Print the pushes that this mirror has beyond a backup of the primary."""
    from hgfleet.replication.mirror import places
    from hgfleet.replication.promotion import beyond, promote
    from hgfleet.replication.repositories.served import Served
    from hgfleet.replication.terms import losses

    settings = load(options.config)
    accepted = _accepted(options)
    backup = promote.read_positions(options.points)
    _become_owner(settings)
    served = Served(settings, lambda _: None)
    present = {**_aside(settings), **places.find(settings.repositories)}
    made = beyond.beyond(
        backup,
        {identity: place.tip for identity, place in present.items()},
        # Only the registry tells which repositories were created and deleted.
        served.paths(),
        served.purged(),
        lambda identity, number: _hash_at(settings, present[identity].path, number),
        served.renamed(),
    )
    left = beyond.refused(made, lambda loss: not losses.refused([loss], accepted))
    for line in beyond.sentences(settings.host, left):
        print(line)
    # The play takes each line of standard output for a refusal.
    for line in beyond.sentences(settings.host, [extra for extra in made if extra.is_note]):
        print(line, file=sys.stderr)
    return 0


def _aside(settings: Settings) -> Mapping[str, Place]:
    """Return the repositories that this mirror took out of service, by identity (I/O)."""
    from hgfleet.pushlog import log_file
    from hgfleet.replication.mirror import places
    from hgfleet.replication.mirror.places import Place

    root, aside = settings.repositories, {}
    for place in places.away(root):
        folder = places.folder(root, place)
        if folder is None or not folder.identity:
            continue
        with contextlib.suppress(OSError, PushlogError):
            tip = log_file.tip(root / place / places.STORE / log_file.NAME)
            aside[folder.identity] = Place(place, tip)
    return aside


def _hash_at(settings: Settings, path: str, number: int) -> str:
    """Return the hash of a record of a repository; "" if its log is shorter (I/O)."""
    from hgfleet.pushlog import log_file
    from hgfleet.pushlog.record import hash_of

    log = settings.repositories / path / ".hg/store" / log_file.NAME
    line = next(itertools.islice(log_file.lines(log), number - 1, number), None)
    return hash_of(line[1]) if line is not None else ""


def fences(options: argparse.Namespace) -> int:
    """Print the repositories of this primary that take no pushes."""
    from hgfleet.replication.terms import repository_fences

    settings = settings_of(options, Role.PRIMARY, _FENCES)
    fenced = repository_fences.read(settings.terms).values()
    for repository in fenced:
        print(
            json.dumps(asdict(repository))
            if options.json
            else f"{repository.path}: {repository.operators}"
        )
    if not fenced and not options.json:
        print("no repository is fenced")
    return DIFFERENT if fenced else 0


def lift(options: argparse.Namespace) -> int:
    """Let a fenced repository take pushes again."""
    from hgfleet.replication.promotion import lifting
    from hgfleet.replication.protocol import connection

    settings = settings_of(options, Role.PRIMARY, _FENCES)
    accepted = _accepted(options)
    tls = connection.tls(settings)
    _become_owner(settings)
    fenced = lifting.named(settings, options.repository)
    term = asyncio.run(lifting.lift(settings, tls, fenced, accepted))
    print(f"{fenced.path} takes pushes again")
    if term is not None:
        print(
            f"epoch {term.epoch} has begun; on each mirror: `hgfleet replication resync "
            f"{fenced.path}`"
        )
    return 0
