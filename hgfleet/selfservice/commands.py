"""The table of all commands: what people type, what help says, what carries it out.

A further command is a line in COMMANDS and a function that takes the session's context and the
call, and returns what to print. Refusals are UsageError, AccessDeniedError and TemporaryError, with
a sentence for the person; every other error is told to the operators, and to the person that there
is one.
"""

from __future__ import annotations

import fnmatch
import subprocess
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import RegistryError, UsageError
from hgfleet.core.text import alternatives
from hgfleet.registry import permissions, user_repositories
from hgfleet.selfservice import repositories, rules
from hgfleet.selfservice.argv import HELP, Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.core.principal import Principal
    from hgfleet.registry.model import Read, Registry, Repository
    from hgfleet.registry.user_repositories import Entry
    from hgfleet.selfservice.argv import Call
    from hgfleet.selfservice.context import Context

LISTED: Final = 20
"""Repositories that one line names; `repo list` has them all."""


# --- about the person -----------------------------------------------------------------------


def whoami(context: Context, _call: Call) -> str:
    """`whoami`: name, groups, and what may be done where."""
    person, known = context.principal, context.known
    readable = [r for r in known.repositories.values() if permissions.may_read(r, person)]
    pushable = [r.path for r in readable if permissions.may_push(r, person)]
    return (
        f"name:      {person.name}\n"
        f"groups:    {', '.join(sorted(person.groups)) or 'none'}\n"
        f"may push:  {_listed(pushable)}\n"
        f"may read:  {_listed([r.path for r in readable])}\n"
        f"create at: {_places(context)}\n"
    )


def _places(context: Context) -> str:
    """Where the person may create repositories, and how much of the quota is used."""
    person, known = context.principal, context.known
    open_ = list(rules.open_namespaces(person, known))
    if not open_:
        return "nothing"
    try:
        entries = context.entries
    except RegistryError:
        return "nothing at the moment"
    return ", ".join(
        f"{rules.form(namespace, person)} "
        f"({len(rules.owned(person.name, namespace, known, entries))} of {namespace.quota} used)"
        for namespace in open_
    )


def greeting(context: Context, call: Call) -> str:
    """Say what a login without a command prints."""
    return (
        f"Hello {context.principal.name}: your key works.\n\n"
        f"{whoami(context, call)}\n"
        'This is a Mercurial server without a shell. "ssh hg@HOST help" says what works.\n'
    )


def keys(context: Context, _call: Call) -> str:
    """`keys`: the key of this session."""
    used = context.fingerprint or "a certificate (its key is not in the directory)"
    return (
        f"This session's key:  {used}\n\n"
        "Compare it with what `ssh-keygen -l -f KEY.pub` prints. A key is looked up at each\n"
        "login, and this shell cannot see the others. Operators add and remove keys: send them\n"
        "the line in KEY.pub, never the file without .pub. Tell them at once of a key that you\n"
        "lost: it stops working when they remove it.\n"
    )


# --- repositories ---------------------------------------------------------------------------


def list_(context: Context, call: Call) -> str:
    """`repo list`: the repositories that the person may read, or owns, or has archived."""
    pattern = call.arguments[0] if call.arguments else "*"
    if not any(character in pattern for character in "*?["):
        pattern = f"*{pattern}*"
    person = context.principal
    rows: list[tuple[str, str, str]] = []
    if "--archived" in call.options:
        for path, entry in context.entries.repositories.items():
            if entry.owner == person.name and entry.archived is not None:
                rows.append((path, f"archived {entry.archived[:10]}", entry.description))
    else:
        for repository in context.known.repositories.values():
            if not permissions.may_read(repository, person):
                continue
            if "--mine" in call.options and repository.owner != person.name:
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
    """`repo info`: all about one repository."""
    repository = repositories.find(context, call.arguments[0])
    path, place = repository.path, context.place(repository.path)
    entry = None
    if repository.owner is not None:
        entry = context.entries.repositories.get(path)
    lines = {
        "path": path,
        "description": repository.description or "none",
        "owner": repository.owner or "the operators of this service",
        "may read": rules.readers_text(repository.read, repository.owner),
        "may push": rules.writers_text(repository),
        "policies": ", ".join(repository.policies) or "none",
    }
    for rule in repository.rules:
        where = [f"branches {alternatives(rule.branches)}"] if rule.branches else []
        where += [f"paths {alternatives(rule.paths)}"] if rule.paths else []
        who = f"members of {alternatives(rule.push)}" if rule.push else "nobody"
        lines[f"only {who}"] = f"may push to {' and '.join(where) or 'it'}"
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


def _is_readable(context: Context, path: str) -> bool:
    repository = context.known.repositories.get(path)
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
    repositories.create(context, path, entry)
    return _made(context, path, entry, f"Created {path}.")


def fork(context: Context, call: Call) -> str:
    """`repo fork`: a copy of the person's own."""
    source = repositories.find(context, call.arguments[0])
    path = call.arguments[1]
    entry = _new_entry(context, path, call, source)
    repositories.create(context, path, entry, source)
    return _made(context, path, entry, f"Forked {source.path} as {path}.")


def _new_entry(context: Context, path: str, call: Call, source: Repository | None) -> Entry:
    static, person = context.static, context.principal
    rules.check_creation(path, person, static, context.entries)
    entry = user_repositories.Entry(
        person.name, _description(call.options.get("--description", ""))
    )
    inherited: Read = user_repositories.effective(path, entry, static).read
    return user_repositories.Entry(
        owner=person.name,
        description=entry.description,
        created=user_repositories.now(),
        read=rules.readers(call.options.get("--read"), inherited, source),
        forked_from=source.path if source else None,
    )


