"""Texts of goldens from the changes of a host. Pure.

For each part, a host has the set-up by `site.yml` in the order of the run, then the text of each
file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.checks.goldens.once import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.checks.goldens.site import Change

HASH: Final = re.compile(r"\{SSHA\}[A-Za-z0-9+/=]+")

UNTOLD: Final = frozenset(
    {
        "_raw_params",
        "aws_ca_bundle",
        "cache_valid_time",
        "comment",
        "daemon_reload",
        "force",
        "follow",
        "install_recommends",
        "update_cache",
        "validate",
    }
)
"""Arguments about the way a module works, which do not change the result on the host."""


class _Dumper(yaml.SafeDumper):
    """Text of several lines stays readable."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


def masked(text: str, secrets: Mapping[str, str]) -> str:
    """Return the text with the name of each secret in place of its value."""
    for name, value in sorted(secrets.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, f"<{name}>")
    return HASH.sub("{SSHA}<hash>", text)


def _told(change: Change) -> str:
    """Describe the result of a module, on a single line if it is short."""
    module = change.module.rpartition(".")[2]
    # Nothing but data of YAML: Ansible's own types carry tags.
    told = {k: v for k, v in change.arguments.items() if k not in UNTOLD and v is not None}
    plain = _plain(told)
    if module == "apt":
        names = plain.get("name") or []
        return f"packages: {' '.join([names] if isinstance(names, str) else sorted(names))}"
    if module == "file":
        return _folder(plain)
    if all(not isinstance(value, dict) and "\n" not in str(value) for value in plain.values()):
        return f"{module}: {' '.join(f'{name}={_short(value)}' for name, value in plain.items())}"
    text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
    return f"{module}:\n" + "".join(f"  {line}\n" for line in text.splitlines()).rstrip("\n")


def _folder(plain: Mapping[str, Any]) -> str:
    state, path = plain.get("state", "file"), plain.get("path") or plain.get("dest")
    if state == "absent":
        return f"absent: {path}"
    if state == "link":
        return f"link: {path} -> {plain['src']}"
    return f"{state}: {path} {_rights(plain)}"


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _rights(arguments: Mapping[str, Any]) -> str:
    owner, group = arguments.get("owner", "?"), arguments.get("group", "?")
    return f"{owner}:{group} {arguments.get('mode', '?')}"


def _file(change: Change, cleaned: Callable[[str], str]) -> Text:
    path = cleaned(str(change.arguments["dest"]))
    source = f"  from {change.sources[0]}" if change.sources else ""
    heading = f"=== {path}  {_rights(change.arguments)}{source}"
    return Text(cleaned(str(change.content).rstrip("\n")), heading, path.rpartition("/")[2])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else _text(value)


def _text(value: Any) -> str:
    """Return a plain str: Ansible's subclass of str has the origin of a text."""
    return "".join(str(value))


def texts(
    hosts: Mapping[str, Sequence[Change]],
    secrets: Mapping[str, str],
    replaced: Mapping[str, str],
) -> dict[str, dict[str, list[Text]]]:
    """Return the texts of each part and host in order; `replaced` are texts of this machine."""

    def cleaned(text: str) -> str:
        for machine, name in replaced.items():
            text = text.replace(machine, name)
        return masked(text, secrets)

    result: dict[str, dict[str, list[Text]]] = {}
    for host, changes in hosts.items():
        for part in dict.fromkeys(change.part for change in changes):
            own = [change for change in changes if change.part == part]
            told = [Text(cleaned(_told(change))) for change in own if change.content is None]
            files = [_file(change, cleaned) for change in own if change.content is not None]
            result.setdefault(part, {})[host] = [*told, *files]
    return result
