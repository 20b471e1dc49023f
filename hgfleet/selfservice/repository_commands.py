"""Commands about repositories: `repo list`, `repo info`, and the commands of an owner."""

from __future__ import annotations

import fnmatch
import subprocess
import time
from typing import TYPE_CHECKING

from hgfleet.core.errors import UsageError
from hgfleet.core.text import alternatives
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.entry import Entry, description_problem
from hgfleet.registry.model import permissions
from hgfleet.selfservice import creation, deletion, fork_size, renaming, repositories, rules
from hgfleet.selfservice.argv import quoted
from hgfleet.selfservice.command import HELP

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Read, Repository
    from hgfleet.selfservice.command import Call
    from hgfleet.selfservice.context import Context


def list_(context: Context, call: Call) -> str:
    """`repo list`: the repositories that the person may read, or owns, or has archived."""
    pattern = call.arguments[0] if call.arguments else "*"
    if not any(character in pattern for character in "*?["):
        pattern = f"*{pattern}*"
    person = context.principal
    rows: list[tuple[str, str, str]] = []
    if "--archived" in call.options:
        for path, entry in context.entries.repositories.items():
            if person.owns(entry) and entry.archived is not None:
                rows.append((path, f"archived {entry.archived[:10]}", entry.description))
    else:
        for repository in context.effective.repositories.values():
            if not permissions.may_read(repository, person):
                continue
            if "--mine" in call.options and not person.owns(repository):
                continue
            may = "push" if permissions.may_push(repository, person) else "read"
            shown = "" if repository.read == "public" else ", private"
            rows.append((repository.path, f"{may}{shown}", repository.description))
    rows = [row for row in rows if fnmatch.fnmatchcase(row[0], pattern)]
    if not rows:
        return "No repositories.\n"
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "".join(
        f"{path:{widths[0]}}  {what:{widths[1]}}  {description}".rstrip() + "\n"
        for path, what, description in rows
    )


