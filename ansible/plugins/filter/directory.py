"""Filters of the role `directory`: inventory variables to LDAP entries, and what has to change.

The decisions are here, in Python with unit tests, so that the tasks are loops over three lists and
a converged host costs a single search instead of a module run for each person.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
import shlex
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Entry = dict[str, list[str]]

# The types of hgfleet.directory.publickey; testing/unit/ansible/test_filter_directory.py compares
# them.
KEY_TYPES = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)

DISABLED = "000001010000Z"
"""pwdAccountLockedTime of a person whom only an operator enables again (slapo-ppolicy)."""

MIN_PASSWORD = 12
"""Characters of a person's password, as in hgfleet.directory.people and in the server's policy."""

_PERSON = re.compile(r"[a-z][a-z0-9._-]{0,31}")
_GROUP = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def ssh_key_fingerprint(text: str) -> str:
    """Return the fingerprint (`SHA256:...`) of a public key, as `ssh-keygen -l` prints it."""
    problem = ssh_key_problem(text)
    if problem:
        raise AnsibleFilterError(f"ssh_key_fingerprint: {problem}")
    digest = hashlib.sha256(base64.b64decode(text.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def ssh_key_problem(text: object) -> str | None:
    """Return the problem of the text of a public key without options, or None."""
    if not isinstance(text, str):
        return f"got {text!r}, expected a public key as text"
    if len(text.strip().splitlines()) != 1:
        return "got several lines (or none), expected a single key on a single line"
    words = text.split()
    if words[0] not in KEY_TYPES:
        if any(word in KEY_TYPES for word in words):
            return f"got options before the key ({words[0][:40]}), expected only the key"
        return f"got {words[0][:40]!r}, expected one of {', '.join(KEY_TYPES)}"
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error):
        return f"got a {words[0]} that is not base64"
    if not _whole(blob, words[0]) or base64.b64encode(blob).decode("ascii") != words[1]:
        return f"got a damaged key: what is inside is not a {words[0]}"
    return None


def _whole(blob: bytes, kind: str) -> bool:
    """Whether a key is made of length-prefixed strings, the type first, and ends with the last."""
    fields = []
    rest = blob
    while len(rest) >= 4:
        length = int.from_bytes(rest[:4], "big")
        fields.append(rest[4 : 4 + length])
        rest = rest[4 + length :] if 4 + length <= len(rest) else b"?"
    return not rest and len(fields) > 1 and fields[0] == kind.encode("ascii")


def directory_problems(people: list[dict[str, Any]], groups: list[dict[str, Any]]) -> list[str]:
    """Return the problems of `directory_people` and `directory_groups`, a sentence each."""
    names = [str(person.get("name")) for person in people]
    seen: dict[str, str] = {}
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = [f"directory_people has {name} more than once" for name in twice]
    for person, name in zip(people, names, strict=True):
        if not _PERSON.fullmatch(name):
            problems.append(
                f"directory_people: {name!r} is not a name: a-z 0-9 . _ -, at most 32, "
                "beginning with a letter"
            )
        for key in person.get("keys") or []:
            problem = ssh_key_problem(key)
            if problem:
                problems.append(f"directory_people: key of {name}: {problem}")
                continue
            fingerprint = ssh_key_fingerprint(key)
            if fingerprint in seen:
                problems.append(
                    f"directory_people: {name} has a key that {seen[fingerprint]} has already "
                    f"({fingerprint}); a key belongs to a single person"
                )
            seen[fingerprint] = name
        password = str(person.get("password") or "")
        if password and len(password) < MIN_PASSWORD:
            problems.append(
                f"directory_people: the first password of {name} has {len(password)} characters, "
                f"expected at least {MIN_PASSWORD}"
            )
    groups_seen: set[str] = set()
    for group in groups:
        name = str(group.get("name"))
        if not _GROUP.fullmatch(name) or name == "public":
            problems.append(
                f"directory_groups: {name!r} is not the name of a group: a-z 0-9 . _ -, at most "
                "64, and not 'public', which the registry uses for all users"
            )
        if name in groups_seen:
            problems.append(f"directory_groups has {name} more than once")
        groups_seen.add(name)
        problems += [
            f"directory_groups: {member} is in {name}, but not in directory_people"
            for member in group.get("members") or []
            if member not in names
        ]
    return problems


def directory_people_entries(people: list[dict[str, Any]], suffix: str) -> dict[str, Entry]:
    """Return the entries of people by DN. An attribute with no values must be absent.

    Without `disabled`, pwdAccountLockedTime is not changed: a person who was disabled by hand, in
    an emergency, is not enabled again by the next play.
    """
    entries = {}
    for person in people:
        name = person["name"]
        keys = [" ".join(str(key).split()) for key in person.get("keys") or []]
        entry = {
            "cn": [person.get("full_name") or name],
            "sn": [(person.get("full_name") or name).split()[-1]],
            "mail": [person["mail"]] if person.get("mail") else [],
            "sshPublicKey": keys,
            "sshPublicKeyId": [ssh_key_fingerprint(key) for key in keys],
        }
        if person.get("disabled") is not None:
            entry["pwdAccountLockedTime"] = [DISABLED] if person["disabled"] else []
        entries[f"uid={name},ou=people,{suffix}"] = entry
    return entries


def directory_first_passwords(
    people: list[dict[str, Any]], entries: Iterable[Mapping[str, Any]], suffix: str
) -> list[dict[str, str]]:
    """Return DN and password of the people who have none yet.

    A person with a password keeps it, as people choose their own. A disabled person gets none,
    here or by hand: slapo-ppolicy takes the lock away from a person whose password is written.
    """
    present = {str(entry["dn"]).lower(): entry for entry in entries}
    first = []
    for person in people:
        dn = f"uid={person['name']},ou=people,{suffix}"
        has = {name.lower() for name in present.get(dn.lower(), {})}
        is_settled = has & {"userpassword", "pwdaccountlockedtime"} or person.get("disabled")
        if person.get("password") and not is_settled:
            first.append({"dn": dn, "password": str(person["password"])})
    return first


def directory_program_hash(password: str, dn: str) -> str:
    """Return the hash ({SSHA}) that is stored for the account of a program.

    The salt follows from account and password, so that a run can tell whether they have changed.
    Such a password is long and random: a slow hash would cost each login and protect nothing.
    """
    salt = hashlib.sha256(f"{dn}\0{password}".encode()).digest()[:8]
    digest = hashlib.sha1(password.encode() + salt, usedforsecurity=False).digest()
    return "{SSHA}" + base64.b64encode(digest + salt).decode("ascii")


def directory_service_passwords(
    services: Iterable[Mapping[str, str]], former: Mapping[str, str | None]
) -> list[dict[str, str]]:
    """Return the passwords that each account of a program accepts, in the order of their writing.

    A password without a former password replaces all others (`exact`); else both are added
    (`present`).
    """
    return [
        {"name": service["name"], "password": password, "state": state}
        for service in services
        if service["password"]
        for before in [former.get(service["name"]) or ""]
        for state in ["present" if before else "exact"]
        for password in dict.fromkeys([service["password"], before])
        if password
    ]


def directory_client_problems(clients: Iterable[object]) -> list[str]:
    """Return the problems of `directory_clients`, a sentence each."""
    problems = []
    for client in clients:
        try:
            ipaddress.ip_network(str(client))
        except ValueError:
            problems.append(
                f"directory_clients has {str(client)!r}, expected an address or a network such as "
                "192.0.2.0/24: give that host a base_address, or list the addresses yourself"
            )
    return problems


def directory_peers(clients: Iterable[object]) -> list[str]:
    """Return the `peername` of slapd's access rules for each address or network."""
    networks = [ipaddress.ip_network(str(client)) for client in clients]
    return [
        f"peername.ip{'' if network.version == 4 else 'v6'}={network.network_address}"
        f"%{network.netmask}"
        for network in networks
    ]


