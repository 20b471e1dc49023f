"""`hgfleet bundles`: make, publish and prune clone bundles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide import settings
from hgfleet.bundles.steps import status
from hgfleet.bundles.steps.explain import explain
from hgfleet.bundles.steps.job import Options, Outcome
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core import subcommands
from hgfleet.core.errors import HgfleetError, UnavailableError, UsageError
from hgfleet.core.report import Report
from hgfleet.hg import push_spool
from hgfleet.registry.dynamic.effective import stamp_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any

    from hgfleet.registry.model.registry import Repository

_EPILOG = """\
examples:
  systemctl start hgfleet-bundles.service    run for every repository, as the timer does
  hgfleet bundles plan                       the plan of each repository, with reasons
  hgfleet bundles status team/project        the published bundles, and whether they answer
  hgfleet bundles run --dry-run              the plan, and the objects that would be deleted
  hgfleet bundles run --pushed               run for the repositories in the push spool
  hgfleet bundles run --force team/project   make new bundles of a repository even if fresh
  hgfleet bundles explain team/project       the plan of a repository with all its inputs
  hgfleet bundles prune --dry-run            objects that are outdated or orphaned
  hgfleet bundles publish team/project       a lost manifest, from the objects in the stores
  hgfleet bundles forget team/project        a secret is in its bundles: delete all of them
  hgfleet bundles verify                     download and clone every published bundle

