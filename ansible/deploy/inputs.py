"""Which parts of the service a change of the inventory concerns. Pure but for `files_below`.

A deploy of all parts leaves on each host a note: a hash of each input. If only people or the
registry differ from the note, a run of the parts that read them is enough. Any other difference,
and any doubt, is a run of all parts:

- a host has no note, or another one than the other hosts: a run broke off, or was made by hand
  (every run of site.yml removes the note before it changes a host);
- nothing differs: a run of all parts finds what was changed by hand on a host;
- the inventory has a value that this module cannot follow, such as a lookup of a file;
- the last run of all parts is more than a week ago: such runs renew certificates.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

VARIABLES: Final = ("directory_people", "directory_groups")
"""Variables that one role alone reads; testing/unit/test_deploy_inputs.py searches the roles."""

REGISTRY: Final = "mercurial_registry"
PARTS: Final[Mapping[str, str]] = {"people": "directory", "registry": "mercurial"}
"""Of the inputs that do not concern every part: the tag of site.yml whose role reads them."""

DAYS_BETWEEN_WHOLE_RUNS: Final = 7

_PARSED: Final = ("group_vars", "host_vars")
_PARSED_SUFFIXES: Final = ("", ".yml", ".yaml", ".json")

_UNKNOWN: Final = re.compile(
    r"\b(?:lookup|query|q)\s*\(|\bnow\s*\(|\bstrftime\b|\bvars\s*\[|\|\s*(?:random|shuffle)\b"
)
_ENVIRONMENT: Final = re.compile(
    r"lookup\(\s*(['\"])(?:ansible\.builtin\.)?env\1\s*,\s*(['\"])(\w+)\2\s*\)"
)
# ./deploy chooses the release, and hashes it as an input of its own.
_RELEASE: Final = re.compile(r"lookup\(\s*(['\"])built_release\1\s*,\s*(['\"])\w+\2\s*\)")
_FOLDER: Final = re.compile(r"\{\{\s*inventory_dir\s*\}\}")


def digest(
    listing: str,
    folder: str,
    files: Mapping[str, bytes],
    authorities: Mapping[str, bytes],
    environment: Mapping[str, str],
    others: Iterable[str],
) -> dict[str, str] | None:
    """Return a hash of each input; None if the inventory has a value that cannot be followed.

    `listing` is the output of `ansible-inventory --list`, `files` are the files in the inventory's
    `folder` and those that it names (`paths`), by their path; `authorities` are the certificates of
    CAs, which the first run makes; `others` stand for the roles and the release.
    """
    data: dict[str, Any] = json.loads(listing)
    hosts: dict[str, dict[str, Any]] = data["_meta"]["hostvars"]
    registries = {
        expanded(str(found[REGISTRY]), folder, environment)
        for found in hosts.values()
        if REGISTRY in found
    }
    rest = {
        host: {name: value for name, value in found.items() if name not in VARIABLES}
        for host, found in hosts.items()
    }
    if not registries <= set(files) or not _can_be_followed(hosts, rest):
        return None
    beside = {path: _hash(files[path].hex()) for path in sorted(files)}
    own = {path: beside.pop(path) for path in sorted(registries)}
    groups = {name: content for name, content in data.items() if name != "_meta"}
    used = {name for text in _strings(hosts) for *_, name in _ENVIRONMENT.findall(text)}
    ours = (name for name in environment if name.startswith("ANSIBLE_"))
    used |= {name for name in ours if not name.endswith("_PASSWORD_FILE")}
    values = {name: environment.get(name, "") for name in used}
    return {
        "people": _hash(
            {host: [found.get(name) for name in VARIABLES] for host, found in hosts.items()}
        ),
        "registry": _hash(own),
        "ca": of_files(authorities),
        "rest": _hash([rest, groups, beside, values, list(others)]),
    }


def parts(
    present: Mapping[str, str] | None, notes: Iterable[Mapping[str, Any]], now: float
) -> list[str]:
    """Return the tags of site.yml to run; empty for all of it.

    `present` are the inputs now, `notes` those of each host.
    """
    found = [dict(note) for note in notes]
    if present is None or not found or any(note != found[0] for note in found):
        return []
    before, whole = found[0].get("inputs"), found[0].get("whole")
    if not isinstance(before, dict) or not isinstance(whole, (int, float)):
        return []
    if not 0 <= now - whole <= DAYS_BETWEEN_WHOLE_RUNS * 86400:
        return []
    differ = changed(present, before)
    if any(key not in PARTS for key in differ):
        return []
    return sorted(PARTS[key] for key in differ)


def changed(present: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Return the names of the inputs that differ."""
    return sorted(key for key in {*present, *before} if present.get(key) != before.get(key))


def note(present: Mapping[str, str], whole: float) -> str:
    """Return the note of a run with these inputs; `whole` is the time of the last whole run."""
    return json.dumps({"inputs": dict(present), "whole": whole})


def of_files(files: Mapping[str, bytes]) -> str:
    """Return a hash of files, empty if there are none."""
    return _hash({path: content.hex() for path, content in files.items()}) if files else ""


def paths(listing: str, folder: str, environment: Mapping[str, str]) -> set[str] | None:
    """Return the absolute paths in an inventory, on the controller or on hosts.

    None if a path begins with a variable that this module does not know.
    """
    found = set()
    for text in _strings(json.loads(listing)["_meta"]["hostvars"]):
        plain = expanded(text, folder, environment)
        if re.match(r"\{\{.*\}\}/", plain):
            return None
        if plain.startswith("/") and "\n" not in plain and "{{" not in plain:
            found.add(plain)
    return found


def files_below(inventory: Path, further: Iterable[Path]) -> dict[str, bytes]:
    """Read the files in the folder of an inventory which Ansible does not parse, and others."""
    found = list(further)
    for root, _folders, names in os.walk(inventory.parent, followlinks=True):
        found += [Path(root) / name for name in names]
    result = {}
    for path in found:
        inside = (
            path.relative_to(inventory.parent).parts if inventory.parent in path.parents else ()
        )
        is_parsed = path == inventory or (
            inside[:1] and inside[0] in _PARSED and path.suffix in _PARSED_SUFFIXES
        )
        if path.is_file() and not is_parsed and ".git" not in inside:
            result[str(path)] = path.read_bytes()
    return result


def expanded(text: str, folder: str, environment: Mapping[str, str]) -> str:
    """Fill in the folder of the inventory and looked up environment variables."""
    plain = re.sub(r"\{\{\s*(lookup\([^()]*\))\s*\}\}", r"\1", _FOLDER.sub(lambda _: folder, text))
    return _ENVIRONMENT.sub(lambda found: environment.get(found[3], ""), plain)


def _can_be_followed(hosts: Mapping[str, Any], rest: Mapping[str, Any]) -> bool:
    """Whether every lookup is known, and no other variable reads people or groups."""
    readers = re.compile("|".join((*VARIABLES, REGISTRY)))
    known = (_RELEASE.sub("", _ENVIRONMENT.sub("", text)) for text in _strings(hosts))
    return not any(map(_UNKNOWN.search, known)) and not any(map(readers.search, _strings(rest)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _strings(inner)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