def directory_group_entries(groups: list[dict[str, Any]], suffix: str) -> dict[str, Entry]:
    """Return the entries of groups by DN. LDAP has no empty groups, so those are left out."""
    return {
        f"cn={group['name']},ou=groups,{suffix}": {
            "description": [group["description"]] if group.get("description") else [],
            "member": [f"uid={member},ou=people,{suffix}" for member in group["members"]],
        }
        for group in groups
        if group.get("members")
    }


def ldap_changes(
    entries: Iterable[Mapping[str, Any]], wanted: Mapping[str, Entry]
) -> dict[str, list[Any]]:
    """Compare the results of community.general.ldap_search with the entries wanted.

    Returns `missing` and `different` (`dn` and `attributes`; of a different entry only the
    attributes that differ) and `extra` (DNs of entries found and not wanted).
    """
    present = {str(entry["dn"]).lower(): entry for entry in entries}
    changes: dict[str, list[Any]] = {"missing": [], "different": [], "extra": []}
    for dn, attributes in wanted.items():
        entry = present.pop(dn.lower(), None)
        if entry is None:
            given = {name: values for name, values in attributes.items() if values}
            changes["missing"].append({"dn": dn, "attributes": given})
            continue
        lower = {name.lower(): value for name, value in entry.items()}
        different = {
            name: values
            for name, values in attributes.items()
            if sorted(_values(lower.get(name.lower()))) != sorted(values)
        }
        if different:
            changes["different"].append({"dn": dn, "attributes": different})
    changes["extra"] = [entry["dn"] for entry in present.values()]
    return changes


def directory_follows(present: str, wanted: str) -> bool:
    """Tell whether slapd's `olcSyncrepl` means what is wanted.

    slapd writes the settings in an order and in words of its own, and adds some.
    """
    if not present:
        return False
    return _settings(wanted).items() <= _settings(present).items()


def _settings(text: str) -> dict[str, str]:
    words = shlex.split(re.sub(r"^\{\d+\}", "", text))
    pairs = (word.partition("=") for word in words)
    return {name.lower(): value for name, _, value in pairs}


def _values(value: Any) -> list[str]:
    # The module returns a single value as text instead of as a list.
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "ssh_key_fingerprint": ssh_key_fingerprint,
            "ssh_key_problem": ssh_key_problem,
            "directory_problems": directory_problems,
            "directory_people_entries": directory_people_entries,
            "directory_first_passwords": directory_first_passwords,
            "directory_program_hash": directory_program_hash,
            "directory_service_passwords": directory_service_passwords,
            "directory_client_problems": directory_client_problems,
            "directory_peers": directory_peers,
            "directory_group_entries": directory_group_entries,
            "ldap_changes": ldap_changes,
            "directory_follows": directory_follows,
        }