def info(context: Context, call: Call) -> str:
    """`repo info`: all about a repository."""
    repository = repositories.find(context, call.arguments[0])
    path, place = repository.path, context.place(repository.path)
    entry = None
    if repository.owner is not None:
        entry = context.entries.repositories.get(path)
    lines = {
        "path": path,
        "description": repository.description or "none",
        "owner": permissions.owner_text(repository, context.principal)
        or "the operators of this service",
        "may read": rules.readers_text(repository.read, repository.owner),
        "may push": rules.writers_text(repository),
        "drafts": "published by a push" if repository.publishing else "kept, with their markers",
        "policies": ", ".join(repository.policies) or "none",
    }
    lines |= _rules(repository)
    if entry is not None:
        lines["created"] = entry.created
        if entry.forked_from is not None and _is_readable(context, entry.forked_from):
            lines["forked from"] = entry.forked_from
    if (place / ".hg").is_dir():
        lines["changesets"] = _changesets(context, path)
        lines["size"] = f"{repositories.size(place) / 1e6:,.1f} MB on disk"
        changelog = place / ".hg/store/00changelog.i"
        if changelog.exists():
            changed = time.gmtime(changelog.stat().st_mtime)
            lines["last push"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", changed)
    lines["clone"] = f"hg clone {context.url}/{path}"
    width = max(map(len, lines)) + 1
    return "".join(f"{name + ':':{width}}  {value}\n" for name, value in lines.items())


def _rules(repository: Repository) -> dict[str, str]:
    """Return what only members of some groups may push, by the groups."""
    parts: dict[str, list[str]] = {}
    for rule in repository.rules:
        named = (("branches", rule.branches), ("paths", rule.paths), ("tags", rule.tags))
        where = " and ".join(f"{kind} {alternatives(globs)}" for kind, globs in named if globs)
        who = f"members of {alternatives(rule.push)}" if rule.push else "nobody"
        parts.setdefault(f"only {who}", []).append(where)
    return {who: f"may push to {'; to '.join(where)}" for who, where in parts.items()}


def _is_readable(context: Context, path: str) -> bool:
    repository = context.effective.repositories.get(path)
    return repository is not None and permissions.may_read(repository, context.principal)


def _changesets(context: Context, path: str) -> str:
    done = subprocess.run(
        [
            *(repositories.program(), "--noninteractive", "-R", str(context.place(path))),
            *("log", "-r", "null", "-T", "{count(revset('not secret()'))}"),
        ],
        env=repositories.environment(context),
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{int(done.stdout):,}" if done.stdout.isdecimal() else "unknown"


def create(context: Context, call: Call) -> str:
    """`repo create`: an empty repository of the person's own."""
    path = call.arguments[0]
    entry = _new_entry(context, path, call, None)
    creation.create(context, path, entry)
    return _made(context, path, entry, f"Created {path}.")


def fork(context: Context, call: Call) -> str:
    """`repo fork`: a copy of the person's own."""
    source = repositories.find(context, call.arguments[0])
    path = call.arguments[1]
    entry = _new_entry(context, path, call, source)
    with fork_size.reserved(context, path, context.place(source.path)) as size:
        creation.create(context, path, entry, creation.Source(source, size))
    return _made(context, path, entry, f"Forked {source.path} as {path}.")


def _new_entry(context: Context, path: str, call: Call, source: Repository | None) -> Entry:
    static, person = context.static, context.principal
    rules.check_creation(path, person, static, context.entries, context.url)
    entry = Entry(person.name, _description(call.options.get("--description", "")))
    inherited: Read = user_repositories.effective(path, entry, static).read
    return Entry(
        owner=person.name,
        description=entry.description,
        created=user_repositories.now(),
        read=rules.readers(call.options.get("--read"), inherited, source),
        forked_from=source.path if source else None,
        owner_id=person.person_id,
    )


def _description(text: str) -> str:
    if problem := description_problem(text):
        raise UsageError(f"That cannot be a description. Expected: {problem}.")
    return text


def _made(context: Context, path: str, entry: Entry, what: str) -> str:
    repository = user_repositories.effective(path, entry, context.static)
    return (
        f"{what}\n\n"
        f"  hg clone {context.url}/{path}\n\n"
        f"may read:  {rules.readers_text(repository.read, entry.owner)}\n"
        f"may push:  {rules.writers_text(repository)}\n"
    )


def describe(context: Context, call: Call) -> str:
    """`repo describe`: another description."""
    path, text = call.arguments
    repositories.describe(context, path, _description(text))
    return f"{path}: {text}\n"


def drafts(context: Context, call: Call) -> str:
    """`repo drafts`: whether drafts stay drafts."""
    path, choice = call.arguments
    if choice not in ("on", "off"):
        raise UsageError(f"{quoted(choice)}: expected on or off. {HELP}")
    repositories.keep_drafts(context, path, choice == "on")
    if choice == "on":
        return (
            f"{path}: drafts stay drafts, and obsolescence markers are exchanged: push changesets\n"
            "that you still rewrite (hg amend, evolve, topics). All its readers can read drafts.\n"
        )
    return f"{path}: a push publishes its changesets, and no obsolescence markers are exchanged.\n"


def archive(context: Context, call: Call) -> str:
    """`repo archive`: out of service, not deleted."""
    path = call.arguments[0]
    repositories.archive(context, path)
    return (
        f"Archived {path}: it can no longer be read or pushed to.\n"
        f'"repo restore {path}" brings it back. It keeps its name and counts for your limit\n'
        f'until "repo delete {path} {path}", or until operators delete it,\n'
        f"after {deletion.PURGE_AFTER_DAYS} days or more.\n"
    )


def rename(context: Context, call: Call) -> str:
    """`repo rename`: another path."""
    old, new = call.arguments
    new = renaming.rename(context, old, new)
    return (
        f"Renamed {repositories.plain(old)} to {new}.\n\n"
        f"  hg clone {context.url}/{new}\n\n"
        "Its readers are told so at the old address until you make another repository there.\n"
    )


def delete(context: Context, call: Call) -> str:
    """`repo delete`: for good."""
    path, again = call.arguments
    deletion.delete_own(context, path, again)
    return (
        f"Deleted {repositories.plain(path)} for good. Its name and its place in your limit are "
        "free.\n"
    )


def restore(context: Context, call: Call) -> str:
    """`repo restore`: in service again."""
    path = call.arguments[0]
    renaming.finish(context, repositories.plain(path))
    repositories.restore(context, path)
    return f"Restored {path}: it is as it was.\n"
