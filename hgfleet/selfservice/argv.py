"""The line that a client sent, split into an argv. Pure.

The line comes as sshd received it: the client's own shell has already removed a level of quotes,
and ssh has joined the arguments with blanks. No shell reads the line here, and nothing in it is
expanded: arguments are separated by blanks, and '...' or "..." keep blanks inside an argument.
Within quotes every character stands for itself.
"""

from __future__ import annotations

from hgfleet.core.errors import UsageError


def split(line: str) -> list[str]:
    """Split a line into arguments. Raises UsageError for an open quote or a control character."""
    argv: list[str] = []
    argument: list[str] | None = None
    quote = ""
    for character in line:
        if not character.isprintable():
            raise UsageError("That command has a character that cannot be printed.")
        if quote:
            if character == quote:
                quote = ""
            elif argument is not None:
                argument.append(character)
        elif character == " ":
            if argument is not None:
                argv.append("".join(argument))
            argument = None
        else:
            argument = [] if argument is None else argument
            if character in "'\"":
                quote = character
            else:
                argument.append(character)
    if quote:
        raise UsageError(f"That command has an opening quote {quote} without a closing quote.")
    if argument is not None:
        argv.append("".join(argument))
    return argv


def quoted(text: str) -> str:
    """Quote a text of a client for a sentence, safe to print on a terminal."""
    short = text if len(text) <= 100 else f"{text[:100]}..."
    return "'" + "".join(c if " " <= c <= "~" else "?" for c in short) + "'"