All but `plan`, `status` and `explain` run as the user of the bundle jobs; all of these but `verify`
need the credentials of the stores, from systemd or as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
They exit with the code of the failure if any repository failed; the others are done all the same.
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet bundles` and its commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bundles",
        help="make, publish and prune clone bundles and pull bundles",
        description="Clone bundles, which fresh clones download instead of asking the server; and "
        "pull bundles, which the server sends to clones that are behind.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    check = commands.add_parser(
        "check",
        help="report a mistake in a file of settings, or that it is fine",
        description="Report a mistake in a file of settings, or that it is fine.",
    )
    _add_config(check)
    check.set_defaults(run=_check)
    _add_run(commands)
    for name, summary, example, run in _READING:
        command = _command(commands, name, summary, example, run)
        command.set_defaults(format="text")
        if name == "status":
            command.add_argument(
                "--json", action="store_true", help="for programs; sizes are in bytes"
            )
    for name, summary, example, run in _WORKING:
        command = _command(commands, name, summary, example, run)
        subcommands.add_format(command)
        if name == "prune":
            command.add_argument(
                "--dry-run", action="store_true", help="show the objects to delete"
            )


def _add_run(commands: Any) -> None:
    run = _command(
        commands,
        "run",
        "generate, upload, verify and publish missing bundles, then delete outdated objects",
        "hgfleet bundles run --dry-run team/project",
        _run,
    )
    run.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    run.add_argument("--force", action="store_true", help="make new bundles even where none is due")
    run.add_argument(
        "--pushed",
        action="store_true",
        help="only the repositories in the push spool, until it is empty",
    )
    run.add_argument(
        "--every",
        type=float,
        default=60,
        metavar="SECONDS",
        help="with --pushed: time between two runs for the same repository (default: %(default)s)",
    )
    subcommands.add_format(run)


def _command(
    commands: Any, name: str, summary: str, example: str, run: Callable[..., int]
) -> argparse.ArgumentParser:
    """Add a command that takes paths of repositories and the settings of the bundle jobs."""
    command = subcommands.on_repositories(commands, name, summary, example, run)
    _add_config(command)
    return command


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        default=settings.DEFAULT_PATH,
        metavar="FILE",
        help="settings (default: %(default)s)",
    )


def _check(options: argparse.Namespace) -> int:
    settings.load(options.config)
    print(f"{options.config}: fine")
    return 0


def _pipeline(
    options: argparse.Namespace, choices: Options | None = None, *, writes: bool = False
) -> Pipeline:
    config = settings.load(options.config)
    buckets = {}
    if writes:
        from hgfleet.objectstore.bucket import Bucket
        from hgfleet.objectstore.settings import credentials

        buckets = {
            store.name: Bucket(store, credentials(store.name), config.ca, config.timeout_seconds)
            for store in config.stores
        }
    return Pipeline(config, Report(options.format), buckets, choices)


def _repositories(
    pipeline: Pipeline, options: argparse.Namespace, *, and_archived: bool = False
) -> list[Repository]:
    """Return the named repositories, or all, if asked with archived ones: their bundles must go."""
    registry, archived = pipeline.known()
    unknown = [path for path in options.repositories if path not in registry.repositories]
    if unknown:
        raise UsageError(
            f"not in the registry: {', '.join(unknown)}; "
            f"it has {', '.join(registry.repositories) or 'no repositories'}"
        )
    if options.repositories:
        return [registry.repositories[path] for path in options.repositories]
    return [*registry.repositories.values(), *(archived if and_archived else ())]


def _run(options: argparse.Namespace) -> int:
    if options.pushed:
        return _run_pushed(options)
    pipeline = _pipeline(
        options, Options(force=options.force, dry_run=options.dry_run), writes=True
    )
    repositories = _repositories(pipeline, options, and_archived=True)
    return _summary(pipeline, pipeline.run(repositories, everything=not options.repositories))


def _run_pushed(options: argparse.Namespace) -> int:
    if options.repositories or options.force or options.dry_run:
        raise UsageError(
            "--pushed is for the repositories in the push spool; leave out names, --force and "
            "--dry-run"
        )
    worst = 0

    def run(paths: list[str]) -> set[str]:
        nonlocal worst
        pipeline = _pipeline(options, writes=True)
        registry, archived = pipeline.known()
        withdrawn = {repository.path: repository for repository in archived}
        known = [registry.repositories.get(path, withdrawn.get(path)) for path in paths]
        # The timer's full run handles a repository that left the registry.
        pushed = [repository for repository in known if repository is not None]
        outcomes = pipeline.run(pushed) if pushed else []
        pipeline.renew_pages([*registry.repositories.values()])
        worst = max(worst, _summary(pipeline, outcomes))
        return {outcome.repository for outcome in outcomes if outcome.busy}

    pipeline = _pipeline(options)
    pipeline.check_scratch()
    push_spool.work_off(push_spool.SPOOL, pipeline.config.scratch / "pushed", options.every, run)
    return worst


def _prune(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options, Options(dry_run=options.dry_run), writes=True)
    repositories = _repositories(pipeline, options, and_archived=True)
    return _summary(pipeline, pipeline.prune(repositories, everything=not options.repositories))


def _withdraw(options: argparse.Namespace) -> int:
    worst = 0
    while True:
        pipeline = _pipeline(options, writes=True)
        pipeline.check_scratch()
        files = pipeline.config.registry, pipeline.config.dynamic
        before = [stamp_of(file) for file in files]
        repositories = _repositories(pipeline, options, and_archived=True)
        outcomes = pipeline.withdraw(repositories, everything=not options.repositories)
        pipeline.renew_pages(repositories)
        worst = max(worst, _summary(pipeline, outcomes))
        # systemd does not look for changes while its unit is active.
        if before == [stamp_of(file) for file in files]:
            return worst


def _forget(options: argparse.Namespace) -> int:
    if not options.repositories:
        raise UsageError("name the repositories whose bundles are to be deleted")
    pipeline = _pipeline(options, writes=True)
    pipeline.check_scratch()
    repositories = _repositories(pipeline, options)
    outcomes = [pipeline.forget(repository) for repository in repositories]
    pipeline.renew_pages([*pipeline.known()[0].repositories.values()])
    return _summary(pipeline, outcomes)


def _publish(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options, writes=True)
    return _summary(pipeline, pipeline.publish(_repositories(pipeline, options)))


def _explain(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options)
    for repository in _repositories(pipeline, options, and_archived=True):
        print("\n".join(explain(pipeline, repository)))
    return 0


def _verify(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options)
    repositories = _repositories(pipeline, options)
    pipeline.check_scratch()
    return _summary(pipeline, [pipeline.verify(repository) for repository in repositories])


def _summary(pipeline: Pipeline, outcomes: Sequence[Outcome]) -> int:
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    names = ", ".join(outcome.repository for outcome in failed)
    degraded = [outcome for outcome in outcomes if outcome.missing and outcome.error is None]
    stores = ", ".join(sorted({store for outcome in degraded for store in outcome.missing}))
    pipeline.report.summary(
        f"{len(outcomes)} repositories, {len(failed)} failed{': ' if failed else ''}{names}"
        + (f", {len(degraded)} not in every store (missing: {stores})" if degraded else ""),
        repositories=len(outcomes),
        failed=len(failed),
        failures=names or None,
        degraded=len(degraded),
        missing=stores or None,
    )
    if degraded and not failed:
        return UnavailableError.exit_code
    codes = {outcome.error.exit_code for outcome in failed if outcome.error is not None}
    # Several kinds of failure have no code in common but 1.
    return codes.pop() if len(codes) == 1 else len(codes) and 1


def _plan(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options)
    worst = 0
    for repository in _repositories(pipeline, options, and_archived=True):
        try:
            decision, state = pipeline.plan(repository)
        except HgfleetError as error:
            print(f"{repository.path}: FAILED: {error}")
            worst = error.exit_code
            continue
        print(f"{repository.path}: {decision.action.value} ({state.changesets:,} changesets)")
        for reason in decision.reasons:
            print(f"    {reason}")
        pulls = pipeline.plan_pullbundles(repository, decision, state)
        print(f"    pull bundles: {pulls.move.value}: {pulls.reason}")
    return worst


def _status(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options)
    return status.show(pipeline, _repositories(pipeline, options), as_json=options.json)


_READING: Final = (
    (
        "plan",
        "show the plan of each repository, with reasons",
        "hgfleet bundles plan",
        _plan,
    ),
    (
        "status",
        "show the published bundles, and whether clients can download them",
        "hgfleet bundles status team/project",
        _status,
    ),
    (
        "explain",
        "show the plan of a repository, with all its inputs",
        "hgfleet bundles explain team/project",
        _explain,
    ),
)
"""Commands that change nothing and need no credentials."""

_WORKING: Final = (
    (
        "publish",
        "write lost manifests again from the objects in the stores, after a clone from each entry",
        "hgfleet bundles publish team/project",
        _publish,
    ),
    (
        "prune",
        "delete objects that are outdated, of killed runs, or of repositories that are gone",
        "hgfleet bundles prune --dry-run",
        _prune,
    ),
    (
        "withdraw",
        "withdraw and delete bundles that clients must no longer have, and make none",
        "hgfleet bundles withdraw",
        _withdraw,
    ),
    (
        "forget",
        "delete all bundles of a repository everywhere, for content that must disappear",
        "hgfleet bundles forget team/project",
        _forget,
    ),
    (
        "verify",
        "download every published bundle, compare it, and make a clone from it",
        "hgfleet bundles verify team/project",
        _verify,
    ),
)
"""Commands that take long and report their progress."""
