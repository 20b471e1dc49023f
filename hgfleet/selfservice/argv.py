"""From the line that a client sent to a call of one command. Pure.

The line comes as sshd received it: the client's own shell has already removed one level of quotes,
and ssh has joined the words with blanks. No shell reads it here, and nothing in it is expanded: it
consists of words between blanks, and '...' or "..." keep blanks together. Within quotes every
character stands for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hgfleet.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hgfleet.selfservice.context import Context

    Run = Callable[[Context, "Call"], str]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: how it is called, what help says of it, and what carries it out.

    `name` is what people type ("repo create"). `arguments` names what has to follow, in capitals;
    `[NAME]` may be left out, and a last `NAME...` takes all further words as one text. `options`
    have the name of their value, or "" for those without.
    """

    name: str
    summary: str
    run: Run
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    details: str = ""

    @property
    def usage(self) -> str:
        """The whole form, as help and refusals show it."""
        options = [
            f"[{name} {value}]" if value else f"[{name}]" for name, value in self.options.items()
        ]
        return " ".join([self.name, *options, *self.arguments])


@dataclass(frozen=True, slots=True)
class Call:
    """A command with what was given: a text for each of its arguments that is there."""

    command: Command
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def split(line: str) -> list[str]:
    """Split a line into words. Raises UsageError for what no command needs."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    for character in line:
        if not character.isprintable():
            raise UsageError("That command has a character that cannot be printed.")
        if quote:
            if character == quote:
                quote = ""
            elif word is not None:
                word.append(character)
        elif character == " ":
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = [] if word is None else word
            if character in "'\"":
                quote = character
            else:
                word.append(character)
    if quote:
        raise UsageError(f"That command has a quote {quote} without its second half.")
    if word is not None:
        words.append("".join(word))
    return words


def understand(line: str, commands: Sequence[Command]) -> Call | None:
    """Return what is to be done; None if the line begins with none of the commands.

    Raises UsageError, with the form of the command that was meant.
    """
    try:
        words = split(line)
    except UsageError:
        # Only whoever knows our commands is told about quotes.
        if any(command.name.split()[0] == line.split(" ")[0] for command in commands):
            raise
        return None
    named = [(command.name.split(), command) for command in commands]
    for name, command in sorted(named, key=lambda item: -len(item[0])):
        if words[: len(name)] == name:
            return _call(command, words[len(name) :])
    group = sorted(" ".join(name) for name, _ in named if len(name) > 1 and words[:1] == name[:1])
    if group:
        raise UsageError(f"Expected one of: {', '.join(group)}. {HELP}")
    return None


HELP = 'See "ssh hg@HOST help".'


def _call(command: Command, words: Sequence[str]) -> Call:
    options: dict[str, str] = {}
    given: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or (given and _takes_text(command, len(given))):
            given.append(word)
            continue
        name, joined, value = word.partition("=")
        if name not in command.options:
            raise _wrong(command, f"{shown(name)} is no option of it")
        if name in options:
            raise _wrong(command, f"{name} is there twice")
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
        raise _wrong(command, f"{shown(given[most])} is too much{hint}")
    return Call(command, tuple(given), options)


def _takes_text(command: Command, position: int) -> bool:
    """Whether the argument that begins at or before this position takes all further words."""
    last = command.arguments[-1] if command.arguments else ""
    return last.rstrip("]").endswith("...") and position >= len(command.arguments) - 1


def _wrong(command: Command, problem: str) -> UsageError:
    return UsageError(f'"{command.name}": {problem}. Expected: ssh hg@HOST {command.usage}')


def shown(text: str) -> str:
    """What a client sent, in quotes, safe to print on a terminal."""
    short = text if len(text) <= 100 else f"{text[:100]}..."
    return "'" + "".join(c if " " <= c <= "~" else "?" for c in short) + "'"
