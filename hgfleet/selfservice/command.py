"""Commands of the self-service: their form, and the parsing of an argv into a call. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hgfleet.core.errors import UsageError
from hgfleet.hg import wake
from hgfleet.selfservice.argv import quoted, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hgfleet.selfservice.context import Context

    Run = Callable[[Context, "Call"], str]

HELP = 'See "ssh hg@HOST help".'


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its form, its help, and the function that runs it.

    `name` has one or two words, such as "repo create". `arguments` are named in capitals; `[NAME]`
    is optional, and a last `NAME...` takes all further arguments as a single text. `options` maps
    each option to the name of its value, or to "" if it takes none. `document` is the document that
    the command changes and that mirrors copy; `words` is the name of its content for people.
    """

    name: str
    summary: str
    run: Run
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    details: str = ""
    document: str = ""
    words: tuple[str, str, str, str] = wake.SHOWN

    @property
    def usage(self) -> str:
        """The whole form, as help and refusals show it."""
        options = [
            f"[{name} {value}]" if value else f"[{name}]" for name, value in self.options.items()
        ]
        return " ".join([self.name, *options, *self.arguments])


@dataclass(frozen=True, slots=True)
class Call:
    """A command with the values of its arguments and options."""

    command: Command
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def understand(line: str, commands: Sequence[Command]) -> Call | None:
    """Return the call that a line makes; None if it begins with none of the commands.

    Raises UsageError, with the form of the command that was meant.
    """
    try:
        argv = split(line)
    except UsageError:
        # A line that begins like no command gets the general refusal instead.
        if any(command.name.split()[0] == line.split(" ")[0] for command in commands):
            raise
        return None
    named = [(command.name.split(), command) for command in commands]
    for name, command in sorted(named, key=lambda item: -len(item[0])):
        if argv[: len(name)] == name:
            return _call(command, argv[len(name) :])
    group = sorted(" ".join(name) for name, _ in named if len(name) > 1 and argv[:1] == name[:1])
    if group:
        raise UsageError(f"Expected one of: {', '.join(group)}. {HELP}")
    return None


def _call(command: Command, argv: Sequence[str]) -> Call:
    options: dict[str, str] = {}
    given: list[str] = []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        is_text = not command.options and given and _takes_text(command, len(given))
        if is_text or not argument.startswith("-"):
            given.append(argument)
            continue
        name, joined, value = argument.partition("=")
        if name not in command.options:
            raise _wrong(command, f"{quoted(name)} is not an option of this command")
        if name in options:
            raise _wrong(command, f"{name} is given twice")
        if command.options[name] and not joined:
            if not rest:
                raise _wrong(command, f"{name} has no {command.options[name]}")
            value = rest.pop(0)
        elif joined and not command.options[name]:
            raise _wrong(command, f"{name} has no value")
        options[name] = value
    least = sum(not argument.startswith("[") for argument in command.arguments)
    if len(given) < least:
        raise _wrong(command, f"there is no {command.arguments[len(given)].removesuffix('...')}")
    most = len(command.arguments)
    if command.arguments and _takes_text(command, most):
        given[most - 1 :] = [" ".join(given[most - 1 :])] if len(given) >= most else []
    elif len(given) > most:
        hint = "; a text of several words needs quotes that your own shell leaves in place"
        hint = hint if any(value == "TEXT" for value in command.options.values()) else ""
        raise _wrong(command, f"{quoted(given[most])} is too much{hint}")
    return Call(command, tuple(given), options)


def _takes_text(command: Command, position: int) -> bool:
    """Whether the argument that begins at or before this position takes all further arguments.

    If a command has options, such arguments are searched for them first: a misplaced `--days 7`
    must be refused and not become a part of the text.
    """
    last = command.arguments[-1] if command.arguments else ""
    return last.rstrip("]").endswith("...") and position >= len(command.arguments) - 1


def _wrong(command: Command, problem: str) -> UsageError:
    return UsageError(f'"{command.name}": {problem}. Expected: ssh hg@HOST {command.usage}')
