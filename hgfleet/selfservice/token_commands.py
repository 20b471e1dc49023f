"""Commands about access tokens: `token create`, `token list`, `token revoke`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file, tokens
from hgfleet.core.errors import UsageError
from hgfleet.selfservice.argv import quoted

if TYPE_CHECKING:
    from hgfleet.auth.tokens import Tokens
    from hgfleet.selfservice.command import Call
    from hgfleet.selfservice.context import Context


# A description that looks like a number of days, or like another command.
_MISTYPED: Final = re.compile(
    r"(?:-|[0-9]+\s*d?(?:ays?)?$|(?:days?|help|usage|repo|token|create|list|ls|show|revoke|delete)\b)",
    re.IGNORECASE,
)


def create(context: Context, call: Call) -> str:
    """`token create`: a new token, whose secret is shown once."""
    days = call.options.get("--days", str(tokens.DAYS))
    if not re.fullmatch(r"[0-9]{1,4}", days):
        raise UsageError("--days: expected a number of days behind it.")
    description = " ".join(call.arguments)
    if _MISTYPED.match(description):
        raise UsageError(
            f"{quoted(description)} reads like a mistyped command, and no token was made. Expected "
            'the purpose of the token, such as "token create --days 30 nightly build".'
        )
    person = context.principal
    with token_file.update(context.tokens) as kept:
        new, identity, secret = tokens.create(kept, person, description, int(days), _now())
        _replace(kept, new)
    return (
        f"{secret}\n\n"
        f"This is token {identity}. It is shown only now, reads what you may read, and\n"
        f"ends on {new[identity].expires[:10]}. "
        f"Use it as the password of {person.name} over HTTPS.\n"
    )


def list_(context: Context, _call: Call) -> str:
    """`token list`: the tokens of the person, without their secrets."""
    mine = tokens.of_owner(token_file.load(context.tokens), context.principal, _now())
    if not mine:
        return 'You have no tokens; "token create" makes a token.\n'
    lines = [f"{'id':<{tokens.ID_LENGTH}}  {'created':<10}  {'expires':<10}  description"]
    for name, token in sorted(mine.items(), key=lambda item: (item[1].created, item[0])):
        line = f"{name}  {token.created[:10]}  {token.expires[:10]}  {token.description}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def revoke(context: Context, call: Call) -> str:
    """`token revoke`: end a token at once."""
    (identity,) = call.arguments
    with token_file.update(context.tokens) as kept:
        _replace(kept, tokens.revoke(kept, context.principal, identity))
    return f"Token {identity} is revoked.\n"


def _replace(kept: Tokens, new: Tokens) -> None:
    kept.clear()
    kept.update(new)


def _now() -> datetime:
    return datetime.fromtimestamp(int(time.time()), UTC)
