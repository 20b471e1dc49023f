"""People of the directory, and plans of changes to them: decisions without a server.

A plan is the list of changes that are still needed, empty if nothing has to change. So the second
run of a command changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HgfleetError
from hgfleet.core.names import is_group, is_person
from hgfleet.directory import publickey
from hgfleet.directory.entries import texts, values
from hgfleet.directory.entry_changes import Change, Edit
from hgfleet.directory.filters import DISABLED, escape_dn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hgfleet.directory.entries import Attributes, Entry

ATTRIBUTES: Final = (
    *("uid", "cn", "mail", "objectClass", "sshPublicKey", "sshPublicKeyId"),
    *("pwdAccountLockedTime", "pwdChangedTime"),
)
"""Attributes that are read of a person; never the password."""

MIN_PASSWORD: Final = 12
MAX_PASSWORD: Final = 200
"""Characters."""


class PersonError(HgfleetError):
    """A person, key or group that cannot be used as asked for."""

    exit_code = 65


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as the directory has it. A value with a problem lets no person log in."""

    value: bytes
    fingerprint: str
    comment: str
    type: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """A person."""

    dn: str
    name: str
    full_name: str
    mail: tuple[str, ...]
    classes: tuple[str, ...]
    keys: tuple[StoredKey, ...]
    key_ids: tuple[str, ...]
    disabled: bool
    has_password: bool
    groups: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Whether the person may log in."""
        return "disabled" if self.disabled else "enabled"

    def data(self) -> dict[str, Any]:
        """Return the person for JSON."""
        return {
            "name": self.name,
            "full_name": self.full_name,
            "mail": list(self.mail),
            "state": self.state,
            "password": self.has_password,
            "groups": list(self.groups),
            "keys": [
                {
                    "fingerprint": key.fingerprint or None,
                    "type": key.type or None,
                    "comment": key.comment,
                    "problem": key.problem or None,
                }
                for key in self.keys
            ],
        }


def read(dn: str, entry: Attributes, groups: Sequence[str] = ()) -> Person:
    """Make a person from an entry."""
    name = (texts(entry, "uid") or ("?",))[0]
    return Person(
        dn=dn,
        name=name,
        full_name=(texts(entry, "cn") or (name,))[0],
        mail=texts(entry, "mail"),
        classes=texts(entry, "objectClass"),
        keys=tuple(read_key(value) for value in values(entry, "sshPublicKey")),
        key_ids=texts(entry, "sshPublicKeyId"),
        disabled=DISABLED in texts(entry, "pwdAccountLockedTime"),
        has_password=bool(values(entry, "pwdChangedTime")),
        groups=tuple(sorted(groups)),
    )


def read_key(value: bytes) -> StoredKey:
    """Read a value of sshPublicKey."""
    try:
        text = value.decode("utf-8")
        key = publickey.parse(text)
    except UnicodeDecodeError:
        return StoredKey(value, "", "", "", "this is not text")
    except publickey.BadKeyError as error:
        return StoredKey(value, "", "", "", str(error))
    return StoredKey(value, key.fingerprint, publickey.comment(text), key.type)


# --- names ----------------------------------------------------------------------------------


def person_dn(name: str, suffix: str) -> str:
    """Return the name of a person's entry; raise PersonError for an impossible name."""
    if not is_person(name):
        raise PersonError(
            f"{name[:60]!r} is not a name: a-z 0-9 . _ -, at most 32, beginning with a letter"
        )
    return f"uid={escape_dn(name)},ou=people,{suffix}"


def group_dn(name: str, suffix: str) -> str:
    """Return the name of a group's entry; raise PersonError for an impossible name."""
    if not is_group(name):
        raise PersonError(
            f"{name[:60]!r} is not the name of a group: a-z 0-9 . _ -, at most 64, and not "
            "'public', which means all users in the registry"
        )
    return f"cn={escape_dn(name)},ou=groups,{suffix}"


def check_text(field: str, text: str) -> str:
    """Check a name or mail address that people will read."""
    if not text.strip() or len(text) > 200 or not text.isprintable():
        raise PersonError(f"{field}: got {text[:60]!r}, expected 1 to 200 printable characters")
    return text.strip()


