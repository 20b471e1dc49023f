"""`hgfleet registry`: check, show and apply the registry."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import hgrc, paths
from hgfleet.core.errors import UsageError
from hgfleet.core.text import binary_size
from hgfleet.registry.dynamic import repair, user_repositories
from hgfleet.registry.model.compiled import dump_compiled

if TYPE_CHECKING:
    import argparse

    from hgfleet.registry.model.registry import Registry, Repository

REGISTRY: Final = "/etc/hgfleet/registry.yml"

_EPILOG = """\
examples:
  hgfleet registry check ansible/inventories/cluster/registry.yml
  hgfleet registry show registry.yml           every value in effect, including inherited values
  hgfleet registry show registry.yml --path team/tool    a repository: policies, rules, who
  hgfleet registry show --compiled             the registry that this host uses right now, including
                                               repositories that people created over SSH
  hgfleet registry apply --check --diff        the changes due on this host; writes nothing
  hgfleet registry apply                       make this host follow /etc/hgfleet/registry.yml
  hgfleet registry bring-back                  the repositories that the registry lost
  hgfleet registry bring-back team/tool        register a lost repository again
"""

_APPLY_EPILOG = """\
It creates repositories that are missing, writes the .hg/hgrc of each and the link to its clone
bundle manifest, and compiles the registry for everything that runs on this host. Repositories that
people created over SSH follow their namespaces as well. It never deletes or moves a repository: a
repository that is no longer registered is named, kept, and served by nothing.

It prints a line per change and ends with `changed=N`; a second run prints `changed=0`.

examples:
  hgfleet registry apply --check --diff
  hgfleet registry apply --root /srv/hg/repos --registry /etc/hgfleet/registry.yml
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `registry` and its commands."""
    parser = subparsers.add_parser(
        "registry",
        help="check, show and apply the registry of repositories",
        description="The registry declares every repository, and its permissions.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    check = commands.add_parser("check", help="show the problems of a registry")
    check.add_argument("file", type=Path, metavar="FILE")
    check.set_defaults(run=_check)

    show = commands.add_parser("show", help="print every repository with its values in effect")
    show.add_argument("file", type=Path, metavar="FILE", nargs="?", help="a registry in YAML")
    show.add_argument(
        "--compiled",
        metavar="JSON",
        nargs="?",
        const=paths.COMPILED,
        help=f"show the compiled registry instead (without a value: {paths.COMPILED})",
    )
    show.add_argument("--path", metavar="PATH", help="show everything about this repository")
    show.add_argument("--json", action="store_true", help="print it as it is compiled")
    show.set_defaults(run=_show)

    apply = commands.add_parser(
        "apply",
        help="make the repositories of this host follow the registry",
        description="Make the repositories of this host follow the registry (as root).",
        epilog=_APPLY_EPILOG,
    )
    apply.add_argument("--check", action="store_true", help="show the changes, write nothing")
    apply.add_argument("--diff", action="store_true", help="show the changes of files")
    for option, default, text in (
        ("--registry", REGISTRY, "the registry"),
        ("--root", paths.REPOSITORIES, "where repositories are"),
        ("--compiled", paths.COMPILED, "where the compiled registry goes"),
        ("--manifests", paths.MANIFESTS, "where the clone bundle manifests are"),
        ("--dynamic", paths.DYNAMIC, "the repositories that people created over SSH"),
        ("--hgrc", paths.HGRC, "the configuration that `hg init` gets as HGRCPATH"),
    ):
        apply.add_argument(
            option, type=Path, metavar="PATH", default=Path(default), help=f"{text} ({default})"
        )
    apply.add_argument("--user", default="hg", help="owner of the repositories (hg)")
    apply.add_argument("--group", default="hg", help="their group (hg)")
    apply.set_defaults(run=_apply)
    repair.add_commands(commands)


def _check(options: argparse.Namespace) -> int:
    from hgfleet.registry.model import schema

    loaded = schema.load(options.file)
    print(f"{options.file}: fine ({_count(loaded)})")
    return 0


def _show(options: argparse.Namespace) -> int:
    if (options.file is None) == (options.compiled is None):
        raise UsageError("registry show needs either FILE or --compiled")
    if options.file is not None:
        from hgfleet.registry.model import schema

        loaded = schema.load(options.file)
    else:
        loaded = user_repositories.load_effective(options.compiled, paths.DYNAMIC, _complain)
    if options.path is not None:
        if options.path not in loaded.repositories:
            raise UsageError(f"there is no repository {options.path} in this registry")
        print("\n".join(details(loaded.repositories[options.path])))
    elif options.json:
        print(dump_compiled(loaded), end="")
    else:
        print("\n".join(table(loaded)))
    return 0


def _complain(sentence: str) -> None:
    print(f"hgfleet: {sentence}", file=sys.stderr)


def _apply(options: argparse.Namespace) -> int:
    from hgfleet.registry import owned_files
    from hgfleet.registry.model import schema
    from hgfleet.registry.provision import provisioning

    loaded = schema.load(options.registry)
    target = provisioning.Target(
        root=options.root,
        compiled=options.compiled,
        manifests=options.manifests,
        dynamic=options.dynamic,
        hgrc=options.hgrc,
        owner=owned_files.owner(options.user, options.group),
        is_mirror=_is_mirror(options.hgrc),
    )
    changed = provisioning.apply(
        loaded, target, write=not options.check, diff=options.diff, report=print
    )
    print(f"changed={changed}")
    return 0


def _is_mirror(file: Path) -> bool:
    """Whether this host has copies of a primary's repositories."""
    try:
        return bool(hgrc.setting(file.read_text("utf-8", "replace"), "replica-of"))
    except FileNotFoundError:
        return False