def _description(text: str) -> str:
    if problem := user_repositories.description_problem(text):
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


def archive(context: Context, call: Call) -> str:
    """`repo archive`: out of service, not deleted."""
    path = call.arguments[0]
    repositories.archive(context, path)
    return (
        f"Archived {path}: nobody can read it or push to it now.\n"
        f'"repo restore {path}" brings it back. Operators may delete it for good after\n'
        f"{rules.PURGE_AFTER_DAYS} days; until then it keeps its name and counts for your limit.\n"
    )


def restore(context: Context, call: Call) -> str:
    """`repo restore`: in service again."""
    path = call.arguments[0]
    repositories.restore(context, path)
    return f"Restored {path}: it is as it was.\n"


# --- access tokens --------------------------------------------------------------------------


def token(context: Context, call: Call) -> str:
    """`token ...`: secrets for reading over HTTPS."""
    from hgfleet.auth import tokens

    words = call.command.name.split()[1:]
    words += [word for option in call.options.items() for word in option]
    words += [word for text in call.arguments for word in text.split(" ")]
    return tokens.command(words, context.principal.name)


# --- help -----------------------------------------------------------------------------------


def help_(context: Context, call: Call) -> str:
    """`help`: all commands, or one."""
    if call.arguments:
        return help_about(call.arguments[0])
    forms = [("hg clone ssh://hg@HOST/PATH", "clone, pull from and push to a repository")]
    forms += [(f"ssh hg@HOST {command.name}", command.summary) for command in COMMANDS]
    width = max(len(form) for form, _ in forms)
    lines = "".join(f"  {form:{width}}  {summary}\n" for form, summary in forms)
    return (
        f"You are {context.principal.name}. This is a Mercurial server; put its name where HOST "
        f"stands.\n\n{lines}\n"
        '"ssh hg@HOST help COMMAND" says more about one of them. There is no shell here, and '
        "nothing is\nforwarded.\n"
    )


def help_about(words: str) -> str:
    """Say everything about one command, or about all that begin with these words."""
    found = [command for command in COMMANDS if f"{command.name} ".startswith(f"{words.strip()} ")]
    if not found:
        names = ", ".join(command.name for command in COMMANDS)
        raise UsageError(f"There is no help on that. The commands are: {names}.")
    if len(found) > 1:
        return "".join(f"ssh hg@HOST {one.usage}\n    {one.summary}\n" for one in found)
    (command,) = found
    details = f"\n{command.details.strip()}\n" if command.details else ""
    summary = command.summary[0].upper() + command.summary[1:]
    return f"ssh hg@HOST {command.usage}\n\n{summary}.\n{details}"


def _listed(paths: Sequence[str]) -> str:
    if not paths:
        return "nothing"
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(paths[:LISTED]) + more


_READ_DETAILS = """\
  --description TEXT   one line. Your own shell takes quotes away, so put the whole command in
                       others: ssh hg@HOST 'repo create PATH --description "Two words"'
  --read public        everybody may read it, also over HTTPS without a name
  --read private       you alone
  --read GROUP,...     you and the members of these groups
"""

COMMANDS: Final[tuple[Command, ...]] = (
    Command("help", "this text, or more about one command", help_, ("[COMMAND...]",)),
    Command("whoami", "your name, your groups, and what you may do where", whoami),
    Command("keys", "the key that you are using, and how to have others added", keys),
    Command(
        "repo list",
        "the repositories that you may read",
        list_,
        ("[PATTERN]",),
        {"--mine": "", "--archived": ""},
        """
  PATTERN      a part of the path, or a pattern with * and ?
  --mine       those that you own
  --archived   those that you have archived
""",
    ),
    Command("repo info", "all about one repository", info, ("PATH",)),
    Command(
        "repo create",
        "make an empty repository of your own",
        create,
        ("PATH",),
        {"--description": "TEXT", "--read": "WHO"},
        f"""
"whoami" says where you may create repositories and how many. You own what you create: you may push
to it, describe it, archive it.

{_READ_DETAILS}
Without --read, its namespace says who may read it.
""",
    ),
    Command(
        "repo fork",
        "copy a repository into one of your own",
        fork,
        ("SOURCE", "PATH"),
        {"--description": "TEXT", "--read": "WHO"},
        f"""
The fork has what a reader of the source sees, and does not follow it afterwards. Without --read, a
fork of a private repository has the readers of its source; it can have fewer, not more.

{_READ_DETAILS}
""",
    ),
    Command(
        "repo describe",
        "change the description of a repository that you own",
        describe,
        ("PATH", "TEXT..."),
    ),
    Command(
        "repo archive",
        "take a repository that you own out of service",
        archive,
        ("PATH",),
        details=f"""
From then on it is for everybody as if it did not exist; a push that is under way ends as usual.
Nothing is deleted: "repo restore PATH" brings it back. Operators may delete it for good after
{rules.PURGE_AFTER_DAYS} days.
""",
    ),
    Command("repo restore", "bring back a repository that you archived", restore, ("PATH",)),
    Command(
        "token create",
        "make a token for reading over HTTPS",
        token,
        ("[DESCRIPTION...]",),
        {"--days": "N"},
        """
It is shown once, reads what you may read, and is used in place of a password.

  --days N     for how many days it is good
""",
    ),
    Command("token list", "your tokens, without the secrets", token),
    Command("token revoke", "end a token at once", token, ("ID",)),
)

GREETING: Final = Command("", "", greeting)


def known_words(known: Registry, principal: Principal) -> list[str]:
    """Return the paths that may be offered to a person who misspelt one."""
    return [r.path for r in known.repositories.values() if permissions.may_read(r, principal)]


__all__ = ["COMMANDS", "GREETING", "HELP", "help_about", "known_words"]