def check_mail(text: str) -> str:
    """Check the form of a mail address."""
    local, at, domain = check_text("mail", text).rpartition("@")
    if not at or not local or not domain or " " in text or not text.isascii():
        raise PersonError(f"mail: got {text[:60]!r}, expected an address")
    return text


def check_key(text: str) -> StoredKey:
    """Check a public key before it is stored."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise PersonError(f"got {len(lines)} lines, expected a public key on a single line")
    try:
        key = publickey.parse(lines[0])
    except publickey.BadKeyError as error:
        hint = " (that is the private key; the public key ends in .pub)" * ("PRIVATE" in text)
        raise PersonError(f"{error}{hint}") from error
    comment = publickey.comment(lines[0].strip())
    # A single blank between the parts: stored keys are compared and deleted by value.
    stored = " ".join(part for part in (key.type, key.blob, comment) if part)
    return StoredKey(stored.encode(), key.fingerprint, comment, key.type)


def check_password(password: str, name: str) -> str:
    """Check a new password."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD or not password.isprintable():
        raise PersonError(
            f"got a password of {len(password)} characters, expected {MIN_PASSWORD} to "
            f"{MAX_PASSWORD}, printable"
        )
    if name in password.lower() or len(set(password)) < 5:
        raise PersonError("this password is easy to guess")
    return password


# --- plans ----------------------------------------------------------------------------------


def plan_add(
    person: Person | None, name: str, suffix: str, full_name: str | None, mail: str | None
) -> list[Change]:
    """Add a person, or change the given attributes of an existing person."""
    dn = person_dn(name, suffix)
    if full_name is not None:
        full_name = check_text("full name", full_name)
    if mail is not None:
        mail = check_mail(mail)
    if person is None:
        shown = full_name or name
        edits = [
            Edit("add", "objectClass", (b"inetOrgPerson", b"ldapPublicKey")),
            Edit("add", "uid", (name.encode(),)),
            Edit("add", "cn", (shown.encode(),)),
            Edit("add", "sn", (shown.split()[-1].encode(),)),
        ]
        if mail is not None:
            edits.append(Edit("add", "mail", (mail.encode(),)))
        return [Change(dn, "add", tuple(edits))]
    edits = []
    if full_name is not None and full_name != person.full_name:
        edits.append(Edit("replace", "cn", (full_name.encode(),)))
        edits.append(Edit("replace", "sn", (full_name.split()[-1].encode(),)))
    if mail is not None and (mail,) != person.mail:
        edits.append(Edit("replace", "mail", (mail.encode(),)))
    return _modify(person.dn, edits)


def plan_disable(person: Person) -> list[Change]:
    """Refuse this person with any key, certificate or password."""
    if person.disabled:
        return []
    return _modify(person.dn, [Edit("replace", "pwdAccountLockedTime", (DISABLED.encode(),))])


def plan_enable(person: Person) -> list[Change]:
    """Undo plan_disable."""
    if not person.disabled:
        return []
    return _modify(person.dn, [Edit("delete", "pwdAccountLockedTime")])


def plan_key_add(person: Person, key: StoredKey, owners: Sequence[str]) -> list[Change]:
    """Add a key; `owners` are the people who have it already."""
    others = [owner for owner in owners if owner != person.name]
    if others:
        raise PersonError(
            f"{key.fingerprint} is a key of {', '.join(others)} already; a key belongs to one "
            "person, or the log could not tell who used it"
        )
    edits = []
    if "ldappublickey" not in (name.lower() for name in person.classes):
        edits.append(Edit("add", "objectClass", (b"ldapPublicKey",)))
    if key.fingerprint not in (stored.fingerprint for stored in person.keys):
        edits.append(Edit("add", "sshPublicKey", (key.value,)))
    if key.fingerprint not in person.key_ids:
        edits.append(Edit("add", "sshPublicKeyId", (key.fingerprint.encode(),)))
    return _modify(person.dn, edits)


