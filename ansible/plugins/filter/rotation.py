"""Filters of playbooks/rotate*.yml: replace secrets in a vault, keeping the former secrets.

A vault is YAML with a secret on each line (`name: "value"`). Comments and order stay. While a
rotation is under way, `former_NAME` is the secret that was in force before; a run that finds it
goes on with the rotation and makes no further secret.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from typing import TYPE_CHECKING

import yaml
from ansible.errors import AnsibleFilterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORMER = "former_"
"""Prefix of the name of a secret that goes at the end of the rotation."""

_LENGTH = 40
"""238 bits of letters and digits, which every consumer takes without quoting."""


def rotation_begun(vault: str, names: Iterable[str], accounts: Iterable[str] = ()) -> str:
    """Return the vault with a new secret for each name that no rotation has replaced yet.

    `accounts` are the names whose value identifies an account, such as an access key id. A second
    secret needs an account of its own there; its identifier is the former identifier, counted up.
    """
    known, accounts = _parse(vault), frozenset(accounts)
    for name in names:
        value = known.get(name)
        if not isinstance(value, str) or not value:
            raise AnsibleFilterError(
                f'the vault has no secret {name}, expected a line {name}: "...". '
                "Name the secrets of your inventory in rotate_secrets"
            )
        if FORMER + name in known:
            continue
        line = re.search(rf"(?m)^{re.escape(name)}:.*$", vault)
        if line is None or _parse(line[0]).get(name) != value:
            raise AnsibleFilterError(f"{name} in the vault is not on one line: nothing was changed")
        new = _counted_up(value) if name in accounts else _secret()
        lines = f"{name}: {json.dumps(new)}\n{FORMER}{name}: {json.dumps(value)}"
        vault = vault[: line.start()] + lines + vault[line.end() :]
    return vault


def _secret() -> str:
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(_LENGTH))


def _counted_up(account: str) -> str:
    """Return the identifier of the next account: "bundles", "bundles-2", "bundles-3"."""
    base, dash, number = account.rpartition("-")
    if dash and re.fullmatch(r"[1-9][0-9]{0,5}", number):
        return f"{base}-{int(number) + 1}"
    return f"{account}-2"


def rotation_ended(vault: str, names: Iterable[str]) -> str:
    """Return the vault without the former secrets."""
    for name in names:
        vault = re.sub(rf"(?m)^{FORMER}{re.escape(name)}:.*\n?", "", vault)
    return vault


def _parse(vault: str) -> dict[str, object]:
    try:
        content = yaml.safe_load(vault)
    except yaml.YAMLError:
        # The parser's error quotes the line, which is a secret.
        raise AnsibleFilterError("the vault is not YAML") from None
    return content if isinstance(content, dict) else {}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Return the filters by name."""
        return {"rotation_begun": rotation_begun, "rotation_ended": rotation_ended}
