"""The table of all commands, and `help` about them.

A further command is a line in COMMANDS and a function that takes the session's context and the
call, and returns its output. Refusals are UsageError, AccessDeniedError and TemporaryError, with a
sentence for the person. Every other error is logged for the operators, and the person is told that
there was an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import UsageError
from hgfleet.hg import wake
from hgfleet.selfservice import deletion, service_address
from hgfleet.selfservice import person_commands as person
from hgfleet.selfservice import repository_commands as repository
from hgfleet.selfservice import token_commands as token
from hgfleet.selfservice.command import Command

if TYPE_CHECKING:
    from hgfleet.selfservice.command import Call
    from hgfleet.selfservice.context import Context


def help_(context: Context, call: Call) -> str:
    """`help`: all commands, or a single command."""
    if call.arguments:
        return help_about(call.arguments[0])
    forms = [("hg clone ssh://hg@HOST/PATH", "clone, pull from and push to a repository")]
    forms += [(f"ssh hg@HOST {command.name}", command.summary) for command in COMMANDS]
    width = max(len(form) for form, _ in forms)
    lines = "".join(f"  {form:{width}}  {summary}\n" for form, summary in forms)
    known = context.url != service_address.UNKNOWN
    hint = "." if known else "; put its name where HOST stands."
    return (
        f"You are {context.principal.name}. This is a Mercurial server{hint}\n\n{lines}\n"
        '"ssh hg@HOST help COMMAND" says more about a command. There is no shell here, and '
        "nothing is\nforwarded. Not offered: lfs, largefiles, narrow.\n"
    )


def help_about(name: str) -> str:
    """Return all help on a command, or the forms of all commands that begin with this name."""
    matching = [
        command for command in COMMANDS if f"{command.name} ".startswith(f"{name.strip()} ")
    ]
    if not matching:
        names = ", ".join(command.name for command in COMMANDS)
        raise UsageError(f"There is no help on that. The commands are: {names}.")
    if len(matching) > 1:
        return "".join(
            f"ssh hg@HOST {command.usage}\n    {command.summary}\n" for command in matching
        )
    (command,) = matching
    details = f"\n{command.details.strip()}\n" if command.details else ""
    summary = command.summary[0].upper() + command.summary[1:]
    return f"ssh hg@HOST {command.usage}\n\n{summary}.\n{details}"


_READ_DETAILS = """\
  --description TEXT   a single line. Your own shell takes quotes away, so put the whole command
                         in other quotes: ssh hg@HOST 'repo create PATH --description "Two words"'
  --read public        all users may read it, also over HTTPS without a name
  --read private       only you may read it
  --read GROUP,...     you and the members of these groups
"""

COMMANDS: Final[tuple[Command, ...]] = (
    Command("help", "this text, or more about one command", help_, ("[COMMAND...]",)),
    Command("whoami", "your name, your groups, and where you may do what", person.whoami),
    Command("keys", "the key that you are using, and how other keys are added", person.keys),
    Command(
        "repo list",
        "the repositories that you may read",
        repository.list_,
        ("[PATTERN]",),
        {"--mine": "", "--archived": ""},
        """
  PATTERN      a part of the path, or a pattern with * and ?
  --mine       repositories that you own
  --archived   repositories that you have archived
""",
    ),
    Command("repo info", "all about a repository", repository.info, ("PATH",)),
    Command(
        "repo create",
        "make an empty repository of your own",
        repository.create,
        ("PATH",),
        {"--description": "TEXT", "--read": "WHO"},
        f"""
"whoami" says where you may create repositories and how many. You own what you create: you may push
to it, describe it, archive it.

{_READ_DETAILS}
Without --read, the namespace says who may read it.
""",
        document=wake.REGISTRY,
    ),
    Command(
        "repo fork",
        "copy a repository into a repository of your own",
        repository.fork,
        ("SOURCE", "PATH"),
        {"--description": "TEXT", "--read": "WHO"},
        f"""
The fork has what a reader of the source sees, and does not follow the source afterwards. Without
--read, a fork of a private repository has the readers of its source; it can have fewer, not more.

{_READ_DETAILS}
""",
        document=wake.REGISTRY,
    ),
    Command(
        "repo describe",
        "change the description of a repository that you own",
        repository.describe,
        ("PATH", "TEXT..."),
        document=wake.REGISTRY,
    ),
    Command(
        "repo drafts",
        "keep drafts in a repository that you own, or publish them",
        repository.drafts,
        ("PATH", "on|off"),
        details="""
on    pushed drafts stay drafts, and obsolescence markers are exchanged: for amend, evolve, topics
off   a push publishes its changesets (as in a new repository, unless its namespace says otherwise)
""",
        document=wake.REGISTRY,
    ),
    Command(
        "repo rename",
        "give a repository that you own another path",
        repository.rename,
        ("PATH", "NEW-PATH"),
        details="""
It stays in its namespace. A push that is under way ends first. At the old address, people who may
read the repository are told its new address, and web pages lead there.
""",
        document=wake.REGISTRY,
    ),
    Command(
        "repo archive",
        "take a repository that you own out of service",
        repository.archive,
        ("PATH",),
        details=f"""
From then on all users are answered as if it did not exist. A push that is under way ends as usual.
Nothing is deleted: "repo restore PATH" brings it back, "repo delete PATH PATH" deletes it for good.
Operators may delete it after {deletion.PURGE_AFTER_DAYS} days.
""",
        document=wake.REGISTRY,
        words=wake.GONE,
    ),
    Command(
        "repo restore",
        "bring back a repository that you archived",
        repository.restore,
        ("PATH",),
        document=wake.REGISTRY,
    ),
    Command(
        "repo delete",
        "delete a repository that you archived, for good",
        repository.delete,
        ("PATH", "PATH-AGAIN"),
        details="""
The path is given twice because nothing brings the repository back. Its name is free at once, and it
no longer counts for your limit. Forks of it stay.
""",
        document=wake.REGISTRY,
        words=wake.GONE,
    ),
    Command(
        "token create",
        "make a token for reading over HTTPS",
        token.create,
        ("[DESCRIPTION...]",),
        {"--days": "N"},
        """
It is shown once, reads what you may read, and is used in place of a password. A description that
begins with a number or with a word of a command is refused, since it is a mistyped command.

  --days N     for how many days it is good
""",
        document=wake.TOKENS,
        words=wake.ACCEPTED,
    ),
    Command("token list", "your tokens, without the secrets", token.list_),
    Command(
        "token revoke",
        "end a token at once",
        token.revoke,
        ("ID",),
        document=wake.TOKENS,
        words=wake.REFUSED,
    ),
)

GREETING: Final = Command("", "", person.greeting)