def plan_key_remove(person: Person, selector: str) -> list[Change]:
    """Remove the key with a fingerprint, a comment, or exactly this text.

    A fingerprint that the person does not have is removed already. A comment that no key has is an
    error: it may be a slip, and the intended key would go on working.
    """
    by_fingerprint = publickey.is_fingerprint(selector)
    matching = [
        key
        for key in person.keys
        if selector
        and selector in (key.fingerprint, key.comment, key.value.decode("utf-8", "replace"))
    ]
    if not matching and not by_fingerprint:
        have = ", ".join(key.comment or key.fingerprint for key in person.keys if not key.problem)
        raise PersonError(
            f"{person.name} has no key {selector[:100]!r}; expected a fingerprint (SHA256:...) or "
            f"a comment, of {have or 'no keys at all'}"
        )
    if len({key.fingerprint or key.value for key in matching}) > 1:
        raise PersonError(
            f"{person.name} has {len(matching)} keys with the comment {selector!r}; name a key by "
            f"its fingerprint: {', '.join(key.fingerprint for key in matching)}"
        )
    ids = {key.fingerprint for key in matching} | ({selector} if by_fingerprint else set())
    edits = []
    if matching:
        edits.append(Edit("delete", "sshPublicKey", tuple(key.value for key in matching)))
    gone = tuple(i.encode() for i in person.key_ids if i in ids)
    if gone:
        edits.append(Edit("delete", "sshPublicKeyId", gone))
    return _modify(person.dn, edits)


def plan_group_add(
    person: Person, name: str, suffix: str, members: Sequence[str] | None
) -> list[Change]:
    """Make the person a member; `members` are DNs, None if the group does not exist yet."""
    dn = group_dn(name, suffix)
    if members is None:
        edits = (
            Edit("add", "objectClass", (b"groupOfNames",)),
            Edit("add", "cn", (name.encode(),)),
            Edit("add", "member", (person.dn.encode(),)),
        )
        return [Change(dn, "add", edits)]
    if person.dn.lower() in (member.lower() for member in members):
        return []
    return _modify(dn, [Edit("add", "member", (person.dn.encode(),))])


def plan_group_remove(
    person: Person, name: str, suffix: str, members: Sequence[str] | None
) -> list[Change]:
    """Remove a member; the group goes with its last member, because LDAP has no empty groups."""
    dn = group_dn(name, suffix)
    mine = [member for member in members or () if member.lower() == person.dn.lower()]
    if not mine or members is None:
        return []
    if len(members) == len(mine):
        return [Change(dn, "delete")]
    return _modify(dn, [Edit("delete", "member", tuple(member.encode() for member in mine))])


def plan_leave(
    person: Person, suffix: str, groups: Iterable[Entry], kept: Sequence[str]
) -> list[Change]:
    """Remove a new person from the groups, but for `kept`, that a former person's name is still in.

    The server deletes the entry of a person, and leaves the person's name in groups.
    """
    return [
        change
        for _, group in groups
        for name in texts(group, "cn")[:1]
        if name not in kept
        for change in plan_group_remove(person, name, suffix, texts(group, "member"))
    ]


def plan_password(person: Person, password: str) -> list[Change]:
    """Set a password, which the server hashes (ppolicy, hash cleartext).

    slapo-ppolicy unlocks an account when its password is written, and does so last, unless the same
    operation removes the lock itself. So the plan removes the lock and adds it again in a single
    operation: the added lock stays, and a disabled person is never enabled, not for a moment.
    """
    edits = [Edit("replace", "userPassword", (password.encode(),))]
    if person.disabled:
        lock = Edit("add", "pwdAccountLockedTime", (DISABLED.encode(),))
        edits = [Edit("delete", "pwdAccountLockedTime"), *edits, lock]
    return _modify(person.dn, edits)


def no_password(person: Person) -> Change:
    """Delete the password, and with it the access over HTTPS."""
    return Change(person.dn, "modify", (Edit("delete", "userPassword"),))


def _modify(dn: str, edits: Sequence[Edit]) -> list[Change]:
    return [Change(dn, "modify", tuple(edits))] if edits else []