def table(loaded: Registry) -> list[str]:
    """Render the repositories for a person, a line each, columns aligned."""
    rows = [("REPOSITORY", "READ", "PUSH", "PHASES", "BUNDLES", "DESCRIPTION")]
    rows += [_row(repository) for repository in loaded.repositories.values()]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]])
        for row in rows
    ]


def details(repository: Repository) -> list[str]:
    """Render a repository for a person, a value a line."""
    read = "all users" if repository.is_public else ", ".join(repository.read) or "only its owner"
    rows = [
        ("repository", repository.path),
        ("description", repository.description),
        ("identity", repository.identity or None),
        ("owner", repository.owner),
        ("read", read),
        ("push", ", ".join(repository.push) or "nobody"),
        ("read-only", repository.read_only),
        ("phases", "publishing" if repository.publishing else "draft"),
        ("bundles", _bundles(repository)),
        ("dates", "any" if repository.accept_dates == "any" else None),
    ]
    for name, options in repository.policies.items():
        text = json.dumps(options, ensure_ascii=False) if options else ""
        rows.append(("policy", f"{name} {text}".rstrip()))
    for rule in repository.rules:
        on = f"on branches {', '.join(rule.branches)}" if rule.branches else ""
        tags = f"on tags {', '.join(rule.tags)}" if rule.tags else ""
        touching = f"touching {', '.join(rule.paths)}" if rule.paths else ""
        who = ", ".join(rule.push) or "nobody"
        rows.append(("rule", " ".join(word for word in (on, tags, touching, "only:", who) if word)))
    return [f"{name + ':':13}{value}" for name, value in rows if value is not None]


def _bundles(repository: Repository) -> str:
    kinds = ", ".join(repository.bundles)
    if kinds and repository.bundles_from:
        kinds += f" from {binary_size(repository.bundles_from)} on"
    return kinds or "none"


def _row(repository: Repository) -> tuple[Any, ...]:
    return (
        repository.path,
        "public" if repository.read == "public" else ",".join(repository.read),
        "(read-only)" if repository.read_only else ",".join(repository.push) or "nobody",
        "publishing" if repository.publishing else "draft",
        ",".join(repository.bundles) or "none",
        repository.description,
    )


def _count(loaded: Registry) -> str:
    repositories, namespaces = len(loaded.repositories), len(loaded.namespaces)
    return (
        f"{repositories} {'repository' if repositories == 1 else 'repositories'}, "
        f"{namespaces} namespace{'' if namespaces == 1 else 's'}"
    )
